"""What a site's policy costs: l2 and inertia of each algorithm, by smallest number of rows and by rounding of numbers.

    FLARECLUST_DATA=<folder> python -m benchmarks.policy_cost                  # all algorithms
    FLARECLUST_DATA=<folder> python -m benchmarks.policy_cost ALGORITHM ...    # these, the records of the others stay

It writes benchmarks/records/policy_cost.json, from which `python -m benchmarks.pages.privacy` makes a table of docs/privacy.md.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.core.lloyd import assign
from flareclust.data.datasets import load

RECORDS = Path(__file__).resolve().parent / "records" / "policy_cost.json"

CELLS, SEEDS = (("s1", "iid"), ("s1", "dirichlet:0.3"), ("digits", "iid"), ("digits", "dirichlet:0.3")), 10
ALGORITHMS = ("portfolio", "feca", "kfed", "fkm", "lloyd", "dkmpp", "pooled", "mavg", "ffcm", "minibatch")
POLICIES: tuple[dict[str, int] | None, ...] = (
    None,
    *({"min_count": minimum} for minimum in (2, 5, 10, 20)),
    *({"min_count": 10, "round_counts": step} for step in (5, 10)),
)


def measured(data: str, split: str, algorithm: str, policy: dict[str, int] | None, seeds: int) -> dict[str, Any]:
    """Return means over seeds of l2 and of the inertia over all rows, and how often fewer than k centroids came back or none."""
    dataset = load(data)
    l2, inertia, fewer, failed = [], [], 0, 0
    for seed in range(seeds):
        try:
            result = flareclust.run(algorithm, data=data, partition=split, n_sites=10, seed=seed, policy=policy)
        except JobFailed:
            failed += 1
            continue
        fewer += len(result.centroids) < result.k
        l2.append(result.metrics.get("l2"))
        inertia.append(float(assign(dataset.X, result.centroids)[1].sum()))
    known = [value for value in l2 if value is not None]
    record: dict[str, Any] = {"data": data, "split": split, "algorithm": algorithm, "policy": policy, "seeds": seeds}
    record |= {"l2": float(np.mean(known)) if known else None, "inertia": float(np.mean(inertia)) if inertia else None}
    return record | {"fewer": fewer, "failed": failed}


def merged(old: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with those of the algorithms that were run again in the place of their old ones."""
    again = {_case(record): record for record in new}
    return [again.get(_case(record), record) for record in old]


def _case(record: dict[str, Any]) -> str:
    return json.dumps([record[name] for name in ("data", "split", "algorithm", "policy")])


def main() -> None:
    chosen = sys.argv[1:]
    records = []
    for data, split in CELLS:
        for algorithm in chosen or ALGORITHMS:
            for policy in POLICIES:
                records.append(measured(data, split, algorithm, policy, SEEDS))
                print(json.dumps(records[-1]), flush=True)
    if chosen:
        records = merged(json.loads(RECORDS.read_text(encoding="utf-8")), records)
    RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
