"""Rows that come after a run: columns in another unit than in the run, and how many rows are far from every cluster."""

import json
import logging
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import flareclust
from flareclust import UserError
from flareclust.cli.main import app
from flareclust.data.schema.columns import read_schema
from flareclust.evaluation import profile_words
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.tables.late_rows import columns_unlike_those_of, place_file

SCHEMA = "columns:\n  seen: {type: date}\n  crp: {type: number}\n"


def patients(n, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n)
    return pd.DataFrame(rng.normal(np.array([[40, 5.0], [65, 20.0]])[kind], [4, 1]), columns=["age", "glucose"])


def late(n=150, seed=9, factor=18.0):
    frame = patients(n, seed)
    frame["glucose"] *= factor
    return frame


@pytest.mark.parametrize("settings", [{}, {"scale": "standard"}, {"scale": "standard", "profile": False}], ids=str)
def test_a_column_in_another_unit_than_in_the_run_is_named(settings, caplog):
    result = flareclust.run("lloyd", {site: patients(200, i) for i, site in enumerate("ab")}, k=2, **settings)
    with caplog.at_level(logging.WARNING):
        result.placements(late())
        assert caplog.messages == [
            "column 'glucose' is about 18 (glucose in mg/dl) times larger than in the run; is it in another unit?"
        ]
        caplog.clear()
        result.placements(late(factor=1))
        result.placements(late(3))  # so few rows say nothing
        assert not caplog.messages
    late_ones = {"arrays": {"mean": np.zeros(1), "deviation": np.ones(1)}, "params": {"scale": "standard"}}
    many = np.random.default_rng(0).lognormal(0, 2.5, size=(20_000, 1))
    for rows in (12, None):  # of which the run's few say little
        assert not columns_unlike_those_of(**late_ones, columns=["x"], X=many, rows=rows)
    values = patients(50, 8).to_numpy(copy=True)
    values[:, 0] += 500
    [text] = columns_unlike_those_of(result.arrays, result.params, result.columns, values, 400)
    assert "has values apart from those of the run (mean 5" in text
    assert ", in the run 5" in text


def test_the_command_says_so_and_how_many_rows_are_far(tmp_path):
    result = flareclust.run("lloyd", {site: patients(200, i) for i, site in enumerate("ab")}, k=2)
    result.save(tmp_path / "out")
    late(100).to_csv(tmp_path / "late.csv", index=False)
    patients(100, 9).to_csv(tmp_path / "good.csv", index=False)
    said = {}
    for name in ("late", "good"):
        files = [str(tmp_path / "out"), "--data", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / name)]
        ran = CliRunner().invoke(app, ["assign", *files])
        assert ran.exit_code == 0, ran.output
        said[name] = ran.output
    assert "note: column 'glucose' is about 18 (glucose in mg/dl) times larger than in the run" in said["late"]
    assert "note: 100 of 100 rows (100.0%) are far from every cluster" in said["late"]
    assert "note: column" not in said["good"]
    assert " of 100 rows (0.0%) are far from every cluster" in said["good"]


def test_new_rows_need_no_outcome_yet(tmp_path, caplog):
    """Their schema and mapping stay those of the run."""
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(
        "columns:\n  age: {type: number}\n  glucose: {type: number}\n  ward: {type: ignore}\n  days: {type: number}\n"
        "  died: {type: category, values: ['no', 'yes']}\noutcome: {time: days, event: died=yes, every: 10, until: 100}\n"
    )
    mapping = "columns:\n  ward: Station\n  days: Tage\n  died: {from: tot, values: {n: 'no', j: 'yes'}}\n"
    for i, site in enumerate("ab"):
        frame = patients(100, i).assign(Station="A", Tage=range(1, 101), tot=["n", "j"] * 50)
        frame.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
        (tmp_path / "data" / f"{site}.mapping.yaml").write_text(mapping)
    schema = str(tmp_path / "schema.yaml")
    result = flareclust.run("lloyd", str(tmp_path / "data"), partition="none", schema=schema, k=2, out=tmp_path / "out")
    (tmp_path / "next.mapping.yaml").write_text(mapping)
    words = ["assign", str(tmp_path / "out"), "--data", str(tmp_path / "next.csv"), "--schema", schema]
    words += ["--site", "a", "--new-rows", "--out", str(tmp_path / "placed")]
    for frame in (patients(80, 5).assign(Station="B"), patients(80, 5).assign(Station="B", Tage="unknown", tot="")):
        frame.to_csv(tmp_path / "next.csv", index=False)
        ran = CliRunner().invoke(app, words)
        assert ran.exit_code == 0, ran.output
        assert not {"days", "died", "outcome"} & set(re.findall(r"\w+", ran.output.replace(str(tmp_path), "")))
        labels = pd.read_csv(tmp_path / "placed" / "labels.csv")["label"]
        np.testing.assert_array_equal(labels, result.predict(patients(80, 5)))
    patients(80, 5).drop(columns="age").assign(Station="B").to_csv(tmp_path / "next.csv", index=False)
    ran = CliRunner().invoke(app, words)
    assert "age: no such column" in str(ran.exception)
    assert "without a place" not in str(ran.exception)
    assert not caplog.messages


PLAIN = "columns:\n  age: {type: number}\n  glucose: {type: number}\n"
WEIGHED = f"{PLAIN}  n: {{type: weight}}\n  kind: {{type: category, values: [lo, hi]}}\n"


@pytest.mark.parametrize("own", [PLAIN, WEIGHED], ids=["without", "with"])
@pytest.mark.parametrize("required", [False, True], ids=["simulated", "at sites"])
def test_new_rows_need_no_weight_and_no_known_class(tmp_path, own, required):
    (tmp_path / "data").mkdir()
    for name, text in (("own", own), ("all", WEIGHED)):
        (tmp_path / f"{name}.yaml").write_text(text)
    for site, seed in (("a", 1), ("b", 2)):
        patients(80, seed).assign(n=2, kind="lo").to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    settings = {"partition": "none", "schema": str(tmp_path / "own.yaml"), "truth": "kind" if own == WEIGHED else None}
    result = flareclust.run("lloyd", str(tmp_path / "data"), k=2, out=tmp_path / "out", **settings)
    if required:  # as a job of real sites says it
        about = json.loads((tmp_path / "out" / "result.json").read_text())
        about["params"]["table_schema"] = read_schema(tmp_path / "own.yaml").fingerprint
        (tmp_path / "out" / "result.json").write_text(json.dumps(about))
    patients(80, 5).to_csv(tmp_path / "next.csv", index=False)
    placed = place_file(tmp_path / "out", tmp_path / "next.csv", "c", schema=tmp_path / "all.yaml")
    np.testing.assert_array_equal(placed.labels, result.predict(patients(80, 5)))
    (tmp_path / "all.yaml").write_text(WEIGHED.replace("glucose: {type: number", "glucose: {type: number, unit: mg"))
    with pytest.raises(UserError, match="is not the schema of the run"):
        place_file(tmp_path / "out", tmp_path / "next.csv", "c", schema=tmp_path / "all.yaml")


def test_dates_are_dates_in_words_tree_and_report(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    for site in "ab":
        kind = rng.integers(0, 2, 120)
        days = np.datetime64("2020-01-01") + rng.integers(0, 30, 120) + 1000 * kind
        frame = pd.DataFrame({"seen": days.astype(str), "crp": rng.normal(5 + 20 * kind, 1)})
        frame.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    result = flareclust.run(
        "lloyd", str(tmp_path / "data"), partition="none", schema=str(tmp_path / "schema.yaml"), k=2, seed=0
    )
    profiles = profiles_of(result.arrays, result.columns)
    words = " | ".join(profile_words.sentence(profiles, c) for c in range(2))
    assert "seen higher: 2022-10-" in words
    assert "(all 2021-" in words
    tree = " | ".join(one.text for one in profile_words.branches(profiles))
    assert "seen > 202" in tree or "crp" in tree
    page = report_page(result)
    assert "2022-10-" in page
    assert "19,2" not in page
