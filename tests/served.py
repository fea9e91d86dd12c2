"""A run on tables with gaps, a category, an ordered column and dates, and its rows as a client of the model has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import flareclust
from flareclust.experiment.results.result import Result

SCHEMA = """
missing: mean
columns:
  age: {type: number, unit: years, range: [0, 120]}
  sex: {type: category, values: [f, m]}
  stage: {type: ordered, values: [I, II, III, IV]}
  seen_on: {type: date, range: [2000-01-01, 2030-12-31]}
"""


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Write two sites' csv files and a schema to a folder; return the tables."""
    rng, made = np.random.default_rng(0), {}
    (folder / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    (folder / "data").mkdir()
    for site in ("north", "south"):
        group = rng.integers(0, 3, 120)
        days = pd.Timestamp("2020-01-01") + pd.to_timedelta(400 * group + rng.integers(0, 60, 120), unit="D")
        columns: dict[str, Any] = {
            "age": (30 + 20 * group + rng.normal(0, 3, 120)).round(1),
            "sex": rng.choice(["f", "m"], 120),
            "stage": np.array(["I", "II", "III", "IV"])[group + rng.integers(0, 2, 120)],
            "seen_on": days.strftime("%Y-%m-%d"),
        }
        table = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
        for name in table:
            table.loc[rng.random(120) < 0.05, name] = None
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
        made[site] = table
    return made


def run(folder: Path, **settings: Any) -> Result:
    """Return the result of `portfolio` on the tables of a folder."""
    return flareclust.run(
        "portfolio", folder / "data", k=3, partition="none", schema=folder / "schema.yaml", **settings
    )
