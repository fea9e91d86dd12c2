"""The triangular factor in pieces against NumPy's of all rows."""

import numpy as np
import pytest

from flareclust.core.spectral import triangular


@pytest.mark.parametrize(("n", "d"), [(5, 5), (40, 3), (95, 3), (96, 3), (97, 3), (500, 7), (3, 1)])
def test_pieces_give_numpys_factor_but_for_signs(rng, n, d):
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 6, d)
    found, expected = triangular(rows), np.linalg.qr(rows, mode="r")
    size = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(np.abs(found) / size, np.abs(expected) / size, atol=1e-12)
    assert np.array_equal(found, np.triu(found))


def test_small_singular_values_keep_their_digits(rng):
    """A product X'X would have lost one of 1e-10 beside 1."""
    rows = np.linalg.qr(rng.normal(size=(1000, 2)))[0] * [1.0, 1e-10]
    np.testing.assert_allclose(np.linalg.svd(triangular(rows))[1], [1.0, 1e-10], rtol=1e-6)


def test_several_sites_at_once_get_the_bits_of_each_alone(rng):
    rows = rng.normal(size=(4, 150, 3))
    np.testing.assert_array_equal(triangular(rows), [triangular(own) for own in rows])
