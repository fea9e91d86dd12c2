"""Tables of three hospitals for docs/profiles.md: `python -m benchmarks.hospitals DIR` writes DIR/data/*.csv.

Three kinds of patients, 840 rows in all, in other shares at each hospital; the values are drawn, with seed 7.
"""

import csv
import sys
from pathlib import Path

import numpy as np

#: Mean and deviation of age, of the logarithm of crp, and of the tumour's size; share of women; shares of the stages.
KINDS = (
    ((48, 8), (1.0, 0.5), (14, 4), 0.7, (0.6, 0.3, 0.1, 0.0)),
    ((66, 7), (3.2, 0.4), (31, 6), 0.5, (0.05, 0.25, 0.5, 0.2)),
    ((70, 8), (1.2, 0.5), (22, 5), 0.25, (0.2, 0.5, 0.25, 0.05)),
)

#: Patients of each kind.
SITES = {"north": (150, 60, 90), "south": (60, 140, 70), "west": (80, 40, 150)}

STAGES = ("I", "II", "III", "IV")


def write(folder: Path) -> None:
    """Write a table for each hospital."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    for site, numbers in SITES.items():
        rows = [_patient(kind, rng) for kind, n in zip(KINDS, numbers, strict=True) for _ in range(n)]
        rng.shuffle(rows)
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", "age", "crp", "tumour", "sex", "stage"])
            writer.writerows([f"{site[0]}{number}", *row] for number, row in enumerate(rows))


def _patient(
    kind: tuple[tuple[float, float], tuple[float, float], tuple[float, float], float, tuple[float, ...]],
    rng: np.random.Generator,
) -> list[object]:
    age, crp, tumour, women, stages = kind
    return [
        round(rng.normal(*age)),
        round(float(np.exp(rng.normal(*crp))), 1),
        round(max(2, rng.normal(*tumour)), 1),
        "f" if rng.random() < women else "m",
        STAGES[rng.choice(4, p=stages)],
    ]


if __name__ == "__main__":
    write(Path(sys.argv[1]) / "data")
