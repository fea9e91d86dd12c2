"""Columns with transform: log, from the file to the report."""

from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from skops.io import get_untrusted_types, load

import flareclust
from flareclust._foundation.errors import TableFaults, UserError
from flareclust.data.cells import log_helps
from flareclust.data.schema.columns import ColumnSchema, TableSchema, read_schema
from flareclust.data.schema.draft import draft
from flareclust.experiment.reports.page import report_page

PLAIN = "columns:\n  age: {type: number, unit: years}\n  crp: {type: number, unit: mg/l, range: [0, 99999]}\n"
LOG = PLAIN.replace("99999]", "99999], transform: log")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for site in ("a", "b"):
        high = rng.integers(2, size=120)
        table = {"age": rng.normal(50 + 10 * high, 5), "crp": np.exp(rng.normal(2 + 3 * high, 0.5))}
        pd.DataFrame(table).round(2).to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    (tmp_path / "schema.yaml").write_text(LOG, encoding="utf-8")
    return tmp_path


def clustered(folder: Path, text: str = LOG) -> flareclust.Result:
    (folder / "schema.yaml").write_text(text, encoding="utf-8")
    return flareclust.run(
        "lloyd", str(folder / "data"), 2, schema=str(folder / "schema.yaml"), partition="none", seed=1
    )


def test_the_feature_is_the_logarithm_of_one_and_the_number_in_the_unit_of_the_schema(folder):
    table = flareclust.read_table(
        folder / "data" / "a.csv", folder / "schema.yaml", mapping={"columns": {"crp": {"factor": 10}}}
    )
    raw = pd.read_csv(folder / "data" / "a.csv")
    assert table.columns == ("age", "log1p(crp)")
    np.testing.assert_allclose(table.X[:, 1], np.log1p(10 * raw["crp"]))
    schema = read_schema(folder / "schema.yaml")
    assert schema.feature_units == ("years", "log1p(mg/l)")
    assert schema.ranges == [None, [0.0, pytest.approx(np.log(100_000))]]


def test_numbers_below_0_are_counted_and_located_without_their_values(tmp_path):
    (tmp_path / "a.csv").write_text("crp\n1\n-7.25\n3\n-8\n", encoding="utf-8")
    (tmp_path / "schema.yaml").write_text("columns:\n  crp: {type: number, transform: log}\n", encoding="utf-8")
    with pytest.raises(TableFaults, match="crp: 2 cells are below 0, first in row 2") as error:
        flareclust.read_table(tmp_path / "a.csv", tmp_path / "schema.yaml")
    assert "7.25" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"type": "number", "transform": "root"}, "log"),
        ({"type": "date", "transform": "log"}, "a column of type date has no transform"),
        ({"type": "number", "range": (-1, 5), "transform": "log"}, "begin the range at 0"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(column, text):
    with pytest.raises(UserError, match=text):
        ColumnSchema(**column)


def test_a_schema_without_transforms_keeps_its_fingerprint():
    columns = {"age": {"type": "number", "unit": "years"}, "sex": {"type": "category", "values": ["f", "m"]}}
    plain = TableSchema(columns=columns)
    assert plain.fingerprint == "55cd5f613b5ae1c1"
    columns["age"] |= {"transform": "log"}
    assert TableSchema(columns=columns).fingerprint != plain.fingerprint


def test_logarithms_beside_numbers_are_brought_to_one_spread():
    columns = {"a": {"type": "number"}, "b": {"type": "number", "transform": "log"}}
    assert TableSchema(columns=columns).units_differ
    assert not TableSchema(columns={"a": {"type": "number"}, "b": {"type": "number"}}).units_differ


def test_words_and_report_show_numbers_and_not_logarithms(folder):
    result = clustered(folder)
    table, page = result.profiles(), report_page(result)
    logs = table[table["column"] == "log1p(crp)"]
    np.testing.assert_allclose(logs["expm1_mean"], np.expm1(logs["mean"]))
    assert table[table["column"] == "age"]["expm1_mean"].isna().all()
    high = f"{logs['expm1_mean'].max():.0f}"
    assert f"crp (mg/l) higher: {high} (all " in page
    assert (
        "Of crp (mg/l) logarithms are clustered (transform: log): a mean is that of the logarithms with the log scale undone"
        in page
    )
    edge = float(page.split("crp &gt; ")[1].split(" ")[0].split("<")[0])
    assert 12 < edge < 100
    assert "expm1_mean" not in clustered(folder, PLAIN).profiles()


def test_a_data_frame_has_the_numbers_a_table_of_the_schema_the_logarithms(folder):
    result = clustered(folder)
    table, raw = (
        flareclust.read_table(folder / "data" / "a.csv", folder / "schema.yaml"),
        pd.read_csv(folder / "data" / "a.csv"),
    )
    expected = result.predict(table)
    assert len(set(expected)) == 2
    np.testing.assert_array_equal(result.predict(raw), expected)
    np.testing.assert_array_equal(result.predict(pd.DataFrame(table.X, columns=list(table.columns))), expected)
    with pytest.raises(UserError, match="column 'crp' holds cells that are no numbers of 0 and more"):
        result.predict(raw.assign(crp=-1.0))


def test_a_strongly_skewed_column_is_named_once_and_not_with_its_logarithm(folder):
    rng = np.random.default_rng(0)
    for site in ("a", "b"):
        table = {"age": rng.normal(50, 5, 120), "crp": np.exp(rng.normal(3, 1.2, 120))}
        pd.DataFrame(table).round(2).to_csv(folder / "data" / f"{site}.csv", index=False)
    said = [text for text in clustered(folder, PLAIN).warnings if "strongly skewed" in text]
    assert said == [
        "strongly skewed, so that a few large values decide clusters: crp; transform: log in the schema takes their logarithms"
    ]
    assert not [text for text in clustered(folder).warnings if "skewed" in text]
    assert "crp: {type: number, range: " in (text := draft(folder / "data" / "a.csv").text)
    assert [line for line in text.splitlines() if "transform: log?" in line] == [
        line for line in text.splitlines() if line.startswith("  crp:")
    ]


@pytest.mark.parametrize(
    "numbers", [np.arange(50.0), np.exp(np.arange(50.0) / 3) - 2, np.ones(50), np.array([1.0, 900.0])]
)
def test_even_negative_constant_and_few_numbers_need_no_logarithm(numbers):
    assert not log_helps(numbers)
    assert log_helps(np.append(np.exp(np.arange(50.0) / 3), np.nan))


def test_one_outlier_makes_no_column_skewed():
    rng = np.random.default_rng(0)
    for numbers in (rng.normal(70, 10, 40), rng.exponential(5.0, 300), np.full(60, 7.0)):
        assert not log_helps(np.append(numbers, 7000.0))
    assert log_helps(np.append(rng.lognormal(1.0, 1.5, 300), 7000.0))


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_exported_models_take_the_numbers(folder, missing):
    result = clustered(folder, f"missing: {missing}\n{LOG}" if missing == "mean" else LOG)
    asked = pd.DataFrame({"age": np.linspace(20, 90, 200), "crp": np.geomspace(0.01, 2000, 200)})
    if missing == "mean":
        asked.loc[::9, "crp"] = np.nan
    expected = result.predict(asked)
    assert set(expected.tolist()) == {0, 1}
    path = result.export(folder / "model.skops")
    model = load(path, trusted=get_untrusted_types(file=path))
    assert list(model.feature_names_in_) == ["age", "crp"]
    np.testing.assert_array_equal(model.predict(asked), expected)
    session = onnxruntime.InferenceSession(str(result.export(folder / "model.onnx")))
    labels, _ = session.run(["cluster", "distance"], {"rows": asked.to_numpy()})
    np.testing.assert_array_equal(labels, expected)
    assert session.get_modelmeta().custom_metadata_map["columns"] == "age\ncrp"
    assert set(get_untrusted_types(file=path)) <= {"numpy.dtype"}
