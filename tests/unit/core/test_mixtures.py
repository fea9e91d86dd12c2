"""Sums of expectation steps against a literal twin, mixtures against scikit-learn, and what a site says of components."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_normal

from flareclust._foundation.errors import Aborted, BadMessage, Refusal, UserError
from flareclust.core import mixtures
from flareclust.core.mixtures import Mixture
from tests.examples import examples

KINDS = ("full", "tied", "diag", "spherical")


def a_mixture(k, d, kind, rng):
    """Return a mixture of k components about the origin with covariances of a type."""
    factors = np.tril(rng.normal(size=(k, d, d)), -1) * 0.3 + np.eye(d) * rng.uniform(0.5, 2.0, (k, 1, 1))
    if kind == "tied":
        factors[:] = factors[0]
    if kind in ("diag", "spherical"):
        factors = np.abs(np.einsum("kdd->kd", factors))
    if kind == "spherical":
        factors[:] = factors[:, :1]
    return Mixture(rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)) * 2, factors)


def log_densities(X, mixture):
    """Return the log of weight times density of each component at each row (n, k), by SciPy."""
    covariances = mixture.covariances
    columns = [
        np.log(w) + multivariate_normal(m, np.diag(c) if c.ndim == 1 else c).logpdf(X).reshape(len(X))
        for w, m, c in zip(mixture.weights, mixture.means, covariances, strict=True)
    ]
    return np.stack(columns, axis=1)


def twin(X, mixture, kind, least, clusters=1, least_weight=0.0):
    """Return sums as they are written in the documentation, component by component."""
    k, d = mixture.means.shape
    copies = np.array([(x == X).all(axis=1).sum() for x in X])
    most_equal = np.maximum((len(X) - copies) / clusters, least)
    counted = np.where((copies > most_equal) & (least > 0), most_equal / copies, 1.0)
    reported = list(range(k))
    weights, shifts, m2 = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
    while reported:
        own = log_densities(X, mixture)[:, reported]
        of_all = logsumexp(own, axis=1)
        entropy = -np.sum(counted[:, None] * np.exp(own - of_all[:, None]) * np.maximum(own - of_all[:, None], -690))
        shares = np.exp(own - of_all[:, None]) * counted[:, None]
        keep = [
            c
            for c, share in zip(reported, shares.T, strict=True)
            if share.sum()
            >= max(least * share.max(), (2 * share * copies).max() if least else 0.0, least_weight) * (1 - 1e-9)
        ]
        if keep == reported:
            for c, share in zip(reported, shares.T, strict=True):
                differences = X - mixture.means[c]
                weights[c], shifts[c] = share.sum(), share @ differences
                m2[c] = (share[:, None] * differences).T @ differences
            return weights, shifts, by_kind(m2, kind), counted @ of_all, entropy
        reported = keep
    return weights, shifts, by_kind(m2, kind), 0.0, 0.0


def by_kind(m2, kind):
    if kind == "tied":
        return m2.sum(axis=0)
    diagonal = np.einsum("kdd->kd", m2)
    return {"full": m2, "diag": diagonal, "spherical": diagonal.sum(axis=1)}[kind]


@settings(max_examples=examples(120), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 300),
    d=st.integers(1, 9),
    k=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    least=st.sampled_from([0, 2, 5]),
    alike=st.sampled_from([0.2, 0.5]),
)
def test_sums_are_those_of_the_literal_algorithm(seed, n, d, k, kind, least, alike):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 2
    X[rng.random(n) < alike] = X[0]
    mixture = a_mixture(k, d, kind, rng)
    found = mixtures.expectation(X, mixture, kind, least=least, clusters=k)
    for own, expected in zip(found, twin(X, mixture, kind, least, k), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_of_scikit_learn(kind, rng):
    from sklearn.mixture import GaussianMixture

    X = np.concatenate([rng.normal(c, 1, (80, 3)) @ rng.normal(size=(3, 3)) for c in (0, 2, 4)])
    counts, means, m2 = np.array([80, 80, 80]), X[[0, 100, 200]], np.tile(X.var(axis=0) * 80, (3, 1))
    mixture = mixtures.started(counts, means, m2, kind, 1e-6)
    covariances = mixture.covariances
    precisions = {
        "full": lambda: np.linalg.inv(covariances),
        "tied": lambda: np.linalg.inv(covariances[0]),
        "diag": lambda: 1 / covariances,
        "spherical": lambda: 1 / covariances[:, 0],
    }[kind]()
    start = {"weights_init": mixture.weights, "means_init": means, "precisions_init": precisions}
    theirs = GaussianMixture(3, covariance_type=kind, tol=0, max_iter=15, init_params="random", **start)
    with pytest.warns(UserWarning, match="did not converge"):
        theirs.fit(X)
    parts = np.array_split(X[rng.permutation(240)], 5)
    for _ in range(15):
        sums = [mixtures.expectation(part, mixture, kind) for part in parts]
        total = mixtures.Sums(*(np.sum(one, axis=0) for one in zip(*sums, strict=True)))
        mixture = mixtures.maximized(mixture, total, kind, 1e-6)
    own = {"full": lambda c: c, "tied": lambda c: c[0], "diag": lambda c: c, "spherical": lambda c: c[:, 0]}[kind]
    np.testing.assert_allclose(mixture.means, theirs.means_, atol=1e-8)
    np.testing.assert_allclose(mixture.weights, theirs.weights_, atol=1e-8)
    np.testing.assert_allclose(own(mixture.covariances), theirs.covariances_, atol=1e-8)
    arrays = {"centroids": mixture.means, "weights": mixture.weights, "covariances": mixture.covariances}
    np.testing.assert_allclose(mixtures.responsibilities(X, arrays), theirs.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(mixtures.log_densities(X, arrays), theirs.score_samples(X), atol=1e-8)
    np.testing.assert_array_equal(mixtures.most_likely(X, mixture)[0], theirs.predict(X))
    assert mixtures.n_parameters(kind, 3, 3) == theirs._n_parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_keep_their_digits_far_from_the_origin(kind, rng):
    X, mixture = rng.normal(size=(200, 3)), a_mixture(3, 3, kind, rng)
    far = np.array([1e7, -2e7, 3e7])
    here = mixtures.expectation(X, mixture, kind)
    there = mixtures.expectation(X + far, mixture._replace(means=mixture.means + far), kind)
    for own, expected in zip(there, here, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-6)


def test_every_row_counts_one_whatever_is_described(rng):
    """A row that is alone in a component goes to the others, so totals of two questions differ by no row."""
    X = np.concatenate([rng.normal(size=(50, 2)), [[40.0, 40.0]]])
    narrow = Mixture(np.full(2, 0.5), np.array([[0.0, 0.0], [40.0, 40.0]]), np.ones((2, 2)))
    wide = Mixture(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    found, all_rows = (mixtures.expectation(X, one, "diag", least=3) for one in (narrow, wide))
    assert found.weights[1] == 0
    assert not found.shifts[1].any()
    assert found.weights.sum() == all_rows.weights.sum() == len(X)
    np.testing.assert_array_equal(found.shifts[0], all_rows.shifts[0])
    assert found.log_likelihood == pytest.approx(all_rows.log_likelihood + len(X) * np.log(0.5))


def test_a_component_of_one_row_repeated_is_not_described(rng):
    X = np.concatenate([rng.normal(size=(50, 2)), np.full((30, 2), 9.0)])
    mixture = Mixture(np.full(2, 0.5), np.array([[0.0, 0.0], [9.0, 9.0]]), np.ones((2, 2)))
    assert mixtures.expectation(X, mixture, "diag", least=3).weights[1] == 0
    assert mixtures.expectation(X, mixture, "diag").weights[1] == pytest.approx(30, abs=1e-6)


def test_equal_rows_take_no_more_of_the_mixture_than_their_own_component(rng):
    """In the component next to them they are more than half, but for the rows of an average component as which they count."""
    centers = np.array([[9.0, 9.0], [0.0, 0.0], [40.0, 0.0], [0.0, 40.0]])
    X = np.concatenate([np.full((100, 2), 9.0), *(rng.normal(c, 1, (60, 2)) for c in centers[1:])])
    mixture = Mixture(np.full(4, 0.25), centers, np.full((4, 2), 3.0))
    found = mixtures.expectation(X, mixture, "diag", least=3, clusters=4)
    np.testing.assert_allclose(found.weights, [0, 60 + 180 / 4, 60, 60], atol=1e-6)
    unequal = mixtures.expectation(X[80:], mixture, "diag", least=3, clusters=4)
    np.testing.assert_allclose(unequal.weights, [0, 60 + 20, 60, 60], atol=1e-6)


def test_what_equal_rows_count_as_follows_from_the_rows_and_not_from_the_mixture(rng):
    """Else the totals of two mixtures would differ by equal rows that one of them leaves out."""
    X = np.concatenate([np.full((100, 2), 9.0), rng.normal(size=(60, 2))])
    mixtures_sent = [Mixture(np.full(k, 1 / k), rng.normal(size=(k, 2)), np.full((k, 2), 9.0)) for k in (1, 2, 5)]
    totals = [mixtures.expectation(X, one, "diag", least=3, clusters=3).weights.sum() for one in mixtures_sent]
    np.testing.assert_allclose(totals, 60 + 20)


def test_a_column_needs_as_many_known_cells_as_a_component_needs_rows(rng):
    X, known = rng.normal(size=(60, 2)), np.ones((60, 2), np.bool_)
    known[1:30, 1] = False
    X[:30] += 50
    X[1:30, 1] = 50.0  # filled
    mixture = Mixture(np.full(2, 0.5), np.array([[50.0, 50.0], [0.0, 0.0]]), np.ones((2, 2)))
    assert mixtures.expectation(X, mixture, "diag", least=3).weights[0] > 0
    assert mixtures.expectation(X, mixture, "diag", least=3, known=known).weights[0] == 0
    known[:5, 1] = True
    assert mixtures.expectation(X, mixture, "diag", least=3, known=known).weights[0] > 0


@pytest.mark.parametrize(
    ("kind", "expected"), [("full", 1 + 16 + 136), ("tied", 1 + 16 + 136), ("diag", 33), ("spherical", 18)]
)
def test_a_component_is_of_more_values_than_the_numbers_that_are_sent_of_it(kind, expected):
    least = mixtures.least_rows(kind, 16, 2)
    assert least * 16 > expected >= (least - 1) * 16
    assert mixtures.least_rows(kind, 16, 50) == 50
    assert mixtures.least_rows(kind, 16, 2, repeats=3) == 3 * least


def test_a_component_without_rows_keeps_its_mean_and_covariance(rng):
    for kind in ("full", "diag"):
        mixture = a_mixture(2, 3, kind, rng)
        sums = mixtures.expectation(rng.normal(size=(50, 3)), mixture.of(np.array([0])), kind)
        padded = [np.concatenate([one, np.zeros_like(one)]) for one in sums[:3]]
        after = mixtures.maximized(mixture, mixtures.Sums(*padded, *sums[3:]), kind, 1e-6)
        np.testing.assert_array_equal(after.means[1], mixture.means[1])
        np.testing.assert_array_equal(after.factors[1], mixture.factors[1])
        assert after.weights[1] < 1e-15


@pytest.mark.parametrize("kind", KINDS)
def test_without_regularisation_one_place_has_no_covariance(kind):
    mixture = mixtures.started(np.array([9]), np.zeros((1, 2)), np.ones((1, 2)), kind, 0.0)
    sums = mixtures.expectation(np.zeros((9, 2)), mixture, kind)
    assert mixtures.maximized(mixture, sums, kind, 0.0) is None
    assert mixtures.maximized(mixture, sums, kind, 1e-6).covariances.max() == pytest.approx(1e-6)
    assert mixtures.started(np.array([9]), np.zeros((1, 2)), np.zeros((1, 2)), kind, 0.0) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": np.array([0.5])},
        {"weights": np.array([0.5, np.nan])},
        {"weights": np.array([-0.5, 1.5])},
        {"weights": np.zeros(2)},
        {"factors": np.ones((2, 3))},
        {"factors": np.ones((2, 2), np.float32)},
        {"factors": np.array([[1.0, 1.0], [1.0, 0.0]])},
        {"factors": np.array([[1.0, 1.0], [1.0, np.inf]])},
        {"factors": np.array([[1.0, 1.0], [1.0, 5e-324]])},
        {"factors": None},
    ],
)
def test_what_is_no_mixture_is_refused_without_its_values(changed):
    good = {"centroids": np.zeros((2, 2)), "weights": np.full(2, 0.5), "factors": np.ones((2, 2))}
    mixtures.received_mixture(good, "diag")
    with pytest.raises(BadMessage, match=next(iter(changed))):
        mixtures.received_mixture(good | changed, "diag")
    with pytest.raises(BadMessage, match="no mixture"):
        mixtures.received_mixture({}, "diag")


def test_rows_infinitely_far_from_all_components_get_a_label_and_no_sums():
    mixture = Mixture(np.full(2, 0.5), np.array([[0.0], [1.0]]), np.full((2, 1), 1e-160))
    X = np.array([[1e10], [2e10], [3e10], [4e10]])
    np.testing.assert_array_equal(mixtures.most_likely(X, mixture)[0], np.zeros(4))
    with pytest.raises(Refusal, match="no density"):
        mixtures.expectation(X, mixture, "diag")


def test_an_abort_ends_a_step(rng):
    with pytest.raises(Aborted):
        mixtures.expectation(rng.normal(size=(9, 2)), a_mixture(2, 2, "full", rng), "full", aborted=lambda: True)


def test_probabilities_want_the_arrays_of_a_mixture(rng):
    arrays = {"centroids": np.zeros((2, 3)), "weights": np.full(2, 0.5), "covariances": np.ones((2, 3))}
    with pytest.raises(UserError, match="2 columns where the mixture has 3"):
        mixtures.responsibilities(np.zeros((4, 2)), arrays)
    with pytest.raises(UserError, match="none called weights"):
        mixtures.responsibilities(np.zeros((4, 3)), {name: arrays[name] for name in ("centroids", "covariances")})
    with pytest.raises(UserError, match="positive definite"):
        mixtures.responsibilities(np.zeros((4, 3)), arrays | {"covariances": np.zeros((2, 3, 3))})


@pytest.mark.parametrize("kind", KINDS)
def test_second_moments_travel_as_one_axis(kind, rng):
    m2 = mixtures.expectation(rng.normal(size=(50, 4)), a_mixture(3, 4, kind, rng), kind).m2
    sent = mixtures.packed(m2, kind)
    assert sent.shape == (mixtures.n_second_moments(kind, 3, 4),)
    np.testing.assert_array_equal(mixtures.unpacked(sent, kind, 3, 4), m2)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_level_of_outliers_of_one_component_is_that_of_chi_squared(kind, share, rng):
    """A row's squared Mahalanobis distance has a chi-squared distribution: its log density is below the level with that probability."""
    mixture = a_mixture(1, 3, kind, rng)
    at_the_mean = float(log_densities(mixture.means, mixture)[0, 0])
    found = chi2(3).sf(2 * (at_the_mean - mixtures.outlier_level(mixture, share)))
    assert found == pytest.approx(share, abs=5 * np.sqrt(share / mixtures._DRAWN_FOR_LEVEL))


@pytest.mark.parametrize("kind", KINDS)
def test_of_rows_of_a_mixture_as_many_as_asked_for_are_below_the_level(kind, rng):
    mixture, n = a_mixture(4, 2, kind, rng), 200_000
    covariances = mixture.covariances if mixture.factors.ndim == 3 else mixture.covariances[:, :, None] * np.eye(2)
    counts = rng.multinomial(n, mixture.weights)
    parts = [
        rng.multivariate_normal(m, c, size)
        for m, c, size in zip(mixture.means, covariances, counts.tolist(), strict=True)
    ]
    densities = logsumexp(log_densities(np.concatenate(parts), mixture), axis=1)
    below = (densities < mixtures.outlier_level(mixture, 0.02)).mean()
    assert below == pytest.approx(0.02, abs=5 * np.sqrt(0.02 * (1 / n + 1 / mixtures._DRAWN_FOR_LEVEL)))


def test_in_other_units_the_level_is_that_of_the_same_rows(rng):
    mixture, unit = a_mixture(3, 4, "full", rng), np.array([1e-3, 1.0, 7.0, 1e4])
    other = Mixture(mixture.weights, mixture.means * unit, mixture.factors * unit[:, None])
    expected = mixtures.outlier_level(mixture, 0.05) - np.log(unit).sum()
    assert mixtures.outlier_level(other, 0.05) == pytest.approx(expected, rel=1e-9)


def test_a_component_without_weight_has_no_part_in_the_level(rng):
    both, faint = a_mixture(2, 2, "diag", rng), np.array([1.0, 1e-16])
    level = mixtures.outlier_level(both._replace(weights=faint), 0.01)
    assert level == pytest.approx(mixtures.outlier_level(both._replace(weights=np.ones(1)).of(np.array([0])), 0.01))
