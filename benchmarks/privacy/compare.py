"""DP Lloyd beside figures that others publish, on their data or data like theirs.

    FLARECLUST_DATA=<folder> python -m benchmarks.privacy.compare [SEEDS]

Ten sites, iid, in-process, epsilon = 1, delta = 1e-6. Writes benchmarks/records/privacy_compare.json and the table in
docs/differential-privacy.md, with the ratios of benchmarks/privacy/rivals/published.json beside it. Noise follows no seed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import flareclust
from benchmarks.privacy.data import CASES, Case

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "records" / "privacy_compare.json"
PUBLISHED = Path(__file__).parent / "rivals" / "published.json"
PAGE = ROOT / "docs" / "differential-privacy.md"
EPSILON, DELTA, SITES, MARK = 1.0, 1e-6, 10, "beside published figures"
NAMES = ("noise at each site", "secure sums")


def main() -> None:
    """Run all cases, and write the record and the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    record: dict[str, Any] = {"seeds": seeds, "epsilon": EPSILON, "delta": DELTA, "figures": {}}
    for name, load in CASES.items():
        case = load()
        best = min(KMeans(case.k, n_init=3, random_state=seed).fit(case.X).inertia_ for seed in range(2))
        one = float(((case.X - case.X.mean(axis=0)) ** 2).sum() / best)
        found = {
            noise: [run(case, seed, secure=noise == "secure sums") / best for seed in range(seeds)] for noise in NAMES
        }
        shape = {"rows": len(case.X), "columns": case.X.shape[1], "k": case.k, "one centroid": one}
        record["figures"][name] = shape | {key: [float(np.mean(v)), float(np.std(v))] for key, v in found.items()}
        print(name, record["figures"][name], flush=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


def run(case: Case, seed: int, *, secure: bool) -> float:
    """Return the inertia of all rows about the centroids of one job."""
    order = np.random.default_rng(seed).permutation(len(case.X))
    sites = {f"site-{i}": case.X[part] for i, part in enumerate(np.array_split(order, SITES))}
    terms = {"bounds": case.bounds, "epsilon": EPSILON, "delta": DELTA, "budget": EPSILON}
    settings: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "policy": {"differential_privacy": terms}}
    centroids = flareclust.run("dp-lloyd", sites, k=case.k, seed=seed, secure_sums=secure, **settings).centroids
    squares = (centroids**2).sum(axis=1) - 2 * case.X @ centroids.T
    return float(squares.min(axis=1).sum() + (case.X**2).sum())


def with_table(page: str, record: dict[str, Any]) -> str:
    """Return the text of the page with its table written anew."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))["figures"]
    lines = [
        "| data | rows, columns, k | one centroid | noise at each site | secure sums | others |",
        "| --- " * 6 + "|",
    ]
    for data, found in record["figures"].items():
        others = [f"{one['method']} {one['ratio']:g}" for one in published if one["data"] == data and "ratio" in one]
        measures = [found[name] for name in NAMES]
        cells = [f"{mean:.2f} ± {spread:.2f}" if record["seeds"] > 1 else f"{mean:.2f}" for mean, spread in measures]
        shape = f"{found['rows']:,}, {found['columns']}, {found['k']}"
        lines.append(
            f"| {data} | {shape} | {found['one centroid']:.2f} | {' | '.join(cells)} | {'; '.join(others) or '-'} |"
        )
    before, rest = page.split(f"<!-- {MARK} -->")
    after = rest.split(f"<!-- /{MARK} -->")[1]
    return f"{before}<!-- {MARK} -->\n" + "\n".join(lines) + f"\n<!-- /{MARK} -->{after}"


if __name__ == "__main__":
    main()
