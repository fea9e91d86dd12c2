"""`metric=cosine` is spherical k-means: of lengths nothing remains, and of directions everything is as on the pooled rows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.scaling import of_length_one, without_direction
from flareclust.engines.late_sites import place
from flareclust.evaluation import metrics
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task
from tests.examples import examples

DIRECTED = [name for name, one in registry.algorithms().items() if one.federated and "metric" in one.parameters()]
RNG = np.random.default_rng(0)
CLASSES = RNG.integers(4, size=360)
LENGTHS = RNG.lognormal(0.0, 1.0, (360, 1))
X = LENGTHS * (RNG.normal(size=(4, 8))[CLASSES] + 0.5 * RNG.normal(size=(360, 8)))
SITES = {"a": X[:90], "b": X[90:200], "c": X[200:]}


def spherical_kmeans(X, centroids, rounds):
    """Return the centroids of each round: rows to the largest cosine, centroids to the direction of the rows' sum."""
    rows, history = X / np.linalg.norm(X, axis=1, keepdims=True), []
    for _ in range(rounds):
        labels = (rows @ centroids.T).argmax(axis=1)
        sums = np.stack(
            [rows[labels == c].sum(axis=0) if (labels == c).any() else centroids[c] for c in range(len(centroids))]
        )
        centroids = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        history.append((labels, centroids))
    return history


def test_those_that_can_are_the_four():
    assert set(DIRECTED) == {"portfolio", "feca", "lloyd", "pooled"}


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
def test_every_update_is_that_of_spherical_k_means_on_the_pooled_rows(seed, k, m):
    rng = np.random.default_rng(seed)
    rows = rng.lognormal(0.0, 1.0, (150, 1)) * rng.normal(size=(150, 3))
    start = rng.normal(size=(k, 3))
    expected = spherical_kmeans(rows, start / np.linalg.norm(start, axis=1, keepdims=True), 5)
    parts = np.array_split(np.arange(150), m)
    assume(all(1 not in np.bincount(labels[own]) for labels, _ in expected for own in parts))
    sites = {f"s{i}": rows[own] for i, own in enumerate(parts)}
    found = flareclust.run("lloyd", sites, k=k, metric="cosine", start=start.tolist(), rounds=5, tol=0.0)
    for centroids, (_, twin) in zip(found.arrays["history"], expected, strict=False):  # it may come to rest before
        np.testing.assert_allclose(centroids, twin, atol=1e-10)
    np.testing.assert_allclose(found.centroids, expected[-1][1], atol=1e-10)


def test_with_secure_sums_it_is_the_same():
    start = X[[CLASSES.tolist().index(c) for c in range(4)]]
    expected = spherical_kmeans(X, of_length_one(start), 6)[-1]
    found = flareclust.run(
        "lloyd", SITES, k=4, metric="cosine", start=start.tolist(), rounds=6, tol=0.0, secure_sums=True
    )
    np.testing.assert_allclose(found.centroids, expected[1], atol=1e-12)
    np.testing.assert_array_equal(found.labels, expected[0])


@pytest.mark.parametrize("name", DIRECTED)
def test_labels_are_of_the_largest_cosine_and_centroids_of_length_one(name):
    found = flareclust.run(name, SITES, k=4, metric="cosine")
    np.testing.assert_allclose(np.linalg.norm(found.centroids, axis=1), 1.0, rtol=1e-15)
    cosine = X @ found.centroids.T / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_array_equal(found.labels, cosine.argmax(axis=1))
    assert found.metrics["inertia"] == pytest.approx(2 * (1 - cosine.max(axis=1)).sum(), rel=1e-9)
    assert metrics.ari(found.labels, CLASSES) > 0.9
    assert metrics.ari(flareclust.run(name, SITES, k=4).labels, CLASSES) < 0.7


@pytest.mark.parametrize("name", DIRECTED)
def test_the_length_of_a_row_changes_nothing(name):
    """Powers of two change no bit of the direction."""
    longer = {site: rows * 2.0 ** np.arange(-20, 20)[np.arange(len(rows)) % 40, None] for site, rows in SITES.items()}
    here, there = (flareclust.run(name, sites, k=4, metric="cosine") for sites in (SITES, longer))
    np.testing.assert_array_equal(here.centroids, there.centroids)
    np.testing.assert_array_equal(here.labels, there.labels)


@pytest.mark.parametrize("name", ["feca", "pooled"])
def test_one_shot_merges_are_those_of_rows_of_length_one(name):
    found = flareclust.run(name, SITES, k=4, metric="cosine")
    plain = flareclust.run(name, {site: of_length_one(rows) for site, rows in SITES.items()}, k=4)
    np.testing.assert_allclose(found.centroids, of_length_one(plain.centroids), rtol=1e-14)


@pytest.mark.parametrize("name", DIRECTED)
def test_under_a_policy(name):
    found = flareclust.run(name, SITES, k=4, metric="cosine", policy={})
    assert metrics.ari(found.labels, CLASSES) > 0.7


def test_a_range_of_k_is_of_directions_as_well():
    assert flareclust.run("lloyd", SITES, k="2..6", metric="cosine", criterion="silhouette").k == 4


def test_rows_of_later_sites_and_users_are_placed_by_direction(tmp_path):
    found = flareclust.run("lloyd", SITES, k=4, metric="cosine", out=tmp_path / "out")
    np.testing.assert_array_equal(found.predict(3.0 * X), found.labels)
    again = flareclust.load_result(tmp_path / "out")
    np.testing.assert_array_equal(again.predict(X), found.labels)
    np.testing.assert_array_equal(place(tmp_path / "out", X, "late"), found.labels)
    assert again.predict(np.zeros((1, 8))).tolist() == [-1]
    assert (tmp_path / "out" / "picture.png").exists()


def test_an_estimator_measures_distances_of_directions():
    from flareclust.estimators import Lloyd

    fitted = Lloyd(n_clusters=4, metric="cosine").fit(SITES)
    cosine = X @ fitted.cluster_centers_.T / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.transform(X) ** 2, 2 - 2 * cosine, atol=1e-12)
    assert -fitted.score(X) == pytest.approx(fitted.inertia_)


def test_rows_of_zeros_are_named_by_site_and_number():
    bad = {**SITES, "b": SITES["b"].copy()}
    bad["b"][[3, 7]] = 0.0
    with pytest.raises(UserError, match=r"^b: 2 rows hold zeros only, first in row 4; such rows have no direction"):
        flareclust.run("pooled", bad, k=4, metric="cosine")
    flareclust.run("pooled", bad, k=4)


def test_a_site_refuses_rows_of_zeros_without_a_number_about_them():
    executor = LloydExecutor(4, metric="cosine")
    task = Task(UPDATE, 1, {"centroids": np.eye(4, 8)}, "a")
    with pytest.raises(Refusal, match="rows of zeros only") as refused:
        executor.answer(task, np.concatenate([X, np.zeros((1, 8))]), never_abort)
    assert not any(letter.isdigit() for letter in str(refused.value))


def test_at_a_site_with_a_policy_rows_of_zeros_have_no_label():
    """Whether rows get labels must not depend on them."""
    rows = np.concatenate([X[:89], np.zeros((1, 8))])
    task = Task(StepName.ASSESS, 1, {"centroids": np.eye(4, 8)}, "a")
    answer = LloydExecutor(4, metric="cosine").answer(task, rows, never_abort, SiteSession(Policy(), "job"))
    assert answer.labels is not None
    assert answer.labels[-1] == -1
    assert (answer.labels[:-1] >= 0).all()


def test_scaled_columns_have_no_directions():
    with pytest.raises(UserError, match="metric=cosine and scale=standard exclude each other"):
        flareclust.run("lloyd", SITES, k=4, metric="cosine", scale="standard")


def test_rows_of_length_one_keep_their_bits():
    once = of_length_one(X)
    np.testing.assert_array_equal(of_length_one(once), once)
    np.testing.assert_allclose(np.linalg.norm(once, axis=1), 1.0, rtol=1e-15)
    assert without_direction(np.array([[0.0, 0.0], [0.0, -1.0]])).tolist() == [True, False]
    assert not of_length_one(np.zeros((1, 2))).any()


def test_missing_cells_are_filled_with_means_of_columns_before_rows_get_length_one():
    """Means of directions put in the place of values would be near 0 whatever the column holds."""
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.normal([40, 5, 3], 1, (60, 3)), rng.normal([3, 50, 8], 1, (60, 3))])
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows = rows[~np.isnan(rows).all(axis=1)]
    sites = {"a": rows[::2], "b": rows[1::2]}
    found = flareclust.run("lloyd", sites, k=2, metric="cosine", missing="mean")
    means = found.arrays["fill"]
    np.testing.assert_allclose(means, np.nanmean(rows, axis=0), rtol=0.02)  # sites send rounded means
    filled = {site: np.where(np.isnan(own), means, own) for site, own in sites.items()}
    whole = flareclust.run("lloyd", filled, k=2, metric="cosine")
    np.testing.assert_allclose(found.centroids, whole.centroids, atol=1e-9)
    assert all((found.site_labels[site] == whole.site_labels[site]).all() for site in sites)
