"""What a schema says of missing cells that jobs fill, from the file to the settings of a run."""

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust.data.schema.columns import TableSchema, read_schema
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.sites.check import columns_of

SCHEMA = """
missing: mean
columns:
  age: {type: number, unit: years, range: [0, 120]}
  crp: {type: number, unit: mg/l, missing: refuse}
  sex: {type: category, values: [f, m]}
  stage: {type: ordered, values: [I, II, III]}
"""
ROWS = "age,crp,sex,stage\n" + "50,1.5,f,I\n,2.5,m,III\n60,3,,II\n70,4,m,\n" * 5


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "data").mkdir()
    for site in ("north", "south"):
        (tmp_path / "data" / f"{site}.csv").write_text(ROWS)
    return tmp_path


def experiment(folder, algorithm="pooled", **settings):
    return make_experiment(
        algorithm=algorithm,
        k=2,
        data=str(folder / "data"),
        partition="none",
        schema=str(folder / "schema.yaml"),
        engine="inprocess",
        **settings,
    )


def test_cells_that_jobs_fill_stay_missing(folder):
    prepared = prepare(experiment(folder))
    rows = prepared.sites["north"].X
    assert prepared.params["missing"] == "mean"
    assert prepared.columns == ("age", "crp", "sex=f", "sex=m", "stage")
    np.testing.assert_array_equal(np.isnan(rows).sum(axis=0), [5, 0, 5, 5, 5])
    assert np.isnan(rows[2, 2:4]).all()


def test_a_run_fills_them_with_the_means(folder):
    data, schema = str(folder / "data"), str(folder / "schema.yaml")
    result = flareclust.run("pooled", data, partition="none", k=2, schema=schema, engine="inprocess", scale="none")
    np.testing.assert_allclose(result.arrays["fill"], [60, 2.75, 1 / 3, 2 / 3, 1], atol=0.4)
    (text,) = [text for text in result.warnings if "missing cells" in text]
    assert "'age' 10 (25 %)" in text


def test_an_algorithm_that_cannot_says_so(folder):
    with pytest.raises(UserError, match=r"kpod cannot do with missing cells what the schema says of age, sex, stage"):
        prepare(experiment(folder, "kpod"))
    with pytest.raises(UserError, match=r"central cannot do with missing cells"):
        prepare(experiment(folder, "central"))
    assert prepare(experiment(folder, "masked")).params["missing"] == "mean"


def test_cells_that_stay_open_set_the_run(folder):
    (folder / "schema.yaml").write_text(SCHEMA.replace("missing: mean", "missing: partial"))
    prepared = prepare(experiment(folder))
    assert prepared.params["missing"] == "partial"
    np.testing.assert_array_equal(np.isnan(prepared.sites["north"].X).sum(axis=0), [5, 0, 5, 5, 5])
    data, schema = str(folder / "data"), str(folder / "schema.yaml")
    with pytest.raises(UserError, match="missing must be one of refuse, mean; got 'partial'"):
        flareclust.run("fkm", data, partition="none", k=2, schema=schema)
    with pytest.raises(UserError, match="a job takes one of mean and partial for all columns"):
        TableSchema(missing="mean", columns={"a": {"type": "number", "missing": "partial"}, "b": {"type": "number"}})


def test_ranges_of_the_schema_scale_by_range(folder):
    prepared = prepare(experiment(folder, params={"scale": "range"}))
    assert prepared.params["table_ranges"] == [[0, 120], None, [0, 1], [0, 1], [0, 2]]
    assert "table_ranges" not in prepare(experiment(folder)).params


def test_one_table_with_gaps_can_be_split(folder):
    one = str(folder / "data" / "north.csv")
    result = flareclust.run(
        "pooled", one, n_sites=2, partition="iid", k=2, schema=str(folder / "schema.yaml"), engine="inprocess"
    )
    assert result.params["missing"] == "mean"


def test_a_schema_says_which_columns_are_filled(folder):
    assert read_schema(folder / "schema.yaml").left_to_jobs == {"age": "mean", "sex": "mean", "stage": "mean"}
    assert TableSchema(columns={"a": {"type": "number"}}).left_to_jobs == {}
    with pytest.raises(UserError, match="missing"):
        TableSchema(columns={"a": {"type": "number", "missing": "median"}})


def test_an_operator_sees_the_known_cells():
    X = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
    known, empty = columns_of(X, ["a", "b"])
    assert (known.different, known.minimum, known.mean, known.largest) == (2, 1, 2, 3)
    assert empty.different == 0
