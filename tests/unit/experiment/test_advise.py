"""`flareclust advise`: k-means, a mixture and a tree on the same rows, and what is said of them."""

import json

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.studies import advice
from tests.command_line import call
from tests.unit.cli.cli_cases import write


def long_ones(n=300):
    """Return rows of two clusters, one long and one tall, which k-means takes for more than two."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal([0, 0], [8, 0.5], (n, 2)), rng.normal([6, 9], [0.5, 4], (n, 2))])


def test_stretched_clusters_are_for_a_mixture():
    found = flareclust.advise(long_ones(), "2..4", n_sites=3, partition="iid")
    assert (found.algorithm, found.k) == ("gmm", 2)
    take, why, _ = found.sentences
    assert take == "take gmm, which finds 2 clusters"
    assert "describe the rows better" in why
    kmeans, mixture = (next(one for one in found.candidates if one.algorithm == name) for name in ("portfolio", "gmm"))
    assert kmeans.bic > mixture.bic
    assert found.frame()["algorithm"].tolist()[:2] == ["portfolio", "gmm"]


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_one_normal_distribution_have_no_clusters_and_warnings_of_results_are_passed_on(seed):
    X = np.random.default_rng(seed).normal(size=(600, 2))
    found = flareclust.advise({f"s{i}": X[i::3] for i in range(3)}, "2..5")
    assert (found.algorithm, found.k) == ("gmm", 1)
    assert found.sentences[0] == "there seem to be no clusters"
    assert "a single component describes the rows better" in found.sentences[1]
    (said,) = [text for text in found.warnings if "there may be no clusters" in text]
    assert said.startswith("portfolio: ")
    assert found.to_json()["warnings"] == found.warnings


def test_the_answer_is_the_same_again_and_in_scaled_columns():
    X = long_ones()
    one, again = (flareclust.advise(X, 2, n_sites=2, partition="iid", scale="standard", seed=3) for _ in range(2))
    other = flareclust.advise(X * [1, 1024], 2, n_sites=2, partition="iid", scale="standard", seed=3)
    assert one == again
    assert one.algorithm == other.algorithm
    assert [a.bic for a in one.candidates[:2]] == pytest.approx([a.bic for a in other.candidates[:2]], rel=1e-9)


def test_many_rows_are_drawn_from_and_that_is_said(monkeypatch):
    monkeypatch.setattr(advice, "MOST_ROWS", 200)
    found = flareclust.advise(long_ones(), 2, n_sites=4, partition="iid")
    assert (found.n_rows, found.all_rows) == (200, 600)


def test_columns_of_one_value_change_nothing_and_are_named():
    X = long_ones()
    wide = np.insert(X, 1, 7.0, axis=1)
    one, other = (flareclust.advise({"a": rows[::2], "b": rows[1::2]}, 2) for rows in (X, wide))
    assert one.candidates == other.candidates
    assert one.sentences == other.sentences
    assert not one.left_out
    assert other.warnings[0] == "column 2 was left out: it has one value only"


def test_a_mixture_that_is_flat_in_some_direction_is_not_compared():
    X = long_ones()
    found = flareclust.advise({"a": (wide := np.column_stack([X, X.sum(axis=1)]))[::2], "b": wide[1::2]}, 2)
    assert "gmm" not in [one.algorithm for one in found.candidates]
    assert any(text.startswith("gmm was not compared: a component is flat") for text in found.warnings)


def test_a_site_that_takes_no_part_is_named():
    X = long_ones()
    sites = {f"s{i}": X[i::3].copy() for i in range(3)}
    sites["s1"][0, 0] = np.nan
    found = flareclust.advise(sites, 2)
    assert (found.n_rows, found.all_rows) == (400, 400)
    assert found.warnings[0].startswith("s1 was left out: it has rows with NaN")


def test_no_number_outside_the_range_is_advised():
    found = flareclust.advise({"a": (X := long_ones())[::2], "b": X[1::2]}, "4..6")
    assert 4 <= found.k <= 6
    kmeans, mixture = found.candidates[:2]
    assert min(kmeans.k, mixture.k) >= 4
    assert found.results["tree"].params["cut"] == 4


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_small_tables_are_split_over_few_sites(name):
    assert flareclust.advise(name, "2..6").results["portfolio"].n_sites == 5


def test_what_cannot_be_compared_says_why():
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(size=(8, 20)) for name in ("a", "b")}
    found = flareclust.advise(sites, 2)
    assert "fewer than the 12 rows" in found.failed["gmm"]
    assert "gmm" not in [one.algorithm for one in found.candidates]


def test_categories_and_files_are_refused(tmp_path):
    frame = pd.DataFrame(
        {"age": np.arange(40.0), "sex=f": np.resize([0.0, 1.0], 40), "sex=m": np.resize([1.0, 0.0], 40)}
    )
    with pytest.raises(UserError, match="has categories; take portfolio, or kprototypes"):
        flareclust.advise({"a": frame[:20], "b": frame[20:]}, 2)
    with pytest.raises(UserError, match="leave out out"):
        flareclust.advise(long_ones(), 2, out=tmp_path / "out")


def test_the_command_prints_three_sentences_or_one_object(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for site, rows in zip(("north", "south"), np.split(long_ones()[::-1], 2), strict=True):
        write(tmp_path / "sites" / f"{site}.csv", rows)
    asked = ("advise", "sites", "--partition", "none", "--k", "2..3")
    assert call(*asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Take gmm, which finds 2 ")]
    assert [line for line in lines if line.startswith("note: portfolio: k=3 is the largest of the range 2..3")]
    assert call(*asked, "--json") == 0
    assert json.loads(capsys.readouterr().out)["sentences"][0] == "take gmm, which finds 2 clusters"
    assert call(*asked, "--set", "metric=cosine") == 2
    assert "--set takes scale and missing here" in capsys.readouterr().err
    assert call("advise", "nowhere") == 2


def test_a_table_with_words_is_told_of_the_option_that_reads_it(tmp_path, capsys):
    frame = pd.DataFrame({"age": np.arange(40.0), "seen": ["2020-01-01", "2021-03-04"] * 20})
    frame.to_csv(tmp_path / "table.csv", index=False)
    assert call("advise", str(tmp_path / "table.csv"), "--k", "2") == 2
    assert "column 'seen' is not numeric" in (said := capsys.readouterr().err)
    assert "by a schema (--schema, schema=; flareclust schema draft FILE writes one)" in said
