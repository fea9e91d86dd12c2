"""Numbers as whole multiples of 2^-128: nearest, exact in sums and products, in range."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import FRACTION, RANGE, WORDS
from flareclust.privacy.secure_aggregation.totals import MOST_SITES, Layout

ONE = Fraction(1, 1 << FRACTION)

numbers = st.floats(-1e30, 1e30, allow_subnormal=True)


def fixed(x: float) -> int:
    """Return the whole multiple of 2^-128 nearest to x, of two as near ones the even one."""
    return round(Fraction(x) / ONE)


# Fixed point


@given(st.lists(numbers, min_size=1, max_size=8))
def test_numbers_stand_as_the_nearest_multiple_of_the_resolution(values: list[float]) -> None:
    found = fixed_point.decode(fixed_point.encode(np.array(values)))
    assert found == [fixed(x) for x in values]


def test_numbers_of_ordinary_size_lose_nothing() -> None:
    values = np.array([0.1, -1e-20, 2.0**-76 * (1 + 2.0**-52), 1.7e37, -0.0, 1 / 3])
    np.testing.assert_array_equal(values, fixed_point.as_floats(fixed_point.decode(fixed_point.encode(values))))


@given(st.lists(st.integers(-(2**255), 2**255 - 1), min_size=2, max_size=6))
def test_adding_is_that_of_whole_numbers_modulo_2_to_256(values: list[int]) -> None:
    words = [
        np.frombuffer(v.to_bytes(32, "little", signed=True), dtype="<u8").astype(np.uint64).reshape(WORDS, 1)
        for v in values
    ]
    summed = words[0].copy()
    for other in words[1:]:
        fixed_point.add(summed, other)
    assert (fixed_point.decode(summed)[0] - sum(values)) % 2**256 == 0
    fixed_point.add(summed, fixed_point.negated(summed))
    assert not summed.any()


@given(st.floats(-1e60, 1e60), st.floats(-1e20, 1e20))
def test_products_are_exact_in_two_parts(a: float, b: float) -> None:
    if 0 < abs(a) < 1e-60 or 0 < abs(b) < 1e-60:
        return
    high, low = fixed_point.product(np.array([a]), np.array([b]))
    assert Fraction(float(high[0])) + Fraction(float(low[0])) == Fraction(a) * Fraction(b)


# What a site does not do


def test_as_many_sites_as_there_is_room_for_stay_in_range() -> None:
    """The largest numbers that a site lets through, in as many addends as the squares of a mean have, at all of them."""
    largest = np.nextafter(RANGE / 2**13, 0)
    one = fixed_point.encode(np.array([largest]))
    words = np.zeros_like(one)
    for _ in range(8 * MOST_SITES):
        fixed_point.add(words, one)
    assert fixed_point.decode(words) == [8 * MOST_SITES * fixed(largest)]


def test_sums_that_do_not_fit_are_the_largest_that_do() -> None:
    """Where a server got past the bound by other means: no site refuses, as that would disclose something about this site's rows."""
    schema = LloydExecutor.steps[UPDATE].schema
    layout = Layout(schema, {"K": 1, "d": 1})
    reply = {"centroids": np.array([[1e30]]), "counts": np.array([50]), "cluster": np.array([0])}
    words = layout.words({**reply, "inertia": np.array(1e60)})
    assert max(abs(number) for number in fixed_point.decode(words)) < fixed(RANGE / MOST_SITES)
