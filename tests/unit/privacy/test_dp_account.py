"""Conversions between rho and epsilon, against OpenDP and between known bounds."""

import math

import pytest
from scipy.stats import norm

from flareclust._foundation.errors import UserError
from flareclust.privacy.dp import accounting, mechanism
from flareclust.protocol.registry import get
from tests.unit.algorithms.dp_cases import PRIVATE


@pytest.mark.parametrize(("rho", "delta"), [(1 / 18, 1e-6), (0.5, 1e-5), (0.005, 1e-5), (3.0, 1e-9)])
def test_conversion_to_epsilon_equals_opendp(rho, delta):
    dp = mechanism._opendp()
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    profile = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=math.sqrt(0.5 / rho))).map(1.0)
    assert accounting.epsilon_of(rho, delta) == pytest.approx(profile.epsilon(delta), rel=1e-6)


def test_conversion_of_a_known_value():
    assert accounting.epsilon_of(1 / 18, 1e-6) == pytest.approx(1.557656, abs=1e-6)
    assert accounting.epsilon_of(0.0, 1e-6) == 0


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_conversion_lies_between_the_exact_gaussian_and_the_simple_bound(rho, delta):
    mu = math.sqrt(2 * rho)
    epsilon = accounting.epsilon_of(rho, delta)
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert exact <= delta, "no Gaussian noise of this rho keeps what is claimed"
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 500.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-20])
def test_rho_is_the_largest_that_keeps_epsilon(epsilon, delta):
    rho = accounting.rho_of(epsilon, delta)
    assert accounting.epsilon_of(rho, delta) <= epsilon < accounting.epsilon_of(rho * (1 + 1e-6), delta) * (1 + 1e-12)


@pytest.mark.parametrize(("name", "value"), [("epsilon", v) for v in (0, -1, 1e-9, 1e6, "1", True, float("nan"), None)])
@pytest.mark.parametrize("algorithm", PRIVATE)
def test_absurd_epsilons_are_refused_before_anything_is_asked(algorithm, name, value):
    with pytest.raises(UserError, match="epsilon must be a number from 1e-06 to 1000"):
        get(algorithm).build(3, 0, {name: value})
