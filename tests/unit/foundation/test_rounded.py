"""Numbers as texts: a tie is rounded in one way, whatever sum it comes from."""

import math

import numpy as np
import pytest

from flareclust._foundation.display import number_or_dash, rounded, signed
from flareclust.evaluation.profile_words import number, percent


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (12.5, 0, "13"),
        (13.5, 0, "14"),
        (-12.5, 0, "-13"),
        (0.125, 2, "0.13"),
        (2.675, 2, "2.68"),
        (-0.0001, 2, "0.00"),
        (1234567.25, 1, "1,234,567.3"),
        (1e30, 0, "1,000,000,000,000,000,000,000,000,000,000"),
        (math.inf, 2, "inf"),
        (math.nan, 2, "nan"),
    ],
)
def test_halves_go_away_from_zero(value, decimals, text):
    assert rounded(value, decimals) == text


def test_sums_that_differ_in_their_last_bits_are_the_same_text():
    rng = np.random.default_rng(0)
    for _ in range(200):
        own = rng.integers(0, 50, size=40) / 10
        own = np.append(own, 40.5 * 41 - own.sum())
        texts = {rounded(float(part), 0) for part in (own.mean(), own[::-1].mean(), sum(own.tolist()) / 41)}
        assert texts == {"41"}


def test_a_number_is_the_same_in_all_places_of_a_report():
    assert number(12.5, 10.0) == number(np.nextafter(12.5, 0), 10.0) == rounded(12.5, 0) == "13"
    assert percent(0.125) == percent(np.nextafter(0.125, 0)) == "13 %"
    assert number_or_dash(0.845) == "0.85"
    assert (signed(2.5, 0), signed(-2.5, 0), signed(0.0, 0)) == ("+3", "-3", "+0")
