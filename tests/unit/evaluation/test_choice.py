"""Choosing k: the rules on judgements made by hand, and ranges as users type them."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import calinski_harabasz_score

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.evaluation import criteria
from flareclust.evaluation.scores import stack
from flareclust.evaluation.selection import parse_k
from flareclust.experiment.config import make_experiment
from flareclust.protocol.registry import get
from tests.unit.evaluation.choice_cases import NAN, selection_with

# ---- the rules ----


@pytest.mark.parametrize(
    ("rule", "columns", "k"),
    [
        ("calinski-harabasz", {"calinski_harabasz": [1e3, 3e3, 2e3, 1e3]}, 3),
        ("calinski-harabasz", {"calinski_harabasz": [NAN, 3.0, 3.0, NAN]}, 3),
        ("silhouette", {"silhouette": [0.1, 0.3, 0.7, 0.2]}, 4),
        ("silhouette", {"silhouette": [0.1, 0.7, 0.7, 0.2]}, 3),
        ("silhouette", {"silhouette": [NAN, 0.3, NAN, 0.2]}, 3),
        ("silhouette", {"silhouette": [NAN] * 4}, 2),
        ("davies-bouldin", {"davies_bouldin": [0.9, 0.3, 0.2, 0.4]}, 4),
        ("davies-bouldin", {"davies_bouldin": [0.9, NAN, 0.6, 0.6]}, 4),
        ("elbow", {"inertia": [100, 40, 30, 20]}, 3),
        ("elbow", {"inertia": [100, 80, 22, 20]}, 4),
        ("elbow", {"inertia": [10, 10, 10, 10]}, 2),
        ("separation", {"separated": [0.0, 0.2, 0.1, 0.3]}, 5),
        ("separation", {"separated": [0.0, 0.0, 0.0, 0.0]}, 2),
    ],
)
def test_rules_on_judgements_made_by_hand(rule, columns, k):
    found = selection_with(**columns)
    assert found.k[criteria.choose(found, rule)] == k


def test_elbow_depths_by_hand():
    """Over k = 2, 4, 6, 10 the line runs 1, .75, .5, 0; the inertia, scaled, is 1, .25, .125, 0."""
    depths = criteria._elbow_depths(np.array([2, 4, 6, 10]), np.array([90.0, 30.0, 20.0, 10.0]))
    np.testing.assert_allclose(depths, [0.0, 0.5, 0.375, 0.0], atol=1e-12)
    assert criteria._elbow_depths(np.array([2, 3]), np.array([9.0, 1.0])).tolist() == [0, 0]


def test_a_judgement_by_hand():
    """Rows -1, 1 | 9, 11 on a line, as one cluster of both pairs and a far centroid, and as two clusters."""
    task = stack([np.array([[5.0], [1000.0]]), np.array([[0.0], [10.0]])])
    total = {
        "rows": np.array(4),
        "sse": np.array([36 + 16 + 16 + 36.0, 4.0]),
        "silhouette": np.array([3.9, 3.2]),
        "spread": np.array([104.0, 4.0]),
        "counts": np.array([4, 0, 2, 2]),
        "scatter": np.array([20.0, 0.0, 2.0, 2.0]),
    }
    found = criteria.score_candidates(task, total)
    assert np.isnan(found.calinski_harabasz).all()  # without the sum of squares about the mean
    assert found.k.tolist() == [2, 2]
    assert found.inertia.tolist() == [104.0, 4.0]
    np.testing.assert_allclose(found.silhouette, [3.9 / 4, 3.2 / 4])
    np.testing.assert_allclose(found.davies_bouldin, [NAN, (1 + 1) / 10])  # undefined for one cluster with rows
    # The far centroid has no rows; it counts as one: Delta = sqrt(2 * 104 / n).
    expected = [995 / (np.sqrt(208 / 4) + np.sqrt(208)), 10 / (2 * np.sqrt(2 * 4 / 2))]
    np.testing.assert_allclose(found.ratios, expected)
    assert found.separated.tolist() == [1.0, 1.0]
    assert found.ratios_of.tolist() == [2, 2]


@pytest.mark.parametrize("seed", range(3))
def test_the_variance_ratio_is_scikit_learns(seed):
    """With each cluster's mean as its centroid, and the mean of all rows as the first candidate."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 3)) + 3 * rng.integers(0, 4, (90, 1))
    models = [KMeans(k, n_init=3, random_state=seed).fit(X) for k in (2, 4, 7)]
    inertias = [((X - X.mean(axis=0)) ** 2).sum(), *(model.inertia_ for model in models)]
    task = stack([X.mean(axis=0)[None], *(model.cluster_centers_ for model in models)])
    found = criteria.score_candidates(task, {"rows": np.array(90), "sse": np.array(inertias)}, mean=True)
    assert found.k.tolist() == [2, 4, 7]
    expected = [calinski_harabasz_score(X, model.labels_) for model in models]
    np.testing.assert_allclose(found.calinski_harabasz, expected, rtol=1e-6)
    assert criteria.measured(found) == ["calinski-harabasz", "elbow"]


def test_the_variance_ratio_where_there_is_little_to_divide():
    """Rows 0, 0, 4, 4, 8, 8: a perfect solution is the best, the smaller of two; n clusters of n rows have none."""
    ratios = criteria._variance_ratios(np.array([2, 3, 4, 6]), np.array([16.0, 0.0, 0.0, 0.0]), 64.0, 6)
    assert ratios[0] == pytest.approx((64 - 16) / (16 / 4))
    assert np.isfinite(ratios[:3]).all()
    assert ratios[1] > ratios[2] > ratios[0]
    assert np.isnan(ratios[3])
    assert np.isnan(criteria._variance_ratios(np.array([2, 3]), np.zeros(2), 0.0, 6)).all()  # rows that do not differ


def test_the_name_of_a_rule_may_be_written_as_in_scikit_learn():
    assert make_experiment(algorithm="pooled", k="2..4", criterion="calinski_harabasz").criterion == "calinski-harabasz"
    line = get("pooled").build(4, 0, {"k_min": 2, "criterion": "davies_bouldin"})
    assert line[1].params.criterion == "davies-bouldin"


# ---- what users type ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        (5, (5, None)),
        (np.int64(5), (5, None)),
        ("5", (5, None)),
        ("-5", (-5, None)),  # the experiment refuses it
        ("5..25", (None, (5, 25))),
        (" 2..2 ", (None, (2, 2))),
    ],
)
def test_numbers_and_ranges(text, expected):
    assert parse_k(text) == expected


@pytest.mark.parametrize("ends", [(5, 25), range(5, 26)])
def test_ends_and_ranges_of_python_are_ranges_too(ends):
    assert parse_k(ends) == (None, (5, 25))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("25..5", "reversed; write 5..25"),
        ("1..5", "must start at 2 or more, got 1..5"),
        ("0..5", "must start at 2"),
        ("ten", "an integer or a range such as 5..25, got 'ten'"),
        ("", "an integer or a range"),
        ("5-25", "an integer or a range"),
        ("5...25", "an integer or a range"),
        ("5..", "an integer or a range"),
        ("-5..5", "an integer or a range"),
        ("2..5..8", "an integer or a range"),
        ("2.5..8", "an integer or a range"),
        (5.0, "an integer or a range"),
        (True, "an integer or a range such as 5..25, got True"),
        ([5, 25], "an integer or a range"),
        ((5, 25, 30), "an integer or a range"),
        (range(5, 25, 2), "an integer or a range"),
        (range(5, 5), "an integer or a range"),
    ],
)
def test_what_is_no_number_of_clusters_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        parse_k(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"k": "9..3"}, "reversed"),
        ({"k": "ten"}, "range such as"),
        ({"k": True}, "integer"),
        ({"k": "1..5"}, "start at 2"),
        ({"k": "2..5", "criterion": "sillhouette"}, "did you mean 'silhouette'"),
        ({"k": "2..5", "algorithm": "central"}, "one k, not a range"),
        ({"k": "2..5", "algorithm": "pooled", "k_min": 3}, "k_min already"),
    ],
)
def test_a_run_refuses_them_before_it_starts(settings, words):
    with pytest.raises(UserError, match=words):
        flareclust.run(settings.pop("algorithm", "pooled"), data="iris", n_sites=3, **settings)
