"""The noise of differential privacy: its deviation, its sensitivities, whole numbers."""

import math

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.privacy.dp import mechanism


def test_noise_has_the_deviation_that_rho_asks_for_and_no_mean():
    noisy = mechanism.gaussian(np.full(4000, 7, np.int64), 50.0, 0.02) - 7
    expected = 50 / math.sqrt(0.04)
    assert noisy.std() == pytest.approx(expected, rel=0.08)
    assert abs(noisy.mean()) < 5 * expected / math.sqrt(4000)
    assert mechanism.sigma(50.0, 0.02) == pytest.approx(expected)


def test_opendp_confirms_the_noise_for_many_sensitivities(rng):
    for sensitivity, rho in zip(rng.uniform(1, 1e7, 60), 10 ** rng.uniform(-5, 1, 60), strict=True):
        assert mechanism._measurement(float(sensitivity), float(rho)).check(d_in=float(sensitivity), d_out=float(rho))


def test_noise_is_for_whole_numbers_that_fit():
    with pytest.raises(UserError, match="integers"):
        mechanism.gaussian(np.zeros(2), 1.0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="too large"):
        mechanism.gaussian(np.array([2**62]), 1.0, 1.0)
    for sensitivity, rho in ((0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))):
        with pytest.raises(UserError, match="must be a finite number above 0"):
            mechanism.gaussian(np.zeros(2, np.int64), sensitivity, rho)
