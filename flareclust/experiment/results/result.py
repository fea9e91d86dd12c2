"""What a user gets: the recovered centroids, what they are worth and what they cost."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.data.cells import as_numbers, check_rows
from flareclust.data.frames import frame_of, is_frame
from flareclust.data.schema.reading import check_read_by, rows_of
from flareclust.data.tables import Table
from flareclust.evaluation import null_reference, profile_words
from flareclust.evaluation import selection as choice
from flareclust.evaluation import stability as cluster_stability
from flareclust.evaluation.continuity import Continuity
from flareclust.evaluation.noisy_profiles import noisy_profiles_of
from flareclust.evaluation.outcomes import OutcomeTest, outcomes_of
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.results import export, matching
from flareclust.experiment.results.picture import picture_of, tree_of
from flareclust.experiment.results.printed import printed
from flareclust.experiment.results.profiled import why_no_profiles
from flareclust.experiment.tables.late_rows import columns_unlike_those_of
from flareclust.preparation import result as partial
from flareclust.preparation.assignment import assign_rows
from flareclust.preparation.placement import FAR, placements, thresholds_of
from flareclust.preparation.scaling import filled
from flareclust.protocol import cluster_arrays
from flareclust.protocol.columns import FILL
from flareclust.protocol.outcome import Outcome, devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)


#: What says how good clusters are, also of another k or another number of rows; the inertia falls with every cluster.
_QUALITY = ("simplified_silhouette", "davies_bouldin", "ari", "nmi", "purity", "accuracy", "l2", "mse_matched")

#: The fields of the JSON object, in its order.
JSON_FIELDS = (
    *("algorithm", "engine", "seed", "k", "n_sites", "params", "rounds", "seconds", "bytes"),
    *("centroids_found", "metrics", "centroids_file", "warnings"),
)


@dataclass(frozen=True)
class Result:
    """The result of `flareclust.run`.

    Attributes:
        algorithm: its name.
        engine: where it ran.
        seed: of the job.
        k: number of clusters asked for.
        n_sites: number of sites.
        params: the algorithm's own settings.
        rounds: clustering rounds, the assessment not counted.
        seconds: `total`; `local_max`, the longest local computation of each exchange added up; `merge`, on the server.
        bytes: arrays sent `up` by and `down` to all sites; for a baseline that is not federated, the rows themselves.
        centroids_found: how many centroids there are; can be fewer than k.
        metrics: `inertia`, `simplified_silhouette`, `davies_bouldin` (None where undefined); with true centroids `l2`
            (the data's unit) and `mse_matched` (its square), with true labels `ari`, `nmi`, `purity`, `accuracy`;
            for FeCA with true centroids also `sigma_max` (its Appendix B; at most 0.5 where the radii are right);
            under differential privacy also `inertia_signal_to_noise` and `clipped_share`, of rows beyond the sites' bounds
            (None where noise alone explains it).
        centroids_file: the npz with the centroids, None if nothing was written.
        warnings: what the user should know, a sentence each.
        left_out: why a site took no part, in words that follow its name; also among the warnings.
        centroids: (k, d); NaN for entries that no site could observe, where sites had different columns.
        labels: cluster of each row (n,), in the order of the data (of the sites' names, where sites brought their own
            rows); -1 for rows of sites that gave none, unless their rows are in files.
        site_labels: the same by site.
        arrays: the algorithm's other arrays, e.g. FeCA's `radii`; an attribute each, as `result.radii`, where none has that name.
        site_rows: the places of each site's rows in the data, and in `labels`; of sites that brought their own, by their names.
        sites: rows of each site, kept for pictures; empty where they are not in this process.
        true_centroids: (k*, d) where they are known.
        columns: names of the columns (d), where they have any.
        ids: of each site's rows, where they have any and were read in this process; they are in labels.csv.
        run_id: the MLflow run, None if not tracked.
        run_page: the address of its page, once MLflow's pages are started.
        job: the id of the job at its NVFlare server, by which sites find their labels; None where there was none.
        experiment: what was asked, as plain values.
        outcome: what the engine returned: the sites, the exchanges, and the arrays of the server.
        tracking: of a tracked run, how its MLflow run is found and dated: `key`, `tags`, and `started` (s since 1970).
        saved_rows: rows of each cluster, of a loaded result; see `cluster_rows`.
        matched_to: the earlier result whose numbers the clusters have, see `match_to`; None for those of the job.
        continuity: what became of the clusters of that result.
        job_numbers: the number of each cluster in the job, which the sites' own files have; None for the same.
        stability: of each cluster, where `flareclust.stability` has repeated the run; else empty.
        repeated: of the same study, the settings `asked` for and how many repeats were `done`, by what was changed.
        null: how the rows compare with rows without clusters, where `flareclust.stability` or `select_k` was asked for it; else None.
        schema: fingerprint of the schema by which all rows were read, "" for none; `predict` and `placements` refuse tables of another.
        words: by that schema, the columns whose cells are words: an ordered one with its values, a date with none. Data frames may
            have either words or features in them.
        date: on which the run ended, as ISO 8601; "" for a result of a version that did not keep it.
        assessed: over how many `rows` inertia, silhouette and Davies-Bouldin index are, and `of` how many rows of the sites
            that took part, None where that is not known; None where it is not disclosed.
    """

    algorithm: str
    engine: str
    seed: int
    k: int
    n_sites: int
    params: Mapping[str, Any]
    rounds: int
    seconds: Mapping[str, float]
    bytes: Mapping[str, int]
    centroids_found: int
    metrics: Mapping[str, float | None]
    centroids_file: str | None
    warnings: list[str]
    centroids: FloatArray = field(repr=False)
    labels: IntArray = field(repr=False)
    site_labels: Mapping[str, IntArray] = field(repr=False, default_factory=dict)
    arrays: Mapping[str, Any] = field(repr=False, default_factory=dict)
    site_rows: Mapping[str, IntArray] = field(repr=False, default_factory=dict)
    sites: Mapping[str, FloatArray] = field(repr=False, default_factory=dict)
    true_centroids: FloatArray | None = field(repr=False, default=None)
    columns: tuple[str, ...] | None = None
    ids: Mapping[str, Sequence[str]] = field(repr=False, default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None
    run_page: str | None = None
    job: str | None = None
    experiment: Mapping[str, Any] = field(repr=False, default_factory=dict)
    outcome: Outcome | None = field(repr=False, default=None)
    tracking: Mapping[str, Any] = field(repr=False, default_factory=dict)
    assessed: Mapping[str, int | None] | None = None
    saved_rows: tuple[int, ...] | None = field(repr=False, default=None)
    matched_to: str | None = None
    continuity: Continuity | None = field(repr=False, default=None)
    job_numbers: tuple[int, ...] | None = field(repr=False, default=None)
    stability: tuple[cluster_stability.ClusterStability, ...] = field(repr=False, default=())
    repeated: Mapping[str, Mapping[str, Any]] = field(repr=False, default_factory=dict)
    null: null_reference.NullTest | None = field(repr=False, default=None)
    schema: str = field(repr=False, default="")
    words: Mapping[str, tuple[str, ...]] = field(repr=False, default_factory=dict)
    date: str = field(repr=False, default="")

    if not TYPE_CHECKING:  # so that types still find a misspelt attribute

        def __getattr__(self, name: str) -> Any:
            """Return the array of this name; raise AttributeError with the names that there are. A copy has no arrays at first."""
            if name in (arrays := vars(self).get("arrays", {})):
                return arrays[name]
            raise AttributeError(f"a result has no {name!r}; its arrays are {', '.join(sorted(arrays)) or 'none'}")

    @property
    def cluster_rows(self) -> IntArray | None:
        """Return the rows of each cluster (k,): of the labels here, as saved, or as described; None where none is known."""
        labels = self.labels[self.labels >= 0]
        if len(labels):
            return np.bincount(labels, minlength=self.centroids_found).astype(np.int64)
        if self.saved_rows is not None:
            return np.array(self.saved_rows, dtype=np.int64)
        described: IntArray | None = self.arrays.get(cluster_arrays.ROWS)
        return described

    @property
    def ranked_metrics(self) -> dict[str, float | None]:
        """Return the metrics in the order in which they are shown: first those that say how good the clusters are, whatever k is."""
        first = [name for name in _QUALITY if name in self.metrics]
        return {name: self.metrics[name] for name in [*first, *(name for name in self.metrics if name not in first)]}

    @property
    def row_name(self) -> str:
        """Return what the run calls rows, such as "patients"."""
        return str(self.experiment.get("row_name", "rows"))

    @property
    def mask(self) -> BoolArray:
        """Return which entries of the centroids are known (k, d): all, unless sites had different columns."""
        return ~np.isnan(self.centroids)

    @property
    def took_part(self) -> str:
        """Return how many sites took part, in words: "10 sites", "9 of 10 sites"."""
        number = f"{self.n_sites - len(self.left_out)} of {self.n_sites}" if self.left_out else str(self.n_sites)
        return f"{number} {'site' if self.n_sites == 1 else 'sites'}"

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as the command line prints them with `--json`.

        Also `run_id` and `run_page` of a run in MLflow, `job` on provisioned sites, `assessed` after a federated assessment, `choice` if k was chosen, `features` if the algorithm is one for sites with different columns, `devices` if it names what each site computed on, `matched` if clusters have the numbers of an earlier result, `stability` and `repeated` if the run was repeated, and `null` if it was compared with rows without clusters.
        """
        values = {name: getattr(self, name) for name in JSON_FIELDS}
        values = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
        matched = {"to": self.matched_to, "job_numbers": self.job_numbers}
        more = {
            "run_id": self.run_id,
            "run_page": self.run_page,
            "job": self.job,
            "assessed": self.assessed,
            "choice": choice.summary(self.arrays, self.params),
            "features": partial.summary(self.arrays),
            "devices": devices(self.arrays),
            "matched": None if self.continuity is None else matched | self.continuity.to_json(),
            "stability": [one.to_json() for one in self.stability] or None,
            "repeated": {name: dict(values) for name, values in self.repeated.items()} or None,
            "null": None if self.null is None else self.null.to_json(),
        }
        return values | {name: value for name, value in more.items() if value is not None}

    def predict(self, X: object) -> IntArray:
        """Return the nearest centroid (n,) of each row of X (n, d), or of `gmm` the most probable component; ties go to the lower index.

        Of `tree` it is the cluster of the nearest representative, -1 where that is in none, or farther than the cluster reaches.

        X is in the units of the data, also where the run scaled its columns or, with `metric=cosine`, rows; a row of zeros
        has no direction then, and the label -1. NaN is filled where the run filled gaps. A data frame is read by the names of
        the columns, where the data of the run had names; a category may be one column, `sex` in the place of `sex=f` and `sex=m`, and where the run had a schema, ordered columns may hold their values, and dates ISO dates. Of algorithms for sites
        with different columns, X may lack columns (of a data frame) or have NaN for what is missing; a row that
        can be compared with no centroid has the label -1.

        Raises:
            UserError: X is not a finite table with as many columns as the centroids, or is one that `read_table` has read by
                another schema than the run's.
        """
        if partial.is_partial(self.arrays):
            self.check_read_by(X)
            rows = partial.with_gaps(X, partial.columns_of(self.arrays).names, self.arrays.get(FILL))
            return partial.place_rows(self.algorithm, self.params, self.arrays, rows)
        return assign_rows({**self.arrays, "centroids": self.centroids}, self._complete(X))

    def placements(self, X: object, far: float = FAR, outliers: float | None = None) -> Any:
        """Return where each row of X (n, d) is among the clusters, as a data frame (pandas, where it is installed).

        Columns: `cluster` (as `predict` says), `distance` to its centroid, `second` (the second nearest cluster; -1 for none) and
        `second_distance`, `silhouette` (simplified: 0 between two clusters, 1 at the centroid), `threshold` and `far`: whether
        the row is farther from every centroid than the threshold of that cluster. `threshold` is that of the row's cluster.
        Distances are in the space in which the run clustered: of scaled columns, or of rows of length 1.

        Of `gmm`, `second` is the second most probable component, distances are Mahalanobis distances in the component's covariance,
        and in the place of `silhouette` there are `probability`, that of `cluster`, and `log_density`, which is low for unusual rows.

        Args:
            X: as `predict` takes it.
            far: the threshold of a cluster is so many times the root mean square distance of its rows to its centroid, where the
                run has a profile; else that of all rows. Both columns are None where the run disclosed neither. Of `gmm` it is so many
                times the root of the number of columns.
            outliers: of `gmm` and `dp-gmm`, such as 0.01: a column `outlier` says which rows are where the mixture is so thin that this share
                of rows drawn from it would be there. Their clusters are the same.

        Of `tree` distances are to the nearest representative of a cluster, and the threshold is how far the cluster reaches from it,
        whatever `far` is.

        A warning is logged of a column that seems to be in another unit than in the run.

        Raises:
            UserError: X is not as `predict` takes it, `far` is not above 0, `outliers` is no share of a mixture, or sites had different columns.
        """
        if partial.is_partial(self.arrays):
            raise UserError(
                "placements are not for sites with different columns, whose distances are over different columns"
            )
        rows, assessed = self._complete(X), (self.assessed or {}).get("rows")
        for note in columns_unlike_those_of(self.arrays, self.params, self.columns, rows, assessed):
            _log.warning("%s", note)
        found = placements({**self.arrays, "centroids": self.centroids}, rows, self.thresholds(far), outliers)
        return frame_of(found.table())

    def thresholds(self, far: float = FAR) -> FloatArray | None:
        """Return the distance from each centroid (k,) beyond which `placements` calls a row far from it; None if unknown."""
        if not (far > 0 and np.isfinite(far)):
            raise UserError(f"far: expected a number above 0, got {far!r}")
        found = self.metrics.get("inertia"), (self.assessed or {}).get("rows")
        return thresholds_of({**self.arrays, "centroids": self.centroids}, *found, far)

    def export(self, file: str | Path) -> Path:
        """Write the model to a new file: NAME.skops, a scikit-learn pipeline, or NAME.onnx, a graph in double precision.

        Raises:
            UserError: another ending, the file is there, sites had different columns, or the extra `export` is missing.
        """
        return export.export(self, Path(file))

    def check_read_by(self, X: object) -> None:
        """Raise UserError where X is a table that `read_table` has read by another schema than that of the run, or by none.

        A run without a schema takes any table. So does one on sites with different columns where X has other columns than the
        run, which the run's schema cannot read.
        """
        if not self.schema or not isinstance(X, Table):
            return
        if partial.is_partial(self.arrays) and set(X.columns or ()) != set(self.columns or ()):
            return
        check_read_by({"X": X.schema}, self.schema)

    def _complete(self, X: object) -> FloatArray:
        """Return rows (n, d) of the result's columns, gaps filled."""
        self.check_read_by(X)
        if is_frame(X) and self.columns is not None:
            X = rows_of(X, self.columns, self.words)
        rows = as_numbers(np.asarray(X), None, "X")
        return check_rows(filled({**self.arrays, "centroids": self.centroids}, rows), where="X")

    def plot(self) -> "Figure":
        """Return a picture of the sites' rows with the true and the recovered centroids (2-D, else by PCA).

        Where sites had different columns: of who has which, and of what is known of the centroids. Where a network embedded
        images: a contact sheet, a row of images for each cluster.

        Raises:
            UserError: the rows are not here, as in a result of provisioned sites or of `load_result`; or there is no matplotlib.
        """
        return picture_of(self)

    def plot_tree(self) -> "Figure":
        """Return a picture of the tree of clusters, which algorithms that build one have.

        Of `tree` Ward's tree over sets of micro-clusters; with shape=density the clusters as they split where the rows have to be
        denser, each as wide as it has rows. Of `proxy` how the sites' clusters were merged.

        Raises:
            UserError: the algorithm builds no tree; or there is no matplotlib.
        """
        return tree_of(self)

    def profiles(self, of: Literal["columns", "sites", "tree"] = "columns") -> Any:
        """Return what describes the clusters, as a data frame (pandas, where it is installed), in the units of the columns.

        Args:
            of: "columns", a line per cluster and column: rows, share, mean, sd, z (distance of the mean from that of all rows,
                in standard deviations of these), q25, median and q75 (NaN for shares), eta_squared, cramers_v;
                "sites", a line per cluster and site: rows, share_of_cluster, share_of_site; none with secure sums;
                "tree", a line per leaf of a shallow tree: cluster, conditions, rows, purity (share of them that are of the
                cluster), share_of_cluster.

        Under differential privacy there are columns only, from released numbers: rows, share, signal_to_noise, mean, of_range
        (distance of the mean from that of all clusters, in parts of the column's declared range).

        Raises:
            UserError: the result has no profiles; the text says why.
        """
        if (noisy := noisy_profiles_of(self.arrays, self.centroids, self.columns)) is not None:
            if of != "columns":
                raise UserError(
                    f"a result under differential privacy has no profiles of {of}: they would be further queries, which cost "
                    "budget; it has those of columns"
                )
            return frame_of(noisy.table())
        found = profiles_of(self.arrays, self.columns)
        if found is None:
            raise UserError(why_no_profiles(self))
        if of == "columns":
            return frame_of(found.table())
        if of == "sites":
            return frame_of(found.site_table())
        if of == "tree":
            return frame_of(profile_words.tree_table(found))
        raise UserError(f"expected profiles of columns, sites or tree; got {of!r}")

    def outcomes_by_cluster(self, of: Literal["clusters", "curves", "tests"] = "clusters") -> Any:
        """Return the outcomes of each cluster, which the schema names, as a data frame; see docs/outcomes.md.

        Args:
            of: "clusters", a line per cluster (and value of a category): rows, rows that no outcome counts (not_counted), and events,
                median and survival at the last time (NaN where nobody is there until then), or share, or mean and sd, with the ends of a 95 % interval, lower and upper;
                "curves", of times, a line per cluster and time: at_risk, events, censored, survival, lower, upper;
                "tests", a line per test over all clusters: statistic, degrees, p.

        Raises:
            UserError: the result has no outcomes, or none of this kind.
        """
        found = outcomes_of(self.arrays)
        if found is None:
            none = "the result has no outcomes of its clusters; name one in the schema, as outcome: {time: days, event: died=yes, until: 1800}"
            raise UserError(next((said for said in self.warnings if said.startswith("there are no outcomes of")), none))
        if of == "clusters":
            return frame_of(found.table())
        if of == "tests":
            tests = found.tests()
            return frame_of({name: [getattr(one, name) for one in tests] for name in OutcomeTest.__annotations__})
        if of != "curves":
            raise UserError(f"expected outcomes of clusters, curves or tests; got {of!r}")
        if found.form.kind != "time":
            raise UserError("curves are of a time to an event; the outcome here is a value")
        return frame_of(found.curves())

    def disclosure(self) -> dict[str, Any]:
        """Return the disclosure record: whether each table, picture and file of the result may be released, and why.

        Plain JSON, as `disclosure.json` beside a saved result has it; docs/disclosure.md has its fields. It is about what this object
        shows: a result of `load_result` has no rows, and so no picture of them.
        """
        from flareclust.experiment.results.disclosure import disclosure_of

        return disclosure_of(self)

    def match_to(self, earlier: "Result", name: str = "the earlier run") -> "Result":
        """Return the result with the clusters under their numbers in an earlier one; see docs/schedules.md.

        Everything that names clusters follows: centroids, labels, arrays, profiles. `continuity` says which clusters are kept,
        new, gone, split or merged, and how far they have moved; warnings say what changed.

        Args:
            earlier: such as `flareclust.load_result("models:/clinics@champion")`.
            name: of the earlier one, for texts.

        Raises:
            UserError: the two have different columns, or cannot be compared for another reason.
        """
        return matching.matched(self, earlier, name)

    def save(self, folder: str | Path) -> "Result":
        """Write the result to a folder, as `run(out=...)` does; return it with `centroids_file` set.

        Raises:
            UserError: the folder cannot be written to, or holds other files than an older result.
        """
        from flareclust.experiment.results.artifacts import save  # which loads NVFlare, as the next one does

        return save(self, Path(folder))

    def __str__(self) -> str:
        """Return what fits on a terminal of 24 lines of 80 letters."""
        return printed(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from flareclust.experiment.reports.page import notebook_page

        return notebook_page(self)
