"""The values of a result, by which it is saved, described and drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.evaluation import selection as choice
from flareclust.evaluation.continuity import Continuity
from flareclust.evaluation.null_reference import NullTest
from flareclust.evaluation.stability import ClusterStability
from flareclust.features import result as partial
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome, devices
from flareclust.protocol.profile_arrays import ROWS

#: The fields of the JSON object, in its order.
JSON_FIELDS = (
    "algorithm",
    "engine",
    "seed",
    "k",
    "n_sites",
    "params",
    "rounds",
    "seconds",
    "bytes",
    "centroids_found",
    "metrics",
    "centroids_file",
    "warnings",
)


@dataclass(frozen=True)
class ResultValues:
    """The values of a `flareclust.experiment.results.result.Result`, which says what they are."""

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
    stability: tuple[ClusterStability, ...] = field(repr=False, default=())
    repeated: Mapping[str, Mapping[str, Any]] = field(repr=False, default_factory=dict)
    null: NullTest | None = field(repr=False, default=None)
    schema: str = field(repr=False, default="")
    words: Mapping[str, tuple[str, ...]] = field(repr=False, default_factory=dict)

    @property
    def cluster_rows(self) -> IntArray | None:
        """Return the rows of each cluster (k,): of the labels here, as saved, or as described; None where none is known."""
        labels = self.labels[self.labels >= 0]
        if len(labels):
            return np.bincount(labels, minlength=self.centroids_found).astype(np.int64)
        if self.saved_rows is not None:
            return np.array(self.saved_rows, dtype=np.int64)
        described: IntArray | None = self.arrays.get(ROWS)
        return described

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
        values = {name: _plain(getattr(self, name)) for name in JSON_FIELDS}
        more = {
            "run_id": self.run_id,
            "run_page": self.run_page,
            "job": self.job,
            "assessed": self.assessed,
            "choice": choice.summary(self.arrays),
            "features": partial.summary(self.arrays),
            "devices": devices(self.arrays),
            "matched": self._matched(),
            "stability": [one.to_json() for one in self.stability] or None,
            "repeated": {name: dict(values) for name, values in self.repeated.items()} or None,
            "null": None if self.null is None else self.null.to_json(),
        }
        return values | {name: value for name, value in more.items() if value is not None}

    def _matched(self) -> dict[str, Any] | None:
        if self.continuity is None:
            return None
        return {"to": self.matched_to, "job_numbers": self.job_numbers, **self.continuity.to_json()}


AnyResult = TypeVar("AnyResult", bound=ResultValues)


def why_no_profiles(result: ResultValues) -> str:
    """Return why a result has no profiles, in one sentence."""
    failed = [warning for warning in result.warnings if warning.startswith("the clusters have no profile")]
    if failed:
        return failed[0]
    if problem := registry.get(result.algorithm).why_no_profile(
        result.params, secure_sums=bool(result.experiment.get("secure_sums"))
    ):
        return f"the clusters have no profile: {problem}"
    return "the clusters have no profile: the run did not ask for it; run it with --profile (profile=True)"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
