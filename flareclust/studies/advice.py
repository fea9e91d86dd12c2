"""`flareclust.advise`: which algorithm suits a table, by what k-means, a mixture and a tree make of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.api import run
from flareclust.data.frames import frame_of
from flareclust.evaluation import advice
from flareclust.evaluation.advice import Candidate
from flareclust.experiment.results.result import Result
from flareclust.preparation.scaling import as_clustered, filled
from flareclust.studies.repeats import check_repeatable, repeatable, run_again

#: The numbers of clusters that are tried unless k says others, and about the most rows that are looked at.
RANGE, MOST_ROWS = "2..10", 5000

#: The share of the rows of a draw, and pairs of draws.
DRAWN, _PAIRS = 0.8, 3

#: Made sites of one table, few, so that small ones have enough rows; and variances that are as good as reg_covar, in parts of it.
_SITES, _FLAT = 5, 2.0

_KMEANS, _MIXTURE, _TREE = "portfolio", "gmm", "tree"


@dataclass(frozen=True)
class Advice:
    """Which algorithm suits a table.

    Attributes:
        algorithm: the one that is advised.
        k: the number of clusters that it found; 1 where there seem to be none.
        sentences: which, why, and what to look at.
        candidates: what each algorithm makes of the table.
        failed: why others could not be compared, by algorithm.
        left_out: columns with one value, and sites, a sentence each.
        n_rows, all_rows: how many rows were looked at, and how many there are.
        results: of each algorithm, on the rows and columns that were looked at.
    """

    algorithm: str
    k: int
    sentences: tuple[str, str, str]
    candidates: tuple[Candidate, ...]
    failed: Mapping[str, str]
    left_out: tuple[str, ...]
    n_rows: int
    all_rows: int
    results: Mapping[str, Result] = field(repr=False, compare=False)

    @property
    def warnings(self) -> list[str]:
        """What was left out and not compared; warnings of the result advised, and of k-means, which knows rows without clusters."""
        found = [*self.left_out, *(f"{name} was not compared: {reason}" for name, reason in self.failed.items())]
        shown = dict.fromkeys((self.algorithm, _KMEANS))
        return found + [f"{name}: {text}" for name in shown for text in self.results[name].warnings]

    def frame(self) -> Any:
        """Return a data frame with a line per algorithm (pandas, where it is installed)."""
        return frame_of({one.name: [getattr(line, one.name) for line in self.candidates] for one in fields(Candidate)})

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as `flareclust advise --json` prints them."""
        about: dict[str, Any] = {"algorithm": self.algorithm, "k": self.k, "sentences": list(self.sentences)}
        about |= {"candidates": [asdict(one) for one in self.candidates], "failed": dict(self.failed)}
        return {**about, "warnings": self.warnings, "rows": self.n_rows, "of": self.all_rows}


def advise(
    data: Any, k: int | str | None = RANGE, *, on_done: Callable[[str], None] = lambda algorithm: None, **settings: Any
) -> Advice:
    """Say whether k-means, a Gaussian mixture or a tree of dense places suits a table, and why.

    Each clusters the rows, and six draws of 80 % of them, in this process: those of all sites, or five made ones of a table.

    Args:
        data: as in `run`.
        k: the numbers of clusters to try, such as "2..10", or one number.
        on_done: called with the name of each algorithm that is done.
        **settings: further arguments of `run`, without `engine` and what is about files; of settings of algorithms, `scale` and `missing`.

    Raises:
        UserError: as `run`, and where columns are categories, or sites have different columns.
        JobFailed: k-means has no result.

    Example:
        >>> import flareclust
        >>> flareclust.advise("iris", n_sites=3).algorithm  # doctest: +SKIP
        'gmm'
    """
    check_repeatable(_KMEANS, settings)
    k = RANGE if k is None else k
    first = run(_KMEANS, data, k, **{"n_sites": None if isinstance(data, Mapping) else _SITES} | settings)
    if any("=" in name for name in first.columns or ()):
        raise UserError(
            "the advice is for numbers, and this table has categories; take portfolio, or kprototypes for centres that read as rows"
        )
    seed, (low, high) = first.seed, first.experiment["k_range"] or (first.k, first.k)
    all_sites, left_out = _varying(first)
    all_rows = sum(map(len, all_sites.values()))
    sites = _drawn(all_sites, MOST_ROWS / all_rows, stream(seed, 0, "rows to look at"))
    draws = [_drawn(sites, DRAWN, stream(seed, i, "draw")) for i in range(2 * _PAIRS)]
    pairs = list(zip(draws[::2], draws[1::2], strict=True))
    same: dict[str, Any] = {"seed": seed, "policy": settings.get("policy"), "profile": False}
    same |= {name: first.params[name] for name in ("scale", "missing") if name in first.params}
    asked: dict[str, dict[str, Any]] = {
        _KMEANS: {"k": k},
        _MIXTURE: {"k": high} if low == high else {"k": high, "k_min": 1 if low == 2 else low},
        _TREE: {"k": high, "shape": "density"} | ({} if low == high else {"cut": "longest" if low == 2 else low}),
    }
    found: dict[str, Candidate] = {}
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    for algorithm, own in asked.items():
        try:
            result = run(algorithm, sites, **same, **own)
            found[algorithm], results[algorithm] = _candidate(result, pairs), result
        except FlareclustError as error:
            if algorithm == _KMEANS:
                raise
            failed[algorithm] = str(error)
        on_done(algorithm)
    chosen, why = advice.choose(found[_KMEANS], found.get(_MIXTURE), found.get(_TREE), max(low, 2))
    take = f"take {chosen.algorithm}, which finds {chosen.k} clusters"
    return Advice(
        algorithm=chosen.algorithm,
        k=chosen.k,
        sentences=(
            take if chosen.k > 1 else "there seem to be no clusters",
            why,
            advice.caution(chosen, 0 if low == high else high),
        ),
        candidates=tuple(found.values()),
        failed=failed,
        left_out=left_out,
        n_rows=sum(map(len, sites.values())),
        all_rows=all_rows,
        results=results,
    )


_Sites = Mapping[str, FloatArray]


def _varying(first: Result) -> tuple[_Sites, tuple[str, ...]]:
    """Return the rows by site without columns of one value, which no likelihood is of, and what was left out, a sentence each."""
    sites = repeatable(first)
    X = np.concatenate(list(sites.values()))
    varies = np.nanmin(X, axis=0) < np.nanmax(X, axis=0)
    varies |= not varies.any()
    names = first.columns or [f"column {j + 1}" for j in range(len(varies))]
    constant = [f"{names[j]} was left out: it has one value only" for j in np.flatnonzero(~varies)]
    refused = [f"{site} was left out: it {reason}" for site, reason in first.left_out.items()]
    return {site: np.ascontiguousarray(own[:, varies]) for site, own in sites.items()}, (*constant, *refused)


def _drawn(sites: _Sites, share: float, rng: np.random.Generator) -> _Sites:
    """Return a share of each site's rows, and one at least; all of them for 1 and more."""
    kept = {site: rng.permutation(len(X))[: max(1, round(share * len(X)))] for site, X in sites.items()}
    return {site: X[np.sort(kept[site])] for site, X in sites.items()} if share < 1 else sites


def _candidate(result: Result, draws: Sequence[tuple[_Sites, _Sites]]) -> Candidate:
    """Return what an algorithm makes of rows, from its result and its results on draws of them."""
    X = np.concatenate(list(result.sites.values()))
    labels = result.predict(X)
    pairs = [(_labels_by(result, one, X), _labels_by(result, other, X)) for one, other in draws]
    arrays = {**result.arrays, "centroids": result.centroids}
    rows = np.ascontiguousarray(as_clustered(arrays, filled(arrays, X)))
    bic: float | None = None
    if result.algorithm == _KMEANS:
        bic = advice.bic_of_kmeans(rows, as_clustered(arrays, result.centroids), labels)
    elif "bic" in result.metrics:
        if np.linalg.svd(result.arrays["factors"], compute_uv=False).min() ** 2 <= _FLAT * result.params["reg_covar"]:
            raise UserError(
                "a component is flat in some direction, as where columns add up, so that its BIC means nothing; leave out such columns"
            )
        bic = float(result.metrics["bic"] or 0.0) / float(result.arrays["support"].sum())
    return Candidate(
        algorithm=result.algorithm,
        k=len(np.unique(labels[labels >= 0])),
        stability=advice.stability_of(pairs),
        bic=bic,
        unlabelled=float(np.mean(labels < 0)),
        border=advice.border_of(rows, labels),
    )


def _labels_by(result: Result, drawn: _Sites, X: FloatArray) -> IntArray:
    """Return the labels of rows by the clusters of some of them, -1 where these have none."""
    try:
        return run_again(result, drawn, result.seed).predict(X)
    except FlareclustError:
        return np.full(len(X), -1)
