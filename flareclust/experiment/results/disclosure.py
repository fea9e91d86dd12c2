"""The disclosure record of a result: whether each of its tables, pictures and files may be released, by the rule in force."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.extras import installed
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import disclosure as checks
from flareclust.evaluation import selection as choice
from flareclust.evaluation.disclosure import DISCLOSURE, FAIL, PASS, REVIEW, SATURATED, Cells, Finding, Output, Rule
from flareclust.evaluation.dominance import Dominance, dominance_by_moments, dominance_in
from flareclust.evaluation.outcomes import outcomes_of
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.experiment.config import REMOTE
from flareclust.experiment.reports.command import command_of
from flareclust.experiment.results.picture import has_tree
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.sizes import counts_by_site, shown_sizes, withholds
from flareclust.preparation import result as partial
from flareclust.protocol import cluster_arrays, registry
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.cluster_arrays import ROWS_READ, ROWS_READ_SITES

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

REPORT = "report.html"
PICTURE, CHOICE_PICTURE, TREE_PICTURE = "picture.png", "choice.png", "tree.png"

#: What MLflow has of a tracked run beside the files of the folder, by the output that it shows.
_IN_MLFLOW = {
    "centroids": ["centroids.npz", "centroids.csv", "model"],
    "means": ["profiles.json"],
    "outcomes": ["outcomes.json"],
}

#: What is to say of numbers of single sites.
_OF_SITES = (Finding(REVIEW, "numbers of single sites: each site decides whether its own may be released"),)

#: A deviation of so small a part of the mean is a rounding error.
_ROUNDING = 1e-9

#: Metrics that need the known classes or centroids, which are on the machine of the run only.
_WITH_TRUTH = ("l2", "mse_matched", "ari", "nmi", "purity", "accuracy", "sigma_max")


def disclosure_of(result: "Result") -> dict[str, Any]:
    """Return the disclosure record of a result, plain JSON; see `Result.disclosure`."""
    found = _Outputs(result)
    command, ended = command_of(result.experiment), ""
    for record in () if result.outcome is None else result.outcome.rounds:
        ended = str(record.get("ended", ended))
    return checks.record_of_all(found.all(), found.rule, command, ended, found.secure_sums)


def disclosure_line(record: Mapping[str, Any]) -> str:
    """Return how many outputs of a record do not pass, in a line; "" where all do."""
    statuses = [one["status"] for one in record["results"].values()]
    fail, review = statuses.count(FAIL), statuses.count(REVIEW)
    if not fail and not review:
        return ""
    return f"disclosure: of {len(statuses)} outputs {fail} fail and {review} need a review before they are released; {DISCLOSURE} says why"


def has_map(result: "Result") -> bool:
    """Return whether report.html has a map of the rows: they are here, in the columns of the centroids, and not under a policy."""
    if not result.site_labels or result.experiment.get("policy") is not None or partial.is_partial(result.arrays):
        return False
    d = result.centroids.shape[1]  # images have more
    return bool(result.sites) and all(rows.shape[1] == d for rows in result.sites.values())


@dataclass(frozen=True)
class _Outputs:
    """The outputs of a result."""

    result: "Result"

    @cached_property
    def rule(self) -> Rule:
        """Return the rule in force: of the policy of a simulation, which the run knows; else the default one."""
        policy, rows = self.result.experiment.get("policy"), self.result.row_name
        more: dict[str, Any] = {"why_default": checks.NOT_KNOWN} if self.result.engine in REMOTE else {}
        more |= {} if policy is None else {"threshold": int(policy["min_count"]), "known": True}
        rule = Rule(row_name=rows, **more)
        if not self.is_private:
            return rule
        terms, params = (policy or {}).get("differential_privacy") or {}, self.result.params
        names = ["epsilon", "outcome_epsilon", "delta", "unit"] + ["rows_per_id"] * (params.get("unit") == "id")
        noise = {name: value for name in names if (value := params.get(name, terms.get(name))) is not None}
        return replace(rule, known=bool(terms), noise=noise)

    @property
    def is_private(self) -> bool:
        """Return whether the sites' numbers have noise of differential privacy."""
        return "differentially-private" in registry.get(self.result.algorithm).promises

    @property
    def secure_sums(self) -> dict[str, Any] | None:
        """Return of how many sites masked sums are; None without."""
        asked, policy = self.result.experiment, self.result.experiment.get("policy") or {}
        if not (asked.get("secure_sums") or policy.get("secure_sums")):
            return None
        return {"sites": self.result.n_sites - len(self.result.left_out), "least_sites": policy.get("secure_min_sites")}

    @cached_property
    def profiles(self) -> Profiles | None:
        """Return the exact profiles."""
        return profiles_of(self.result.arrays, self.result.columns)

    @cached_property
    def site_rows(self) -> Mapping[str, IntArray]:
        """Return the rows of the clusters by site."""
        return counts_by_site(self.result)

    @cached_property
    def rows(self) -> Cells | None:
        """Return the rows of the clusters, None where nobody knows them."""
        rows = self.result.cluster_rows
        return None if rows is None else Cells(rows[:, None], self.clusters, ["rows"])

    @cached_property
    def clusters(self) -> list[str]:
        """Return the clusters' names."""
        return [f"cluster {c}" for c in range(self.result.centroids_found)]

    @cached_property
    def total(self) -> Cells | None:
        """Return all rows that were assessed as a single cell, None where nobody knows their number."""
        n = (self.result.assessed or {}).get("rows") or (0 if self.rows is None else int(self.rows.counts.sum()))
        return Cells(np.array([[n]]), ["all"], ["rows"]) if n else None

    def all(self) -> Iterator[Output]:
        """Give the outputs, in the order of report.html."""
        yield from self._of_clusters()
        yield from self._of_profiles()
        yield from self._of_sites()
        yield from self._of_outcomes()
        yield from self._of_rows()
        yield from self._of_the_whole()
        yield from self._of_left_out_rows()
        yield from self._of_arrays()

    def _of_clusters(self) -> Iterator[Output]:
        result, alone = self.result, tuple(self._of_one_site())
        if self.is_private and len(result.labels[result.labels >= 0]):
            exact = "sizes of the clusters, from labels on this machine"
            yield Output("cluster_rows", "table", exact, (REPORT, outcome_files.SUMMARY), self.rows, noisy=False)
        files: tuple[str, ...] = (REPORT, outcome_files.ARRAYS if self.is_private else outcome_files.SUMMARY)
        shown, withheld = self.rows, None
        if withholds(result):
            exact = "sizes of all clusters, also those that report.html withholds"
            yield Output("cluster_rows", "table", exact, (outcome_files.SUMMARY,), self.rows, findings=alone)
            files, shown = (REPORT,), Cells(np.array(shown_sizes(result))[:, None], self.clusters, ["rows"])
            withheld = int((shown.counts == 0).sum())
        yield Output("clusters", "table", "sizes of the clusters", files, shown, findings=alone, suppressed=withheld)
        more = {"in_mlflow": _IN_MLFLOW["centroids"], **self._per_row()}
        yield Output(
            *("centroids", "model", "centroids of the clusters", (outcome_files.ARRAYS,), self.rows),
            findings=(*alone, *self._saturated(more), *self._with_gaps(), *self._of_a_start()),
            properties=more,
        )
        if result.continuity is not None:
            two = Finding(REVIEW, "two results can be subtracted: a row that is in one of them only may be disclosed")
            files = (REPORT, outcome_files.SUMMARY)
            yield Output("since_the_earlier_run", "table", "shares before and now", files, shown, findings=(two,))
        if result.stability:
            yield Output("stability", "table", "Jaccard indices of the clusters", (REPORT,), shown, noisy=False)

    def _of_one_site(self) -> Iterator[Finding]:
        """Give what is to say of clusters whose rows are those of a single site."""
        if self.secure_sums is not None:
            yield Finding(PASS, "with secure sums the server does not know whether a cluster is of one site only")
        elif not self.site_rows:
            yield Finding(REVIEW, "whether a cluster is of one site only is not known")
        else:
            having = (np.array(list(self.site_rows.values())) > 0).sum(axis=0)
            if alone := [str(c) for c in np.flatnonzero(having == 1)]:
                clusters = f"cluster{'' if len(alone) == 1 else 's'} {', '.join(alone[:20])}"
                more = f" and {len(alone) - 20} more" if len(alone) > 20 else ""
                yield Finding(
                    REVIEW,
                    f"all {self.result.row_name} of {clusters}{more} are of one site: its numbers are that site's own",
                )

    def _per_row(self) -> dict[str, Any]:
        """Return how many numbers the centroids are, for each row of the smallest site, and of all where sites are not known."""
        sizes = [int(own.sum()) for own in self.site_rows.values() if own.any()]
        total = None if self.total is None else int(self.total.counts.sum())
        least = min(sizes) if sizes else total
        numbers = int(np.isfinite(self.result.centroids).sum())
        return {"numbers": numbers, "rows": least, "numbers_per_row": round(numbers / least, 4) if least else None}

    def _saturated(self, per_row: Mapping[str, Any]) -> Iterator[Finding]:
        if (found := per_row["numbers_per_row"]) is not None and found > SATURATED:
            whose = "the smallest site" if self.site_rows else "all sites"
            yield Finding(
                REVIEW,
                f"saturated: {per_row['numbers']:,} numbers for {per_row['rows']:,} {self.result.row_name} of {whose}, more than {SATURATED} for each",
            )

    def _of_a_start(self) -> Iterator[Finding]:
        if self.result.experiment.get("start_from"):
            yield Finding(
                REVIEW,
                "begins with the centroids of another result: a row that is in one of the two only may be disclosed",
            )

    def _with_gaps(self) -> Iterator[Finding]:
        if partial.is_partial(self.result.arrays):
            yield Finding(
                REVIEW,
                f"sites have different columns: how many {self.result.row_name} are behind each number is not known",
            )

    def _of_profiles(self) -> Iterator[Output]:
        if shown_noisy_profiles(self.result) is not None:
            yield Output("means", "table", "means of the clusters", (REPORT,), properties=self._in_mlflow("means"))
        if (found := self.profiles) is None:
            return
        alone, arrays = tuple(self._of_one_site()), found.arrays
        left_out = None if self.rows is None else int(((found.rows == 0) & (self.rows.counts[:, 0] > 0)).sum())
        deviation = np.sqrt(arrays[cluster_arrays.SQUARES] / np.maximum(found.cells, 1))
        constant = deviation <= _ROUNDING * np.abs(arrays[cluster_arrays.MEANS]).clip(1e-300)
        constant &= (found.cells > 0) & ~found.shares
        yield Output(
            *("means", "table", "means of the clusters, with deviations and rules in words"),
            *((REPORT, outcome_files.ARRAYS), Cells(found.cells, self.clusters, found.columns)),
            findings=alone,
            properties=self._in_mlflow("means"),
            suppressed=left_out,
            same=int(constant.sum()),
            magnitudes=not found.shares.all(),
            dominance=self._dominance_in_clusters(found),
        )
        yield from self._of_shares(found, left_out)
        if cluster_arrays.SITE_MEANS in arrays and self.site_rows:
            rows = np.array([[int(own.sum())] * len(found.columns) for own in self.site_rows.values()])
            yield Output(
                *("site_means", "table", "means of each site", (REPORT, outcome_files.ARRAYS)),
                cells=Cells(rows, list(self.site_rows), found.columns),
                findings=_OF_SITES,
                magnitudes=not found.shares.all(),
                dominance=self._dominance_in_sites(found),
            )
        if cluster_arrays.BIN_COUNTS in arrays:
            bins = arrays[cluster_arrays.BIN_COUNTS]
            names = [f"{cluster}, {column}" for cluster in self.clusters for column in found.columns]
            cells = Cells(bins.reshape(-1, bins.shape[2]), names, [f"bin {b}" for b in range(bins.shape[2])])
            yield Output(
                "bins", "table", f"{self.result.row_name} in bins, and quartiles", (REPORT, outcome_files.ARRAYS), cells
            )
        if (tree := found.tree) is not None:
            leaves = tree.leaves()
            cells = Cells(tree.rows[leaves], [f"leaf {n}" for n in leaves], self.clusters, divided=True)
            files = (REPORT, outcome_files.ARRAYS)
            yield Output("tree", "table", "tree that tells the clusters apart", files, cells)

    @cached_property
    def described(self) -> Mapping[str, tuple[FloatArray, IntArray]]:
        """Return the rows (n, d) and clusters (n,) behind profiles by site; {} where they are not here, or profiles are not of these.

        Those are of groups under a policy, and of known cells where some are missing.
        """
        result, found = self.result, self.profiles
        if found is None or self.rule.known or cluster_arrays.CELLS in found.arrays or not has_map(result):
            return {}
        if any(len(own) != len(result.sites.get(site, ())) for site, own in result.site_labels.items()):
            return {}
        rows = {}
        for site, own in result.site_labels.items():
            kept = np.asarray((found.site_rows or {}).get(site, found.rows)) > 0
            rows[site] = result.sites[site], np.where((own >= 0) & kept[own], own, -1)
        return rows

    def _dominance_in_clusters(self, found: Profiles) -> Dominance:
        """Return whether single rows are most of a cluster's mean; of categories, which are numbers of rows, nothing is said."""
        if self.described:
            parts, labels = zip(*self.described.values(), strict=True)
            seen = dominance_in(np.concatenate(parts), np.concatenate(labels), len(self.clusters))
        else:
            seen = dominance_by_moments(
                found.cells, found.arrays[cluster_arrays.MEANS], found.arrays[cluster_arrays.SQUARES]
            )
        return seen.without(found.shares)

    def _dominance_in_sites(self, found: Profiles) -> Dominance | None:
        """Return the same of the sites' means; None where their rows are not here."""
        if not self.described.keys() >= self.site_rows.keys():
            return None
        parts = [self.described[site] for site in self.site_rows]
        of_site = [np.where(own >= 0, i, -1) for i, (_, own) in enumerate(parts)]
        seen = dominance_in(np.concatenate([X for X, _ in parts]), np.concatenate(of_site), len(parts))
        return seen.without(found.shares)

    def _of_shares(self, found: Profiles, left_out: int | None) -> Iterator[Output]:
        """Give the table of categories, whose shares are numbers of rows that have them and have them not."""
        if not (places := np.flatnonzero(found.shares)).size:
            return
        n = found.cells[:, places]
        ones = np.rint(n * np.clip(found.arrays[cluster_arrays.MEANS][:, places], 0.0, 1.0)).astype(np.int64)
        names = [f"{cluster}, {found.columns[j]}" for cluster in self.clusters for j in places]
        cells = Cells(
            np.stack([ones, n - ones], axis=-1).reshape(-1, 2), names, ["have it", "have it not"], divided=True
        )
        levels, rows = max((len(one) for one in found.categories.values()), default=2), int(found.rows.sum())
        many = (Finding(REVIEW, f"saturated: a column has {levels:,} categories for {rows:,} {self.result.row_name}"),)
        yield Output(
            *("shares", "table", "shares of categories in the clusters", (REPORT, outcome_files.ARRAYS), cells),
            findings=many if levels > SATURATED * rows else (),
            properties={"levels": levels, "levels_per_row": round(levels / rows, 4) if rows else None},
            suppressed=left_out,
        )

    def _of_sites(self) -> Iterator[Output]:
        if self.site_rows:
            cells = Cells(np.array(list(self.site_rows.values())), list(self.site_rows), self.clusters, divided=True)
            files = (REPORT, outcome_files.ARRAYS) if cluster_arrays.SITE_ROWS in self.result.arrays else (REPORT,)
            yield Output(
                "site_rows", "table", f"{self.result.row_name} of each site in each cluster", files, cells, noisy=False
            )

    def _of_outcomes(self) -> Iterator[Output]:
        """Give the numbers of rows by outcome; of a curve those that leave it at each time."""
        if (found := outcomes_of(self.result.arrays)) is None:
            return
        what = "outcomes of the clusters" + ", with a test" * bool(found.tests())
        about = "outcomes", "table", what, (REPORT, outcome_files.ARRAYS)
        logged = self._in_mlflow("outcomes")
        if found.not_counted.any():
            few = Cells(found.not_counted[:, None], self.clusters, ["rows"])
            yield Output("outcomes_not_counted", "table", "rows of the clusters in no outcome", about[3], few)
        if found.form.kind == "number":
            rows, means, squares = self.result.arrays[cluster_arrays.OUTCOME_MOMENTS][:, :, None]
            yield Output(
                *(*about, Cells(found.rows[:, None], self.clusters, [found.name])),
                properties=logged,
                same=int(((rows > 0) & (squares == 0)).sum()),
                magnitudes=True,
                dominance=dominance_by_moments(np.rint(rows).astype(np.int64), means, squares),
            )
            return
        kinds = ["censored", "events"] if found.form.kind == "time" else ["rows"]
        names = [f"{cluster}, {kind}" for kind in kinds for cluster in self.clusters]
        heads = [f"{time:g}" for time in found.form.times] if found.form.kind == "time" else list(found.values)
        cells = Cells(found.counts.reshape(-1, len(heads)), names, heads, divided=found.form.kind != "time")
        yield Output(
            *about, cells, properties=logged | ({"width": found.form.every} if found.form.kind == "time" else {})
        )
        if (sites := self.result.arrays.get(cluster_arrays.OUTCOME_SITE_COUNTS)) is not None:
            own = [
                f"{site}, {name}"
                for site in self.result.arrays[cluster_arrays.OUTCOME_SITES].tolist()
                for name in names
            ]
            cells = Cells(sites.reshape(-1, len(heads)), own, heads, divided=cells.divided)
            yield Output(
                "site_outcomes", "table", "outcomes of the clusters at each site", (outcome_files.ARRAYS,), cells
            )

    def _of_rows(self) -> Iterator[Output]:
        """Give what shows single rows, and pictures."""
        result = self.result
        plots, gaps = installed("plots"), partial.is_partial(result.arrays)
        if result.sites:
            files = (*([REPORT] if has_map(result) else []), *([PICTURE] if plots else []))
            if files:
                yield Output("rows", "microdata", f"{self.result.row_name} by cluster and site", files)
        elif gaps and plots:
            known = tuple(self._with_gaps())
            yield Output("picture", "plot", "columns of the sites and centroids", (PICTURE,), self.rows, findings=known)
        if result.site_labels:
            yield Output("labels", "microdata", "cluster of each row", (LABELS_FILE,))
        if has_tree(result.arrays) and plots:
            drawn = (TREE_PICTURE,) if "tree_left" in result.arrays else (REPORT, TREE_PICTURE)
            yield Output("merge_tree", "plot", "tree in which clusters were merged", drawn, self.rows)

    def _of_the_whole(self) -> Iterator[Output]:
        """Give numbers over all rows."""
        result, files = self.result, (REPORT, outcome_files.SUMMARY)
        exact = any(result.metrics.get(name) is not None for name in _WITH_TRUTH)
        if result.metrics or result.null is not None:
            yield Output("measures", "table", "how good the clusters are", files, self.total, noisy=not exact)
        if choice.summary(result.arrays, result.params) is not None:
            pictured = installed("plots") and choice.selection_of(result.arrays) is not None
            drawn = (REPORT, outcome_files.SUMMARY, *([CHOICE_PICTURE] if pictured else []))
            yield Output("choice_of_k", "table", "criteria by number of clusters", drawn, self.total)
        sent = "bytes and exchanges by step; rounds.jsonl also sums of each exchange, and times of the sites"
        why = f"how many {self.result.row_name} are behind the sums of each exchange is not known"
        yield Output("messages", "custom", sent, (REPORT, outcome_files.ROUNDS), unknown=why)

    def _of_left_out_rows(self) -> Iterator[Output]:
        """Give the rows of the sites' tables that took no part."""
        if (read := self.result.arrays.get(ROWS_READ)) is not None and read[:, 1].any():
            sites = self.result.arrays[ROWS_READ_SITES].tolist() or ["all sites"]
            cells = Cells(read, sites, ["rows", "left out"])
            files = (REPORT, outcome_files.SUMMARY, outcome_files.ARRAYS)
            yield Output("rows_read", "table", f"{self.result.row_name} of the tables, and left out", files, cells)

    def _of_arrays(self) -> Iterator[Output]:
        """Give the arrays of result.npz that no other output is made of."""
        shown = {"centroids", cluster_arrays.COUNTS, cluster_arrays.SIGNAL, ROWS_READ, ROWS_READ_SITES}
        others = [
            name for name in self.result.arrays if name not in shown and not name.startswith(("profile_", "outcome_"))
        ]
        if others:
            why = f"how many {self.result.row_name} are behind other arrays is not known: {', '.join(others)}"
            yield Output("arrays", "custom", "other arrays of the algorithm", (outcome_files.ARRAYS,), unknown=why)

    def _in_mlflow(self, uid: str) -> dict[str, Any]:
        return {"in_mlflow": _IN_MLFLOW[uid]}
