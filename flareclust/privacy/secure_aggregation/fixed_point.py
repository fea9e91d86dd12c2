"""Integers of 256 bits in place of float64, so that sums are exact and do not depend on their order.

A number x stands as the integer nearest to x * 2^128, modulo 2^256: the resolution is 2^-128 (3e-39), totals range
up to 2^127 (1.7e38) either way. A float64 of 2^-76 (1.3e-23) or more loses nothing. Arrays of such numbers are
uint64 (4, w): plane j holds bits 64 j to 64 j + 63 of each of the w numbers.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flareclust._foundation.typing import FloatArray

#: Words of 64 bits to a number, and how many of its bits come after the point.
WORDS, FRACTION = 4, 128

#: Totals stay below this, either way.
RANGE = 2.0**127

Words = npt.NDArray[np.uint64]

_MANTISSA = 53


def encode(values: FloatArray) -> Words:
    """Return the numbers (w,) in fixed point (4, w); they must be finite and below `RANGE`, which is not checked here."""
    fraction, exponent = np.frexp(np.abs(values))
    shift, digits = exponent.astype(np.int64) - _MANTISSA + FRACTION, np.ldexp(fraction, _MANTISSA)
    less_than = shift < 0  # has bits beyond the resolution
    digits[less_than] = np.rint(np.ldexp(np.abs(values[less_than]), FRACTION))
    word, bit = np.divmod(np.maximum(shift, 0), 64)
    whole, bit = digits.astype(np.uint64), bit.astype(np.uint64)
    words = np.zeros((WORDS + 1, len(values)), dtype=np.uint64)
    np.put_along_axis(words, word[None], (whole << bit)[None], axis=0)
    carried = (whole >> np.uint64(1)) >> (np.uint64(63) - bit)  # a shift by 64 would be undefined
    np.put_along_axis(words, word[None] + 1, carried[None], axis=0)
    return np.where(values < 0, negated(words[:WORDS]), words[:WORDS])


def add(total: Words, words: Words) -> None:
    """Add numbers (4, w) to `total` (4, w) in place, modulo 2^256."""
    carry = np.zeros(total.shape[1], dtype=np.uint64)
    for j in range(WORDS):
        total[j] += words[j]
        over = total[j] < words[j]
        total[j] += carry
        carry = (over | (total[j] < carry)).astype(np.uint64)


def negated(words: Words) -> Words:
    """Return minus the numbers (4, w), modulo 2^256."""
    flipped, one = ~words, np.zeros_like(words)
    one[0] = 1
    add(flipped, one)
    return flipped


def decode(words: Words) -> list[int]:
    """Return the numbers (4, w) as w whole multiples of 2^-128, with their signs."""
    data, size = np.ascontiguousarray(words.T.astype("<u8")).tobytes(), 8 * WORDS
    return [int.from_bytes(data[i : i + size], "little", signed=True) for i in range(0, len(data), size)]


def as_floats(numbers: Sequence[int]) -> FloatArray:
    """Return the float64 nearest to each of the whole multiples of 2^-128 (w,)."""
    return np.array([number / (1 << FRACTION) for number in numbers], dtype=np.float64)


def product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a * b as two arrays whose sum is exact (Dekker 1971, A floating-point technique, section 5).

    Exact unless a number is beyond 1e140 either way.
    """
    high, low = _halves(a)
    upper, lower = _halves(b)
    rounded = a * b
    return rounded, ((high * upper - rounded) + high * lower + low * upper) + low * lower


def _halves(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    spread = x * 134217729.0  # 2^27 + 1
    high = spread - (spread - x)
    return high, x - high
