"""k-FED, the device's side: local k(z)-means by spectral projection, and the induced labels.

Source: Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021): Algorithm 1 (after
Awasthi and Sheffet 2012; it is `local_kmeans` of core/spectral.py), Definition 3.3 (induced clustering), Theorem 3.2
(devices that come later).

Readings where the paper is open, and deviations from it:
1. Algorithm 1, steps 2 to 4: those of core/spectral.py. The rows are not centred before the projection; seeds of
   greedy k-means++ are the centers nu; the 1/3 test is on distances, not on their squares.
2. k(z) may differ per device: a number, a table of site names, or "auto" for ceil(sqrt(k)). A device with fewer
   than `min_count` rows per center uses a smaller k(z).
3. Not in the paper: the number of rows of each center is sent. Clusters below `min_count` rows are not sent, those of
   one row repeated with rows of others (`flareclust.core.local`); labels stay those of the local clustering. With `small_clusters="dissolve"` the former join others of the device, whose centers they move.
4. Theorem 3.2: a late device's center goes to the nearest point of M, as the theorem's proof has it (the words before
   it also speak of the means mu(tau)). With several `lloyd_rounds`, to the nearest of the points last assigned to.
5. Definition 3.3 leaves out local centers that were not sent. They go to the nearest mean: M holds single devices'
   centers, which the server does not send to the devices that took part.
6. Fewer than k(z) local clusters are found where there are fewer different rows.
"""

import logging
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, sqrt
from typing import Any, ClassVar, Literal

from pydantic import ValidationInfo, field_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import IntArray, Message
from flareclust._foundation.validation import check_int
from flareclust.core import site_clusters
from flareclust.core.lloyd import labels_of
from flareclust.core.local import clusters_to_send
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import SmallClustersParams
from flareclust.protocol.params import MOST_ROUNDS, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Field, Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

_log = logging.getLogger(__name__)


class KFedParams(SmallClustersParams):
    """Parameters of k-FED."""

    k_local: int | str | dict[str, int] = site(
        "auto", "k': a number up to k, auto for the square root of k rounded up, or numbers by site name."
    )
    labels_by: Literal["induced", "nearest"] = site(
        "induced", "The label of a row: the cluster of its local center (Definition 3.3), or the nearest centroid."
    )
    start: str | None = server(
        None, "Name of the device whose centers start M; None for the first by name.", min_length=1
    )
    lloyd_rounds: int = server(1, "Rounds of step 7.", ge=1, le=MOST_ROUNDS)
    weighted: bool = server(False, "Whether a center counts as often as it has rows.")

    @field_validator("k_local", mode="before")
    @classmethod
    def _k_local(cls, value: Any, known: ValidationInfo) -> Any:
        return _check_k_local(value, known.data["k"]) if "k" in known.data else value


class KFedExecutor(ClusteringExecutor):
    """A device of k-FED: sends the centers of its k(z) local clusters and how many rows each has."""

    params: KFedParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k")))}

    beside_centroids: ClassVar[tuple[str, ...]] = ("anchors",)
    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "anchors", "tau", "tau_site")

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Run Algorithm 1 and keep what may be sent."""
        clusters = rows.spectral_clusters(self._number_at(task.site, rows), self.params.small_clusters)
        return {"centroids": clusters.centroids, "counts": clusters.counts}

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the induced clustering of the rows (n,), or that of the nearest centroids.

        The local clustering is repeated with the generator of round 0. The result has the cluster of each device's
        center, `tau` (c,), and the `site_number` of its device, `tau_site` (c,). A late device is placed with the
        server's `anchors` (k, d), the points that the others' centers were assigned to.
        """
        if self.params.labels_by == "nearest":
            return super().labels(task, rows)
        seen = rows.of(rows.seen)
        clustering = seen.spectral_clustering(self._number_at(task.site, rows), self.params.small_clusters)
        tau = labels_of(clustering.centroids, task.arrays.get("anchors", task.arrays["centroids"]))
        sent = clusters_to_send(rows.seen, clustering, rows.context.min_count, required=False).source
        assigned = own_numbers(task, "tau")
        if len(assigned) == len(sent):  # a late device has none
            tau[sent] = assigned
        elif len(assigned):
            _log.warning(
                "%d centers were merged where %d were sent; labels go by the nearest mean", len(assigned), len(sent)
            )
        local = clustering.labels if rows.seen is rows.X else labels_of(rows.X, clustering.centroids)
        return tau[local]  # Definition 3.3

    def check_sites(self, sites: Sequence[str]) -> None:
        """Warn where `k_local` names a site that is not there: a late one, or a misspelt one."""
        site_clusters.warn_of_unknown_sites("k_local", self.params.k_local, sites)

    def _number_at(self, site: str, rows: SiteRows) -> int:
        setting = self.params.k_local
        if isinstance(setting, dict):
            rows.one_by_one()
            setting = setting.get(site, "auto")
        return ceil(sqrt(self.params.k)) if setting == "auto" else int(setting)


def _check_k_local(k_local: object, k: int) -> int | str | dict[str, int]:
    """Return k_local if it is "auto", a number in 1..k, or such numbers by site name; else raise UserError."""
    if isinstance(k_local, dict):
        return {str(site): _check_one(f"k_local of {site}", value, k) for site, value in k_local.items()}
    if k_local == "auto":
        return "auto"
    if isinstance(k_local, str):
        raise UserError(f'k_local must be an integer, "auto", or numbers by site name; got {k_local!r}')
    return _check_one("k_local", k_local, k)


def _check_one(name: str, value: object, k: int) -> int:
    number = check_int(name, value, minimum=1)
    if number > k:
        raise UserError(f"{name} is {number}, more than k={k}: a device cannot have more clusters than the federation")
    return number


def own_numbers(task: Task, name: str, least: int = 0) -> IntArray:
    """Return which centroids of a task the clusters of its site have become, of `name` (c,), by `name`_site (c,); `least` may be -1, for none.

    Raises BadMessage for what are no numbers of its centroids: as labels they would take memory without limit.
    """
    sites = f"{name}_site"
    schema = Schema(may_be_empty=False, **dict.fromkeys((name, sites), Field(("c",), "int64")))
    found = {array: task.arrays[array] for array in schema.fields if array in task.arrays}
    schema.check(found)
    own: IntArray = found[name][found[sites] == site_number(task.site)]
    Schema(may_be_empty=False, **{name: Field(("c",), "int64", least, "k")}).check(
        {name: own}, {"k": len(task.arrays["centroids"])}
    )
    return own


def site_number(site: str) -> int:
    """Return a number for a site's name, the same in every process, so that messages can name the site of an entry."""
    return int.from_bytes(blake2b(site.encode(), digest_size=8).digest(), "big", signed=True)
