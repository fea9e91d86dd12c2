"""`python make.py FOLDER`: small OMOP databases of three made-up hospitals in SQLite, with the tables that cohort.sql asks.

Three groups of people with type 2 diabetes differ in age, HbA1c, body mass index and blood pressure; others have hypertension
only, and are no part of the cohort. Nobody in it exists.
"""

import sqlite3
import sys
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import numpy as np

#: Of the tables of the common data model 5.4, the columns that are needed.
TABLES = {
    "person": "person_id INTEGER PRIMARY KEY, gender_concept_id INTEGER, year_of_birth INTEGER, birth_datetime TIMESTAMP",
    "observation_period": "observation_period_id INTEGER PRIMARY KEY, person_id INTEGER, "
    "observation_period_start_date DATE, observation_period_end_date DATE",
    "condition_occurrence": "condition_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER, condition_concept_id INTEGER, "
    "condition_start_date DATE",
    "measurement": "measurement_id INTEGER PRIMARY KEY, person_id INTEGER, measurement_concept_id INTEGER, "
    "measurement_date DATE, value_as_number NUMERIC, unit_concept_id INTEGER",
}
DIABETES, HYPERTENSION = 201826, 320128
FEMALE, MALE = 8532, 8507
#: Concept of each measurement, and of its unit.
MEASURED = {"hba1c": (3004410, 8554), "bmi": (3038553, 9531), "systolic": (3004249, 8876)}
#: By group: mean and deviation of the age in years, and of the measurements.
GROUPS = {
    "lean": {"age": (52, 5), "hba1c": (10.2, 0.7), "bmi": (24, 1.8), "systolic": (126, 7)},
    "obese": {"age": (50, 5), "hba1c": (7.2, 0.5), "bmi": (39, 2.5), "systolic": (141, 7)},
    "old": {"age": (76, 4), "hba1c": (6.8, 0.4), "bmi": (28, 2.0), "systolic": (150, 7)},
}
#: People of each hospital with diabetes, the shares of the groups, and people without diabetes.
HOSPITALS = {
    "north": (240, (0.4, 0.3, 0.3), 60),
    "south": (200, (0.2, 0.5, 0.3), 40),
    "west": (160, (0.3, 0.2, 0.5), 80),
}
#: Share of people without a value of a measurement, and the day of the extract.
EMPTY, TODAY = 0.02, date(2024, 12, 31)


def groups(hospital: str) -> list[str]:
    """Return the groups of a hospital's people with diabetes, in the order of their ids."""
    n, shares, _ = HOSPITALS[hospital]
    return list(_rng(hospital).choice(list(GROUPS), size=n, p=shares))


def _rng(hospital: str) -> np.random.Generator:
    return np.random.default_rng([7, list(HOSPITALS).index(hospital)])


def _day(before: int) -> str:
    return (TODAY - timedelta(days=before)).isoformat()


def rows(hospital: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each table of a hospital."""
    rng, found = np.random.default_rng([8, list(HOSPITALS).index(hospital)]), {name: [] for name in TABLES}
    own, others = groups(hospital), HOSPITALS[hospital][2]
    for person, group in enumerate([*own, *["old"] * others], 1):
        about, since = GROUPS[group], int(rng.integers(100, 4000))
        born = date.fromisoformat(_day(int(365.25 * rng.normal(*about["age"]))))
        gender = FEMALE if rng.random() < 0.5 else MALE
        found["person"].append((person, gender, born.year, f"{born} 00:00:00"))
        found["observation_period"].append((person, person, _day(5000), _day(0)))
        condition = DIABETES if person <= len(own) else HYPERTENSION
        for again in (since, since // 2):
            found["condition_occurrence"].append(
                (len(found["condition_occurrence"]) + 1, person, condition, _day(again))
            )
        for name, (concept, unit) in MEASURED.items():
            if rng.random() < EMPTY:
                continue
            for visit in sorted(rng.integers(0, 900, size=3).tolist(), reverse=True):
                value = round(float(rng.normal(*about[name])), 1)
                found["measurement"].append((len(found["measurement"]) + 1, person, concept, _day(visit), value, unit))
    return found


def write(folder: Path) -> None:
    """Write a database for each hospital; one that is there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for hospital in HOSPITALS:
        file = folder / f"{hospital}.db"
        file.unlink(missing_ok=True)
        with closing(sqlite3.connect(file)) as database, database:
            for table, lines in rows(hospital).items():
                database.execute(f"CREATE TABLE {table} ({TABLES[table]})")
                places = ", ".join("?" * len(lines[0]))
                database.executemany(f"INSERT INTO {table} VALUES ({places})", lines)
        print(file)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
