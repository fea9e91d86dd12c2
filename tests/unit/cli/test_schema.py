"""`flareclust schema` and `flareclust run --schema --dry-run`: from a table to a schema that other tables are held to."""

import json

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.data.schema.columns import read_schema
from flareclust.data.tables import Table
from flareclust.protocol import registry
from flareclust.protocol.task import Task
from tests.command_line import call


@pytest.fixture
def north(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    lines = [f"n{i},{30 + i % 40},{'fm'[i % 2]}" for i in range(50)]
    (folder / "north.csv").write_text("\n".join(["patient,age,sex", *lines]))
    return folder / "north.csv"


def test_draft_check_and_dry_run(north, capsys):
    assert call("schema", "draft", north, "--out", "schema.yaml") == 0
    assert "correct types, units and ranges" in capsys.readouterr().out
    assert call("schema", "check", north, "--schema", "schema.yaml") == 0
    shown = capsys.readouterr().out
    assert "sites with the same one agree" in shown
    assert f"mapping: none, as there is no {north.with_name('north.mapping.yaml')}" in shown
    south = north.with_name("south.csv")
    south.write_text(north.read_text().replace("age", "Alter").replace("f\n", "w\n"))
    run = ("run", "pooled", "--data", "data", "--partition", "none", "--k", 2, "--schema", "schema.yaml", "--dry-run")
    assert call(*run) == 2
    assert capsys.readouterr().err.splitlines()[1].strip().startswith("age: no such column")
    south.with_name("south.mapping.yaml").write_text("columns: {age: Alter, sex: {values: {w: f}}}")
    assert call("schema", "check", south, "--schema", "schema.yaml") == 0
    assert f"mapping: {south.with_name('south.mapping.yaml')}" in capsys.readouterr().out
    assert call(*run) == 0
    shown = capsys.readouterr().out
    assert "north" in shown
    assert "south" in shown
    assert not (north.parent.parent / "flareclust-runs").exists()


def test_the_check_names_a_code_for_missing_cells(north, capsys):
    (north.parent / "schema.yaml").write_text("columns: {age: {type: number}}")
    north.write_text(north.read_text().replace("n7,37", "n7,999"))
    assert call("schema", "check", north, "--schema", north.parent / "schema.yaml") == 0
    assert "hint: column 'age' has 1 cell above 120 years; errors, or a code" in capsys.readouterr().out


def test_a_draft_is_printed_and_replaces_nothing(north, capsys):
    assert call("schema", "draft", north) == 0
    assert "sex: {type: category, values: [f, m]}" in capsys.readouterr().out
    north.with_name("schema.yaml").write_text("mine")
    assert call("schema", "draft", north, "--out", north.with_name("schema.yaml")) == 2
    assert "is there already" in capsys.readouterr().err
    assert call("schema", "draft", north, "--mapping", "gone.yaml") == 2
    assert call("schema", "draft", north, "--mapping", "gone.yaml", "--decimal", ",") == 2
    assert "leave out --encoding and --decimal" in capsys.readouterr().err
    assert call("schema", "draft", north, "--encoding", "latin-1", "--out", "first.yaml") == 0
    assert f'{north.with_name("north.mapping.yaml")}: put encoding: "latin-1" there' in capsys.readouterr().out


def test_faults_have_a_line_each(north, capsys):
    (north.parent / "schema.yaml").write_text(
        "columns: {age: {type: number, range: [0, 50]}, sex: {type: category, values: [f]}, weight: number}"
    )
    assert call("schema", "check", north, "--schema", north.parent / "schema.yaml") == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    (north.parent / "schema.yaml").write_text(
        "columns: {age: {type: number, range: [0, 50]}, sex: {type: category, values: [f]}}"
    )
    assert call("schema", "check", north, "--schema", north.parent / "schema.yaml") == 2
    assert [line[:6] for line in capsys.readouterr().err.splitlines()[1:]] == ["  age:", "  sex:"]


def test_dry_run_of_tables_of_numbers(north, capsys):
    north.write_text("age,crp\n" + "\n".join(f"{i},{i}" for i in range(9)))
    assert call("run", "pooled", "--data", "data", "--partition", "none", "--k", 2, "--dry-run") == 0
    assert "9" in capsys.readouterr().out


def test_dry_run_counts_missing_cells_also_of_columns_without_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(40.0).reshape(20, 2)
    rows[:3, 1] = np.nan
    np.save("rows.npy", rows)
    common = ("--data", "rows.npy", "--partition", "iid", "--n-sites", 1, "--k", 2, "--dry-run")
    assert call("run", "pooled", *common, "--set", "missing=mean") == 0
    assert "column 2 3" in " ".join(capsys.readouterr().out.split())


def test_an_exported_job_holds_its_sites_to_the_schema(tmp_path):
    """The settings are those of a job that `run` submits; those that are given come first."""
    schema = tmp_path / "schema.yaml"
    schema.write_text("columns: {age: {type: number, unit: years}, size: {type: number, unit: mm, missing: mean}}")
    assert (
        call("jobs", "export", "pooled", tmp_path / "job", "--k", 2, "--schema", schema, "--set", "scale=robust") == 0
    )
    client, server = (
        json.loads((tmp_path / "job" / "app" / "config" / f"config_fed_{side}.json").read_text())
        for side in ("client", "server")
    )
    wanted = read_schema(schema).fingerprint
    params = {"scale": "robust", "missing": "mean", "table_schema": wanted}
    assert params.items() <= client["executors"][0]["executor"]["args"].items()
    assert server["components"][0]["args"]["compare"] == "spread"
    executor = registry.get("pooled").executor_class()(2, table_schema=wanted)
    with pytest.raises(Refusal, match="without a schema"):
        executor.answer(Task("names", 0, {}, "north"), Table(np.ones((9, 2)), ("age", "size")), lambda: False)
    assert call("jobs", "export", "kpod", tmp_path / "job", "--k", 2, "--schema", schema) == 2
    assert call("jobs", "export", "pooled", tmp_path / "job", "--k", 2, "--schema", tmp_path / "gone.yaml") == 2


@pytest.mark.parametrize(
    ("unit", "factor", "said"),
    [("mmol/l", 1 / 0.45359237, "about 2.3 times"), ("kg", 1 / 0.45359237, "about 2.2 (pounds) times"), ("kg", 18, "18 times")],
)  # fmt: skip
def test_a_dry_run_compares_sites_and_names_factors_of_the_unit_only(unit, factor, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for site in "abc":
        X = rng.normal([78, 50], [14, 10], (200, 2)) * (factor if site == "b" else 1, 1)
        np.savetxt(tmp_path / "data" / f"{site}.csv", X, fmt="%.3f", delimiter=",", header="mass,age", comments="")
    (tmp_path / "schema.yaml").write_text(f"columns: {{mass: {{type: number, unit: {unit}}}, age: {{type: number}}}}")
    common = ("run", "pooled", "--data", "data", "--partition", "none", "--k", 2, "--dry-run")
    assert call(*common, "--schema", "schema.yaml") == 0
    [hint] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hint:")]
    assert hint.startswith("hint: b: column 'mass' is about")
    assert said in hint
    assert ("pounds" in hint, "glucose" in hint) == ("pounds" in said, False)
    assert call(*common) == 0
    assert "hint: b: column 'mass' is about" in capsys.readouterr().out


def test_a_cell_outside_its_range_has_a_factor_of_its_unit_only(north, capsys):
    for unit, factor in (("kg", "factor: 0.453592"), ("mmol/l", "")):
        (north.parent / "s.yaml").write_text(f"columns: {{age: {{type: number, unit: {unit}, range: [12, 32]}}}}")
        assert call("schema", "check", north, "--schema", north.parent / "s.yaml") == 2
        shown = capsys.readouterr().err
        assert factor in shown
        assert ("0.453592" in shown) == bool(factor)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            "{time: days, event: died=yes, every: 10, until: 40}",
            "time (days) to died=yes, in 4 intervals of 10 d until 40; 49 of 50 rows have it: 19 with the event by then, 9 there for longer",
        ),
        ("{value: died}", "died, one of no, yes; 50 of 50 rows have it"),
        ("{value: stage}", "stage, one of I, II, in this order; 50 of 50 rows have it"),
        ("{value: days}", "days, a number in d; 49 of 50 rows have it"),
    ],
)
def test_check_and_dry_run_say_which_outcome_rows_have(north, capsys, outcome, said):
    lines = [f"{30 + i % 40},{'' if i == 3 else i},{('no', 'yes')[i % 2]},{'I' * (1 + i % 2)}" for i in range(50)]
    north.write_text("\n".join(["age,days,died,stage", *lines]))
    types = {
        "days": "{type: number, unit: d}",
        "died": '{type: category, values: ["no", "yes"]}',
        "stage": "{type: ordered, values: [I, II]}",
    }
    columns = "".join(f"  {name}: {kind if name in outcome else 'ignore'}\n" for name, kind in types.items())
    north.with_name("schema.yaml").write_text(f"columns:\n  age: number\n{columns}outcome: {outcome}\n")
    assert call("schema", "check", north, "--schema", north.with_name("schema.yaml")) == 0
    assert f"north.csv: outcome: {said}" in " ".join(capsys.readouterr().out.split())
    run = (
        "run",
        "lloyd",
        "--data",
        "data",
        "--partition",
        "none",
        "--k",
        2,
        "--schema",
        "data/schema.yaml",
        "--dry-run",
    )
    north.with_name("schema.yaml").rename(north.parent.parent / "schema.yaml")
    assert call(*run[:-2], "schema.yaml", "--dry-run") == 0
    assert f"north: outcome: {said}" in " ".join(capsys.readouterr().out.split())
    if "died" in outcome:
        (north.parent / "north.mapping.yaml").write_text("lacks: [died]")
        assert call("schema", "check", north, "--schema", "schema.yaml") == 0
        assert "the site does not have it (lacks in its mapping)" in " ".join(capsys.readouterr().out.split())
