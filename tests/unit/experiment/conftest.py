"""Rows of sites of their own, and two hospitals' tables."""

import numpy as np
import pytest

from tests.unit.experiment.api_cases import rows

SCHEMA = """
columns:
  patient: id
  age: {type: number, unit: years, range: [0, 120]}
  size: {type: number, unit: mm, range: [0, 300], missing: drop-rows}
  sex: {type: category, values: [f, m]}
"""
MAPPING = "decimal: ','\ncolumns:\n  age: Alter\n  size: {factor: 10}\n  sex: {values: {w: f}}\n"


@pytest.fixture
def own():
    return {f"site-{name}": rows(i) for i, name in enumerate("abcd")}


@pytest.fixture
def hospitals(tmp_path):
    """A folder with two hospitals' tables of the same two groups, one with words and units of its own."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    group = np.arange(30) % 2
    age, size = np.where(group, 70, 30) + rng.integers(-3, 4, 30), np.where(group, 200, 50) + rng.integers(-9, 9, 30)
    lines = [f"n{i},{age[i]},{'' if i == 4 else size[i]},{'fm'[i % 2]},{'ab'[group[i]]}" for i in range(30)]
    (folder / "north.csv").write_text("\n".join(["patient,age,size,sex,diagnosis", *lines]))
    lines = [f"{'ab'[group[i]]};{str(size[i] / 10).replace('.', ',')};{age[i]};{'wm'[i % 2]};s{i}" for i in range(30)]
    (folder / "south.csv").write_text("\n".join(["diagnosis;size;Alter;sex;patient", *lines]))
    (folder / "south.mapping.yaml").write_text(MAPPING)
    return tmp_path
