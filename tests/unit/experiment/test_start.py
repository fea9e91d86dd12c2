"""A run that starts from the centroids of an earlier result: what it equals, and what cannot start it."""

import json
import re

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS
from flareclust.cli.main import main
from flareclust.protocol.registry import algorithms

K, SITES, GONE = 4, 5, 23


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(3)
    centers = rng.uniform(-6, 6, size=(K, 3))
    return {f"s{i}": centers[rng.integers(K, size=150)] + rng.normal(size=(150, 3)) for i in range(SITES)}


@pytest.fixture(scope="module")
def without(sites):
    """The same sites, one of which has withdrawn some rows."""
    return {**sites, "s2": np.delete(sites["s2"], np.arange(GONE), axis=0)}


def lloyd(centroids, rows):
    """Return where Lloyd's algorithm on the pooled rows comes to rest."""
    while True:
        own = ((rows[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
        moved = np.stack([rows[own == c].mean(axis=0) for c in range(len(centroids))])
        if np.abs(moved - centroids).max() < 1e-12:
            return moved
        centroids = moved


@pytest.fixture(scope="module")
def before(sites, tmp_path_factory):
    folder = tmp_path_factory.mktemp("before") / "run"
    return flareclust.run("lloyd", sites, K, tol=0.0, out=folder), folder


def test_a_run_without_withdrawn_rows_is_lloyds_algorithm_on_the_others_from_there(before, without):
    result, folder = before
    again = flareclust.run("lloyd", without, K, tol=0.0, start_from=folder, match_to=folder)
    given = flareclust.run("lloyd", without, K, tol=0.0, start=result.centroids.tolist())
    fresh = flareclust.run("lloyd", without, K, tol=0.0)
    np.testing.assert_array_equal(again.centroids, given.centroids)
    expected = lloyd(result.centroids, np.concatenate(list(without.values())))
    np.testing.assert_allclose(again.centroids, expected, rtol=0, atol=1e-9)
    assert again.metrics["inertia"] == pytest.approx(fresh.metrics["inertia"], rel=1e-3)
    assert again.matched_to == "run"
    assert again.rounds < fresh.rounds


def test_with_secure_sums_it_is_the_same_to_rounding(before, without):
    plain, masked = (
        flareclust.run("lloyd", without, K, tol=0.0, start_from=before[1], secure_sums=secure)
        for secure in (False, True)
    )
    np.testing.assert_allclose(masked.centroids, plain.centroids, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [("lloyd", {"scale": "standard"}), ("lloyd", {"metric": "cosine"}), ("ffcm", {"rounds": 300}), ("kprototypes", {})],
)
def test_where_nothing_was_withdrawn_the_clusters_stay_where_they_came_to_rest(sites, tmp_path, algorithm, settings):
    first = flareclust.run(algorithm, sites, K, tol=0.0, out=tmp_path / "run", **settings)
    again = flareclust.run(
        algorithm, sites, K, tol=0.0, start_from=tmp_path / "run", match_to=tmp_path / "run", **settings
    )
    np.testing.assert_allclose(again.centroids, first.centroids, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "asked", "said"),
    [
        (
            "fkm",
            {},
            "fkm makes its own start; leave out --start, or take an algorithm that begins with centroids: lloyd",
        ),
        ("pooled", {}, "pooled asks each site once, and nothing is there to begin with; leave out --start, or take"),
        ("lloyd", {"k": 3}, "it has 4 centroids, and k is 3"),
        ("lloyd", {"k": "2..4"}, "k is to be chosen from a range; give the k of that result, or leave out --start"),
        ("kprototypes", {}, "lloyd has clusters of another kind than kprototypes"),
        ("lloyd", {"scale": "standard"}, "it was made with scale=none, and this run has scale=standard"),
        ("lloyd", {"metric": "cosine"}, "it was made with metric=euclidean, and this run has metric=cosine"),
        ("lloyd", {"start": "convex"}, "the setting start says another start"),
    ],
)
def test_a_result_that_cannot_start_a_run_is_refused_in_one_sentence(before, sites, algorithm, asked, said):
    with pytest.raises(UserError) as refused:
        flareclust.run(algorithm, sites, start_from=before[1], **{"k": K, **asked})
    assert str(refused.value).startswith("start_from (--start): the run cannot start from run: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def named(folder, columns, n=60):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for site in "abc":
        rows = np.concatenate([rng.normal(size=(n, 2)), rng.normal(9, 1, size=(n, 2))])
        text = "\n".join(",".join(map(str, row)) for row in rows)
        (folder / f"{site}.csv").write_text(f"{','.join(columns)}\n{text}\n")
    return folder


def test_columns_are_compared_and_ordered_by_name(tmp_path):
    flareclust.run("lloyd", named(tmp_path / "one", ["age", "crp"]), 2, partition="none", out=tmp_path / "run", tol=0.0)
    settings = {"partition": "none", "start_from": tmp_path / "run", "tol": 0.0}
    first = flareclust.load_result(tmp_path / "run")
    other = flareclust.run("lloyd", named(tmp_path / "other", ["crp", "age"]), 2, rounds=1, **settings)
    np.testing.assert_array_equal(other.params["start"], first.centroids[:, ::-1])
    with pytest.raises(UserError, match="the columns differ: only the new one has bmi, and only it has crp"):
        flareclust.run("lloyd", named(tmp_path / "third", ["age", "bmi"]), 2, **settings)


def test_a_folder_without_a_result_is_named(tmp_path, sites):
    with pytest.raises(UserError, match=r"start_from \(--start\): "):
        flareclust.run("lloyd", sites, K, start_from=tmp_path)


def test_the_command_starts_from_a_folder_and_says_how_it_is_repeated(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = ["run", "lloyd", "--data", "iris", "--k", "3", "--engine", "inprocess", "--no-track", "--json"]
    found = []
    for more in (["--out", "one"], ["--out", "two", "--start", "one", "--match-to", "one"]):
        with pytest.raises(SystemExit):
            main([*own, *more])
        found.append(json.loads(capsys.readouterr().out))
    assert len(found[1]["params"]["start"]) == 3
    report = (tmp_path / "two" / "report.html").read_text()
    assert "--start one" in report
    assert "--set start" not in report.replace("&#39;", "'").replace("'start", "start")


def test_the_help_names_all_algorithms_that_start_from_a_result(sites, before):
    with pytest.raises(UserError, match="lloyd") as refused:
        flareclust.run("kfed", sites, K, start_from=before[1])
    able = [
        name for name in algorithms() if re.search(rf"\b{re.escape(name)}\b", str(refused.value)) and name != "kfed"
    ]
    assert "gmm" in able
    assert all(name in COMMANDS["run"]["start_from"].help for name in able)
