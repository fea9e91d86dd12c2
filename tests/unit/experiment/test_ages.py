"""Dates as ages at a reference date, from files of every format to the report."""

import datetime
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import flareclust
from flareclust._foundation.errors import TableFaults, UserError
from flareclust.data.schema.columns import ColumnSchema, TableSchema
from flareclust.data.schema.draft import draft
from flareclust.data.schema.mapping import TableMapping
from flareclust.data.schema.reading import Typed
from flareclust.data.tables import File
from flareclust.evaluation.profile_words import plain_name
from flareclust.experiment.reports.page import report_page

AGE = {"type": "date", "as": "age", "reference": "2024-12-31"}
BORN = [datetime.date(1950, 1, 1), datetime.date(2000, 2, 29), None, datetime.date(2024, 12, 31)]
YEARS = [(datetime.date(2024, 12, 31) - day).days / 365.25 if day else np.nan for day in BORN]
NAME = "age(born, 2024-12-31)"


def written(folder, kind):
    """Write the dates as a hospital may keep them; return the file, and its mapping."""
    path = folder / f"t.{kind.partition(' ')[0]}"
    times = [None if day is None else datetime.datetime(day.year, day.month, day.day, 23, 30) for day in BORN]
    form = {"csv": "%Y-%m-%d", "csv times": "%Y-%m-%d 23:30:00", "csv German": "%d.%m.%Y"}.get(kind)
    if form is not None:
        path.write_text("\n".join(["born", *("NA" if day is None else day.strftime(form) for day in BORN), ""]))
        return path, TableMapping(columns={"born": {"date": "%d.%m.%Y"}}) if kind == "csv German" else None
    cells = {
        "parquet": pa.array(BORN, pa.date32()),
        "parquet times": pa.array(times, pa.timestamp("ns")),
        "feather": pa.array(BORN, pa.date64()),
        "arrow": pa.array([None if day is None else day.isoformat() for day in BORN]),
    }[kind]
    table = pa.table({"born": cells})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path))
    return path, None


@pytest.mark.parametrize("kind", ["csv", "csv times", "csv German", "parquet", "parquet times", "feather", "arrow"])
def test_dates_are_years_before_the_reference_in_every_format(tmp_path, kind):
    path, mapping = written(tmp_path, kind)
    schema = TableSchema(missing="mean", columns={"born": {**AGE, "range": [0, 120]}})
    table = Typed(schema, mapping).read([File(path, path.name)])
    assert table.columns == (NAME,)
    np.testing.assert_array_equal(table.X[:, 0], YEARS)
    assert (schema.feature_units, schema.ranges, schema.words) == (("years",), [[0.0, 120.0]], {})
    early = TableSchema(missing="mean", columns={"born": {**AGE, "reference": datetime.date(1999, 12, 31)}})
    with pytest.raises(TableFaults) as error:
        Typed(early, mapping).read([File(path, path.name)])
    [[fault]] = error.value.faults.values()
    assert fault.startswith(
        "born: 2 cells are after the reference 1999-12-31, first in row 2 (as: age is of dates up to"
    )
    narrow = TableSchema(missing="mean", columns={"born": {**AGE, "range": [18, 70]}})
    with pytest.raises(TableFaults, match="born: 2 cells are outside 18 to 70 years, first in row 1"):
        Typed(narrow, mapping).read([File(path, path.name)])


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"type": "date", "as": "age"}, "as: age and reference go together: the date at which ages are"),
        ({"type": "date", "reference": "2024-12-31"}, "as: age and reference go together"),
        ({**AGE, "reference": "31.12.2024"}, "reference must be a date such as 2024-12-31"),
        ({**AGE, "reference": 2024}, "reference must be text, or None, got 2024"),
        ({**AGE, "type": "number"}, "a column of type number has no as: age, which is for dates"),
        ({**AGE, "as": "years"}, "as must be age, or None, got 'years'"),
        (
            {**AGE, "sa": "age"},
            "unknown setting 'sa'.*; known: type, unit, range, transform, as, reference, values, missing",
        ),
        ({**AGE, "range": ["1900-01-01", "2024-12-31"]}, "range must be two numbers, of years"),
    ],
)
def test_an_age_that_cannot_be_is_refused(column, text):
    with pytest.raises(UserError, match=text):
        ColumnSchema(**column)


def test_an_age_is_a_number_beside_other_numbers_and_in_the_fingerprint():
    months = TableSchema(columns={"born": AGE, "duration": {"type": "number", "unit": "months"}})
    assert months.units_differ
    assert not TableSchema(columns={"born": AGE, "duration": {"type": "number", "unit": "years"}}).units_differ
    prints = {
        TableSchema(columns={"born": born}).fingerprint
        for born in ({"type": "date"}, AGE, {**AGE, "reference": "2023-12-31"})
    }
    assert len(prints) == 3
    assert TableSchema(columns={"born": "date"}).fingerprint == "0c6c90633455c46c"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for site in ("a", "b"):
        old = rng.integers(2, size=120)
        born = [
            (datetime.date(2024, 12, 31) - datetime.timedelta(days=int(days))).isoformat()
            for days in 365.25 * rng.normal(30 + 40 * old, 3)
        ]
        table = {"born": born, "size": (rng.normal(20 + 100 * old, 5)).round(1)}
        pd.DataFrame(table).to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    (tmp_path / "schema.yaml").write_text(
        "columns:\n  born: {type: date, as: age, reference: 2024-12-31}\n  size: {type: number, unit: mm}\n"
    )
    return tmp_path


def test_a_run_shows_years_and_labels_data_frames_with_dates(folder):
    result = flareclust.run("lloyd", folder / "data", 2, schema=folder / "schema.yaml", partition="none", seed=1)
    assert result.columns == (NAME, "size")
    np.testing.assert_allclose(sorted(result.centroids[:, 0]), [30, 70], atol=1)
    page = report_page(result)
    assert "age in years at 2024-12-31 higher: 7" in page
    assert "Columns: age at 2024-12-31, size." in page
    assert re.search("<div class=.rule.>age at 2024-12-31 (&gt;|≤) ", page)
    several = (NAME, "age(seen, 2024-12-31)", "size")
    assert [plain_name(several, j, "years") for j in range(3)] == [
        "age in years at 2024-12-31 (born)", "age in years at 2024-12-31 (seen)", "size (years)",
    ]  # fmt: skip
    table = flareclust.read_table(folder / "data" / "a.csv", folder / "schema.yaml")
    expected, raw = result.predict(table), pd.read_csv(folder / "data" / "a.csv")
    assert len(set(expected)) == 2
    dates = pd.to_datetime(raw["born"])
    for frame in (
        raw, raw.assign(born=dates), raw.assign(born=dates.dt.date), pl.DataFrame(raw).with_columns(pl.col("born").str.to_date()),
        pd.DataFrame(table.X, columns=list(table.columns)),
    ):  # fmt: skip
        np.testing.assert_array_equal(result.predict(frame), expected)
    with pytest.raises(
        UserError, match="column 'born' holds values that are no dates such as 2024-12-31, or after 2024"
    ):
        result.predict(raw.assign(born="2025-01-01"))


def test_the_draft_offers_ages_of_dates_of_birth_only(tmp_path):
    n = 60
    seen = [(datetime.date(2024, 1, 1) + datetime.timedelta(days=i)).isoformat() for i in range(n)]
    long_ago = [datetime.date(1950 + i, 3, 1).isoformat() for i in range(n)]
    table = {"seen": seen, "date_of_birth": seen, "day": long_ago, "size": [i % 50 for i in range(n)]}
    pd.DataFrame(table).to_csv(tmp_path / "a.csv", index=False)
    lines = draft(tmp_path / "a.csv").text.splitlines()
    offered = [line.split(":")[0].strip() for line in lines if "as: age, reference: YYYY-MM-DD" in line]
    assert offered == ["date_of_birth", "day"]
    assert not any(year in line for line in lines for year in ("1950", "2009", "2024"))
