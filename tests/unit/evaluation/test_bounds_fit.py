"""Columns beside agreed bounds or ranges: one in another unit is named at the site, by check, dry run and the job's own log."""

from pathlib import Path

import numpy as np
import pytest

from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation.bounds_fit import misfits
from flareclust.privacy.dp.budget import bounds_of, misfitting
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from tests.command_line import call
from tests.unit.algorithms.dp_cases import policy

RNG = np.random.default_rng(0)
TUMOUR = RNG.gamma(4, 9, 300).clip(2, 190)  # mm
BOUNDS = {"age": (0, 110), "tumour": (0, 200)}


def said(values, low=0.0, high=200.0):
    return misfits(np.array(values)[:, None], np.array([low]), np.array([high]), ["x"], "bounds")


@pytest.mark.parametrize("factor", [0.1, 0.01, 1e-3, 1 / 25.4])
def test_a_column_that_fills_a_small_part_is_named_where_a_unit_would_explain_it(factor):
    (text,) = said(TUMOUR * factor)
    assert text.startswith("'x' fills only")
    assert "of the bounds 0 to 200; is it in another unit?" in text


def test_a_column_beyond_its_bounds_is_named_with_the_unit_that_would_fit():
    (text,) = said(TUMOUR * 10)
    assert text.startswith("'x' has ")
    assert "of its values beyond the bounds 0 to 200; is it in another unit? 0.1 times its values would fit" in text
    (text,) = said(RNG.normal(1e9, 1, 100))
    assert text == "'x' has 100% of its values beyond the bounds 0 to 200"


@pytest.mark.parametrize(
    "values",
    [TUMOUR, TUMOUR * 2, RNG.normal(37, 0.5, 300), np.full(50, 3.0), TUMOUR[:19] / 10, np.r_[TUMOUR, [5e3]]],
    ids=["as agreed", "larger", "narrow and far from 0", "constant", "few", "one beyond"],
)
def test_others_are_not_named(values):
    assert not said(values)


def test_missing_cells_and_columns_without_a_range_are_left_out():
    X = np.column_stack([TUMOUR / 10, TUMOUR / 10])
    X[::3] = np.nan
    found = misfits(X, np.array([0.0, np.nan]), np.array([200.0, np.nan]), ["x", "y"], "bounds")
    assert [text[:3] for text in found] == ["'x'"]


def test_of_many_rows_some_are_looked_at():
    assert said(np.tile(TUMOUR / 10, 1000)) == said(np.tile(TUMOUR / 10, 1000)[::3])


def test_a_ball_bounds_rows_and_not_columns():
    dp = Policy.of(policy({"norm": 200.0})).dp
    table = Table(TUMOUR[:, None] / 10, ("tumour",))
    assert not misfitting(bounds_of(dp.bounds, table.columns, 1), table)


# ---- where it is said ----


@pytest.mark.parametrize("name", ["dp-lloyd", "dp-oneshot", "dp-gmm"])
def test_the_sites_log_names_it_in_a_job_and_nothing_is_sent(name, caplog):
    pytest.importorskip("opendp")
    age = RNG.normal(60, 10, 300)
    sites = {site: Table(np.column_stack([age, TUMOUR * (0.1 if site == "b" else 1)]), tuple(BOUNDS)) for site in "abc"}
    own = Policy.of(policy(BOUNDS, epsilon=4.0, budget=9.0))
    outcome = run_inprocess(registry.get(name), {"epsilon": 4.0}, sites, JobOptions(k=2), policy=own)
    found = [record.getMessage() for record in caplog.records if record.name == "flareclust.privacy.dp.site"]
    assert len(found) == 1
    assert found[0].startswith("b: column 'tumour' fills only")
    assert not any("tumour" in text for text in outcome.warnings)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for site, factor in {"north": 1, "south": 0.1}.items():
        X = np.column_stack([RNG.normal(60, 10, 300).clip(1, 109), TUMOUR * factor])
        np.savetxt(f"data/{site}.csv", X, fmt="%.2f", delimiter=",", header="age,tumour", comments="")


def test_the_dry_run_names_it(data, capsys):
    bounds = "{age: [0, 110], tumour: [0, 200]}"
    Path("policy.yaml").write_text(f"differential_privacy: {{bounds: {bounds}, epsilon: 1, delta: 1.0e-5, budget: 1}}")
    common = ("--data", "data", "--partition", "none", "--k", 2, "--dry-run")
    assert call("run", "dp-lloyd", *common, "--policy", "policy.yaml") == 0
    hints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hint:")]
    assert len(hints) == 1
    assert hints[0].startswith("hint: south: 'tumour' fills only")
    ranges = "{age: {type: number, range: [0, 110]}, tumour: {type: number, range: [0, 200]}}"
    Path("schema.yaml").write_text(f"columns: {ranges}")
    assert call("run", "pooled", *common, "--schema", "schema.yaml") == 0
    hints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hint:")]
    assert len(hints) == 1
    assert "of the schema's range 0 to 200" in hints[0]
