"""Measures of centroids and labels: hand-worked cases, oracles, and the invariances of a clustering."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import IntArray
from flareclust.evaluation import metrics
from flareclust.evaluation.metrics.labels import _codes
from tests.examples import examples
from tests.patience import PATIENCE


# --- matched centroids ---
def test_matching_prefers_squared_distance_where_the_two_choices_differ():
    # Crosswise: distances 0 and 4.68, squares 21.86 in all. Straight: distances 3 and 3.14, squares only 18.86.
    found = np.array([[0.0, 0.0], [3.0, 0.0]])
    true = np.array([[3.0, 0.0], [3.5, 3.1]])
    cost = np.linalg.norm(found[:, None] - true[None], axis=2)
    assert cost[0, 1] + cost[1, 0] < cost[0, 0] + cost[1, 1]  # unsquared distances would pair them the other way
    found_index, true_index = metrics.match_centroids(found, true)
    assert (found_index.tolist(), true_index.tolist()) == ([0, 1], [0, 1])
    assert metrics.l2_distance(found, true) == pytest.approx(math.sqrt(9 + 0.5**2 + 3.1**2))


def test_l2_is_the_frobenius_norm_of_the_matched_difference():
    true = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    found = np.array([[0.0, 13.0], [3.0, 4.0], [10.0, 0.0]])  # off by 3, 5 and 0
    assert metrics.l2_distance(found, true) == pytest.approx(math.sqrt(34))
    assert metrics.mse_matched(found, true) == pytest.approx(34 / 3)


def test_missing_centroids_lower_l2_as_the_docstring_warns():
    true = np.array([[0.0], [10.0], [20.0]])
    assert metrics.l2_distance([[1.0], [11.0], [21.0]], true) == pytest.approx(math.sqrt(3))
    assert metrics.l2_distance([[1.0]], true) == pytest.approx(1.0)
    assert metrics.mse_matched([[1.0]], true) == pytest.approx(1.0)


@pytest.mark.parametrize(("k", "k_true"), [(1, 1), (2, 4), (4, 2), (4, 4)])
def test_matching_is_the_best_of_all_pairings(k: int, k_true: int):
    rng = np.random.default_rng(k + 10 * k_true)
    found, true = rng.normal(size=(k, 3)), rng.normal(size=(k_true, 3))
    few, many = (found, true) if k <= k_true else (true, found)
    best = min(((few - many[list(p)]) ** 2).sum() for p in itertools.permutations(range(len(many)), len(few)))
    assert metrics.l2_distance(found, true) ** 2 == pytest.approx(best)
    found_index, true_index = metrics.match_centroids(found, true)
    assert len(found_index) == len(set(found_index)) == len(set(true_index)) == min(k, k_true)


# --- labels ---
partitions = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 5), min_size=n, max_size=n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)


def test_purity_and_accuracy_of_a_case_worked_by_hand():
    labels = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    y = [5, 5, 7, 7, 5, 5, 7, 7, 7, 9]
    # Majorities 2 + 2 + 2. One to one: 2 -> 7 (2), 0 or 1 -> 5 (2), the other to 9 (0): 4; 1 -> 5, 0 -> 7, 2 -> 9: 2 + 2 + 1 = 5.
    assert metrics.purity(labels, y) == pytest.approx(0.6)
    assert metrics.accuracy(labels, y) == pytest.approx(0.5)


def test_accuracy_counts_superfluous_clusters_as_errors_and_purity_does_not():
    labels, y = [0, 0, 1, 2], [0, 0, 1, 1]
    assert metrics.purity(labels, y) == 1.0
    assert metrics.accuracy(labels, y) == 0.75


def test_accuracy_counts_classes_without_a_cluster_as_errors():
    assert metrics.accuracy([0, 0, 0, 0], [1, 1, 2, 3]) == 0.5


@settings(deadline=None, max_examples=examples(60))
@given(partitions)
def test_label_measures_equal_their_oracles(pair: tuple[list[int], list[int]]):
    labels, y = pair
    n = len(y)
    majorities = sum(
        max(sum(a == r and b == c for a, b in zip(*pair, strict=True)) for c in range(4)) for r in range(6)
    )
    assert metrics.purity(labels, y) == pytest.approx(majorities / n)
    hits = [[sum(a == r and b == c for a, b in zip(*pair, strict=True)) for r in range(6)] for c in range(4)]
    best = max(sum(hits[c][r] for c, r in enumerate(p)) for p in itertools.permutations(range(6), 4))
    assert metrics.accuracy(labels, y) == pytest.approx(best / n)
    assert metrics.ari(labels, y) == adjusted_rand_score(y, labels)
    assert metrics.nmi(labels, y) == pytest.approx(normalized_mutual_info_score(y, labels), rel=1e-14, abs=1e-14)


@settings(deadline=None, max_examples=examples(60))
@given(partitions, st.permutations(range(6)))
def test_label_measures_ignore_the_names_of_clusters_and_classes(pair: tuple[list[int], list[int]], names: list[int]):
    labels, y = pair
    renamed = [names[label] + 100 for label in labels]
    words = [f"class {c}" for c in y]
    for measure in (metrics.purity, metrics.accuracy, metrics.ari, metrics.nmi):
        assert measure(renamed, words) == pytest.approx(measure(labels, y), abs=1e-12)


def test_nmi_divides_by_the_arithmetic_mean_of_the_entropies():
    labels, y = [0, 0, 1, 2], [0, 0, 1, 1]  # I = H(y) = ln 2, H(labels) = 1.5 ln 2
    assert metrics.nmi(labels, y) == pytest.approx(2 / 2.5)


def test_classes_may_be_negative_floats_without_fraction_or_objects():
    assert metrics.purity([0, 0, 1], [-1, -1, 4]) == 1.0
    assert metrics.purity([0, 0, 1], [1.0, 1.0, 2.0]) == 1.0
    assert metrics.purity([0, 0, 1], np.array(["a", "a", "b"], dtype=object)) == 1.0


# --- sigma ---
def test_sigma_divides_by_the_largest_radius_of_the_group():
    true = [[0.0, 0.0], [10.0, 0.0]]
    centroids = [[0.0, 1.0], [0.0, -2.0], [10.0, 3.0], [13.0, 4.0]]
    # Group of the first centre: radii 4 and 2, so r_s = 4. Group of the second: 1 and 10, so r_s = 10.
    assert metrics.sigma(centroids, [4.0, 2.0, 1.0, 10.0], true) == pytest.approx([1 / 4, 2 / 4, 3 / 10, 5 / 10])


def test_sigma_at_most_one_half_means_that_the_largest_ball_holds_its_group():
    rng = np.random.default_rng(4)
    true = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    held = 0
    for _ in range(50):
        owner = np.repeat(np.arange(3), 4)
        centroids = true[owner] + rng.uniform(-2, 2, (12, 2))
        radii = rng.uniform(0.5, 6, 12)
        value = metrics.sigma(centroids, radii, true)
        for s in range(3):
            group = np.flatnonzero(owner == s)
            head = group[radii[group].argmax()]
            if value[group].max() <= 0.5:
                held += 1
                assert np.linalg.norm(centroids[group] - centroids[head], axis=1).max() <= radii[head]
    assert held > 10


def test_sigma_with_zero_radius_is_infinite_off_the_centre_and_zero_on_it():
    assert metrics.sigma([[0.0], [0.5]], [0.0, 0.0], [[0.0]]).tolist() == [0.0, math.inf]


@settings(deadline=None, max_examples=examples(40))
@given(st.permutations(range(6)), st.integers(-1000, 1000))
def test_sigma_moves_with_its_centroids_and_ignores_translation(order: list[int], shift: int):
    centroids = np.array([[0.0, 1.0], [2.0, 0.0], [9.0, 0.0], [11.0, 1.0], [0.0, 12.0], [1.0, 11.0]])
    radii = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 5.0])
    true = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    expected = metrics.sigma(centroids, radii, true)
    assert metrics.sigma(centroids[order] + shift, radii[order], true + shift) == pytest.approx(expected[order])


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(-50, 50))
def test_l2_ignores_order_and_translation(seed: int, k: int, shift: int):
    rng = np.random.default_rng(seed)
    found, true = rng.normal(size=(k, 2)), rng.normal(size=(4, 2))
    expected = metrics.l2_distance(found, true)
    changed = metrics.l2_distance(rng.permutation(found) + shift, rng.permutation(true) + shift)
    assert changed == pytest.approx(expected)
    assert metrics.l2_distance(true, found) == pytest.approx(expected)


# --- what the truth allows ---
def test_truth_metrics_holds_what_the_truth_allows():
    centroids, labels = [[0.0], [5.0]], [0, 0, 1]
    assert metrics.truth_metrics(centroids, labels) == {}
    assert metrics.truth_metrics(centroids, None, y=[0, 0, 1]) == {}
    assert metrics.truth_metrics(centroids, labels, true_centroids=[[1.0], [5.0]]) == {"l2": 1.0, "mse_matched": 0.5}
    full = metrics.truth_metrics(centroids, labels, [1, 1, 0], [[1.0], [5.0]])
    assert full == {"l2": 1.0, "mse_matched": 0.5, "ari": 1.0, "nmi": 1.0, "purity": 1.0, "accuracy": 1.0}
    assert all(type(value) is float for value in full.values())


def test_s1_centroids_of_the_authors_score_as_its_documentation_says():
    folder = os.environ.get("FLARECLUST_DATA")
    if not folder:
        pytest.skip("FLARECLUST_DATA is not set: the S1 file is needed")
    data = np.load(Path(folder) / "s1" / "s1.npz", allow_pickle=False)
    X, true = data["X"].astype(float), data["centroids"]
    labels = ((X[:, None] - true[None]) ** 2).sum(axis=2).argmin(axis=1)
    result = metrics.truth_metrics(true, labels, data["y"], true)
    assert result["l2"] == 0.0
    assert result["accuracy"] == pytest.approx(0.993, abs=5e-4)
    assert result["purity"] == result["accuracy"]


# --- refusals ---
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: metrics.l2_distance([[0.0, 1.0]], [[0.0]]), r"\(1, 2\) and \(1, 1\)"),
        (lambda: metrics.match_centroids([0.0, 1.0], [[0.0]]), r"found: .*got shape \(2,\)"),
        (lambda: metrics.mse_matched(np.empty((0, 2)), [[0.0, 0.0]]), r"found: .*got shape \(0, 2\)"),
        (lambda: metrics.l2_distance([[np.nan]], [[0.0]]), r"found: .*1 NaN or infinite"),
        (lambda: metrics.l2_distance([["a"]], [[0.0]]), "found: expected an array of numbers"),
        (lambda: metrics.purity([0, 1], [0]), r"\(2,\) and \(1,\)"),
        (lambda: metrics.ari([], []), r"at least one; got shapes \(0,\)"),
        (lambda: metrics.nmi([[0]], [[0]]), r"got shapes \(1, 1\)"),
        (lambda: metrics.accuracy([0, -1], [0, 1]), r"shape \(2,\); got 1 negative"),
        (lambda: metrics.purity([0.0, 1.0], [0, 1]), "labels: .*dtype float64"),
        (lambda: metrics.purity([0, 1], [0.5, 1.0]), "y: .*integers or strings"),
        (lambda: metrics.sigma([[0.0], [1.0]], [1.0], [[0.0]]), r"shape \(2,\); got shape \(1,\)"),
        (lambda: metrics.sigma([[0.0]], [-1.0], [[0.0]]), "smallest value -1"),
        (lambda: metrics.sigma([[0.0]], [], [[0.0]]), r"shape \(1,\); got shape \(0,\)"),
        (lambda: metrics.pooled_label_free([[0.0, 1.0]], [[0.0]]), r"X and centroids: .*\(1, 2\) and \(1, 1\)"),
        (lambda: metrics.truth_metrics([[0.0]], [0, 0], y=[1]), r"\(2,\) and \(1,\)"),
    ],
)
def test_misuse_is_refused_with_the_shapes(call, text: str):
    with pytest.raises(UserError, match=text):
        call()


def test_importing_the_module_loads_neither_scipy_nor_scikit_learn():
    code = "import sys, flareclust.evaluation.metrics; print([m for m in ('scipy', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "[]"


def test_inputs_are_left_as_they_were():
    labels: IntArray = np.array([0, 1])
    X = np.array([[0.0], [4.0]])
    metrics.pooled_label_free(X, X)
    metrics.truth_metrics(X, labels, labels, X)
    assert (X.tolist(), labels.tolist()) == ([[0.0], [4.0]], [0, 1])


def test_rows_are_counted_once_for_all_measures_of_their_labels(monkeypatch):
    from flareclust.evaluation import metrics

    counted, count = [], metrics.labels._contingency
    monkeypatch.setattr(metrics.labels, "_contingency", lambda *given: counted.append(count(*given)) or counted[-1])
    found = metrics.truth_metrics([[0.0]], [0, 0, 1, 2], y=["a", "b", "b", "b"])
    assert len(counted) == 1
    measures = (metrics.ari, metrics.nmi, metrics.purity, metrics.accuracy)
    assert found == {measure.__name__: measure([0, 0, 1, 2], ["a", "b", "b", "b"]) for measure in measures}


@pytest.mark.parametrize("values", [[0, 4, 4, 2], [10**15, 0], [7], [-1, 3], ["b", "a"], [0.0, 2.0, 1.0]])
def test_codes_are_those_of_unique(values):
    np.testing.assert_array_equal(_codes(np.array(values)), np.unique(values, return_inverse=True)[1])
