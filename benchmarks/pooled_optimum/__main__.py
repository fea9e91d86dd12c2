"""How near federated runs come to k-means on the pooled rows: inertia over the best of 50 starts, on sets that are hard.

    python -m benchmarks.pooled_optimum [RUN ...] [--sets SET ...] [--sites M ...] [--seed N] [--offset N]

A cell is a data set, a number of sites (10, 50) and a split. Printed for each run: the share of cells within 2 % and
within 5 % of the pooled optimum, median and worst cell, exchanges and bytes; every cell beyond 2 %; the cells without a
result, as where sites have fewer rows than their policy asks for; and how often each member of a portfolio was chosen.
"""

import argparse
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np

import flareclust
from benchmarks.pooled_optimum.sets import SETS, Made, made
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import assign, kmeans
from flareclust.data.partition import partition
from flareclust.executors.portfolio import DEFAULT_MEMBERS, MEMBER_NAMES

SITES = (10, 50)
SPLITS = ("iid", "dirichlet:0.3", "clusters", "power:1")

#: By name, algorithm and settings.
RUNS: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "portfolio": ("portfolio", {}),
        "portfolio polish=0": ("portfolio", {"polish": 0}),
        "portfolio split_merge=0": ("portfolio", {"split_merge": 0}),
        "portfolio secure_sums": ("portfolio", {"secure_sums": True, "min_sites": 3}),
        "lloyd": ("lloyd", {}),
        "lloyd split_merge=3": ("lloyd", {"split_merge": 3}),
        **{
            f"{name} {label}": (name, settings)
            for name in ("portfolio", "lloyd")
            for label, settings in (
                ("policy", {"policy": {"min_count": 10}}),
                ("policy secure_sums", {"policy": {"min_count": 10}, "secure_sums": True, "min_sites": 3}),
                ("policy min_count=3", {"policy": {"min_count": 3}}),
            )
        },
        "portfolio n_init=1": ("portfolio", {"n_init": 1}),
        "portfolio members": ("portfolio", {"members": list(MEMBER_NAMES), "polish": 0}),
    }
)


def cells(names: Iterable[str], sites: Iterable[int]) -> Iterator[tuple[str, int, str]]:
    """Yield every data set with every number of sites and every split."""
    return ((name, m, split) for name in names for m in sites for split in SPLITS)


@cache
def optimum(name: str, offset: int) -> tuple[Made, float]:
    """Return a set and the least inertia of 50 runs of k-means on all its rows."""
    drawn = made(name, offset)
    return drawn, kmeans(drawn.X, drawn.k, np.random.default_rng(0), n_init=50).inertia


def sites_of(drawn: Made, m: int, split: str, seed: int) -> dict[str, FloatArray]:
    """Return the rows of each site; `clusters` gives every class about two holders, and a site two classes at least."""
    if split == "clusters":
        split = f"clusters:{max(2, ceil(2 * len(np.unique(drawn.y)) / m))}"
    rows = partition(split, drawn.X, drawn.y, m, np.random.default_rng(seed))
    return {site: drawn.X[own] for site, own in rows.items() if len(own)}


def found_in(run: str, name: str, m: int, split: str, seed: int, offset: int) -> tuple[float, flareclust.Result]:
    """Return the inertia over that of the optimum, of one kind of run in a cell, and its result.

    Raises:
        JobFailed: it has none.
    """
    algorithm, settings = RUNS[run]
    drawn, best = optimum(name, offset)
    result = flareclust.run(algorithm, sites_of(drawn, m, split, seed), k=drawn.k, seed=seed, **settings)
    return float(assign(drawn.X, result.centroids)[1].sum()) / best, result


def measure(run: str, names: Iterable[str], sites: Iterable[int], seed: int, offset: int) -> None:
    """Print what came of one kind of run in all cells of some data sets."""
    members = RUNS[run][1].get("members", DEFAULT_MEMBERS)
    ratios, exchanges, sent, failed, chosen = {}, [], [], [], Counter[str]()
    for name, m, split in cells(names, sites):
        try:
            ratios[name, m, split], found = found_in(run, name, m, split, seed, offset)
        except JobFailed:
            failed.append(f"{name}, {m} sites, {split}")
            continue
        exchanges.append(len(found.outcome.rounds))
        sent.append(found.outcome.bytes_up / 1e3)
        told = (record["diagnostics"].get("chosen") for record in found.outcome.rounds)
        chosen.update(members[int(number)] for number in told if number is not None)
    values = np.array(list(ratios.values()))
    if len(values):
        print(
            f"{run}: within 2 % {(values <= 1.02).mean():.1%}, within 5 % {(values <= 1.05).mean():.1%}, "
            f"median {np.median(values):.3f}, worst {values.max():.3f}; exchanges {np.mean(exchanges):.0f} "
            f"(at most {max(exchanges)}), sent by all sites {np.median(sent):.0f} kB (median)"
        )
    for (name, m, split), value in ratios.items():
        if value > 1.02:
            print(f"    {name}, {m} sites, {split}: {value:.3f}")
    for cell in failed:
        print(f"    {cell}: no result")
    if chosen:
        print("    chosen: " + ", ".join(f"{member} {times}" for member, times in chosen.most_common()), flush=True)


def main() -> None:
    """Measure the runs asked for, else all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}; all unless given")
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, metavar="SET", help=f"of {', '.join(SETS)}; all unless given"
    )
    parser.add_argument(
        "--sites", nargs="+", type=int, default=SITES, metavar="M", help="numbers of sites; 10 and 50 unless given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of splits and runs")
    parser.add_argument("--offset", type=int, default=0, help="for other draws of the generated sets")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    for run in asked.runs or RUNS:
        measure(run, asked.sets or SETS, asked.sites, asked.seed, asked.offset)


if __name__ == "__main__":
    main()
