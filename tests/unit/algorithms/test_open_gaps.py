"""Tables with gaps that stay open: a job with `missing=partial` is k-means over the known cells of the pooled rows."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.disclosure import describable_where_known, few_known
from flareclust.core.missing.gaps import complete
from flareclust.data.tables import Table
from flareclust.engines.late_sites import place
from flareclust.evaluation.scores import score_sums, stack
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.protocol import registry
from flareclust.protocol.task import Task
from tests.paths import ROOT

ABLE = ("lloyd", "portfolio", "pooled", "feca")
RNG = np.random.default_rng(0)
CENTERS = RNG.uniform(-10, 10, (4, 5))
TRUTH = np.arange(400) % 4
COMPLETE = CENTERS[TRUTH] + RNG.normal(size=(400, 5))
X = np.where(RNG.random(COMPLETE.shape) < 0.2, np.nan, COMPLETE)
X[np.isnan(X).all(axis=1), 0] = 0.0
SITES = {"a": X[:100], "b": X[100:220], "c": X[220:]}
START = CENTERS + 1.0


def nearest(rows, centroids):
    return np.nansum((rows[:, None] - centroids) ** 2, axis=2).argmin(axis=1)


def pooled_known(rows, centroids):
    """Lloyd's algorithm over the known cells: sums of present entries over their counts."""
    while True:
        labels = nearest(rows, centroids)
        moved = np.array([np.nanmean(rows[labels == r], axis=0) for r in range(len(centroids))])
        if np.allclose(moved, centroids, rtol=0, atol=1e-12):
            return moved, labels
        centroids = moved


def test_lloyd_ends_where_the_pooled_algorithm_over_known_cells_does():
    result = flareclust.run("lloyd", SITES, k=4, missing="partial", start=START.tolist(), tol=0.0)
    expected, labels = pooled_known(X, START)
    np.testing.assert_allclose(result.centroids, expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(result.labels, labels)
    np.testing.assert_allclose(result.metrics["inertia"], np.nansum((X - expected[labels]) ** 2), rtol=1e-9)


def test_one_round_is_that_of_the_rows_filled_with_their_centroids():
    result = flareclust.run("lloyd", SITES, k=4, missing="partial", start=START.tolist(), rounds=1)
    labels = nearest(X, START)
    filled = np.where(np.isnan(X), START[labels], X)
    expected = [filled[labels == r].mean(axis=0) for r in range(4)]
    np.testing.assert_allclose(result.centroids, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ABLE)
def test_known_cells_tell_more_than_filled_ones_and_than_the_complete_rows(name):
    table, truth = load_wine(return_X_y=True)
    table = ((table - table.mean(axis=0)) / table.std(axis=0))[:, 6:]
    agreement = {"partial": 0.0, "mean": 0.0, "drop": 0.0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows, order = table.copy(), rng.permutation(len(table))
        rows[(rng.random(rows.shape) < 0.2) & (np.arange(7) > 0)] = np.nan
        sites = {str(i): rows[part] for i, part in enumerate(np.array_split(order, 2))}
        whole = {site: part[~np.isnan(part).any(axis=1)] for site, part in sites.items()}
        for how in agreement:
            data, missing = (whole, "refuse") if how == "drop" else (sites, how)
            found = flareclust.run(name, data, k=3, seed=seed, missing=missing)
            agreement[how] += adjusted_rand_score(truth, nearest(rows, found.centroids))
    assert agreement["partial"] > agreement["mean"]
    assert agreement["partial"] > agreement["drop"]
    (line,) = re.findall(rf"^\| `{name}` \| (0.*) \|$", (ROOT / "docs" / "tables.md").read_text(), flags=re.MULTILINE)
    assert line == " | ".join(f"{total / 4:.3f}" for total in agreement.values())


@pytest.mark.parametrize("name", ABLE)
def test_complete_rows_are_clustered_as_ever(name):
    sites = {"a": COMPLETE[:150], "b": COMPLETE[150:]}
    plain, partial = (flareclust.run(name, sites, k=4, missing=missing) for missing in ("refuse", "partial"))
    np.testing.assert_array_equal(partial.centroids, plain.centroids)
    assert partial.metrics == plain.metrics


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize("scale", ["none", "standard"])
def test_new_rows_with_gaps_get_the_labels_of_the_run(name, scale, tmp_path):
    result = flareclust.run(name, SITES, k=4, missing="partial", scale=scale, out=tmp_path / "out")
    np.testing.assert_array_equal(result.predict(X), result.labels)
    np.testing.assert_array_equal(flareclust.load_result(tmp_path / "out").predict(X), result.labels)
    np.testing.assert_array_equal(place(tmp_path / "out", X[:50], "late"), result.labels[:50])
    assert "missing cells count neither in distances nor in means" in result.warnings[0]
    assert name == "feca" or adjusted_rand_score(TRUTH, result.labels) > 0.9


# ---- what leaves a site ----


def update_of(rows, centroids, min_count):
    executor = LloydExecutor(len(centroids), min_count=min_count, missing="partial")
    task = Task(UPDATE, 1, {"centroids": centroids, "fill": np.zeros(rows.shape[1])}, "a")
    return executor.answer(task, rows, never_abort).arrays


@pytest.mark.parametrize("known", [4, 5])
def test_a_column_that_too_few_rows_of_a_cluster_know_is_not_released(known):
    """Twenty rows at either centroid; the second column of the first cluster has so many known cells, the floor is 5."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3)) + np.repeat([[0.0], [50.0]], 20, axis=0)
    rows[known:20, 1] = np.nan
    other = rows.copy()
    other[:known, 1] += 3.0
    centroids = np.array([[0.5, 0.25, 0.0], [50.0, 50.0, 50.0]])
    one, two = (update_of(data, centroids, 5) for data in (rows, other))
    for name in ("counts", "cluster"):
        np.testing.assert_array_equal(one[name], two[name])
    if known < 5:
        assert one["centroids"][0, 1] == pytest.approx(0.25, abs=1e-12)
        np.testing.assert_array_equal(one["centroids"], two["centroids"])
        assert one["inertia"] == two["inertia"]
    else:
        assert one["centroids"][0, 1] != two["centroids"][0, 1]


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_no_cluster_has_a_column_of_few_known_cells(seed, least):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(int(rng.integers(5, 40)), 3))
    rows[(rng.random(rows.shape) < rng.uniform(0, 0.9)) & (np.arange(3) > 0)] = np.nan
    centroids = rng.normal(size=(3, 3))
    done = complete(rows, centroids, least)
    assert np.isfinite(done.rows).all()
    labels = nearest(done.rows, centroids)
    if done.known is not None:
        assert not few_known(done.known, labels, 3, least).any()
        np.testing.assert_array_equal(done.rows[done.known], rows[done.known])


def differences(rows, centroids):
    """Return the nearest centroid of each row in the cells that it has, from differences."""
    return np.nansum((rows[:, None] - centroids) ** 2, axis=2).argmin(axis=1)


def test_rows_with_gaps_go_to_the_nearest_centroid_beside_one_that_is_far_away():
    rng = np.random.default_rng(3)
    centroids = np.array([[0.0, 0.0, 0.0], [3.0, 3.0, 3.0], [1e9, 1e9, 1e9]])
    rows = rng.normal(size=(90, 3)) + centroids[np.arange(90) % 3]
    rows[np.arange(90), rng.integers(0, 3, 90)] = np.nan
    filled = complete(rows, centroids).rows
    np.testing.assert_array_equal(
        np.where(np.isnan(rows), filled, np.nan),
        np.where(np.isnan(rows), centroids[differences(rows, centroids)], np.nan),
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_of_equally_near_centroids_a_row_with_gaps_takes_the_first(seed, d):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, size=(300, d)).astype(float)
    rows[(rng.random(rows.shape) < 0.3) & (np.arange(d) > 0)] = np.nan
    centroids = rng.integers(-3, 4, size=(5, d)).astype(float)
    expected = centroids[differences(rows, centroids)]
    np.testing.assert_array_equal(complete(rows, centroids).rows, np.where(np.isnan(rows), expected, rows))


@pytest.mark.parametrize("name", ABLE)
def test_uploads_do_not_depend_on_a_column_that_few_rows_know(name):
    """One site knows a column in three rows only: below the floor of 5, these cells must not matter to what it sends."""
    few = X.copy()
    few[:, 4] = np.nan
    few[np.isnan(few).all(axis=1), 0] = 0.0
    found = []
    for value in (1.0, 9.0):
        few[:3, 4] = value
        sites = {"a": few[:100], "b": X[100:220], "c": X[220:]}
        found.append(flareclust.run(name, sites, k=4, missing="partial", min_count=5, seed=2))
    if name == "feca":
        np.testing.assert_allclose(found[0].centroids, found[1].centroids)
    else:
        np.testing.assert_array_equal(found[0].centroids, found[1].centroids)


def test_a_policy_fills_cells_before_it_groups_rows():
    result = flareclust.run("portfolio", SITES, k=4, missing="partial", policy={})
    assert adjusted_rand_score(TRUTH, result.labels) > 0.8


# ---- what is refused ----


def test_what_does_not_go_with_open_gaps_is_refused():
    with pytest.raises(UserError, match="missing=partial does not go with secure_sums"):
        flareclust.run("lloyd", SITES, k=4, missing="partial", secure_sums=True)
    with pytest.raises(UserError, match="missing=partial does not go with secure_sums"):
        flareclust.run("portfolio", SITES, k=4, missing="partial", secure_sums=True)
    with pytest.raises(UserError, match="missing=partial and trim_rows exclude each other"):
        flareclust.run("lloyd", SITES, k=4, missing="partial", trim_rows=0.1)
    with pytest.raises(UserError, match="metric=cosine and missing=partial exclude each other"):
        flareclust.run("lloyd", SITES, k=4, missing="partial", metric="cosine")


def test_other_algorithms_name_what_they_can():
    others = [name for name, one in registry.algorithms().items() if "missing" in one.parameters() and name not in ABLE]
    assert others
    for name in others:
        with pytest.raises(UserError, match=r"missing must be one of refuse(, drop-rows)?, mean; got 'partial'"):
            registry.get(name).check(3, 0, {"missing": "partial"})


def test_rows_without_a_known_cell_keep_a_site_out():
    empty = np.vstack([X[:100], np.full((1, 5), np.nan)])
    with pytest.raises(JobFailed, match="a has rows without a known cell; leave them out at the site"):
        flareclust.run("lloyd", {"a": empty}, k=4, missing="partial")


def test_models_that_would_fill_gaps_are_not_exported(tmp_path):
    result = flareclust.run("lloyd", SITES, k=4, missing="partial")
    with pytest.raises(UserError, match="no model for missing=partial"):
        result.export(tmp_path / "m.onnx")


@pytest.mark.parametrize("criterion", ["calinski-harabasz", "silhouette"])
def test_a_range_of_k_is_compared_over_known_cells(criterion):
    assert flareclust.run("lloyd", SITES, k=(2, 6), missing="partial", criterion=criterion).k == 4


def test_a_repeated_row_with_one_gap_is_not_sent():
    """The row would follow from the centroid with which the gap was filled."""
    X = np.array([[5, 7], [5, 7], [5, 7], [5, np.nan], [50, 60], [51, 62], [52, 63]], dtype=float)
    executor = registry.get("lloyd").build(2, 0, {"missing": "partial"})[0]
    centroids = np.array([[5.0, 1.0], [50.0, 60.0]])
    task = Task("update", 1, {"centroids": centroids, "fill": np.array([5.0, 7.0])}, "a")
    assert executor.answer(task, X, never_abort).arrays["cluster"].tolist() == [1]


def test_a_mean_of_known_cells_that_is_a_row_is_not_sent():
    X = np.array([[1.0, 7.0], [2.0, np.nan], [3.0, 7.0], [2.0, 7.0]])
    known, labels = ~np.isnan(X), np.zeros(4, dtype=np.int64)
    filled = np.where(known, X, 1.0)
    assert not describable_where_known(filled, known, labels, 1, 2).any()
    filled[3, 0] = 2.5
    assert describable_where_known(filled, known, labels, 1, 2).all()


def test_scores_are_limited_by_known_cells():
    """As many numbers as known cells could be solved for them."""
    X = np.full((60, 6), np.nan)
    X[np.arange(60), np.arange(60) % 6] = np.random.default_rng(0).normal(size=60)
    task = stack([np.random.default_rng(i).normal(size=(2, 6)) for i in range(100)])
    fewer, enough = (score_sums(task, rows, ["sse", "rows"], 2) for rows in (X, np.nan_to_num(X)))
    assert fewer["rows"] == 0
    assert enough["rows"] == 60


def test_a_gap_in_the_first_row_spoils_no_group_of_all_rows():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[0, 1] = np.nan
    executor = registry.get("lloyd").build(2, 0, {"missing": "partial"})[0]
    reply = executor.answer(Task("spread", 1, {"fill": np.zeros(3)}, "a"), X, never_abort).arrays
    assert reply["counts"].tolist() == [50]
    assert np.isfinite(reply["centroids"]).all()


def test_weights_do_not_go_with_open_gaps():
    X = np.repeat([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]], 10, axis=0)
    task = Task("assess", 1, {"centroids": np.zeros((1, 2)), "fill": np.zeros(2)}, "a")
    executor = registry.get("lloyd").build(1, 0, {"missing": "partial"})[0]
    with pytest.raises(Refusal, match=r"weights.*missing=partial"):
        executor.answer(task, Table(X, repeats=10), never_abort)
