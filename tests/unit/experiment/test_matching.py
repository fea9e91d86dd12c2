"""Clusters under the numbers of an earlier result: everything that names them follows."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import app
from flareclust.evaluation import profile_words
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.results.matching import _renumbered

CENTERS = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])
ORDER = [2, 0, 3, 1]


def night(seed, centers=CENTERS, sizes=(30, 40, 50, 60), names=("age", "crp")):
    """Three sites with rows around the centers, shuffled."""
    rng = np.random.default_rng(seed)
    rows = {}
    for site in ("north", "south", "west"):
        X = np.repeat(centers, sizes, axis=0) + rng.normal(size=(sum(sizes), 2))
        rows[site] = pd.DataFrame(rng.permutation(X), columns=list(names))
    return rows


@pytest.fixture(scope="module")
def result():
    return flareclust.run("dkmpp", night(0), k=4, scale="standard")


@pytest.fixture(scope="module")
def other(result):
    return _renumbered(result, ORDER)


def test_centroids_labels_predictions_and_placements_have_the_new_numbers(result, other):
    np.testing.assert_array_equal(other.centroids, result.centroids[ORDER])
    np.testing.assert_array_equal(np.array(ORDER)[other.labels], result.labels)
    for site, labels in other.site_labels.items():
        np.testing.assert_array_equal(np.array(ORDER)[labels], result.site_labels[site])
        np.testing.assert_array_equal(other.outcome.labels[site], labels)
    X = np.concatenate([night(0)[site].to_numpy() for site in sorted(night(0))])
    np.testing.assert_array_equal(other.predict(X), other.labels)
    before, after = result.placements(X), other.placements(X)
    np.testing.assert_array_equal(np.array(ORDER)[after["cluster"]], before["cluster"])
    np.testing.assert_array_equal(np.array(ORDER)[after["second"]], before["second"])
    pd.testing.assert_frame_equal(after.drop(columns=["cluster", "second"]), before.drop(columns=["cluster", "second"]))
    np.testing.assert_array_equal(other.cluster_rows, result.cluster_rows[ORDER])
    assert other.metrics == result.metrics
    assert other.job_numbers == tuple(ORDER)


def test_profiles_sites_and_tree_have_the_new_numbers(result, other):
    for of, keys in (("columns", ["cluster", "column"]), ("sites", ["cluster", "site"])):
        before, after = (one.profiles(of).set_index(keys).sort_index() for one in (result, other))
        for number, was in enumerate(ORDER):
            pd.testing.assert_frame_equal(after.loc[number], before.loc[was])
    means = pd.concat([night(0)[site] for site in sorted(night(0))]).groupby(other.labels).mean()
    found = other.profiles().pivot(index="cluster", columns="column", values="mean")
    np.testing.assert_allclose(found[["age", "crp"]], means)
    leaves = {
        (one.text, ORDER[one.cluster]) for one in profile_words.branches(profiles_of(other.arrays, other.columns))
    }
    assert leaves == {
        (one.text, one.cluster) for one in profile_words.branches(profiles_of(result.arrays, result.columns))
    }


def test_saved_files_agree(other, tmp_path):
    other.save(tmp_path / "run")
    found = flareclust.load_result(tmp_path / "run")
    np.testing.assert_array_equal(found.labels, other.labels)
    np.testing.assert_array_equal(found.centroids, other.centroids)
    labels = pd.read_csv(tmp_path / "run" / "labels.csv")
    with np.load(tmp_path / "run" / "result.npz") as arrays:
        np.testing.assert_array_equal(arrays["counts"], other.arrays["counts"])
        groups = arrays["received_group"]
        X, C = arrays["received_centroids"], (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]
    np.testing.assert_array_equal(((X[:, None] - C) ** 2).sum(axis=2).argmin(axis=1), groups)
    for site, frame in night(0).items():
        own = labels[labels["site"] == site].sort_values("row")["label"]
        np.testing.assert_array_equal(found.predict(frame), own)
    summary = json.loads((tmp_path / "run" / "result.json").read_text())
    assert summary["cluster_rows"] == np.bincount(labels["label"]).tolist()


def test_numbers_can_be_given_twice_and_those_of_the_job_are_known(result):
    again = _renumbered(_renumbered(result, ORDER), [1, 0, 3, 2])
    np.testing.assert_array_equal(again.centroids, result.centroids[list(again.job_numbers)])


def test_an_order_must_be_one(result):
    with pytest.raises(UserError, match=r"order: expected the numbers 0 to 3, each once; got \[0, 0, 1, 2\]"):
        _renumbered(result, [0, 0, 1, 2])


def test_the_next_night_keeps_the_numbers_whatever_the_algorithm_and_its_seed(result):
    new = flareclust.run("lloyd", night(1), k=4, seed=9, scale="standard")
    found = new.match_to(result)
    assert np.abs(found.centroids - result.centroids).max() < 1
    assert found.continuity.was == [0, 1, 2, 3]
    assert found.metrics["drift_centroids"] < 0.5
    assert found.metrics["drift_shares"] < 0.01
    assert found.warnings == new.warnings


def test_what_was_loaded_and_matched_is_written_in_the_place_of_what_was_there(result, tmp_path):
    _renumbered(flareclust.run("lloyd", night(1), k=4), ORDER).save(tmp_path)
    loaded = flareclust.load_result(tmp_path)
    found = loaded.match_to(result)
    assert found.centroids_file is None
    assert not np.allclose(found.centroids, loaded.centroids)
    assert found.save(tmp_path).centroids_file == loaded.centroids_file
    again = flareclust.load_result(tmp_path)
    np.testing.assert_array_equal(again.centroids, found.centroids)
    assert again.continuity.was == found.continuity.was == [0, 1, 2, 3]


def test_columns_in_another_order_are_no_matter(result):
    new = flareclust.run("dkmpp", {site: X[["crp", "age"]] for site, X in night(1).items()}, k=4)
    assert new.columns == ("crp", "age")
    found = new.match_to(result)
    assert np.abs(found.centroids[:, ::-1] - result.centroids).max() < 1


def test_a_new_cluster_is_named_in_result_files_report_and_after_loading(result, tmp_path):
    rows = night(1, centers=np.vstack([CENTERS[:3], [[30.0, 30.0]]]))
    found = flareclust.run("dkmpp", rows, k=4).match_to(result, "last night")
    (gone,) = found.continuity.gone
    np.testing.assert_allclose(result.centroids[gone], [12, 12], atol=1)
    assert found.continuity.new == [gone]
    said = [f"cluster {gone} of last night is gone", f"cluster {gone} is new since last night"]
    assert [one for one in found.warnings if "last night" in one][:2] == said
    page = report_page(found)
    assert "Since the earlier run" in page
    assert "number in last night" in page
    found.save(tmp_path / "run")
    loaded = flareclust.load_result(tmp_path / "run")
    assert loaded.continuity == found.continuity
    assert loaded.matched_to == "last night"
    assert loaded.to_json()["matched"] == {
        **found.to_json()["matched"],
        "job_numbers": found.job_numbers,
    }
    assert loaded.job_numbers == found.job_numbers


def test_a_split_and_a_merge_are_named(result):
    centers = np.vstack([CENTERS[:3], [[10.5, 12.0], [13.5, 12.0]]])
    found = flareclust.run("pooled", night(1, centers, (30, 40, 50, 30, 30)), k=5).match_to(result, "x")
    assert list(found.continuity.parts.values()) == [sorted(set(found.continuity.parts) | {4})]
    merged = flareclust.run("pooled", night(1, CENTERS, (30, 40, 50, 60)), k=4).match_to(found, "y")
    ((number, own),) = merged.continuity.joined.items()
    a, b = own
    assert f"cluster {number} is clusters {a} and {b} of y together" in merged.warnings
    assert f">{a} and {b}</td>" in report_page(merged)


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        (night(0, names=("age", "bmi")), {}, "the columns differ: only the new one has bmi, and only it has crp"),
        (
            {
                site: X.assign(bmi=1.0 * np.arange(len(X)))[["age", "crp", "bmi"]].to_numpy()
                for site, X in night(0).items()
            },
            {},
            "it has 2 columns, and the new one 3",
        ),
        (night(0), {"metric": "cosine"}, "one is of directions (metric=cosine), the other is not"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(result, rows, settings, said):
    new = flareclust.run("pooled", rows, k=4, **settings)
    with pytest.raises(UserError) as caught:
        new.match_to(result, "last night")
    assert str(caught.value) == f"the clusters cannot be matched to those of last night: {said}"


def test_names_in_the_report_are_escaped(result):
    assert "<script>" not in report_page(result.match_to(result, "<script>alert(1)</script>"))


def test_a_run_keeps_the_numbers_of_a_folder(tmp_path, result):
    _renumbered(result, ORDER).save(tmp_path / "earlier")
    found = flareclust.run("dkmpp", night(1), k=4, match_to=tmp_path / "earlier")
    assert found.matched_to == "earlier"
    assert np.abs(found.centroids - result.centroids[ORDER]).max() < 1
    other = flareclust.run("dkmpp", night(1, names=("age", "bmi")), k=4, match_to=tmp_path / "earlier")
    assert other.matched_to is None
    assert other.warnings[-1].endswith("only it has crp; they have numbers of their own")


def test_an_earlier_result_that_is_not_there_is_refused_before_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.flows.run.submit", lambda *_: pytest.fail("a job was started"))
    with pytest.raises(UserError, match=r"match_to \(--match-to\): .* holds no complete result"):
        flareclust.run("dkmpp", night(0), k=4, match_to=tmp_path)


def test_the_command_takes_it_and_says_what_became_of_the_clusters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ["run", "lloyd", "--data", "iris", "--k", "3", "--n-sites", "3", "--engine", "inprocess", "--no-track"]
    first = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "a")])
    assert first.exit_code == 0, first.output
    found = CliRunner().invoke(app, [*common, "--seed", "1", "--match-to", str(tmp_path / "a")])
    assert found.exit_code == 0, found.output
    assert "clusters are numbered as in a: 3 of 3 go on" in found.stdout


def test_a_result_in_memory_gives_its_numbers_without_a_file(result, other, tmp_path):
    assert result.centroids_file is None
    for earlier in (result, other):  # the latter has other numbers than any job gave it
        again = flareclust.run("dkmpp", night(1), k=4, scale="standard", match_to=earlier)
        assert again.matched_to == "the earlier run"
        nearest = ((again.centroids[:, None] - earlier.centroids) ** 2).sum(axis=2).argmin(axis=1)
        np.testing.assert_array_equal(nearest, range(4))
        assert "the numbers of the earlier run, a result in memory, which no command can name" in report_page(again)
    kept = flareclust.run("dkmpp", night(1), k=4, scale="standard", match_to=other, out=tmp_path / "out")
    np.testing.assert_array_equal(flareclust.load_result(tmp_path / "out").centroids, kept.centroids)
    assert flareclust.load_result(tmp_path / "out").matched_to == "the earlier run"


def test_a_saved_result_is_named_by_its_folder(result, tmp_path):
    saved = result.save(tmp_path / "night")
    again = flareclust.run("dkmpp", night(1), k=4, scale="standard", match_to=saved)
    assert again.matched_to == "night"
    assert again.experiment["match_to"] == str(tmp_path / "night")
    assert "which no command can name" not in report_page(again)


def test_a_start_in_memory_is_asked_to_be_saved(result, tmp_path):
    rows = night(1)
    with pytest.raises(UserError, match=r"start_from: the result is in no folder; save it first"):
        flareclust.run("lloyd", rows, k=4, start_from=result)
    saved = flareclust.run("lloyd", rows, k=4, out=tmp_path / "first")
    again = flareclust.run("lloyd", rows, k=4, start_from=saved)
    np.testing.assert_allclose(again.centroids, saved.centroids)
