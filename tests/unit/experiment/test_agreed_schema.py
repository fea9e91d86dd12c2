"""Provisioned sites read their rows by the schema that the lead names, or take no part."""

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.schema.columns import read_schema
from flareclust.data.tables import Table
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.federation.site import steps_to_end
from flareclust.protocol import registry
from flareclust.protocol.task import Task

X = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture
def experiment(tmp_path):
    (tmp_path / "schema.yaml").write_text("columns: {age: {type: number, unit: years}, size: {type: number, unit: mm}}")
    return make_experiment(
        algorithm="pooled", k=2, engine="production", kit="kits/lead", schema=str(tmp_path / "schema.yaml")
    )


def test_columns_have_names_and_are_scaled_where_units_differ(experiment):
    prepared = prepare(experiment)
    assert prepared.columns == ("age", "size")
    assert prepared.params["scale"] == "standard"
    assert prepared.settled({"scale": "none"})["params"]["scale"] == "none"
    assert prepared.params["table_schema"] == read_schema(experiment.table_schema).fingerprint


def test_categories_follow_from_the_schema_where_an_algorithm_has_them(tmp_path):
    (tmp_path / "schema.yaml").write_text("columns: {age: number, sex: {type: category, values: [f, m]}}")
    for algorithm, expected in (("kprototypes", [[1, 2]]), ("pooled", [[1, 2]])):
        about = {"algorithm": algorithm, "k": 2, "engine": "production", "kit": "kits/lead"}
        params = prepare(make_experiment(**about, schema=str(tmp_path / "schema.yaml"))).params
        assert params.get("categories") == expected
        assert params["scale"] == "standard"
        assert registry.get(algorithm).check(2, params=params)
    directions = make_experiment(**about, schema=str(tmp_path / "schema.yaml"), params={"metric": "cosine"})
    assert "scale" not in prepare(directions).params


@pytest.mark.parametrize("name", ["pooled", "masked", "feca"])
def test_sites_with_another_schema_refuse(experiment, name):
    wanted = prepare(experiment).params["table_schema"]
    executor = registry.get(name).executor_class()(2, table_schema=wanted)
    task = Task(next(iter(steps_to_end(type(executor)))) if name == "masked" else "cluster", 0, {}, "north")
    columns = ("age", "size")
    assert executor.answer(task, Table(X, columns, schema=wanted), never_abort).arrays
    for other, words in (("", "without a schema"), ("0" * 16, "by the schema 0000")):
        with pytest.raises(Refusal, match=words):
            executor.answer(task, Table(X, columns, schema=other), never_abort)
