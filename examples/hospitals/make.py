"""`python make.py FOLDER`: tables of three hospitals as they keep them, for the tutorial (docs/tutorial.md).

Three groups of patients (`diagnosis`) differ in age, CRP, size of the tumour and stage. north has the agreed form; south measures
the tumour in centimetres and has its columns in another order; west has German headers, decimal commas, latin-1 and other words.
Three cells in a hundred of crp and tumour are empty.
"""

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

#: By diagnosis: mean and deviation of age (years), of log10 CRP (mg/l), and of the tumour (mm); shares of the stages.
GROUPS = {
    "benign": ((41, 9), (0.5, 0.25), (12, 4), (0.85, 0.12, 0.03)),
    "slow": ((70, 7), (0.9, 0.25), (34, 7), (0.25, 0.60, 0.15)),
    "aggressive": ((58, 9), (1.8, 0.25), (62, 10), (0.05, 0.30, 0.65)),
}
STAGES = ("I", "II", "III")
#: Rows of each hospital, and the shares of the three groups there.
HOSPITALS = {"north": (300, (0.5, 0.3, 0.2)), "south": (250, (0.3, 0.3, 0.4)), "west": (280, (0.4, 0.4, 0.2))}
EMPTY = 0.03


def patients(rng: np.random.Generator, hospital: str) -> list[dict[str, object]]:
    """Return the patients of a hospital, one mapping each."""
    n, shares = HOSPITALS[hospital]
    rows: list[dict[str, object]] = []
    for number, diagnosis in enumerate(rng.choice(list(GROUPS), size=n, p=shares), 1):
        age, crp, tumour, stages = GROUPS[diagnosis]
        rows.append(
            {
                "patient": f"{hospital[0].upper()}{number:04}",
                "seen_on": date(2024, 1, 1) + timedelta(days=int(rng.integers(0, 700))),
                "age": int(np.clip(round(rng.normal(*age)), 18, 95)),
                "crp": None if rng.random() < EMPTY else round(10 ** rng.normal(*crp), 1),
                "tumour": None if rng.random() < EMPTY else round(max(1.0, rng.normal(*tumour)), 1),
                "sex": str(rng.choice(["f", "m"])),
                "stage": str(rng.choice(STAGES, p=stages)),
                "diagnosis": str(diagnosis),
            }
        )
    return rows


def write(folder: Path, seed: int = 0) -> None:
    """Write north.csv, south.csv and west.csv."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = {hospital: patients(rng, hospital) for hospital in HOSPITALS}
    _table(folder / "north.csv", rows["north"], list(rows["north"][0]))
    for row in rows["south"]:
        row["tumour"] = None if row["tumour"] is None else round(float(str(row["tumour"])) / 10, 2)
    _table(folder / "south.csv", rows["south"], sorted(rows["south"][0]))
    german = {
        "patient": "Fallnr",
        "seen_on": "Aufnahme",
        "age": "Alter",
        "crp": "CRP",
        "tumour": "Größe",
        "sex": "Geschlecht",
        "stage": "Stadium",
        "diagnosis": "Diagnose",
    }
    for row in rows["west"]:
        day = row["seen_on"]
        assert isinstance(day, date)
        row |= {"seen_on": day.strftime("%d.%m.%Y"), "sex": {"f": "w", "m": "m"}[str(row["sex"])]}
        row |= {name: "k.A." if row[name] is None else str(row[name]).replace(".", ",") for name in ("crp", "tumour")}
    translated = [{german[name]: cell for name, cell in row.items()} for row in rows["west"]]
    _table(folder / "west.csv", translated, list(translated[0]), encoding="latin-1", delimiter=";")


def _table(
    file: Path, rows: list[dict[str, object]], names: list[str], encoding: str = "utf-8", delimiter: str = ","
) -> None:
    with file.open("w", encoding=encoding, newline="") as stream:
        table = csv.DictWriter(stream, names, delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
