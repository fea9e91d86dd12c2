"""Noisy sums of expectation steps: by how much a row changes them, what they are, and the mixtures that follow from them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from sklearn.mixture import GaussianMixture

from flareclust._foundation.errors import Aborted, BadMessage
from flareclust._foundation.typing import never_abort
from flareclust.core import chunks, mixtures
from flareclust.core.dp import mixture_sums as dp_sums
from flareclust.core.dp import mixtures as dp_mixtures
from flareclust.core.dp.box import Box
from flareclust.core.dp.sums import UNIT
from flareclust.core.mixtures import Mixture
from tests.examples import examples

KINDS = ("full", "tied", "diag", "spherical")


def cube(d: int, half: float = 20.0) -> Box:
    return Box(np.full(d, -half), np.full(d, half))


def a_mixture(k: int, d: int, kind: str, rng: np.random.Generator) -> Mixture:
    weights, means = rng.dirichlet(np.full(k, 0.5)) + 1e-12, rng.normal(0, 2, (k, d))
    deviations = 10 ** rng.uniform(-2, 2, (k, d) if kind == "diag" else (k, 1)) * np.ones((k, d))
    if kind in ("diag", "spherical"):
        return Mixture(weights, means, deviations)
    factors = np.tril(rng.normal(size=(k, d, d)), -1) + deviations[:, :, None] * np.eye(d)
    return Mixture(weights, means, np.repeat(factors[:1], k, axis=0) if kind == "tied" else factors)


def sums(rows: np.ndarray, mixture: Mixture, kind: str, box: Box | None = None) -> np.ndarray:
    return dp_sums.expectation_sums(rows, box or cube(rows.shape[1]), mixture, kind, never_abort)


def brute_force(rows: np.ndarray, mixture: Mixture, kind: str) -> dp_sums.NoisySums:
    """Return the sums as the docstring has them, row by row and component by component."""
    (k, d), reach = mixture.means.shape, math.sqrt(rows.shape[1] + math.sqrt(2 * rows.shape[1]))
    counts, shifts, m2 = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
    for row in rows:
        z = [
            (row - mean) / own if own.ndim == 1 else np.linalg.solve(own, row - mean)
            for mean, own in zip(mixture.means, mixture.factors, strict=True)
        ]
        determinants = [np.log(own if own.ndim == 1 else np.diag(own)).sum() for own in mixture.factors]
        density = np.log(mixture.weights) - [one @ one / 2 for one in z] - np.array(determinants)
        share = np.exp(density - density.max()) / np.exp(density - density.max()).sum()
        for c in range(k):
            u = z[c] / max(reach, np.linalg.norm(z[c]))
            counts[c] += share[c]
            shifts[c] += share[c] * u
            m2[c] += share[c] * np.outer(u, u)
    kinds = {"full": m2, "tied": m2.sum(axis=0), "diag": np.einsum("kdd->kd", m2), "spherical": np.einsum("kdd->k", m2)}
    return dp_sums.NoisySums(counts, shifts, mixtures.packed(kinds[kind], kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_sums_are_those_of_a_plain_loop(kind, d, rng):
    rows, mixture = rng.normal(0, 3, size=(200, d)), a_mixture(4, d, kind, rng)
    found = dp_sums.received(dp_sums.in_units(sums(rows, mixture, kind), 4, d), kind)
    for one, other in zip(found, brute_force(rows, mixture, kind), strict=True):
        np.testing.assert_allclose(one, other, atol=400 / UNIT)


@pytest.mark.parametrize("kind", KINDS)
def test_totals_of_what_sites_send_are_those_of_their_integers(kind, rng):
    """Also the last digits, in which a rounded number of one site would show beside large ones of others."""
    width = 3 + 3 * 4 + mixtures.n_second_moments(kind, 3, 4)
    own = [rng.integers(-(2**40), 2**40, width) // 10**power for power in (0, 3, 8)]
    total = [np.sum(parts, axis=0) for parts in zip(*(dp_sums.in_units(one, 3, 4) for one in own), strict=True)]
    for found, exact in zip(total, dp_sums.in_units(np.sum(own, axis=0), 3, 4), strict=True):
        np.testing.assert_array_equal(found, exact)


def test_pieces_have_room_for_responsibilities(monkeypatch, rng):
    """Of many components these take most of the memory; a server chooses how many it sends."""
    looked = []
    monkeypatch.setattr(chunks, "PIECE", 8 * 100)
    monkeypatch.setattr(
        mixtures, "shares_in", lambda rows, prepared: (looked.append(len(rows)), (np.zeros((len(rows), 40)), None))[1]
    )
    sums(rng.normal(size=(50, 10)), a_mixture(40, 10, "diag", rng), "diag")
    assert max(looked) == 2


@st.composite
def neighbours(draw):
    """Return a table, and one with another row in any place: near to a component, far from all, at the bounds or beyond."""
    rng, d = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(1, 6))
    kind, k = draw(st.sampled_from(KINDS)), draw(st.integers(1, 5))
    mixture, rows = a_mixture(k, d, kind, rng), rng.normal(0, 3, (draw(st.integers(0, 9)), d))
    direction = rng.normal(size=d)
    row = draw(
        st.sampled_from(
            [
                mixture.means[0],
                mixture.means[-1] + direction * 10 ** rng.uniform(-3, 3),
                rng.choice([-20.0, 20.0], size=d),
                direction * 1e9,
                np.zeros(d),
            ]
        )
    )
    place = draw(st.integers(0, len(rows)))
    return kind, mixture, rows, np.insert(rows, place, row, axis=0)


@settings(max_examples=examples(500), deadline=None)
@given(pair=neighbours())
def test_a_row_more_changes_all_sums_together_by_the_sensitivity_at_most(pair):
    kind, mixture, rows, more = pair
    change = sums(more, mixture, kind) - sums(rows, mixture, kind)
    assert math.sqrt(sum(int(one) ** 2 for one in change)) <= dp_sums.mixture_sensitivity()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_at_the_limit_of_one_component_changes_them_by_just_that(kind, rng):
    mixture = a_mixture(1, 3, kind, rng)
    along = mixture.factors[0][:, 0] if mixture.factors.ndim == 3 else mixture.factors[0] * [1, 0, 0]  # its first axis
    change = sums(mixture.means + 1e3 * along, mixture, kind, cube(3, 1e9))
    assert np.linalg.norm(change.astype(float)) > 0.999999 * dp_sums.mixture_sensitivity()


def test_sums_are_the_integers_that_the_rows_add_one_by_one(rng):
    """So a row adds the same wherever it stands, and whatever stands beside it."""
    rows, mixture = rng.normal(size=(300, 3)), a_mixture(5, 3, "full", rng)
    alone = [sums(rows[i : i + 1], mixture, "full") for i in range(len(rows))]
    np.testing.assert_array_equal(sums(rows, mixture, "full"), np.sum(alone, axis=0))


def test_rows_count_within_the_sites_bounds_and_those_without_a_density_not_at_all():
    near = Mixture(np.ones(1), np.zeros((1, 2)), np.full((1, 2), 5.0))
    np.testing.assert_array_equal(
        sums(np.full((3, 2), 1e300), near, "diag", cube(2, 2.0)), sums(np.full((3, 2), 2.0), near, "diag")
    )
    narrow = Mixture(np.ones(2), np.array([[0.0], [1.0]]), np.full((2, 1), 1e-300))
    assert not sums(np.array([[1e20], [-1e20]]), narrow, "diag", cube(1, 1e30)).any()


def test_an_abort_and_what_is_no_mixture_end_a_step(rng):
    with pytest.raises(Aborted):
        dp_sums.expectation_sums(np.zeros((3, 2)), cube(2), a_mixture(2, 2, "full", rng), "full", lambda: True)
    with pytest.raises(BadMessage, match="factors"):
        sums(np.zeros((3, 2)), Mixture(np.ones(1), np.zeros((1, 2)), np.zeros((1, 2))), "diag")


# What a server makes of them


def rows_of(rng: np.random.Generator, kind: str = "full", n: int = 4000) -> np.ndarray:
    """Return rows of two components with covariances of a type."""
    axes = rng.normal(size=(2, 2, 2))
    if kind == "tied":
        axes[1] = axes[0]
    if kind in ("diag", "spherical"):
        axes = rng.uniform(0.5, 2, size=(2, 1, 2 if kind == "diag" else 1)) * np.eye(2)
    return np.concatenate([c + rng.normal(size=(n, 2)) @ axis for c, axis in zip((0, 9), axes, strict=True)])


def iterated(rows: np.ndarray, kind: str, noise: float, rounds: int, rng: np.random.Generator) -> Mixture:
    """Return the mixture after so many iterations, from round components, with noise of this deviation on the integers."""
    mixture = dp_mixtures.started(
        np.array([[1.0, -1.0], [8.0, 9.0]]), np.array([2.0, 3.0]), np.full(2, len(rows) / 2), kind
    )
    for done in range(rounds):
        exact = sums(rows, mixture, kind)
        noisy = exact + rng.normal(0, noise * UNIT, exact.shape).astype(np.int64)
        found = dp_sums.received(dp_sums.in_units(noisy, 2, 2), kind)
        mixture = dp_mixtures.next_mixture(mixture, found, noise, kind, done, cube(2))
    return mixture


def score(rows: np.ndarray, mixture: Mixture) -> float:
    arrays = mixture.arrays() | {"covariances": mixture.covariances}
    return float(mixtures.log_densities(rows, arrays).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_ends_at_the_pooled_mixture(kind, rng):
    """But for rows that are cut off, whose part of the variances is that of a normal distribution."""
    rows = rows_of(rng, kind)
    theirs = GaussianMixture(2, covariance_type=kind, n_init=3, random_state=0).fit(rows)
    found = iterated(rows, kind, 0.0, 60, rng)
    assert theirs.score(rows) - 0.001 < score(rows, found) <= theirs.score(rows) + 1e-4
    if kind == "full":
        order = np.argsort(theirs.means_[:, 0])
        np.testing.assert_allclose(found.means, theirs.means_[order], atol=0.05)
        np.testing.assert_allclose(found.covariances, theirs.covariances_[order], rtol=0.1, atol=0.05)


@pytest.mark.parametrize("d", [1, 2, 7, 60])
def test_what_is_cut_off_of_a_normal_distribution_is_added_again(d):
    drawn = np.minimum(chi2(d).rvs(200_000, random_state=1), dp_sums.reach_of(d) ** 2)
    assert dp_mixtures._kept(d) == pytest.approx(drawn.mean() / d, rel=0.01)
    assert chi2(d).cdf(dp_sums.reach_of(d) ** 2) == pytest.approx(5 / 6, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [3.0, 60.0, 1000.0, 1e6])
def test_a_mixture_with_any_noise_is_one_that_sites_take(kind, noise, rng):
    for _ in range(20):
        found = iterated(rows_of(rng, kind, 300), kind, noise, 4, rng)
        mixtures.received_mixture(found.arrays(), kind)
        assert found.weights.sum() == pytest.approx(1)
        assert (found.weights > 0).all()
        assert np.abs(found.means).max() <= 20
        assert np.isfinite(found.covariances).all()


def test_a_component_of_fewer_rows_than_noise_explains_stays_as_it_is(rng):
    mixture = a_mixture(2, 3, "full", rng)
    noisy = dp_sums.NoisySums(np.array([30.0, 1000.0]), rng.normal(size=(2, 3)), rng.normal(0, 30, 12))
    found = dp_mixtures.next_mixture(mixture, noisy, 10.0, "full", 0, cube(3))
    np.testing.assert_array_equal(found.means[0], mixture.means[0])
    np.testing.assert_array_equal(found.factors[0], mixture.factors[0])
    assert (found.factors[1] != mixture.factors[1]).any()


def test_a_variance_that_noise_makes_negative_is_a_part_of_the_one_before():
    before = Mixture(np.ones(1), np.zeros((1, 2)), np.stack([np.diag([3.0, 0.5])]))
    noisy = dp_sums.NoisySums(np.array([1000.0]), np.zeros((1, 2)), np.array([250.0, 0.0, -900.0]))
    found = dp_mixtures.next_mixture(before, noisy, 1e-6, "full", 0, cube(2))
    assert found.covariances[0, 1, 1] == pytest.approx(dp_mixtures._LEAST * 0.25)
    for _ in range(30):
        found = dp_mixtures.next_mixture(found, noisy, 1e-6, "full", 0, cube(2, 5.0))
    least = 5 * math.sqrt(2) / 100 / math.sqrt(2)
    assert np.linalg.eigvalsh(found.covariances[0])[0] == pytest.approx(least**2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_of_variances_is_what_comes_of_noisy_sums(kind, rng):
    """Of the variance of the first column."""
    rows, noise, d = 1000.0, 3.0, 6
    kept = dp_mixtures._kept(d) / dp_sums.reach_of(d) ** 2
    shape = {
        "full": np.stack([np.eye(d)] * 2),
        "tied": 2 * np.eye(d),
        "diag": np.ones((2, d)),
        "spherical": np.full(2, d),
    }
    exact, found = mixtures.packed(shape[kind] * rows * kept, kind), []
    for _ in range(2000):
        noisy = exact + rng.normal(0, noise * UNIT / dp_sums.SQUARE, len(exact))
        sums = dp_sums.NoisySums(np.full(2, rows), np.zeros((2, d)), noisy)
        goal = dp_mixtures._covariances(sums, np.zeros((2, d)), sums.rows, kind)[0]
        found.append(goal[0] if goal.ndim == 1 else goal[0, 0])
    stated = dp_mixtures._variance_noise(noise, kind, d) / (2 * rows if kind == "tied" else rows)
    assert np.std(found) == pytest.approx(stated, rel=0.1)
    assert np.mean(found) == pytest.approx(1, abs=stated / 5)
    largest = dp_mixtures.blur(np.full(2, rows), noise, kind, d)[0]
    assert largest == pytest.approx(stated * (math.sqrt(2 * d) if kind in ("full", "tied") else 1))


def test_steps_are_whole_without_noise_and_average_out_much_of_it():
    assert dp_mixtures._steps(np.zeros(1), 3).tolist() == [1.0]
    first, last = (dp_mixtures._steps(np.array([0.5]), done)[0] for done in (0, 20))
    assert last < first < 0.3


def test_noise_alone_changes_the_form_of_no_component(rng):
    """In many columns; what is shrunk is at most a part of what noise has added."""
    d, noise, rows = 12, 8.0, 400.0
    before = Mixture(np.ones(1), np.zeros((1, d)), np.eye(d)[None])
    entries = d * (d + 1) // 2
    kept = dp_mixtures._kept(d) / dp_sums.reach_of(d) ** 2
    exact = mixtures.packed(np.eye(d)[None] * rows * kept, "full")
    drawn = rng.normal(0, noise * UNIT / dp_sums.SQUARE, entries)
    noisy = dp_sums.NoisySums(np.array([rows]), rng.normal(0, noise, (1, d)), exact + drawn)
    found = dp_mixtures.next_mixture(before, noisy, noise, "full", 0, cube(d))
    assert np.abs(found.covariances[0] - np.eye(d)).max() < 0.15
    assert np.abs(drawn / rows / kept).max() > 0.15


@pytest.mark.parametrize("size", [1.0, 1e12, 1e20, 1e30])
def test_sums_that_no_rows_have_leave_a_covariance(size):
    """As a malicious site can send them: far wider in one direction than in the others."""
    for direction in np.random.default_rng(0).normal(size=(20, 3)):
        factor = dp_mixtures._factor(
            np.eye(3), size * np.outer(direction, direction), deviation=0.1, step=1.0, least=1e-3
        )
        assert np.isfinite(factor).all()
        assert (np.diag(factor) > 0).all()
