"""A column of weights: a row that counts as several is the row several times, and the floor is of rows."""

import csv

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import JobFailed, TableFaults
from flareclust.data.schema.columns import TableSchema, read_schema
from flareclust.data.tables import File, Numbers, Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from tests.command_line import call

SCHEMA = "columns: {{id: id, x: number, y: number, n: {}}}"
MOST = 4


@pytest.fixture
def folder(tmp_path):
    """Two sites with three groups of rows that count one to four times."""
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(SCHEMA.format("weight"))
    for site in ("north", "south"):
        rows = rng.normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
        weights = rng.integers(1, MOST + 1, 90)
        weights[0] = MOST
        lines = [f"{site[0]}{i},{x},{y},{n}" for i, ((x, y), n) in enumerate(zip(rows.tolist(), weights, strict=True))]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["id,x,y,n", *lines]))
    return tmp_path


def repeated(folder):
    """The same tables with each row as often as it counts."""
    sites = {}
    for site in ("north", "south"):
        table = np.genfromtxt(folder / "data" / f"{site}.csv", delimiter=",", skip_header=1, usecols=(1, 2, 3))
        sites[site] = np.repeat(table[:, :2], table[:, 2].astype(int), axis=0)
    return sites


def run(folder, name, **settings):
    schema = folder / "schema.yaml"
    return flareclust.run(name, folder / "data", k=3, partition="none", schema=schema, profile=True, **settings)


@pytest.mark.parametrize("name", ["lloyd", "portfolio", "pooled", "feca", "kfed", "fkm", "ffcm"])
def test_a_run_with_weights_is_the_run_on_repeated_rows(folder, name):
    """The floor is three rows of four at most, so the repeated rows have that of twelve."""
    found = run(folder, name)
    expected = flareclust.run(name, repeated(folder), k=3, min_count=3 * MOST, profile=True)
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.metrics == expected.metrics
    for array in ("profile_rows", "profile_means", "profile_m2"):
        np.testing.assert_array_equal(found.arrays[array], expected.arrays[array])


def test_the_floor_is_of_rows_and_not_of_what_they_count(folder):
    """Two rows far away count eight times together; a cluster of them must not be sent, though eight are above the floor."""
    with (folder / "data" / "north.csv").open("a") as file:
        file.write("\nn90,90,90,4\nn91,91,90,4")
    found = run(folder, "lloyd", start=[[0, 0], [9, 0], [90, 90]], rounds=1)
    assert found.centroids[2].tolist() == [90, 90]  # as given, since no site says anything of it
    plain = flareclust.run("lloyd", repeated(folder), k=3, start=[[0, 0], [9, 0], [90, 90]], rounds=1)
    assert plain.centroids[2].tolist() == pytest.approx([90.5, 90])


def test_scaling_is_by_the_weighted_rows_on_a_grid_of_the_rows_that_differ(folder):
    found = run(folder, "pooled", scale="standard")
    rows = np.concatenate(list(repeated(folder).values()))
    np.testing.assert_allclose(found.arrays["mean"], rows.mean(axis=0), atol=0.5)
    np.testing.assert_allclose(found.arrays["deviation"], rows.std(axis=0), rtol=0.2)


def test_labels_and_ids_are_there_as_often_as_a_row_counts(folder):
    run(folder, "pooled", out=folder / "out")
    with (folder / "out" / "labels.csv").open() as file:
        ids = [line["id"] for line in csv.DictReader(file)]
    assert ids[:MOST] == ["n0"] * MOST
    assert len(ids) == sum(map(len, repeated(folder).values()))


def test_the_dry_run_and_a_late_site(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    common = ("--data", "data", "--partition", "none", "--schema", "schema.yaml")
    assert call("run", "lloyd", "--k", 3, *common, "--dry-run") == 0
    n = len(repeated(folder)["north"])
    assert f"90 (count as {n})" in " ".join(capsys.readouterr().out.split())
    run(folder, "lloyd", out=folder / "out")
    assert call("assign", "out", "--data", "data/north.csv", "--schema", "schema.yaml", "--out", "labels") == 0
    with (folder / "labels" / "labels.csv").open() as file:
        assert [line["id"] for line in csv.DictReader(file)] == [f"n{i}" for i in range(90)]


def test_the_simulator_gets_what_it_needs(folder, tmp_path):
    """An npz file as the simulator writes it keeps how often a row may be there; a wrong number is refused."""
    rows = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", X=rows, columns=np.array(["x", "y"]), row_repeats=np.array(4))
    assert Numbers().read([File(tmp_path / "a.npz", "a.npz")]).repeats == 4
    np.savez(tmp_path / "a.npz", X=rows, columns=np.array(["x", "y"]), row_repeats=np.array([4, 5]))
    with pytest.raises(UserError, match="`row_repeats` must be one integer"):
        Numbers().read([File(tmp_path / "a.npz", "a.npz")])


# ---- what is refused ----


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": {}}, "do not go with policy"),
        ({"secure_sums": True}, "do not go with secure_sums"),
        ({"partition": "iid", "data": "data/north.csv"}, "do not go with partition iid"),
        ({"algorithm": "dp-lloyd", "policy": {"differential_privacy": {"bounds": [0, 9], "epsilon": 1, "delta": 1e-5, "budget": 1}}}, "dp-lloyd"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_weights_is_refused_before_anything_runs(folder, monkeypatch, settings, words):
    monkeypatch.chdir(folder)
    own = {"algorithm": "lloyd", "data": "data", "partition": "none", "schema": "schema.yaml", "k": 3, **settings}
    with pytest.raises(UserError, match=words):
        prepare(make_experiment(engine="inprocess", **own))


def test_a_site_with_a_policy_refuses_rows_with_weights():
    sites = {"a": Table(np.random.default_rng(0).normal(size=(60, 2)), repeats=3)}
    with pytest.raises(JobFailed, match=r"has rows with weights .* make the column type ignore"):
        run_inprocess(registry.get("lloyd"), {}, sites, JobOptions(k=2), lambda record: None, None, Policy())


def test_faulty_weights_are_counted(folder):
    file = folder / "data" / "north.csv"
    lines = file.read_text().splitlines()
    for row, weight in ((1, "2.5"), (2, "0"), (3, "")):
        lines[row] = lines[row].rpartition(",")[0] + f",{weight}"
    file.write_text("\n".join(lines))
    with pytest.raises(TableFaults) as error:
        run(folder, "lloyd")
    text = str(error.value)
    assert "n: 1 cell is no integer, first in row 1" in text
    assert "n: 1 cell is outside 1 to 1000, first in row 2" in text
    assert "n: 1 cell is missing, first in row 3" in text


def test_weights_are_no_features_and_change_the_fingerprint(folder):
    schema = read_schema(folder / "schema.yaml")
    assert schema.features == ("x", "y")
    (folder / "schema.yaml").write_text(SCHEMA.format("ignore"))
    assert read_schema(folder / "schema.yaml").fingerprint != schema.fingerprint
    with pytest.raises(UserError, match="a, b are all of type weight; one at most"):
        TableSchema(columns={"a": {"type": "weight"}, "b": {"type": "weight"}, "x": {"type": "number"}})
