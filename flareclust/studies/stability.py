"""`flareclust.stability`: whether other starts, other rows and other sites give the same clusters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import FlareclustError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import check_int
from flareclust.api import run
from flareclust.data.frames import frame_of
from flareclust.evaluation import criteria
from flareclust.evaluation import stability as cluster_stability
from flareclust.evaluation.null_reference import USUAL, NullTest
from flareclust.experiment.results.artifacts import check_out, keep
from flareclust.experiment.results.result import Result
from flareclust.studies.null_test import check_null, null_test, with_null_test
from flareclust.studies.repeats import check_repeatable, repeatable, run_again


@dataclass(frozen=True)
class Stability:
    """How stable the clusters of a run are.

    Attributes:
        algorithm: its name.
        k: number of clusters asked for; of a range, the one selected.
        clusters: one entry per cluster of the reference run.
        repeats: number of repeats that reached a result, by what was changed: seeds, rows, sites.
        warnings: a sentence each, such as for repeats that failed.
        indices: Jaccard indices (repeats, clusters) of every repeat, by what was changed.
        result: of the reference run; its `report.html` has the stability, and the answer of `null`.
        null: how the rows compare with rows without clusters; None where that was not asked for.
    """

    algorithm: str
    k: int
    clusters: tuple[cluster_stability.ClusterStability, ...]
    repeats: Mapping[str, int]
    warnings: tuple[str, ...]
    indices: Mapping[str, FloatArray] = field(repr=False)
    result: Result = field(repr=False)
    null: NullTest | None = None

    def frame(self) -> Any:
        """Return a data frame with a line per cluster (pandas, where it is installed)."""
        names = list(cluster_stability.ClusterStability.__dataclass_fields__)
        return frame_of({name: [getattr(one, name) for one in self.clusters] for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as `flareclust stability --json` prints them."""
        clusters, null = [one.to_json() for one in self.clusters], None if self.null is None else self.null.to_json()
        found = {"algorithm": self.algorithm, "k": self.k, "clusters": clusters, "repeats": dict(self.repeats)}
        return {**found, "null": null, "warnings": list(self.warnings)}


def stability(
    algorithm: str,
    data: Any,
    k: Any = None,
    *,
    repeats: int = 20,
    null: int = 0,
    null_reference: str = USUAL,
    criterion: str = criteria.USUAL,
    out: str | Path | None = None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    **settings: Any,
) -> Stability:
    """Cluster data, repeat that with other seeds, resampled rows and one site less, and compare the clusters.

    Runs in this process, since it needs the rows: of data that are split here, or of sites given as a mapping.

    Args:
        algorithm: as in `run`.
        data: as in `run`.
        k: as in `run`; of a range, the repeats have the number that the reference run selects.
        repeats: number of repeats with other seeds, and again with resampled rows (each site draws as many as it has, with
            replacement); at most so many sites are left out, one at a time.
        null: number of runs on rows without clusters to compare with, at least 19; 0 for none.
        null_reference: what these rows are, several with commas, all of which must speak for clusters: "box", uniform with the
            covariance of the real rows; "copula", with their rank correlations and columns of one mode; "permuted", each column of
            each site in another order.
        criterion: what selects k from a range.
        out: folder for the files of the reference run, as in `run`; its report has the stability of each cluster, and the answer of `null`.
        on_done: called after each repeat with how many are done, and of how many.
        **settings: further arguments of `run`, without `engine` and what is about files.

    Raises:
        UserError: as `run`; or the algorithm is for sites with different columns, or for images.
        JobFailed: the reference run failed. Repeats that fail are counted in the warnings.

    Example:
        >>> import flareclust
        >>> found = flareclust.stability("kfed", "iris", k=3, n_sites=3, repeats=5)
        >>> [one.word for one in found.clusters]  # doctest: +SKIP
        ['stable', 'uncertain', 'uncertain']
    """
    check_int("repeats", repeats, 2)
    check_repeatable(algorithm, settings)
    check_null(null, null_reference, algorithm, k)
    if out is not None:
        check_out(Path(out))
    reference = run(algorithm, data, k, criterion=criterion, **settings)
    sites = repeatable(reference)
    rows = np.concatenate(list(sites.values()))
    labels, found = reference.predict(rows), len(reference.centroids)
    plan = list(_plan(sites, repeats, reference.seed))
    indices: dict[str, list[FloatArray]] = {kind: [] for kind in cluster_stability.KINDS}
    failed: dict[str, list[str]] = {kind: [] for kind in cluster_stability.KINDS}
    for done, (kind, seed, chosen) in enumerate(plan, 1):
        try:
            repeat = run_again(reference, chosen(), seed)
            indices[kind].append(cluster_stability.jaccard(labels, repeat.predict(rows), found))
        except FlareclustError as error:
            failed[kind].append(str(error))
        on_done(done, len(plan) + null)
    judged, n = reference, len(plan)
    if null:
        test = null_test(
            reference, null, reference=null_reference, on_done=lambda done, total: on_done(n + done, n + total)
        )
        judged = with_null_test(reference, test)
    tables = {kind: np.array(own).reshape(-1, found) for kind, own in indices.items()}
    sizes = np.bincount(labels[labels >= 0], minlength=found)
    clusters = tuple(_judged(c, int(sizes[c]), tables) for c in range(found))
    done_of = {kind: len(own) for kind, own in tables.items()}
    asked = {"repeats": repeats} | ({"null": null, "null_reference": null_reference} if null else {})
    judged = replace(judged, stability=clusters, repeated={"asked": asked, "done": done_of})
    return Stability(
        algorithm=judged.algorithm,
        k=judged.k,
        clusters=clusters,
        repeats=done_of,
        warnings=tuple(_warnings(failed, len(sites))),
        indices=tables,
        result=judged if out is None else keep(judged, Path(out)),
        null=judged.null,
    )


_Draw = Callable[[], Mapping[str, FloatArray]]


def _plan(sites: Mapping[str, FloatArray], repeats: int, seed: int) -> Iterator[tuple[str, int, _Draw]]:
    """Yield for each repeat what is changed, the seed of its job, and what gives its rows by site."""
    for i in range(1, repeats + 1):
        yield "seeds", seed + i, lambda: sites
    for i in range(1, repeats + 1):
        yield "rows", seed + i, lambda i=i: _drawn(sites, seed, i)  # type: ignore[misc]
    if len(sites) > 1:
        order = stream(seed, 0, "stability").permutation(len(sites))[:repeats]
        for site in (list(sites)[j] for j in sorted(order)):
            yield "sites", seed, lambda site=site: {name: X for name, X in sites.items() if name != site}  # type: ignore[misc]


def _drawn(sites: Mapping[str, FloatArray], seed: int, i: int) -> dict[str, FloatArray]:
    """Return a bootstrap sample of each site's rows."""
    rngs = {site: stream(seed, i, f"stability {site}") for site in sites}
    return {site: X[rngs[site].integers(len(X), size=len(X))] for site, X in sites.items()}


def _judged(c: int, rows: int, tables: Mapping[str, FloatArray]) -> cluster_stability.ClusterStability:
    means = {kind: float(own[:, c].mean()) if len(own) else np.nan for kind, own in tables.items()}
    worst = min((mean for mean in means.values() if not np.isnan(mean)), default=np.nan)
    indices = means["seeds"], means["rows"], means["sites"], worst
    return cluster_stability.ClusterStability(c, rows, *indices, cluster_stability.word(worst))


def _warnings(failed: Mapping[str, list[str]], sites: int) -> Iterator[str]:
    for kind, reasons in failed.items():
        if reasons:
            yield f"{len(reasons)} repeats with {cluster_stability.KINDS[kind]} failed and are not counted; the first: {reasons[0]}"
    if sites == 1:
        yield "there is one site, so none was left out"
