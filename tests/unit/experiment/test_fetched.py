"""The folder of an exported job, as its server has written it, gives what `run` gives: names, profiles, report."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.data.schema.columns import read_schema
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.results.artifacts import REPORT
from flareclust.experiment.results.fetched import result_of_job
from flareclust.platform import provisioned
from flareclust.protocol import cluster_arrays
from flareclust.protocol import outcome as outcome_files

SCHEMA = "columns:\n  age: {type: number, unit: years}\n  crp: {type: number}\n"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder that NVFlare has downloaded, the schema, and the result of the same job by `run`."""
    root = tmp_path_factory.mktemp("job")
    (root / "data").mkdir()
    (root / "schema.yaml").write_text(SCHEMA)
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        y = rng.integers(0, 2, 120)
        rows = {"age": rng.normal(30 + 40 * y, 4), "crp": rng.normal(10 + 90 * y, 5)}
        pd.DataFrame(rows).to_csv(root / "data" / f"{site}.csv", index=False)
    schema = str(root / "schema.yaml")
    run = flareclust.run("portfolio", str(root / "data"), k=2, partition="none", schema=schema, seed=4)
    folder = root / "3c0ffee" / "workspace"
    folder.mkdir(parents=True)
    arrays = {name: value for name, value in run.outcome.arrays.items() if name != cluster_arrays.UNITS}
    params = {"scale": run.params["scale"], "table_schema": read_schema(root / "schema.yaml").fingerprint}
    about = {"algorithm": "portfolio", "k": 2, "seed": 4, "params": params, "flareclust": "0.3"}
    outcome_files.write(replace(run.outcome, arrays=arrays, labels={}), folder, about)
    return folder.parent, schema, run


def test_a_downloaded_folder_is_a_result(job):
    folder, _, run = job
    found = flareclust.load_result(folder)
    np.testing.assert_array_equal(found.centroids, run.centroids)
    assert (found.engine, found.k, found.seed, found.n_sites) == ("production", 2, 4, 2)
    assert found.metrics["inertia"] == run.metrics["inertia"]
    assert found.cluster_rows.tolist() == run.cluster_rows.tolist()
    np.testing.assert_array_equal(found.predict([[30.0, 10.0]]), run.predict([[30.0, 10.0]]))


def test_with_the_schema_columns_have_names_units_and_profiles(job):
    folder, schema, run = job
    found = result_of_job(*outcome_files.read(folder / "workspace"), table_schema=schema, title="Exported")
    assert found.columns == ("age", "crp")
    assert not any("by a schema" in text for text in found.warnings)
    bare = result_of_job(*outcome_files.read(folder / "workspace"))
    assert bare.columns is None
    assert any("the sites read their rows by a schema" in text and "--schema" in text for text in bare.warnings)
    pd.testing.assert_frame_equal(found.profiles(), run.profiles())
    assert found.params["scale"] == run.params["scale"]


def test_another_schema_is_refused(job, tmp_path):
    folder, _, _ = job
    (tmp_path / "other.yaml").write_text(SCHEMA.replace("years", "months"))
    with pytest.raises(UserError, match="is not the schema of the job"):
        result_of_job(*outcome_files.read(folder / "workspace"), table_schema=str(tmp_path / "other.yaml"))


def test_the_command_writes_result_and_report(job, tmp_path, monkeypatch, capsys):
    folder, schema, _ = job
    outcome, about = outcome_files.read(folder / "workspace")
    fetched = replace(outcome, job="3c0ffee"), about, "2026-11-28"
    monkeypatch.setattr(provisioned, "fetch_job", lambda job, kit, expect_sites: fetched)
    monkeypatch.chdir(tmp_path)
    words = ["fetch", "3c0ffee", "--kit", "lead", "--schema", schema, "--unit", "patients", "--json"]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    said = json.loads(capsys.readouterr().out)
    assert said["job"] == "3c0ffee"
    page = (tmp_path / "flareclust-runs" / "3c0ffee" / REPORT).read_text()
    assert "age (years)" in page
    assert "patients" in page
    assert "on 2026-11-28" in page
    loaded = flareclust.load_result(tmp_path / "flareclust-runs" / "3c0ffee")
    assert loaded.columns == ("age", "crp")
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "holds the result of another run" in capsys.readouterr().err


def test_a_page_without_warnings_says_what_was_not_looked_at_and_a_run_that_read_the_rows_does_not(job):
    folder, schema, run = job
    fetched = result_of_job(*outcome_files.read(folder / "workspace"), table_schema=schema)
    assert not fetched.warnings
    page = report_page(fetched)
    assert "No warnings of what the sites sent. Whether columns are skewed" in page
    assert "since a cell is missing, an id comes twice or was withdrawn, only the site knows" in page
    told = replace(
        fetched, arrays={**fetched.arrays, "rows_read": np.array([[90, 0]]), "rows_read_sites": np.array(["a"])}
    )
    assert "since an id comes twice or was withdrawn, only the site knows" in report_page(told)
    for engine in ("inprocess", "poc"):
        page = report_page(replace(run, engine=engine, warnings=[]))
        assert "No warnings.</div>" in page
        assert "only the site knows" not in page


def test_a_job_that_paid_for_outcomes_is_fetched_without_its_schema(job):
    outcome, about = outcome_files.read(job[0] / "workspace")
    params = {"epsilon": 1.0, "outcome_epsilon": 1.0}
    found = result_of_job(outcome, {**about, "algorithm": "dp-lloyd", "params": params})
    assert found.params["outcome_epsilon"] == 1.0


def test_a_downloaded_folder_is_logged_and_places_rows(job, tmp_path, monkeypatch, capsys):
    folder, schema, run = job
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(SystemExit, match="0"):
        main(["log", str(folder), "--uri", f"sqlite:///{tmp_path}/runs.db"])
    assert "was logged as run" in capsys.readouterr().out
    pd.DataFrame({"age": [30.0, 70.0], "crp": [10.0, 100.0]}).to_csv("late.csv", index=False)
    with pytest.raises(SystemExit, match="0"):
        main(["assign", str(folder), "--data", "late.csv", "--schema", schema, "--out", "placed"])
    labels = pd.read_csv("placed/labels.csv")["label"]
    np.testing.assert_array_equal(labels, run.predict([[30.0, 10.0], [70.0, 100.0]]))


def test_exports_take_a_range_where_one_job_can_choose(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(["jobs", "export", "pooled", "chooses", "--k", "2..6", "--min-sites", "2", "--criterion", "silhouette"])
    config = json.loads((tmp_path / "chooses/app/config/config_fed_server.json").read_text())
    args = config["components"][0]["args"]
    assert (args["k"], args["k_min"], args["criterion"]) == (6, 2, "silhouette")
    with pytest.raises(SystemExit, match="2"):
        main(["jobs", "export", "kfed", "two", "--k", "2..6", "--min-sites", "2"])
    assert (
        "kfed with a range of k is two jobs, the first of which chooses: export pooled with --k 2..6"
        in capsys.readouterr().err
    )
