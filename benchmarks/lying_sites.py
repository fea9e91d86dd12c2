"""What lying sites do to a result, and what the settings `robust` and `cap` do about it: l2 and inertia against the share of lying sites.

    FLARECLUST_DATA=<folder> python -m benchmarks.lying_sites [SEEDS]

Ten sites, in-process; the lies are put in where replies leave the sites, and what comes out is measured on the true rows of
all sites. Writes benchmarks/records/lying_sites.json and docs/images/lying_sites.png; `python -m benchmarks.pages.reliability` makes the section of the
page from the former. Five seeds, the default, take about a quarter of an hour.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message, never_abort
from flareclust.core.lloyd import assign
from flareclust.data.datasets import load
from flareclust.data.partition import partition
from flareclust.evaluation import metrics
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import MOST_ROWS
from flareclust.protocol.task import StepName, Task

DOCS = Path(__file__).resolve().parent.parent / "docs"
SITES = 10
INFLATED = 1000
DATA = {"s1": 15, "digits": 10}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "mavg": {},
    "pooled": {},
    "portfolio": {"polish": 0},
    "fkm": {},
    "lloyd": {"rounds": 30},  # with lying sites it does not come to rest, and goes on to the end
}
LIES = ("random", "shifted", "colluding")
#: The lie that is hardest to notice: a single false centroid among honest ones. Measured with two lying sites, split iid.
SINGLE = "single"
#: Fewer than half of the centroids are false, the same ones at all lying sites, so that most of what a lying site says is right. This
#: share of the rows is said to belong to them: nearly all, or just too few for most rows to be false. Measured like `SINGLE`.
HALVES: Mapping[str, float] = {"half": 1.0, "even": 0.49}
OPTIONS = ("none", "trimmed", "median")
#: By partition, how many of the sites lie.
LIARS = {"iid": (0, 1, 2, 3, 4), "dirichlet:0.3": (0, 2)}


class Lie(NamedTuple):
    """What lying sites send in the place of their centroids, and how many rows they say they have.

    Attributes:
        kind: one of `LIES` or `HALVES`, or `SINGLE`.
        inflated: whether numbers of rows are multiplied by `INFLATED`.
        low: smallest values of the data's columns (d,).
        high: largest ones.
    """

    kind: str
    inflated: bool
    low: FloatArray
    high: FloatArray

    def falsified(self, task: Task, honest: Message) -> Message:
        """Return what a lying site sends instead of an honest reply."""
        sent = dict(honest)
        if task.step == StepName.SCORE:  # the worse a solution fits, the better
            for name in ("sse", "spread"):
                if name in sent:
                    sent[name] = sent[name].max() + sent[name].min() - sent[name]
        if "centroids" in sent:
            sent["centroids"] = self.centroids(task, sent["centroids"])
            if self.kind in HALVES and "counts" in sent:
                sent["counts"] = on_the_first(sent["counts"], few(len(sent["counts"])), HALVES[self.kind])
        if self.inflated:
            for name in ("rows", "counts"):
                if name in sent:
                    sent[name] = np.array(np.minimum(sent[name] * INFLATED, MOST_ROWS))
        return sent

    def centroids(self, task: Task, honest: FloatArray) -> FloatArray:
        """Return false centroids (k, d), as many as the honest ones."""
        if self.kind == "shifted":
            return honest + 2 * (self.high - self.low)
        # Colluding sites stick to one lie; the others make up a new one in every round.
        agreed = self.kind == "colluding" or self.kind in HALVES
        rng = stream(1, 0, "all liars") if agreed else stream(1, task.round, task.site)
        false = rng.uniform(self.low, self.high, honest.shape)
        number = len(honest)
        if self.kind not in LIES:
            number = 1 if self.kind == SINGLE else few(number)
        return np.concatenate([false[:number], honest[number:]])


def few(k: int) -> int:
    """Return the largest number below half of k, but at least one."""
    return max(1, (k - 1) // 2)


def on_the_first(counts: IntArray, number: int, share: float) -> IntArray:
    """Return counts (k,), each at least 1, of nearly the same sum; the first ones have that share of the rows."""
    rows, others = int(counts.sum()), max(1, len(counts) - number)
    false = np.full_like(counts, max(1, int((1 - share) * rows) // others))
    false[:number] = max(1, (rows - int(false[number:].sum())) // number)
    return false


class Federation:
    """An algorithm and the rows of its sites; what sites send before they are sent anything is computed once.

    Args:
        algorithm: its name.
        rows: of each site (n_i, d).
        k: number of clusters.
        truth: the true centroids (k, d).
        seed: of the job.
    """

    def __init__(self, algorithm: str, rows: Mapping[str, FloatArray], k: int, truth: FloatArray, seed: int) -> None:
        self.algorithm, self.rows, self.k, self.truth, self.seed = registry.get(algorithm), rows, k, truth, seed
        self.all_rows = np.concatenate(list(rows.values()))
        self._first: dict[str, Message] = {}

    def run(self, robust: str, untrusted: int = 0, lie: Lie | None = None) -> tuple[float, float, int]:
        """Return l2, inertia over the true rows of all sites, and the number of centroids found.

        The lying sites are the first sites by name: a server that goes by the first site is the worst off.
        """
        params = {**ALGORITHMS[self.algorithm.name], "robust": robust}
        executor, aggregator = self.algorithm.build(self.k, self.seed, params)
        lying = sorted(self.rows)[:untrusted] if lie else []

        def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
            replies = {}
            for site in asked:
                task = Task(step, round_, {name: value.copy() for name, value in arrays.items()}, site)
                honest = self._answer(executor, task)
                replies[site] = SiteReply(lie.falsified(task, honest) if lie and site in lying else honest)
            return replies

        outcome = run_federation(aggregator, ask, list(self.rows), FederationOptions(assess=False))
        assert not outcome.refused, outcome.refused
        inertia = float(assign(self.all_rows, outcome.centroids)[1].sum())
        return metrics.l2_distance(outcome.centroids, self.truth), inertia, len(outcome.centroids)

    def lie(self, kind: str, inflated: bool) -> Lie:
        """Return a lie about this federation's data."""
        return Lie(kind, inflated, self.all_rows.min(axis=0), self.all_rows.max(axis=0))

    def _answer(self, executor: ClusteringExecutor, task: Task) -> Message:
        first = not task.arrays
        if first and task.site in self._first:
            return self._first[task.site]
        arrays = executor.answer(task, self.rows[task.site], never_abort).arrays
        if first:
            self._first[task.site] = arrays
        return arrays


def federation(algorithm: str, name: str, spec: str, seed: int) -> Federation:
    """Return a data set over ten sites; its true centroids are the means of the classes where nobody knows better."""
    data = load(name)
    truth = data.centroids
    if truth is None:
        truth = np.stack([data.X[data.y == c].mean(axis=0) for c in np.unique(np.asarray(data.y))])
    parts = partition(spec, data.X, data.y, SITES, stream(seed, 0, "partition"))
    return Federation(algorithm, {site: data.X[part] for site, part in parts.items()}, DATA[name], truth, seed)


def cells(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield what was measured, a dict per algorithm, data set, partition, lie and number of lying sites, as means over seeds."""
    for spec, numbers in LIARS.items():
        for data in DATA:
            for algorithm in ALGORITHMS:
                federations = [federation(algorithm, data, spec, seed) for seed in range(seeds)]
                for kind, inflated, untrusted in lies(algorithm, numbers):
                    cell: dict[str, Any] = {"partition": spec, "data": data, "algorithm": algorithm}
                    cell |= {"lying sites": untrusted, "lie": kind if untrusted else None, "inflated": inflated}
                    for option in OPTIONS:
                        found = np.array([f.run(option, untrusted, f.lie(kind, inflated)) for f in federations])
                        l2, inertia = (float(f"{value:.5g}") for value in found[:, :2].mean(axis=0))
                        cell[option] = {"l2": l2, "inertia": inertia, "found": int(found[:, 2].min())}
                    yield cell


def lies(algorithm: str, numbers: Sequence[int]) -> Iterator[tuple[str, bool, int]]:
    """Yield kind, whether counts are inflated, and number of lying sites; without lying sites once. `mavg` knows no counts."""
    yield LIES[0], False, 0
    for kind, inflated in product((*LIES, SINGLE, *HALVES), (False,) if algorithm == "mavg" else (False, True)):
        used = numbers if kind in LIES else [n for n in numbers if n == 2 and len(numbers) > 2]
        yield from ((kind, inflated, untrusted) for untrusted in used if untrusted)


def main() -> None:
    """Measure, and write both files."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    measured = []
    for cell in cells(seeds):
        print(json.dumps(cell), flush=True)
        measured.append(cell)
    write(DOCS.parent / "benchmarks" / "records" / "lying_sites.json", seeds, measured)
    figure(measured).savefig(DOCS / "images" / "lying_sites.png", dpi=100, metadata={"Software": None})


def write(path: Path, seeds: int, measured: Sequence[Mapping[str, Any]]) -> None:
    """Write what was measured: `cells`, and by themselves those of lying sites that adapt to the settings, `half`."""
    parts = {
        "cells": [cell for cell in measured if cell["lie"] not in HALVES],
        "half": [cell for cell in measured if cell["lie"] in HALVES],
    }
    texts = [f'"seeds": {seeds}, "sites": {SITES}, "inflated": {INFLATED}']
    for name, own in parts.items():
        lines = ",\n".join("  " + json.dumps(cell) for cell in own)
        texts.append(f'"{name}": [\n{lines}\n]')
    path.write_text(f"{{{', '.join(texts)}}}\n")


def figure(measured: Sequence[Mapping[str, Any]]) -> Figure:
    """Return the picture: a row of panels per lie, l2 and inertia of each data set over those of the run without lying sites."""
    drawn, axes = plt.subplots(len(LIES), 2 * len(DATA), figsize=(15, 9.5), sharex=True, layout="constrained")
    styles = {"none": {"ls": "--"}, "trimmed": {"ls": "-"}, "median": {"ls": "", "marker": "o", "ms": 4}}
    iid = [cell for cell in measured if cell["partition"] == "iid"]
    for row, kind in zip(axes, LIES, strict=True):
        for axis, (data, measure) in zip(row, product(DATA, ("l2", "inertia")), strict=True):
            for colour, algorithm in enumerate(ALGORITHMS):
                own = [cell for cell in iid if cell["data"] == data and cell["algorithm"] == algorithm]
                clean = next(cell for cell in own if not cell["lying sites"])
                chosen = [cell for cell in own if cell["lie"] == kind]
                shares = (0, *sorted({cell["lying sites"] for cell in chosen}))
                for option, style in styles.items():
                    worst = [max(c[option][measure] for c in chosen if c["lying sites"] == n) for n in shares[1:]]
                    ratio = np.array([clean[option][measure], *worst]) / clean["none"][measure]
                    axis.plot(100 * np.array(shares) / SITES, ratio, color=f"C{colour}", **style)
            axis.set_yscale("log")
            low, high = axis.get_ylim()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.axhline(2 if measure == "l2" else 1, color="0.6", lw=1, zorder=0)
            axis.set_title(f"{kind}: {measure} on {data}", fontsize=10)
            axis.grid(axis="y", color="0.9")
    for axis in axes[-1]:
        axis.set_xlabel("sites that lie, %")
    for axis in axes[:, 0]:
        axis.set_ylabel("against the clean run")
    names = [Line2D([], [], color=f"C{n}", label=algorithm) for n, algorithm in enumerate(ALGORITHMS)]
    options = [Line2D([], [], color="0.3", label=f"robust={option}", **styles[option]) for option in OPTIONS]
    drawn.legend(handles=names + options, loc="outside lower center", ncols=len(names + options), frameon=False)
    return drawn


if __name__ == "__main__":
    main()
