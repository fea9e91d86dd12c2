"""Scores of several solutions: sums over sites against plain NumPy on the pooled rows, and what sites hold back."""

import numpy as np
import pytest
from sklearn.metrics import davies_bouldin_score

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation.scores import (
    ALL_SCORES,
    score_sums,
    scores,
    separation_ratios,
    stack,
    unstack,
    values_needed,
)
from flareclust.executors.pooled import PooledExecutor
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

NAMES = tuple(ALL_SCORES)


def distances(X, centroids):
    return np.linalg.norm(X[:, None] - centroids[None], axis=2)


def plain_sums(X, solutions, min_count=1):
    """The sums by their definitions, cell by cell."""
    found = {"rows": len(X), "sse": [], "silhouette": [], "spread": [], "counts": [], "scatter": []}
    for centroids in solutions:
        D = distances(X, centroids)
        labels = D.argmin(axis=1)
        a, b = np.sort(D, axis=1)[:, :2].T
        found["sse"].append((a**2).sum())
        found["silhouette"].append(((b - a) / np.maximum(a, b)).sum())
        found["spread"].append(np.linalg.norm(X - centroids[labels], 2) ** 2)
        for r in range(len(centroids)):
            cell = a[labels == r] if (labels == r).sum() >= min_count else a[:0]
            found["counts"].append(len(cell))
            found["scatter"].append(cell.sum())
    return {name: np.array(value) for name, value in found.items()}


@pytest.fixture
def case():
    rng = np.random.default_rng(3)
    sites = [rng.normal(size=(n, 3)) + rng.normal(size=3) for n in (40, 55, 70)]
    return sites, [rng.normal(size=(k, 3)) for k in (2, 5, 3)]


def test_candidates_travel_in_one_array_and_back(case):
    _, solutions = case
    task = stack(solutions)
    assert task["candidates"].shape == (10, 3)
    assert task["candidate"].tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    for sent, got in zip(solutions, unstack(task), strict=True):
        np.testing.assert_array_equal(sent, got)


def test_one_sites_sums_are_those_of_the_definitions(case):
    sites, solutions = case
    for X in sites:
        found = score_sums(stack(solutions), X, NAMES, 1)
        assert set(found) == set(NAMES)
        for name, value in plain_sums(X, solutions).items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)


def test_all_sites_sums_are_those_of_the_pooled_rows(case):
    sites, solutions = case
    task = stack(solutions)
    X = np.concatenate(sites)
    total = {name: np.sum([score_sums(task, rows, NAMES, 1)[name] for rows in sites], axis=0) for name in NAMES}
    pooled = plain_sums(X, solutions)
    for name in set(NAMES) - {"spread"}:
        np.testing.assert_allclose(total[name], pooled[name], rtol=1e-12, err_msg=name)
    assert (total["spread"] >= pooled["spread"] * (1 - 1e-12)).all()  # an upper bound, and not a far one
    assert (total["spread"] <= 3 * pooled["spread"]).all()
    for centroids, metrics in zip(solutions, scores(task, total), strict=True):
        D = distances(X, centroids)
        a, b = np.sort(D, axis=1)[:, :2].T
        assert metrics["inertia"] == pytest.approx((a**2).sum())
        assert metrics["simplified_silhouette"] == pytest.approx((1 - a / b).mean())


def test_the_davies_bouldin_index_of_means_is_scikit_learns(case):
    """scikit-learn measures from the means of the labelled rows, so the centroids must be those."""
    X = np.concatenate([site + 4 * i for i, site in enumerate(case[0])])
    centroids = X[[0, 60, 120]]
    for _ in range(100):
        labels = distances(X, centroids).argmin(axis=1)
        centroids = np.stack([X[labels == r].mean(axis=0) for r in range(3)])
    task = stack([centroids])
    assert scores(task, score_sums(task, X, NAMES, 1))[0]["davies_bouldin"] == pytest.approx(
        davies_bouldin_score(X, labels)
    )


@pytest.mark.parametrize("min_count", [1, 2, 5, 30])
def test_cells_below_min_count_are_left_out_of_the_sums_per_centroid(case, min_count):
    (X, *_), solutions = case
    found = score_sums(stack(solutions), X, NAMES, min_count)
    for name, value in plain_sums(X, solutions, min_count).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
    assert not ((found["counts"] > 0) & (found["counts"] < min_count)).any()


def test_the_silhouette_is_over_all_rows_where_cells_are_left_out():
    """On a line ten times 0 and 2, and 9, with centroids at 1 and 10, in four equal columns; 9 counts in the mean."""
    X, centroids = (np.array([numbers]).T * np.ones(4) for numbers in ([0.0, 2.0] * 10 + [9.0], [1.0, 10.0]))
    task = stack([centroids])
    total = score_sums(task, X, NAMES, 2)
    assert total["counts"].tolist() == [20, 0]
    np.testing.assert_allclose(total["scatter"], [40.0, 0.0])
    by_hand = (10 * (1 - 1 / 10) + 10 * (1 - 1 / 8) + (1 - 1 / 8)) / 21
    assert scores(task, total)[0]["simplified_silhouette"] == pytest.approx(by_hand)
    assert scores(task, total)[0]["inertia"] == pytest.approx(21 * 4)


def test_only_what_is_asked_for_is_sent(case):
    (X, *_), solutions = case
    assert list(score_sums(stack(solutions), X, ["sse"], 1)) == ["sse"]
    assert set(score_sums(stack(solutions), X, ("rows", "counts"), 1)) == {"rows", "counts"}


def test_a_site_whose_rows_could_be_solved_for_sits_out():
    """All scores of 3 solutions with 10 centroids are 1 + 3 * 3 + 2 * 10 = 30 numbers; 2 * 5 * (3 + 3) go with them."""
    rng = np.random.default_rng(0)
    task = stack([rng.normal(size=(k, 3)) for k in (2, 5, 3)])
    assert values_needed(task, NAMES, 3) == 30 + 60
    enough = score_sums(task, rng.normal(size=(30, 3)), NAMES, 1)
    assert sum(value.size for value in enough.values()) == 30
    assert enough["rows"] == 30
    for rows, min_count in ((29, 1), (30, 31)):
        silent = score_sums(task, rng.normal(size=(rows, 3)), NAMES, min_count)
        assert set(silent) == set(NAMES)
        assert not any(value.any() for value in silent.values())
        assert {name: value.shape for name, value in silent.items()} == {n: v.shape for n, v in enough.items()}


def test_scoring_stops_between_candidates():
    task = stack([np.zeros((1, 2)), np.ones((1, 2)), np.ones((2, 2))])
    asked = iter([False, True])
    with pytest.raises(Aborted, match="after 1 of 3"):
        score_sums(task, np.random.default_rng(0).normal(size=(50, 2)), ["sse"], 1, lambda: next(asked))


CENTROIDS = np.zeros((3, 2))


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"candidates": CENTROIDS},
        {"candidates": CENTROIDS, "candidate": np.array([0, 0])},
        {"candidates": CENTROIDS, "candidate": np.array([1, 1, 2])},
        {"candidates": CENTROIDS, "candidate": np.array([0, 2, 2])},
        {"candidates": CENTROIDS, "candidate": np.array([0, 1, 0])},
        {"candidates": CENTROIDS, "candidate": np.array([0, 0, 10**9])},
        {"candidates": CENTROIDS, "candidate": np.array([0.0, 0.0, 1.0])},
        {"candidates": CENTROIDS * np.nan, "candidate": np.array([0, 0, 1])},
        {"candidates": CENTROIDS[:0], "candidate": np.array([], dtype=np.int64)},
        {"candidates": CENTROIDS.tolist(), "candidate": np.array([0, 0, 1])},
    ],
)
def test_malformed_tasks_are_named(task):
    with pytest.raises(BadMessage, match="the candidates to score"):
        score_sums(task, np.random.default_rng(0).normal(size=(50, 2)), ["sse"], 1)


@pytest.mark.parametrize("task", [{}, {"candidates": np.zeros((2, 9)), "candidate": np.array([0, 0])}])
def test_a_site_answers_a_malformed_task_in_words(task):
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises((BadMessage, Refusal)):
        PooledExecutor(3).answer(Task(StepName.SCORE, 1, task, "site-1"), X, never_abort)


def test_a_small_site_is_left_out_of_the_scores_and_stays():
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(3)} | {"site-small": rng.normal(size=(4, 3))}
    outcome = run_inprocess(get("pooled"), {"k_min": 2}, sites, JobOptions(k=5))
    assert not outcome.refused
    rows = np.concatenate([sites[f"site-{i}"] for i in range(3)])
    best = outcome.arrays["choice_k"].tolist().index(len(outcome.centroids))
    inertia = (distances(rows, outcome.centroids).min(axis=1) ** 2).sum()
    assert outcome.arrays["choice_inertia"][best] == pytest.approx(inertia)


def test_separation_ratios_by_hand():
    """k = 3, |A - C|^2 = 12; Delta = sqrt(3 * 12 / n) = 6 / sqrt(n): 3, 2 and 6 for 4, 9 and 1 rows."""
    centroids = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 9.0]])
    found = separation_ratios(centroids, np.array([4, 9, 1]), 12.0)
    apart = [5.0, 9.0, np.sqrt(9 + 25)]  # pairs 01, 02, 12
    np.testing.assert_allclose(found, [apart[0] / (3 + 2), apart[1] / (3 + 6), apart[2] / (2 + 6)])


def test_separation_ratios_are_huge_without_spread_and_have_no_unit():
    centroids = np.array([[0.0], [1.0], [5.0]])
    rows = np.array([5, 6, 7])
    assert (separation_ratios(centroids, rows, 0.0) > 1e100).all()
    here = separation_ratios(centroids, rows, 2.0)
    np.testing.assert_allclose(separation_ratios(1e3 * centroids, rows, 2e6), here)
    assert len(separation_ratios(centroids[:2], rows[:2], 2.0)) == 1
