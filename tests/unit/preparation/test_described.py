"""Sites with different columns, end to end: files, standardisation, the report, data sets dealt by columns."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.prepared import names_of
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.submit import submit
from flareclust.experiment.tables.late_rows import place_file
from flareclust.protocol import registry
from flareclust.sites.rows import SiteData
from flareclust.testing.promised import overlapping_sites
from flareclust.testing.tools import run
from tests.unit.preparation.described_cases import FEDERATED, PARTIAL, frames


def test_the_algorithms_for_different_columns_are_these():
    assert {"masked", "proxy", "fkm-common", "fkm-imputed", "kpod"} == set(PARTIAL)


@pytest.mark.parametrize("name", PARTIAL)
def test_files_frames_and_tables_give_the_same_centroids(name, folder):
    tables, _ = overlapping_sites()
    by_file = flareclust.run(name, folder, k=4, partition="none")
    by_frame = flareclust.run(name, frames(), k=4)
    by_table = run(registry.get(name), tables, k=4) if name in FEDERATED else None
    np.testing.assert_array_equal(by_file.centroids, by_frame.centroids)
    if by_table is not None:
        np.testing.assert_array_equal(by_file.centroids, by_table.centroids)
    assert by_file.columns is not None
    assert set(by_file.columns) <= {"age", "crp", "iron", "lactate", "sodium", "urea"}


@pytest.mark.parametrize("name", ["masked", "proxy", "kpod"])
def test_standardising_does_not_depend_on_the_units_of_the_columns(name):
    one = frames()
    other = {site: frame.assign(**{c: 1000 * frame[c] - 5 for c in frame if c == "crp"}) for site, frame in one.items()}
    here = flareclust.run(name, one, k=4, scale="standard")
    there = flareclust.run(name, other, k=4, scale="standard")
    crp = here.columns.index("crp")
    expected = here.centroids.copy()
    expected[:, crp] = 1000 * expected[:, crp] - 5
    np.testing.assert_allclose(there.centroids, expected, rtol=1e-9)
    for site in one:
        np.testing.assert_array_equal(here.site_labels[site], there.site_labels[site])
    np.testing.assert_allclose(there.metrics["inertia"], here.metrics["inertia"], rtol=1e-9)


# ---- what a user sees ----


def test_the_command_reports_who_has_what(folder, tmp_path, capsys):
    out = tmp_path / "out"
    call = ["run", "masked", "--data", str(folder), "--partition", "none", "--k", "4", "--engine", "inprocess"]
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track", "--out", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["features"]["names"] == ["age", "crp", "iron", "lactate", "sodium", "urea"]
    assert printed["features"]["sites_with"] == [1, 2, 3, 3, 2, 1]
    assert printed["features"]["by_site"]["south"] == ["iron", "lactate", "sodium", "urea"]
    assert printed["features"]["method"] == "B"
    assert (out / "picture.png").is_file()
    with np.load(out / "result.npz", allow_pickle=False) as stored:
        assert stored["mask"].all()
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track", "--out", str(out), "--overwrite"])
    assert "6 columns in all: 2 at every site, 2 at several, 2 at one site only" in capsys.readouterr().out


def test_an_entry_that_nobody_observes_stays_unknown_and_is_warned_of():
    rng = np.random.default_rng(0)
    near = pd.DataFrame(rng.normal(0, 1, (80, 2)), columns=["x", "y"])
    both = pd.DataFrame(np.concatenate([rng.normal(0, 1, (40, 1)), rng.normal(50, 1, (40, 1))]), columns=["x"])
    result = flareclust.run("masked", {"a": near, "b": both}, k=2, k_local={"a": 1, "b": 2})
    assert np.isnan(result.centroids).sum() == 1
    assert not result.mask.all()
    assert any("1 of 4 entries of the centroids were observed by no site" in text for text in result.warnings)


def test_a_column_in_a_far_larger_unit_is_warned_of_unless_columns_are_standardised():
    data = {site: frame.assign(**{c: 1e4 * frame[c] for c in frame if c == "crp"}) for site, frame in frames().items()}
    reported = "column 'crp' varies more than 30 times as much as most others"
    assert any(reported in warning for warning in flareclust.run("masked", data, k=4).warnings)
    assert not flareclust.run("masked", data, k=4, scale="standard").warnings
    assert not flareclust.run("masked", frames(), k=4).warnings


@pytest.mark.slow
def test_a_saved_and_tracked_run_keeps_unknown_entries_and_its_model_places_rows_with_gaps(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    data = frames()
    for name, settings in (("fkm-imputed", {"scale": "standard"}), ("masked", {"phi": "cosine"})):
        result = flareclust.run(name, data, k=4, track=True, out=tmp_path / name, **settings)
        import mlflow  # after the run, which has silenced it

        model = mlflow.pyfunc.load_model(f"runs:/{result.run_id}/model")
        rows = pd.concat(list(data.values()))
        rows.iloc[::7, 2] = np.nan
        np.testing.assert_array_equal(model.predict(rows), result.predict(rows))
        whole = data["south"].round().astype(int)  # as read_csv reads ages
        np.testing.assert_array_equal(model.predict(whole), result.predict(whole))
        fewer = data["south"][["iron", "urea"]]
        np.testing.assert_array_equal(model.predict(fewer), result.predict(fewer))
        with pytest.raises(Exception, match="none of the columns"):
            model.unwrap_python_model().predict(None, pd.DataFrame({"other": [1.0]}))


# ---- bad input ----


def test_algorithms_for_the_same_columns_say_which_take_different_ones():
    with pytest.raises(UserError, match=r"fkm needs the same columns at every site.*masked, proxy"):
        flareclust.run("fkm", "iris", k=3, partition="features-shared:0.3", n_sites=2)
    with pytest.raises(UserError, match=r"not all sites have the column .*masked"):
        flareclust.run("fkm", frames(), k=4)
    with pytest.raises(UserError, match="takes one k, not a range"):
        flareclust.run("masked", frames(), k="2..5")


def test_frames_of_ordinary_algorithms_keep_the_names_of_their_columns(tmp_path):
    data = {site: frame[["iron", "lactate"]] for site, frame in frames().items()}
    data["west"] = data["west"][["lactate", "iron"]]
    result = flareclust.run("fkm", data, k=4, out=tmp_path / "out")
    assert result.columns == ("iron", "lactate")
    for site, frame in data.items():
        np.testing.assert_array_equal(result.predict(frame.assign(age=1.0)), result.site_labels[site])
    data["west"].to_csv(tmp_path / "late.csv", index=False)
    np.testing.assert_array_equal(
        place_file(tmp_path / "out", tmp_path / "late.csv", "late")[0], result.site_labels["west"]
    )
    numbered = {site: pd.DataFrame(frame.to_numpy()) for site, frame in data.items() if site != "west"}
    for name in ("fkm", "masked"):
        result = flareclust.run(name, numbered, k=4)
        np.testing.assert_array_equal(result.predict(numbered["north"]), result.site_labels["north"])
    with pytest.raises(UserError, match="west: expected a data frame, as other sites have"):
        flareclust.run("fkm", data | {"west": data["west"].to_numpy()}, k=4)
    with pytest.raises(UserError, match="west: the data frame has no columns"):
        flareclust.run("masked", data | {"west": pd.DataFrame(index=range(4))}, k=4)


def test_spelling_and_missing_names_are_warned_of():
    data = frames()
    data["north"] = data["north"].rename(columns={"crp": "CRP "})
    reported = flareclust.run("masked", data, k=4).warnings
    assert "columns 'CRP ' and 'crp' differ in spelling only, and count as two" in reported
    arrays = {site: frame.to_numpy() for site, frame in frames().items()}
    assert any("without names of columns" in warning for warning in flareclust.run("masked", arrays, k=4).warnings)


def test_a_site_that_is_left_out_is_counted(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder / "odd.csv").write_text("crp,sex\n1,f\n2,m\n")
    result = flareclust.run("masked", folder, k=4, partition="none")
    assert result.took_part == "3 of 4 sites"
    assert list(result.left_out) == ["odd"]
    call = ["run", "masked", "--data", str(folder), "--partition", "none", "--k", "4", "--engine", "inprocess"]
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track"])
    printed = capsys.readouterr().out
    assert "3 of 4 sites" in printed
    assert "left out: odd cannot use its rows" in printed


def test_common_columns_are_counted_among_all_and_drawn_for_all_sites():
    result = flareclust.run("fkm-common", frames(), k=4)
    assert not result.sites, "a picture of the rows would show those sites only that have no other column"
    from flareclust.preparation.result import sentences

    assert sentences(result.arrays) == ["2 of 6 columns: those that every site has"]


def test_frames_with_the_same_columns_in_another_order_are_read_by_name():
    data = {site: frame[["iron", "lactate"]] for site, frame in frames().items()}
    turned = data | {"west": data["west"][["lactate", "iron"]]}
    np.testing.assert_array_equal(
        flareclust.run("fkm", data, k=4).centroids, flareclust.run("fkm", turned, k=4).centroids
    )


def test_hidden_names_do_not_reach_the_result(folder, tmp_path):
    from flareclust.engines.inprocess import run_inprocess
    from flareclust.engines.options import JobOptions

    sites = {}
    for site in ("north", "south", "west"):
        local = tmp_path / site / "local"
        local.mkdir(parents=True)
        hide = "[age]" if site == "north" else "[]"
        (local / "flareclust.yaml").write_text(f"path: {folder / site}.csv\nsalt: s3cret of sixteen\nhide: {hide}\n")
        sites[site] = SiteData.of(local, site).table()
    outcome = run_inprocess(registry.get("masked"), {}, sites, JobOptions(k=4))
    names = outcome.arrays["column_names"].tolist()
    assert "age" not in names
    assert sum(name.startswith("hidden-") for name in names) == 1
    plain = flareclust.run("masked", folder, k=4, partition="none")
    np.testing.assert_array_equal(outcome.centroids, plain.centroids)


# ---- feature partitions of data sets ----


@pytest.mark.parametrize("name", [*PARTIAL, "central"])
def test_a_data_set_can_be_dealt_by_columns(name):
    result = flareclust.run(name, "breast_cancer", k=2, partition="features-shared:0.2", n_sites=3)
    assert result.n_sites == 3
    assert len(result.labels) == 569
    expected = {"fkm-common": 6}.get(name, 30)
    assert result.centroids.shape == (2, expected)
    if name != "central":
        accuracy = {"proxy": "e5"}.get(name, "e2")
        assert 0.5 < result.metrics[accuracy] <= 1
        assert 0 <= result.metrics["cosine"] <= 1
    if name in ("masked", "proxy"):
        assert 0 <= result.metrics[{"masked": "e1", "proxy": "e4"}[name]] <= 1


def test_a_site_whose_file_cannot_be_read_any_more_is_left_out_of_the_measures(tmp_path):
    """The sites of a federation on this machine have files; the others are still compared with the truth."""
    asked = make_experiment(algorithm="masked", data="breast_cancer", k=2, partition="features-shared:0.2", n_sites=3)
    here = prepare(asked)
    outcome = submit(asked, here)
    files = {site: tmp_path / f"{site}.npz" for site in here.sites}
    for site, table in here.sites.items():
        np.savez(files[site], X=table.X, columns=np.array(table.columns))
    there = replace(here, sites=files, columns=names_of(here.dataset), agreement="may-lack")
    of_all = evaluate(asked, there, outcome, 0.0).metrics
    assert of_all == evaluate(asked, here, outcome, 0.0).metrics
    files["site-2"].unlink()
    of_others = evaluate(asked, there, outcome, 0.0).metrics
    assert of_others["e1"] is None  # what became of all clusters is not known without the site's own
    assert of_others["e2"] != of_all["e2"]
    assert of_others["accuracy"] == of_all["accuracy"]


def test_e2_is_the_accuracy_of_the_labels_and_relative_distance_that_of_the_best_centroids():
    dataset_rows = flareclust.run("masked", "iris", k=3, partition="features-shared:0.5", n_sites=2)
    assert dataset_rows.metrics["e2"] == pytest.approx(dataset_rows.metrics["accuracy"])


def test_the_paper_s_setups_know_their_k(shared_data):
    prepared = prepare(make_experiment(algorithm="masked", data="dim032", partition="dim-a1", engine="inprocess"))
    assert prepared.k == 16
    assert len(prepared.sites) == 10
