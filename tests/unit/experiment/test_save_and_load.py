"""`Result.save` and `flareclust.load_result`: what was kept comes back."""

import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import reserved
from flareclust.experiment.results import artifacts
from tests.memory import peak_of
from tests.unit.experiment.api_cases import rows


def assert_same(found, result):
    for name in ("algorithm", "engine", "seed", "k", "n_sites", "rounds", "centroids_found", "columns", "left_out"):
        assert getattr(found, name) == getattr(result, name), name
    assert dict(found.metrics) == dict(result.metrics)
    assert found.warnings == result.warnings
    np.testing.assert_array_equal(found.centroids, result.centroids)
    np.testing.assert_array_equal(found.labels, result.labels)
    assert set(found.arrays) == set(result.arrays)
    for site, labels in result.site_labels.items():
        np.testing.assert_array_equal(found.site_labels[site], labels)


def test_a_result_of_split_data_comes_back_with_its_labels_in_the_order_of_the_data(tmp_path):
    result = flareclust.run("feca", "iris", 3, n_sites=3, partition="dirichlet:0.5")
    found = flareclust.load_result(result.save(tmp_path / "a").save(tmp_path / "b").centroids_file.rpartition("/")[0])
    assert_same(found, result)
    y = flareclust.run("central", "iris", 3).labels
    assert len(found.labels) == len(y) == 150
    for site, own in result.site_rows.items():
        np.testing.assert_array_equal(found.site_rows[site], own)
        np.testing.assert_array_equal(result.labels[own], result.site_labels[site])
    np.testing.assert_array_equal(found.predict(rows(4)[:, [0, 0, 0, 0]]), result.predict(rows(4)[:, [0, 0, 0, 0]]))


def test_what_was_loaded_can_be_saved_again(tmp_path):
    sites = {"b": rows(40), "a": rows(30)}
    result = flareclust.run("kfed", sites, k=3, k_local=2, out=tmp_path / "first")
    again = flareclust.load_result(tmp_path / "first").save(tmp_path / "second")
    assert_same(flareclust.load_result(tmp_path / "second"), result)
    assert again.centroids_file == str(tmp_path / "second" / "result.npz")


def test_a_result_with_a_selected_k_and_one_of_different_columns_come_back(tmp_path):
    chosen = flareclust.run("feca", "iris", (2, 4), n_sites=3, out=tmp_path / "k")
    assert flareclust.load_result(tmp_path / "k").to_json() == chosen.to_json()
    partial = flareclust.run("masked", "iris", 3, n_sites=3, partition="features-overlap:0.5", out=tmp_path / "p")
    found = flareclust.load_result(tmp_path / "p")
    assert found.columns == partial.columns
    np.testing.assert_array_equal(found.mask, partial.mask)


def test_sites_that_took_no_part_are_still_named(tmp_path):
    sites = {"a": rows(30), "b": rows(30), "c": rows()[:2]}
    result = flareclust.run("feca", sites, k=3, out=tmp_path / "out")
    found = flareclust.load_result(tmp_path / "out")
    assert_same(found, result)
    assert found.left_out == result.left_out == {"c": "has fewer rows than k=3"}
    assert found.took_part == "2 of 3 sites"


def test_labels_of_split_data_keep_their_places_where_a_site_gave_none(tmp_path):
    X = np.vstack([rows(seed) for seed in range(4)])
    X[0] = np.nan
    owner = np.repeat(np.arange(4), 30)
    sites = {f"site-{i}": X[owner == i] for i in (3, 1, 2, 0)}
    result = flareclust.run("kfed", sites, k=3, k_local=3)
    assert list(result.left_out) == ["site-0"]
    found = flareclust.load_result(result.save(tmp_path / "out").centroids_file.rpartition("/")[0])
    assert_same(found, result)
    assert len(found.labels) == 120
    assert (found.labels[result.site_rows["site-0"]] == -1).all()


def test_saving_what_was_loaded_onto_itself_keeps_its_picture(tmp_path):
    flareclust.run("feca", "iris", 3, n_sites=3, out=tmp_path / "out")
    before = {path.name for path in (tmp_path / "out").iterdir()}
    flareclust.load_result(tmp_path / "out").save(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("file", "size"), [("result.npz", 300), ("result.npz", 1500), ("labels.csv", 40), ("result.json", 99)]
)
def test_a_file_that_was_cut_is_no_complete_result(tmp_path, file, size):
    flareclust.run("feca", "iris", 3, n_sites=3, out=tmp_path / "out")
    path = tmp_path / "out" / file
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(
        UserError, match=r"holds no complete result of flareclust .*: one of result\.json, .* is damaged"
    ):
        flareclust.load_result(tmp_path / "out")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("nothing", "there is no such folder"),
        ("result.json", r"there is no result\.json"),
        ("result.npz", r"there is no result\.npz"),
        ("columns", r"one of result\.json, .* is damaged"),
    ],
)
def test_a_folder_without_a_complete_result_is_refused(tmp_path, broken, why):
    folder = tmp_path / "out"
    if broken != "nothing":
        flareclust.run("feca", "iris", 3, n_sites=3, out=folder)
    if broken == "columns":
        text = (folder / "result.json").read_text().replace('"columns"', '"other"')
        (folder / "result.json").write_text(text)
    elif broken != "nothing":
        (folder / broken).unlink()
    with pytest.raises(UserError, match=f"holds no complete result of flareclust .*: {why}; name the folder"):
        flareclust.load_result(folder)


def test_a_result_of_an_earlier_version_is_named_as_that(tmp_path):
    """It is complete, and has other fields: as 0.1 wrote it, without the number of rows."""
    folder = tmp_path / "out"
    flareclust.run("feca", "iris", 3, n_sites=3, out=folder)
    about = json.loads((folder / "result.json").read_text())
    del about["rows"]
    (folder / "result.json").write_text(json.dumps(about | {"flareclust": "0.1.0"}))
    words = (
        f"is of flareclust '0.1.0', in a form that {flareclust.__version__} cannot read: run it again with this version"
    )
    with pytest.raises(UserError, match=words):
        flareclust.load_result(folder)


def test_two_runs_at_a_time_do_not_write_to_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "out"
    with reserved(folder):
        with pytest.raises(
            UserError, match=r"another run is on the way to .*out; wait for its end, or name another folder"
        ):
            flareclust.run("feca", "iris", 3, n_sites=3, out=folder)
        assert not folder.exists()
        flareclust.run("feca", "iris", 3, n_sites=3, out=tmp_path / "other")
    flareclust.run("feca", "iris", 3, n_sites=3, out=folder)
    assert list((tmp_path / "state" / "flareclust" / "running").iterdir()) == []


@pytest.mark.parametrize("source", ["runs:/", "runs:/a/b"])
def test_a_run_is_named_by_its_id_alone(source):
    with pytest.raises(UserError, match="the id of one run"):
        flareclust.load_result(source)


def test_a_tracked_run_comes_back_without_its_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    result = flareclust.run("feca", "iris", 3, n_sites=3, track=True)
    found = flareclust.load_result(f"runs:/{result.run_id}")
    np.testing.assert_array_equal(found.centroids, result.centroids)
    assert dict(found.metrics) == dict(result.metrics)
    assert (found.run_id, found.site_labels) == (result.run_id, {})
    with pytest.raises(UserError, match="cannot be read from"):
        flareclust.load_result("runs:/abc")


def test_no_store_is_made_to_look_for_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError, match="there is no MLflow store"):
        flareclust.load_result("runs:/abc")
    assert not list(tmp_path.iterdir())


def test_a_picture_of_rows_that_are_not_here_is_refused(tmp_path):
    flareclust.run("feca", "iris", 3, n_sites=3, out=tmp_path / "out")
    with pytest.raises(UserError, match="the rows of the sites are not here"):
        flareclust.load_result(tmp_path / "out").plot()


def test_a_notebook_shows_metrics_sites_sizes_warnings_and_the_picture():
    sites = {"north": rows(60), "east": rows(60), "south": rows()[:2]}
    result = flareclust.run("feca", sites, k=3)
    html = result._repr_html_()
    assert "2 of 3 sites" in html
    assert "<td>south</td><td>has fewer rows than k=3</td>" in html
    assert f"<td>inertia</td><td>{result.metrics['inertia']:,.4f}</td>" in html
    counts = np.bincount(result.labels[result.labels >= 0])
    assert all(f"<td>{cluster}</td><td>{rows_}</td>" in html for cluster, rows_ in enumerate(counts))
    assert "data:image/png;base64," in html


def test_text_in_a_notebook_is_escaped():
    from dataclasses import replace

    result = replace(flareclust.run("feca", "iris", 3, n_sites=3), warnings=["<script>"])
    assert "<script>" not in result._repr_html_()


def test_labels_are_written_one_after_the_other(tmp_path):
    """As numbers of Python, all of them would take 48 bytes a row."""
    X = np.random.default_rng(0).normal(size=(40_000, 2))
    result = flareclust.run("pooled", data=X, k=2, n_sites=2, engine="inprocess", track=False)
    assert peak_of(lambda: artifacts._write_labels(result, tmp_path)) < 600_000
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 40_001
