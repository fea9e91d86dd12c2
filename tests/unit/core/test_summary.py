"""k-means on a summary of the rows: against a twin in plain NumPy, and k-means on all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from flareclust._foundation.errors import Aborted, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core.chunks import is_mapped
from flareclust.core.lloyd import assign, kmeans
from flareclust.core.local import ROUNDS, _summary_of, _weighted_means, local_clusters, summary_kmeans
from flareclust.evaluation import selection
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.memory import peak_of


def generator(seed=0):
    return np.random.default_rng(seed)


def mixture(n, d=2, k=6, seed=0, spread=6.0):
    """Rows of k normal distributions, sorted by these."""
    rng = generator(seed)
    owner = np.sort(rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0))))
    return spread * rng.normal(size=(k, d))[owner] + rng.normal(size=(n, d))


def mapped(X, folder):
    np.save(folder / "rows.npy", X)
    rows = np.load(folder / "rows.npy", mmap_mode="r")
    assert is_mapped(rows)
    return rows


def inertia_of(X, centroids):
    return float(assign(X, centroids)[1].sum())


# ---- the summary ----


def plain_means(rows, weights, draws, rng):
    """`weighted_means`, written as its docstring reads."""
    drawn, chances = [], weights
    for _ in range(ROUNDS):
        ends = np.cumsum(chances)
        if ends[-1] == 0:
            break
        drawn += sorted({int(np.flatnonzero(ends > number)[0]) for number in rng.random(draws) * ends[-1]})
        squared = ((rows[:, None] - rows[drawn][None]) ** 2).sum(axis=2)
        labels, chances = squared.argmin(axis=1), weights * squared.min(axis=1)
    groups = [labels == g for g in range(len(drawn)) if (labels == g).any()]
    return (
        np.array([np.average(rows[own], axis=0, weights=weights[own]) for own in groups]),
        np.array([weights[own].sum() for own in groups]),
    )


def plain_summary(X, draws, rng, rows):
    levels = []
    for start in range(0, len(X), rows):
        piece = X[start : start + rows]
        kept, at = plain_means(piece, np.ones(len(piece)), draws, rng), 0
        while at < len(levels):
            levels[at].append(kept)
            if sum(len(means) for means, _ in levels[at]) <= rows:
                break
            kept = plain_means(*map(np.concatenate, zip(*levels[at], strict=True)), draws, rng)
            levels[at], at = [], at + 1
        else:
            levels.append([kept])
    return tuple(map(np.concatenate, zip(*[kept for level in levels for kept in level], strict=True)))


@given(
    n=st.integers(1, 120),
    d=st.integers(1, 4),
    draws=st.integers(1, 5),
    equal=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_weighted_means_are_those_of_plain_numpy(n, d, draws, equal, seed):
    rng = generator(seed)
    rows = rng.integers(0, 3, (n, d)).astype(float) if equal else rng.normal(50, 3, (n, d))
    weights = rng.integers(1, 9, n).astype(float)
    found = _weighted_means(rows, weights, draws, generator(seed))
    means, mass = plain_means(rows, weights, draws, generator(seed))
    np.testing.assert_allclose(found.means, means, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.weights, mass)


def test_the_summary_is_that_of_plain_numpy_on_several_levels():
    X = mixture(3000, d=3)
    found = _summary_of(X, 2, generator(), rows=120)
    means, weights = plain_summary(X, 10, generator(), 120)
    np.testing.assert_allclose(found.means, means, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.weights, weights)


def test_a_summary_weighs_as_much_as_the_rows_and_has_their_mean():
    X = mixture(5000, d=3)
    found = _summary_of(X, 3, generator(), rows=250)
    assert found.weights.sum() == len(X)
    assert found.weights.min() >= 1
    np.testing.assert_allclose(np.average(found.means, axis=0, weights=found.weights), X.mean(axis=0), atol=1e-9)


def test_rows_of_one_piece_are_their_own_summary():
    X = mixture(500)
    found = _summary_of(X, 3, generator())
    np.testing.assert_array_equal(found.means, X)
    assert (found.weights == 1).all()
    full = kmeans(X, 6, generator(), n_init=5)
    assert summary_kmeans(X, 6, generator(), n_init=5).inertia <= full.inertia * (1 + 1e-9)


def test_levels_bound_the_number_of_means():
    X = generator(1).normal(size=(60_000, 2))
    assert len(_summary_of(X, 2, generator(), rows=200).means) <= 4 * 200  # without levels 29,000


# ---- the clustering ----


def test_centroids_are_the_means_of_their_rows_and_inertia_is_theirs():
    X = 1e3 + mixture(4000, d=5)
    found = summary_kmeans(X, 6, generator(), rows=300)
    np.testing.assert_array_equal(found.counts, np.bincount(found.labels))
    means = np.array([X[found.labels == r].mean(axis=0) for r in range(6)])
    np.testing.assert_allclose(found.centroids, means, rtol=1e-12)
    assert found.inertia == pytest.approx(((X - means[found.labels]) ** 2).sum())


def test_mapped_rows_give_the_same_as_rows_in_memory(tmp_path):
    X = mixture(40_000, d=7)
    for rows in (None, 1000):
        usual = summary_kmeans(X, 4, generator(3), n_init=2, rows=rows)
        found = summary_kmeans(mapped(X, tmp_path), 4, generator(3), n_init=2, rows=rows)
        for expected, value in zip(usual, found, strict=True):
            np.testing.assert_array_equal(value, expected, strict=True)


def test_memory_is_that_of_labels_and_a_few_pieces(tmp_path):
    X = mapped(mixture(300_000, d=16), tmp_path)
    peak = peak_of(lambda: summary_kmeans(X, 5, generator(), rows=5000))
    labels, piece = 8 * len(X), 4 << 20
    assert peak < 3 * labels + 3 * piece < X.nbytes / 1.9


SETS = {
    "digits": lambda: (load_digits().data, 10),
    "wine": lambda: (load_wine().data, 3),
    "breast cancer": lambda: (load_breast_cancer().data, 4),
    "mixture": lambda: (mixture(20_000, d=2, k=15, spread=8.0), 15),
    "overlapping mixture": lambda: (mixture(20_000, d=8, k=20, spread=1.0), 8),
    "one distribution": lambda: (generator(5).normal(size=(8000, 4)), 10),
}


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
@pytest.mark.parametrize("name", SETS)
def test_inertia_is_that_of_all_rows_within_a_twentieth(name, order):
    X, k = SETS[name]()
    full = kmeans(X, k, generator(), n_init=10)
    X = X[np.argsort(full.labels, kind="stable")] if order == "sorted" else generator(9).permutation(X)
    for seed in range(3):
        found = summary_kmeans(X, k, generator(seed), n_init=10, rows=max(50, len(X) // 8))
        assert inertia_of(X, found.centroids) <= found.inertia * (1 + 1e-9)
        assert found.inertia < 1.05 * full.inertia


def test_a_small_far_cluster_is_found():
    X = np.concatenate([mixture(20_000, k=5), 500 + generator(2).normal(size=(12, 2))])
    found = summary_kmeans(generator(7).permutation(X), 6, generator(), n_init=5, rows=1000)
    assert 12 in found.counts


def test_fewer_different_rows_than_clusters():
    X = np.repeat([[0.0, 1.0], [5.0, 5.0], [9.0, 0.0]], [700, 1, 400], axis=0)
    found = summary_kmeans(X, 8, generator(), n_init=3, rows=100)
    assert sorted(found.counts.tolist()) == [1, 400, 700]
    assert found.inertia == 0
    with pytest.raises(UserError, match="k must be between 1 and the number of rows, 3"):
        summary_kmeans(X[:3], 4, generator())


def test_both_passes_ask_whether_to_go_on(tmp_path):
    X = mapped(mixture(120_000, d=10), tmp_path)
    asked = []
    summary_kmeans(X, 3, generator(), rows=20_000, aborted=lambda: bool(asked.append(1)))
    assert len(asked) >= 6 + 3
    for last in (1, 4, len(asked) - 1, len(asked)):
        left = iter([False] * (last - 1) + [True])
        with pytest.raises(Aborted, match=r"k-means|choosing seed"):
            summary_kmeans(X, 3, generator(), rows=20_000, aborted=lambda left=left: next(left))


# ---- at a site ----


def test_what_may_be_sent_is_checked_on_the_rows():
    """Three rows far away are a cluster below the floor; of a summary they are one mean."""
    X = np.concatenate([mixture(6000, k=3, spread=20.0), [[1e4, 0], [1e4, 1], [1e4, 3]]])
    found = local_clusters(X, 4, generator(), n_init=5, min_count=5, aborted=never_abort, local_kmeans="summary")
    assert found.centroids.max() < 1e3
    assert (found.labels[-3:] == -1).all()
    np.testing.assert_array_equal(found.counts, np.bincount(found.labels[found.labels >= 0]))


@pytest.mark.parametrize("name", ["pooled", "mavg", "feca", "portfolio"])
def test_the_setting_reaches_the_k_means_of_every_algorithm_that_has_it(name, monkeypatch):
    calls = []

    def noted(*args, **settings):
        calls.append(settings)
        return summary_kmeans(*args, **settings)

    monkeypatch.setattr("flareclust.core.local.summary_kmeans", noted)
    for params in ({}, {"local_kmeans": "summary"}):
        executor, _ = get(name).build(3, 0, {"n_init": 4, **params})
        sent = computed(executor, Task(StepName.CLUSTER, 0, {}, "a"), mixture(400, k=3), generator(), never_abort)
        assert len(sent["centroids"]) == 3
        assert [call["n_init"] for call in calls] == [4] * len(params)
    with pytest.raises(UserError, match="local_kmeans"):
        get(name).build(3, 0, {"local_kmeans": "fast"})


def test_random_starts_are_those_on_the_summary(monkeypatch):
    executor, _ = get("feca").build(3, 0, {"local_kmeans": "summary", "init": "random"})
    calls = []
    monkeypatch.setattr("flareclust.core.local.kmeans", lambda *args, **own: calls.append(own) or kmeans(*args, **own))
    computed(executor, Task(StepName.CLUSTER, 0, {}, "a"), mixture(400, k=3), generator(), never_abort)
    assert [call["init"] for call in calls] == ["random"]


def test_choosing_k_has_the_setting_of_the_algorithm():
    own = get("feca").parameters() | {"local_kmeans": "summary"}
    assert selection.settings((2, 5), "elbow", own)["local_kmeans"] == "summary"
