"""What views say of mixtures: how many components were chosen, which values are better, and how many rows are uncertain."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons

import flareclust
from flareclust import UserError
from flareclust.core.mixtures import responsibilities
from flareclust.evaluation import selection
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.summary import summarise
from flareclust.experiment.reports.terminal import print_result


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(0)
    found = {}
    for site in ("north", "south"):
        parts = [rng.normal(center, 1, (90, 2)) for center in ((0, 0), (3.5, 0), (0, 30))]
        found[site] = pd.DataFrame(np.concatenate(parts), columns=["age", "crp"])
    return found


@pytest.fixture(scope="module")
def result(sites):
    return flareclust.run("gmm", sites, "2..5", row_name="patients")


def test_a_range_is_tried_in_one_job_and_bic_chooses(sites, result, tmp_path):
    asked = flareclust.run("gmm", sites, 5, k_min=2)
    np.testing.assert_array_equal(result.centroids, asked.centroids)
    assert (result.k, asked.k) == (result.centroids_found,) * 2
    steps = {record["step"] for record in result.outcome.rounds}
    assert not any(step.startswith("score") for step in steps)
    chosen = result.to_json()["choice"]
    assert chosen["k"] == [2, 3, 4, 5][: len(chosen["bic"])]
    assert chosen["rules"] == {"bic": chosen["k"][int(np.argmin(chosen["bic"]))]} == {"bic": result.k}
    assert not any("were asked for" in text for text in (*result.warnings, *asked.warnings))
    result.save(tmp_path / "out")
    loaded = flareclust.load_result(tmp_path / "out")
    assert (loaded.k, loaded.to_json()["choice"]) == (result.k, chosen)
    for own in ({"k_criterion": "icl"}, {"criterion": "icl"}):
        icl = flareclust.run("gmm", sites, "2..5", **own)
        assert list(icl.to_json()["choice"]["rules"]) == ["icl"]
    with pytest.raises(UserError, match="criterion must be one of calinski-harabasz"):
        flareclust.run("lloyd", sites, "2..5", criterion="icl")


def test_another_rule_and_secure_sums_choose_by_k_means(sites):
    by_rule = flareclust.run("gmm", sites, "2..4", criterion="silhouette")
    assert "silhouette" in by_rule.to_json()["choice"]["rules"]
    assert "tried" not in by_rule.arrays
    own = {"secure_sums": True}
    assert selection.own_settings("gmm", (2, 4), "calinski-harabasz", {}, **own) is None
    assert selection.own_settings("lloyd", (2, 4), "calinski-harabasz", {}) is None


def test_an_exported_job_has_the_range_as_well():
    assert selection.exported_k("gmm", "2..6", None, {"covariance": "diag"}) == (6, {"covariance": "diag", "k_min": 2})
    by_icl = 6, {"k_criterion": "icl", "k_min": 2}
    assert selection.exported_k("gmm", "2..6", "icl", {}) == by_icl
    with pytest.raises(UserError, match="is two jobs"):
        selection.exported_k("gmm", "2..6", "silhouette", {})


def test_views_say_what_was_chosen_and_which_values_are_better(result, capsys):
    print_result(result)
    said, page = " ".join(capsys.readouterr().out.split()), report_page(result)
    assert f"k={result.k} was chosen from 2..5; by rule: bic {result.k}" in said
    assert f"k={result.k} was chosen from 2..5 by bic." in page
    for words in ("log likelihood (higher is better)", "bic (lower is better)", "icl (lower is better)"):
        assert words in said
    assert "BIC (lower is better)" in page
    record = result.disclosure()["results"]["choice_of_k"]
    assert [file["name"] for file in record["files"]] == ["report.html", "result.json"]
    study = flareclust.select_k("gmm", {site: frame for site, frame in result.sites.items()}, "2..3")
    assert study.criterion == "bic"


def test_a_range_of_which_one_number_could_be_tried_says_so(sites, capsys):
    few = {site: frame.iloc[::15] for site, frame in sites.items()}
    found = flareclust.run("gmm", few, "2..5", policy={"min_count": 10}, row_name="patients")
    assert len(found.arrays["tried"]) == 1
    print_result(found)
    assert "k=2 was the only number tried; by rule: bic 2" in capsys.readouterr().out
    assert "k=2 was the only number tried by bic." in report_page(found)
    assert "each in the most probable cluster" in summarise(found).counted


def test_a_range_whose_end_is_chosen_is_named(sites):
    found = flareclust.run("gmm", sites, "2..3")
    ended = [text for text in found.warnings if "is the largest of the range 2..3, and bic may prefer" in text]
    assert len(ended) == (found.k == 3)
    assert found.k == 3


def test_uncertain_rows_are_counted_where_they_are_here(sites, result, capsys):
    rows = np.concatenate(list(result.sites.values()))
    n = int((responsibilities(rows, result.arrays).max(axis=1) < 0.8).sum())
    assert n > 0
    print_result(result)
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"uncertain patients \(probability below 0.8\) {n} \(", said)
    assert f"<td>{n} (" in report_page(result)
    assert summarise(flareclust.run("lloyd", sites, 2)).uncertain == ""
    policed = summarise(flareclust.run("gmm", sites, 3, policy={"min_count": 60}))
    assert policed.uncertain == "fewer than 60"


@pytest.mark.parametrize("shape", ["ward", "density"])
def test_rows_without_a_label_are_counted_once_and_sizes_are_said_to_be_of_the_others(shape, capsys):
    X = np.random.default_rng(0).permutation(make_moons(900, noise=0.06, random_state=1)[0])
    tree = flareclust.run("tree", {f"s{i}": X[i::3] for i in range(3)}, 2, shape=shape, profile=True)
    n = int((tree.labels < 0).sum())
    assert 0 < n < 0.05 * 900
    found = summarise(tree)
    assert (found.unlabelled, found.labelled) == (n, "labelled rows")
    print_result(tree)
    printed, page = " ".join(capsys.readouterr().out.split()), report_page(tree)
    assert f" rows without a label {n} (" in printed
    assert " labelled rows of each site: s0 " in printed
    assert re.search(rf"rows without a label</td><td[^>]*>{n} \(", page)
    assert f"{900 - n} labelled rows of 3 sites" in page
    assert "below the mean of all labelled rows" in page
    assert "its labelled rows by cluster" in page
    every = summarise(flareclust.run("portfolio", {"a": X[::2], "b": X[1::2]}, 2))
    assert (every.unlabelled, every.labelled, every.numbers_of_rows) == (0, "rows", [("rows assessed", "900 of 900")])


def test_under_a_policy_few_rows_without_a_label_are_no_number(sites):
    tree = flareclust.run("tree", sites, shape="density", policy={"min_count": 10})
    few = replace(tree, arrays={**tree.arrays, "labelled_rows": np.array(tree.assessed["rows"] - 4)})
    assert ("rows without a label", "fewer than 10") in summarise(few).numbers_of_rows
    assert not summarise(replace(tree, assessed=None)).numbers_of_rows


def test_a_number_of_rows_is_a_whole_number(sites, capsys):
    tree = flareclust.run("tree", sites, shape="density")
    n = int(tree.metrics["noise_rows"])
    print_result(tree)
    assert re.search(rf"noise rows +{n} *\n", capsys.readouterr().out)
    assert f"noise_rows: {n}\n" in f"{tree}\n"
    assert f"in no cluster</td><td>{n}</td>" in report_page(tree)
