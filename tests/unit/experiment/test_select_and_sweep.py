"""`flareclust.select_k` and `flareclust.sweep`."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError

STUDY = {"name": "study", "data": "iris", "algorithms": ["feca", "kfed"], "n_sites": 3, "seeds": 2}


@pytest.mark.parametrize("k_range", [range(2, 6), (2, 5), "2..5"])
def test_a_number_of_clusters_is_selected_from_a_range(k_range):
    found = flareclust.select_k("kfed", "iris", k_range, criterion="elbow", n_sites=3)
    assert list(found.scores) == [2, 3, 4, 5]
    assert found.k == found.best["elbow"] == found.result.k
    assert found.criterion == "elbow"
    assert found.scores[2]["inertia"] > found.scores[5]["inertia"]
    assert len(found.result.centroids) <= found.k
    assert found.plot().axes


@pytest.mark.parametrize("criterion", ["bic", "icl"])
def test_a_mixture_that_selects_draws_its_own_criterion(criterion):
    found = flareclust.select_k("gmm", "iris", (2, 4), criterion=criterion, n_sites=3, covariance="diag")
    (axes,) = found.plot().axes
    (line,) = (line for line in axes.lines if line.get_gid() == "measure")
    tried = found.result.arrays["tried"]
    np.testing.assert_array_equal(line.get_xydata(), np.column_stack([2 + np.arange(len(tried)), tried]))
    assert axes.get_ylabel() == criterion.upper()
    assert any(text.get_text() == f"{criterion}: k = {found.k}" for text in axes.texts)


def test_a_mixture_whose_k_another_rule_selects_draws_that_rule():
    found = flareclust.select_k("gmm", "iris", (2, 4), criterion="elbow", n_sites=3, covariance="diag")
    assert any(text.get_text() == f"elbow: k = {found.k}" for axes in found.plot().axes for text in axes.texts)


def test_a_tree_that_selects_says_which_picture_it_has():
    found = flareclust.select_k("tree", "iris", (2, 4), n_sites=3)
    assert not found.scores
    with pytest.raises(UserError, match=r"take result\.plot_tree\(\)"):
        found.plot()
    assert found.result.plot_tree().axes


@pytest.mark.parametrize("k_range", [3, "3", None, range(2, 9, 2), range(3, 3), [2, 3], (2, 3, 4)])
def test_what_is_no_range_is_refused(k_range):
    with pytest.raises(UserError, match=r"range\("):
        flareclust.select_k("kfed", "iris", k_range)


def test_a_criterion_of_another_name_is_refused():
    with pytest.raises(UserError, match="criterion must be one of"):
        flareclust.select_k("kfed", "iris", (2, 4), criterion="bic")


def test_an_algorithm_that_selects_k_by_itself_takes_the_criterion_of_the_run():
    ranged = flareclust.run("pooled", "iris", (2, 4), criterion="elbow", n_sites=3)
    one = flareclust.run("pooled", "iris", 4, n_sites=3, k_min=2, criterion="elbow")
    assert len(one.centroids) == ranged.k
    assert one.params["criterion"] == "elbow"


def test_a_criterion_does_nothing_where_one_k_is_given():
    one = flareclust.run("feca", "iris", 3, n_sites=3, criterion="elbow")
    assert (one.centroids == flareclust.run("feca", "iris", 3, n_sites=3).centroids).all()
    assert "criterion" not in one.params


def test_a_sweep_gives_a_row_per_cell_and_goes_on_where_it_was(tmp_path):
    done = []
    found = flareclust.sweep(STUDY, out=tmp_path / "out", on_done=done.append)
    assert [row["algorithm"] for row in found.table()] == ["feca", "kfed"]
    assert all(row["done"] == 2 and row["failed"] == 0 for row in found.table())
    one = flareclust.run("feca", "iris", 3, n_sites=3, seed=0).metrics["ari"]
    other = flareclust.run("feca", "iris", 3, n_sites=3, seed=1).metrics["ari"]
    assert found.table()[0]["ari_mean"] == pytest.approx((one + other) / 2)
    assert found.failed == 0
    assert len(done) == 4
    assert {path.name for path in found.files} >= {"trials.jsonl", "table.md", "table.csv"}
    again = flareclust.sweep(STUDY, out=tmp_path / "out")
    assert all(trial.resumed for trial in again.trials)
    assert again.table() == found.table()


def test_a_sweep_counts_its_failures(tmp_path):
    found = flareclust.sweep({**STUDY, "k": [3, 60]}, out=tmp_path / "out", workers=1)
    assert found.failed == 2, "FeCA needs k rows at every site"
    assert "| algorithm |" in found._repr_markdown_()


def test_a_sweep_of_a_file_and_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = 'name = "study"\ndata = "iris"\nalgorithms = ["feca", "kfed"]\nn_sites = 3\nseeds = 2\n'
    (tmp_path / "study.toml").write_text(text)
    found = flareclust.sweep("study.toml")
    assert found.folder.parent.name == "flareclust-sweeps"
    assert flareclust.sweep(STUDY).folder == found.folder
    with pytest.raises(UserError, match="unknown setting 'seed'"):
        flareclust.sweep({**STUDY, "seed": 3})
