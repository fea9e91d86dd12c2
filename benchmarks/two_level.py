"""Two-level federations: ten sites in two groups of five, each of which merges its sites' replies before the server does.

    FLARECLUST_DATA=<folder> python -m benchmarks.two_level [SEEDS]

A group merges with the algorithm's own aggregator, and its centroids go up as if from one site, with the numbers of rows, radii
or whatever else a reply has. In Lloyd's algorithm, from a given start, a group adds up its sites' parts of an update. Printed are
means over the seeds; a ratio is that of two levels to one, and `apart` the distance of their centroids as a part of their norm.
docs/adr/0027-two-levels.md has the figures.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message, never_abort
from flareclust.core.lloyd import assign, kmeans
from flareclust.data.datasets import Dataset, load
from flareclust.data.partition import partition
from flareclust.evaluation.metrics.centroids import l2_distance
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.refinement import UPDATE, lloyd_merge, rows_behind
from flareclust.federation.server import ServerJob
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import Task

SITES, PER_GROUP = 10, 5
DATA, SPLITS = ("s1", "digits", "grid16"), ("iid", "dirichlet:0.3")
ALGORITHMS = ("pooled", "kfed", "feca", "mavg", "dkmpp", "fkm", "lloyd")


@dataclass(frozen=True)
class OneLevel:
    """The server asks the sites.

    Attributes:
        executor, aggregator: of the algorithm.
        rows: of each site (n, d).
    """

    executor: ClusteringExecutor
    aggregator: ClusteringAggregator
    rows: Mapping[str, FloatArray]

    def ask(self, step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        """Return the replies of sites."""
        return {site: self._answer(Task(step, round_, arrays, site)) for site in asked}

    def _answer(self, task: Task) -> SiteReply:
        try:
            return SiteReply(self.executor.answer(task, self.rows[task.site], never_abort).arrays)
        except Refusal as refusal:
            return SiteReply(problem=str(refusal))


@dataclass(frozen=True)
class TwoLevel(OneLevel):
    """The server asks groups, which ask their sites and merge the replies."""

    def ask(self, step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        """Return the replies of groups."""
        return {name: self._merged(step, round_, arrays, members) for name, members in self.groups.items()}

    @property
    def groups(self) -> dict[str, list[str]]:
        """Return the sites of each group."""
        sites = list(self.rows)
        return {f"group-{i // PER_GROUP}": sites[i : i + PER_GROUP] for i in range(0, len(sites), PER_GROUP)}

    def _merged(self, step: str, round_: int, arrays: Message, members: Sequence[str]) -> SiteReply:
        now: Round[Any] = Round(arrays, state=self.aggregator.state(), step=step, index=round_)
        schema = self.aggregator.executor.steps[step].schema
        replies, problems, _ = accept(schema, super().ask(step, round_, arrays, members), members)
        if not replies:
            return SiteReply(problem="; ".join(problems.values()))
        if step == UPDATE:
            return SiteReply(added_up(arrays["centroids"], replies))
        merged = ServerJob(self.aggregator).advance(now, replies)
        known = {**merged.state.arrays(), **merged.task}
        return SiteReply({name: known[name] for name in schema.fields})


def added_up(centroids: FloatArray, replies: Mapping[str, Message]) -> Message:
    """Return one reply for those of several sites to an update of Lloyd's algorithm."""
    behind = rows_behind(len(centroids), replies.values())
    cluster = np.flatnonzero(behind)
    means = lloyd_merge(centroids, replies.values())[cluster]
    inertia = np.sum([reply["inertia"] for reply in replies.values()])
    return {"centroids": means, "counts": behind[cluster], "cluster": cluster, "inertia": np.asarray(inertia)}


def outcomes(name: str, rows: Mapping[str, FloatArray], k: int, seed: int) -> tuple[Outcome, Outcome]:
    """Return what comes of one level and of two."""
    params: dict[str, object] = {}
    if name == "lloyd":
        pooled = np.concatenate(list(rows.values()))
        params["start"] = kmeans(pooled, k, stream(seed, 0, "start"), n_init=1, max_iter=1).centroids.tolist()
    executor, aggregator = get(name).build(k, seed, params)
    one, two = OneLevel(executor, aggregator, rows), TwoLevel(executor, aggregator, rows)
    return (
        run_federation(aggregator, one.ask, list(rows), FederationOptions(min_sites=1, assess=False)),
        run_federation(aggregator, two.ask, list(two.groups), FederationOptions(min_sites=1, assess=False)),
    )


def measured(data: Dataset, name: str, split: str, seeds: int) -> dict[str, float]:
    """Return the means over the seeds; l2 is to the true centroids, or to the means of the classes."""
    assert data.y is not None
    true = class_means(data.X, data.y) if data.centroids is None else data.centroids
    found: list[dict[str, float]] = []
    for seed in range(seeds):
        index = partition(split, data.X, data.y, SITES, np.random.default_rng(seed))
        try:
            both = outcomes(name, {site: data.X[own] for site, own in index.items()}, len(true), seed)
        except JobFailed:
            continue
        one, two = (float(assign(data.X, outcome.centroids)[1].sum()) for outcome in both)
        l2 = [l2_distance(outcome.centroids, true) for outcome in both]
        up = [outcome.bytes_up / 1000 for outcome in both]
        apart = l2_distance(both[0].centroids, both[1].centroids) / float(np.linalg.norm(both[0].centroids))
        found.append({"ratio": two / one, "l2 1": l2[0], "l2 2": l2[1], "up 1": up[0], "up 2": up[1], "apart": apart})
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]} | {
        "worst": max(one["ratio"] for one in found),
        "runs": len(found),
    }


def class_means(X: FloatArray, y: IntArray) -> FloatArray:
    """Return the mean of each class (k, d)."""
    return np.array([X[y == label].mean(axis=0) for label in np.unique(y)])


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    heads = (
        "data",
        "split",
        "algorithm",
        "inertia ratio",
        "worst",
        "l2, one",
        "l2, two",
        "kB up, one",
        "kB up, two",
        "apart",
    )
    print("| " + " | ".join(heads) + " |\n" + "| --- " * 3 + "| ---: " * 7 + "|")
    for name in DATA:
        data = load(name)
        for split in SPLITS:
            for algorithm in ALGORITHMS:
                m = measured(data, algorithm, split, seeds)
                numbers = f"{m['ratio']:.4f} | {m['worst']:.4f} | {m['l2 1']:.4g} | {m['l2 2']:.4g}"
                sizes = f"{m['up 1']:.1f} | {m['up 2']:.1f} | {m['apart']:.0e}"
                print(f"| {name} | {split} | {algorithm} | {numbers} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
