"""The rows of many devices, as the method of a step gets them: it computes for all of them at once what it computes for one.

What a device with anything out of the ordinary would compute is not computed here: its size is -1, and it is asked by itself. So
is every device where a step asks for something else than the loops have, as `_NotForMany` says.
"""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core.devices import steps
from flareclust.core.devices.ragged import Entries, Ragged, nothing_computed
from flareclust.core.local import LocalKMeans, Seeds, Sendable, SmallClusters
from flareclust.data.tables import Table
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import line_of, shown, site_stages
from flareclust.protocol.rows import Groups, SiteContext, SiteRows
from flareclust.protocol.stages import SiteExchange
from flareclust.protocol.task import Task


class _NotForMany(Exception):
    """Something is not computed for many devices at once: each is asked by itself."""


@dataclass(frozen=True, kw_only=True)
class DeviceRows(SiteRows):
    """Rows of many devices; what is computed has the entries of all of them end to end.

    Attributes:
        devices: their rows.
        seed, round: of the job and the task, from which the devices' random numbers follow.
        sizes: filled by what is computed: how many entries are of each device.
    """

    devices: Ragged
    seed: int
    round: int
    sizes: list[IntArray]

    @property
    def X(self) -> FloatArray:  # noqa: N802
        """Raise _NotForMany: each device has rows of its own."""
        raise _NotForMany

    @property
    def raw(self) -> FloatArray:
        """Raise _NotForMany, as `X` does."""
        raise _NotForMany

    def __len__(self) -> int:
        """Raise _NotForMany: each device has a number of rows of its own."""
        raise _NotForMany

    @property
    def d(self) -> int:
        """Return the number of columns."""
        return self.devices.d

    def check_enough(self) -> None:
        """Leave the check to the loops, which leave out devices with few rows."""

    def check_sums(self) -> None:
        """Leave the check to the loops, which leave out devices with few rows."""

    def one_by_one(self) -> None:
        """Raise _NotForMany: what follows depends on the name of the device."""
        raise _NotForMany

    def scaled(self, mean: FloatArray, deviation: FloatArray) -> NoReturn:
        """Raise _NotForMany: rows are computed with as they are."""
        raise _NotForMany

    def of(self, X: FloatArray, known: object = None) -> NoReturn:
        """Raise _NotForMany: rows are computed with as they are."""
        raise _NotForMany

    def settled(self, k: int, n_init: int = 0) -> "DeviceRows":
        """Return the rows as they are: they have no gaps, and none is trimmed."""
        if self.trim or self.gaps is not None:
            raise _NotForMany
        return self

    def seeds(self, k: int, seeds: Seeds, n_candidates: int | None = None) -> Sendable:
        """Return the means of the cells of k seeds that may be sent."""
        if seeds != "means" or n_candidates is not None:
            raise _NotForMany
        return self._clusters("cells", k)

    def clusters(
        self, k: int, *, n_init: int, local_kmeans: LocalKMeans = "lloyd", small_clusters: SmallClusters = "withhold"
    ) -> Sendable:
        """Return the clusters of each device's own k-means that may be sent."""
        if (n_init, local_kmeans, small_clusters) != (1, "lloyd", "withhold"):
            raise _NotForMany
        return self._clusters("kmeans", k)

    def spectral_clusters(self, k: int, small_clusters: SmallClusters) -> Sendable:
        """Return the clusters by spectral projection that may be sent."""
        if small_clusters != "withhold":
            raise _NotForMany
        return self._clusters("spectral", k)

    def means(self, centroids: FloatArray) -> Sendable:
        """Return the means of each device's rows nearest to each of centroids (k, d), as far as they may be sent."""
        found = self.update(centroids)
        return Sendable(found.centroids, found.counts, np.zeros(0, dtype=np.int64), found.cluster)

    def update(self, centroids: FloatArray) -> Groups:
        """Return what `means` does, and the inertia of the rows behind them of each device (m,)."""
        self._check(*centroids.shape)
        found = self._noted(steps.updates_of_each(self.devices, centroids, self.context.min_count))
        fields = found.fields
        return Groups(fields["centroids"], fields["counts"], fields["cluster"], found.totals["inertia"])

    def assessed(self, centroids: FloatArray) -> Message:
        """Return the sums of the assessment by centroid (k, d) of each device, and their totals (m,)."""
        self._check(*centroids.shape)
        found = self._noted(steps.assessments_of_each(self.devices, centroids, self.context.min_count))
        return {**found.fields, **found.totals}

    def _check(self, k: int, d: int) -> None:
        if self.trim or self.gaps is not None or not steps.fits(k, d):
            raise _NotForMany

    def _clusters(self, way: steps.Way, k: int) -> Sendable:
        self._check(k, self.devices.d)
        found = self._noted(steps.clusters_of_each(self.devices, way, self.seed, self.round, k, self.context.min_count))
        nothing = np.zeros(0, dtype=np.int64)
        return Sendable(found.fields["centroids"], found.fields["counts"], nothing, nothing)

    def _noted(self, found: Entries) -> Entries:
        self.sizes[:] = [found.sizes]
        return found


def answers_of_many(executor: ClusteringExecutor, task: Task, devices: Ragged) -> Entries | None:
    """Answer a task from the rows of many devices without policies, as `ClusteringExecutor.answer` does for each.

    What `answer` checks beforehand holds for all devices computed here; the others have the size -1. Their random numbers are
    those of their `keys`; the task's `site` says nothing. None where the step is not computed for many.
    """
    line, sizes = line_of(executor, task.step), [np.full(devices.m, -1)]
    table, context = Table(devices.values), SiteContext(executor.min_count)
    rows = DeviceRows(
        table,
        np.random.default_rng(0),  # not asked: the loops have streams of their own
        context=context,
        devices=devices,
        seed=executor.params.seed,
        round=task.round,
        sizes=sizes,
    )
    exchange, single = SiteExchange(task, line.step, table, rows), executor.without_rows()
    owner = single if line.phase is None else line.phase(single.params, single)
    try:
        if not line.step.as_is:
            exchange = shown(exchange, site_stages(executor, None)[1])
        reply: Message = getattr(owner, line.step.method)(exchange.task, exchange.rows)
    except _NotForMany:
        return None
    except (Refusal, BadMessage):  # each device says it by itself
        return nothing_computed(devices.m)
    totals = {name: value for name, value in reply.items() if not line.step.schema.fields[name].axes}
    fields: dict[str, Array] = {name: value for name, value in reply.items() if name not in totals}
    return Entries(fields, totals, sizes[0])
