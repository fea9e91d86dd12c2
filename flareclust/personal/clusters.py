"""One-shot clustering of the devices' rows by k-FED, which says what model each row trains and is predicted by.

Source: Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021), section 4.2.2.

The clustering is flareclust's own algorithm "kfed", run in this process; nothing of it is repeated here. Readings:
1. Rows held out are placed as Definition 3.3 places a device's rows: with the nearest of its local centers.
2. A device with several local clusters (k' > 1) takes part in the training of each one's model with the rows of that
   cluster, and each row is predicted by the model of its cluster. Classes are not used for the clustering.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.client_selection import clusters_by_client
from flareclust.data.tables import Rows, Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.base import ClusteringExecutor
from flareclust.federation.exchanges import refusal_texts
from flareclust.personal.rows import Labelled, Split
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome, names_of_sites
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.schema import nbytes
from flareclust.protocol.task import ASSESS, CLUSTER, Task

KFED = "kfed"


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of devices, cut up by cluster; without clusters a device is one part.

    Attributes:
        device: (p,) position of the device whose rows they are.
        train: rows to train with.
        test: rows held out.
        group: (p,) the cluster; 0 where there are none.
        left_out: why devices took no part in the clustering, a sentence each; they are placed by what the others found.
    """

    device: IntArray
    train: list[Labelled]
    test: list[Labelled]
    group: IntArray
    left_out: Sequence[str] = ()

    @property
    def rows(self) -> IntArray:
        """Return the number of rows that each part trains with, (p,)."""
        return np.array([len(one) for one in self.train])


#: An engine: runs an algorithm with its parameters on the sites' rows.
Run = Callable[[Algorithm, Mapping[str, object], Mapping[str, Rows], JobOptions], Outcome]

#: The rows of devices by cluster, and the bytes that the clustering took: up from all devices, down to all devices.
Clustering = tuple[Parts, tuple[int, int]]


def whole(split: Split) -> Parts:
    """Return each device as one part."""
    m = len(split.train)
    return Parts(np.arange(m), list(split.train.values()), list(split.test.values()), np.zeros(m, dtype=np.int64))


def clustered(split: Split, k: int, k_local: int, seed: int, run: Run | None = None) -> Clustering:
    """Cluster the rows of the devices once by k-FED; return them by device and cluster, and the bytes up and down.

    Args:
        split: the devices.
        k: number of clusters over all devices.
        k_local: k', the number of a device's local clusters.
        seed: of the clustering.
        run: the engine to run k-FED in; None for this process.

    Raises:
        UserError: k or k_local are none for k-FED, or a device has too few rows for it.
        JobFailed: the devices' rows cannot be clustered.
    """
    executor, outcome = _found(split, k, k_local, seed, run, placing=True)
    arrays, context = executor.placing(outcome.arrays), SiteContext(executor.min_count)
    device, train, test, group = [], [], [], []
    for i, name in enumerate(split.names):
        seen = split.train[name].X
        every = np.concatenate([seen, split.test[name].X])
        rows = SiteRows(Table(every), stream(seed, 0, name), context=context, computed=seen)
        own, held = np.split(executor.labels(Task(ASSESS, 1, arrays, name), rows), [len(seen)])
        for cluster in np.unique(np.concatenate([own, held])):
            device.append(i)
            group.append(int(cluster))
            train.append(split.train[name].take(own == cluster))
            test.append(split.test[name].take(held == cluster))
    down = outcome.bytes_down + len(split.train) * nbytes(arrays)  # with the result, which places their rows
    left_out = refusal_texts(outcome.refused)
    return Parts(np.array(device), train, test, np.array(group), left_out), (outcome.bytes_up, down)


def whole_with_clusters(
    split: Split, k: int, k_local: int, seed: int, run: Run | None = None
) -> tuple[Clustering, dict[str, list[int]]]:
    """Cluster the rows as `clustered`; return each device as one part, and by name the clusters that it has rows of.

    Args: as of `clustered`.

    Raises:
        UserError, JobFailed: as `clustered`, the former where half of the devices have too few rows.
    """
    _, outcome = _found(split, k, k_local, seed, run)
    parts = replace(whole(split), left_out=refusal_texts(outcome.refused))
    return (parts, (outcome.bytes_up, outcome.bytes_down)), clusters_of_sites(outcome)


def clusters_of_sites(outcome: Outcome) -> dict[str, list[int]]:
    """Return the clusters that each site has rows of, from a result of k-FED."""
    senders = names_of_sites(outcome, CLUSTER)
    return clusters_by_client(outcome.arrays["tau"], outcome.arrays["received_site"], senders)


def _found(
    split: Split, k: int, k_local: int, seed: int, run: Run | None, *, placing: bool = False
) -> tuple[ClusteringExecutor, Outcome]:
    """Run k-FED on the rows to train with; return its site's side, which may be `placing` rows later, and what it has found."""
    algorithm, params = registry.get(KFED), {"k_local": k_local}
    rows = {name: one.X for name, one in split.train.items()}
    executor, _ = algorithm.build(k, seed, params)
    _check_enough(rows, executor.min_count, placing=placing)
    return executor, (run or run_inprocess)(algorithm, params, rows, JobOptions(k=k, seed=seed, assess=False))


def _check_enough(rows: Mapping[str, FloatArray], needed: int, *, placing: bool) -> None:
    """Raise UserError where k-FED would lack so many devices that it ends, or one whose rows are to be placed by its own clusters."""
    few = [name for name, X in rows.items() if len(X) < needed]
    if 2 * len(few) >= len(rows):
        raise UserError(
            f"kfed needs {needed} rows to train with at more than half of the devices, and {len(few)} of {len(rows)} have fewer, "
            f"such as {few[0]}; use fewer devices, or a smaller test_share"
        )
    if few and placing:
        raise UserError(
            f"{few[0]} has {len(rows[few[0]])} of the {needed} rows to train with that kfed needs at every device, and "
            f"{len(few)} of {len(rows)} devices have fewer; use fewer devices, or a smaller test_share"
        )
