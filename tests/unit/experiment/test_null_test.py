"""No clusters as a possible answer of `select_k` and `flareclust stability`."""

import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.experiment.reports.page import report_page
from tests.command_line import call
from tests.unit.experiment.stability_cases import blobs


def uniform():
    rng = np.random.default_rng(0)
    return {f"s{i}": rng.uniform(size=(80, 2)) for i in range(3)}


def cloud():
    rng = np.random.default_rng(0)
    return {f"s{i}": rng.normal(size=(80, 2)) @ np.array([[3.0, 2], [0, 1]]) for i in range(3)}


def test_separated_clusters_are_evident():
    found = flareclust.select_k("pooled", blobs(), (2, 5), null=19)
    assert found.k == 3
    assert found.null.p == 0.05
    assert found.null.evidence
    compared = [(one.criterion, one.reference) for one in found.null.comparisons]
    assert compared == [("silhouette", "box"), ("valleys", "box"), ("silhouette", "copula"), ("valleys", "copula")]
    assert found.null.sentence.startswith("evidence of clusters: 0 of 19 runs on rows from a uniform box")


def skewed():
    rng = np.random.default_rng(0)
    return {f"s{i}": np.column_stack([np.exp(rng.normal(size=(80, 2))), rng.normal(size=80)]) for i in range(3)}


@pytest.mark.parametrize("scale", ["none", "standard", "robust"])
def test_skewed_columns_are_no_evidence(scale):
    found = flareclust.select_k("pooled", skewed(), (2, 5), null=19, scale=scale).null
    assert not found.evidence
    assert found.p > 0.2


def test_ten_clusters_with_heavy_tails_are_evident():
    rng = np.random.default_rng(0)
    centers = 8.0 * np.array([(x, y) for x in range(5) for y in range(2)])
    sites = {f"s{i}": centers[rng.integers(10, size=200)] + rng.standard_t(3, (200, 2)) / np.sqrt(3) for i in range(3)}
    assert flareclust.select_k("pooled", sites, (2, 12), null=19).null.evidence


@pytest.mark.parametrize("rows", [uniform, cloud])
def test_one_piece_of_rows_is_no_evidence(rows):
    found = flareclust.select_k("pooled", rows(), (2, 5), null=19)
    assert found.null.p > 0.05
    assert not found.null.evidence
    assert found.null.sentence.startswith("no evidence of clusters")


def test_permuted_columns_say_whether_columns_go_together():
    rng = np.random.default_rng(0)
    corners = {f"s{i}": 8.0 * rng.integers(2, size=(80, 2)) + rng.normal(size=(80, 2)) for i in range(3)}
    assert flareclust.select_k("pooled", corners, (2, 5), null=19).null.evidence
    for rows, evident in ((blobs(), True), (cloud(), True), (uniform(), False), (corners, False)):
        null = flareclust.select_k("pooled", rows, (2, 5), null=19, null_reference="permuted").null
        assert null.evidence is evident
        assert [one.criterion for one in null.comparisons] == ["silhouette"]
    both = flareclust.select_k("pooled", cloud(), (2, 5), null=19, null_reference="permuted, box").null
    assert not both.evidence
    assert both.deciding.reference == "box"


def test_categories_are_compared():
    rng = np.random.default_rng(0)
    sites = {f"s{i}": np.column_stack([rng.normal(size=80), np.eye(2)[rng.integers(2, size=80)]]) for i in range(3)}
    found = flareclust.select_k("pooled", sites, (2, 4), null=19, scale="standard", categories=[[1, 2]])
    assert not found.null.evidence


def test_missing_cells_are_filled_as_in_the_run():
    sites = blobs()
    sites["s0"] = np.where(np.random.default_rng(0).random(sites["s0"].shape) < 0.05, np.nan, sites["s0"])
    assert flareclust.select_k("pooled", sites, (2, 5), null=19, missing="partial").null.evidence


def test_one_k_is_compared_with_the_same_k_whatever_the_algorithm():
    found = flareclust.stability("kfed", blobs(), 3, repeats=2, null=19)
    assert found.null.k_range == (3, 3)
    assert found.null.evidence
    assert "(k=3, p=0.05; " in found.null.sentence
    assert all(one.observed > one.null.max() for one in found.null.comparisons)


def test_nothing_is_compared_unless_it_is_asked_for():
    assert flareclust.select_k("kfed", "iris", (2, 4), n_sites=3).null is None
    assert flareclust.stability("kfed", blobs(), 3, repeats=2).to_json()["null"] is None


def test_columns_are_scaled_in_the_comparison_as_in_the_run():
    sites = {site: X * [1, 1e4] for site, X in uniform().items()}
    assert not flareclust.select_k("pooled", sites, (2, 5), null=19, scale="standard").null.evidence


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"null": 10}, "at least 19"),
        ({"null": -1}, "null must be"),
        ({"null": 19, "null_reference": "sphere"}, "null_reference must be one of"),
        ({"null": 19, "null_reference": "box,sphere"}, "null_reference must be one of"),
        ({"null": 19, "engine": "production"}, "real sites"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(settings, text):
    with pytest.raises(UserError, match=text):
        flareclust.select_k("pooled", "iris", (2, 4), **settings)


def test_one_cluster_is_not_compared():
    with pytest.raises(UserError, match="2 or more"):
        flareclust.stability("pooled", "iris", 1, null=19)


def test_the_command_says_the_answer(capsys):
    args = ("stability", "pooled", "--data", "iris", "--n-sites", 3, "--k", "2..4", "--repeats", 2, "--null", 19)
    assert call(*args) == 0
    assert "evidence of clusters: 0 of 19 runs" in capsys.readouterr().out
    assert call(*args, "--criterion", "silhouette", "--json") == 0
    null = json.loads(capsys.readouterr().out)["null"]
    assert [one["p"] for one in null["comparisons"]] == [0.05] * 4
    assert call(*args, "--null-reference", "permuted", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["null"]["comparisons"]) == 1
    assert call(*args[:-1], 3) == 2


@pytest.mark.parametrize(("rows", "evident"), [(blobs, True), (cloud, False)])
def test_the_answer_is_in_the_report_and_kept_with_the_result(rows, evident, tmp_path):
    found = flareclust.stability("pooled", rows(), "2..4", repeats=2, null=19, out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    sentence = found.null.sentence
    assert f"<li>{sentence[:1].upper()}{sentence[1:]}.</li>" in page
    for one in found.null.comparisons:
        assert f"<li>{one.said} (p={one.p:.2g})</li>" in page
    assert (f"<li>{sentence}; do not interpret any k</li>" in page) is not evident
    again = flareclust.load_result(tmp_path / "out")
    assert again.null.to_json() == found.null.to_json() == found.result.to_json()["null"]
    assert again.null.sentence == sentence
    selected = flareclust.select_k("pooled", rows(), "2..4", null=19)
    assert sentence[:1].upper() + sentence[1:] in report_page(selected.result)
    assert selected.result.warnings[:1] == ([] if evident else [f"{sentence}; do not interpret any k"])
    assert "vidence of clusters" not in report_page(flareclust.run("pooled", rows(), "2..4"))
