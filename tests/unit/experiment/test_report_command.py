"""The command on the page of a run gives the run's settings again."""

import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

import flareclust
from flareclust.cli.main import app
from flareclust.cli.settings import parse_settings
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.reports.command import command_of
from flareclust.experiment.reports.page import report_page
from flareclust.protocol.outcome import read

SCHEMA = """
columns:
  patient: id
  age: {type: number, unit: years, range: [0, 120]}
  size: {type: number, unit: mm}
  sex: {type: category, values: [f, m]}
"""


def printed(algorithm, **settings):
    """Return the words of the command for an experiment."""
    experiment = make_experiment(**{"data": "iris", "k": 3} | settings, algorithm=algorithm)
    return shlex.split(command_of(experiment.model_dump(mode="json", exclude={"tracking_uri"})))


def settings_in(words):
    """Return the settings of a command, as the command line reads them."""
    return parse_settings([words[i + 1] for i, word in enumerate(words) if word == "--set"])


@pytest.mark.parametrize(
    ("algorithm", "params"),
    [
        ("portfolio", {"members": ["feca", "pooled"], "polish": 2}),
        ("kfed", {"k_local": {"a": 1, 'site\'s "b"': 2}, "scale": "standard"}),
        ("kfed", {"k_local": None}),
        ("deepfeca", {"lr": 1e-05, "image": "28x28", "network": "small", "k_local": None}),
        ("masked", {"scale": "standard", "k_local": {"münster": 4}}),
        ("fkm-common", {"scale": "none"}),
        ("pooled", {"categories": [[1, 2], [3, 4]], "missing": "mean"}),
        ("fkm", {"scale": "range", "table_ranges": [[0.0, 120.5], None, [1e-300, 1e300]]}),
        ("lloyd", {"compare": "names"}),
        *(
            ("deepfeca", {"network": text})
            for text in (
                "None",
                "True",
                "null",
                "false",
                "12",
                "NaN",
                '"a"',
                "[1, 2]",
                " 3",
                "",
                "a b",
                "$HOME",
                "a='b'",
            )
        ),
    ],
)
def test_settings_are_read_as_they_were(algorithm, params):
    found = settings_in(printed(algorithm, params=params))
    assert found == params
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in params.items()}


def test_cohorts_and_dropouts_are_in_the_command():
    words = printed("lloyd", engine="devices", cohort=4, dropout=0.25)
    assert words[words.index("--cohort") + 1] == "4"
    assert words[words.index("--dropout") + 1] == "0.25"
    assert not {"--cohort", "--dropout"} & set(printed("lloyd", engine="devices"))


def test_expected_sites_and_the_wait_for_them_are_in_the_command():
    kit = {"data": "sites", "engine": "production", "kit": "kit"}
    words = printed("lloyd", **kit, expect_sites=("a", "b"), wait_for=2, wait_seconds=60)
    options = [words[words.index(option) + 1] for option in ("--expect-sites", "--wait-for", "--for")]
    assert options == ["a,b", "2", "60"]


def test_the_file_of_a_policy_is_found_from_every_folder(tables, monkeypatch):
    (tables / "strict.yaml").write_text("min_count: 5\n")
    own = {
        "data": str(tables / "data"),
        "partition": "none",
        "schema": str(tables / "schema.yaml"),
        "engine": "inprocess",
    }
    words = printed("lloyd", **own, policy="strict.yaml")
    assert words[words.index("--policy") + 1] == str(tables / "strict.yaml")
    result = flareclust.run("lloyd", **own | {"k": 2}, policy="strict.yaml", out=tables / "out")
    for page in (report_page(result), report_page(flareclust.load_result(tables / "out"))):
        assert f"--policy {tables / 'strict.yaml'}" in page
        assert "is the file with the sites" not in page
    unnamed = flareclust.run("lloyd", **own | {"k": 2}, policy={"min_count": 5})
    assert "--policy policy.yaml" in report_page(unnamed)
    assert "policy.yaml is the file with the sites&#39; policy." in report_page(unnamed)
    elsewhere = tables / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    again = CliRunner().invoke(app, [*shlex.split(command_of(result.experiment))[1:], "--no-track", "--out", "b"])
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(read(elsewhere / "b")[0].centroids, result.centroids)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with the tables of two sites and a schema, which is the working directory."""
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    for site in ("north", "south"):
        group = np.arange(40) % 2
        age, size = 30 + 40 * group + rng.integers(-9, 9, 40), 50 + 150 * group + rng.integers(-20, 20, 40)
        lines = [f"{site[0]}{i},{age[i]},{size[i]},{'fm'[rng.integers(2)]}" for i in range(40)]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["patient,age,size,sex", *lines]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("algorithm", "params"),
    [
        ("pooled", {"n_init": 3}),
        ("pooled", {"scale": "none", "categories": [[2, 3]]}),
        ("portfolio", {"members": ["feca", "pooled"], "n_init": 2}),
        ("masked", {"k_local": {"north": 2, "south": 1}}),
    ],
)
def test_the_printed_command_of_a_tracked_run_gives_the_same_centroids(tables, store, monkeypatch, algorithm, params):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    first = flareclust.run(
        algorithm, "data", k=2, partition="none", schema="schema.yaml", seed=3, track=True, out=tables / "a", **params
    )
    assert len(first.experiment["params"]) > len(params)  # those that follow from the schema
    command = command_of(first.experiment)
    given = params if params.get("categories") != [[2, 3]] else {"scale": "none"}
    assert settings_in(shlex.split(command)) == given
    again = CliRunner().invoke(app, [*shlex.split(command)[1:], "--no-track", "--out", str(tables / "b")])
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(read(tables / "b")[0].centroids, first.centroids)


def test_settings_that_the_schema_no_longer_gives_stay(tables):
    found = flareclust.run("pooled", "data", k=2, partition="none", schema="schema.yaml", categories=[[2, 3]])
    (tables / "schema.yaml").unlink()
    assert settings_in(shlex.split(command_of(found.experiment))) == {"categories": [[2, 3]]}


@pytest.mark.parametrize(
    "asked",
    [
        {"engine": "production", "kit": "kits/lead", "k": 2},
        {"engine": "inprocess", "data": "data", "partition": "none", "k": "2..4"},
        {"engine": "inprocess", "data": "data/north.csv", "partition": "iid", "n_sites": 2, "k": 2},
        {"engine": "inprocess", "data": "data", "partition": "none", "k": 2, "secure_sums": True},
        {"engine": "inprocess", "data": "data", "partition": "none", "k": 2, "truth": "sex"},
    ],
)
def test_settings_that_follow_from_the_schema_are_left_out(tables, asked):
    experiment = make_experiment(
        **asked, algorithm="lloyd", schema=str(tables / "schema.yaml"), params={"scale": "range"}
    )
    settled = experiment.model_copy(update=prepare(experiment).settled(experiment.params))
    assert settled.params.keys() > {"scale", "table_ranges"}
    command = command_of(settled.model_dump(mode="json", exclude={"tracking_uri"}))
    assert settings_in(shlex.split(command)) == {"scale": "range"}
    assert "--schema schema.yaml" in command
