"""The random numbers of `numpy.random.default_rng([seed, round, site])`, for compiled loops over many sites.

NumPy takes some 15 us to make one generator; here it is a few hundred operations. The numbers are NumPy's, bit for bit.

Sources: O'Neill (2014), PCG: a family of simple fast space-efficient statistically good algorithms for random number
generation (the generator with 128 bits of state and the output XSL-RR); O'Neill (2015), Developing a seed_seq alternative
(how words of entropy become that state). NumPy promises that neither changes (NEP 19).
"""

from typing import Any

import numpy as np

from flareclust._foundation.typing import Array
from flareclust.core.jit import kernel

#: The multiplier of the 128-bit congruential generator, in two halves.
_HIGH, _LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)

_U32 = np.uint64(0xFFFFFFFF)
_32, _16, _11, _58, _63, _1 = (np.uint64(value) for value in (32, 16, 11, 58, 63, 1))

_INIT_A, _MULT_A, _INIT_B, _MULT_B = (np.uint64(value) for value in (0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED))
_MIX_LEFT, _MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)


@kernel()
def start_stream(seed: int, round_: int, site: int, state: Array) -> None:
    """state (4,) uint64 becomes that of `default_rng([seed, round_, site])`, of three numbers below 2^32."""
    pool, constant = np.zeros(4, np.uint64), _INIT_A
    pool[0], pool[1], pool[2] = np.uint64(seed), np.uint64(round_), np.uint64(site)
    for i in range(4):
        pool[i], constant = _hashed(pool[i], constant, _MULT_A)
    for source in range(4):
        for target in range(4):
            if source != target:
                word, constant = _hashed(pool[source], constant, _MULT_A)
                mixed = (_MIX_LEFT * pool[target] - _MIX_RIGHT * word) & _U32
                pool[target] = mixed ^ (mixed >> _16)
    words, constant = np.empty(8, np.uint64), _INIT_B
    for i in range(8):
        words[i], constant = _hashed(pool[i % 4], constant, _MULT_B)
    for i in range(4):
        pool[i] = words[2 * i] | (words[2 * i + 1] << _32)
    # The increment is odd; the first step is from 0.
    state[2], state[3] = (pool[2] << _1) | (pool[3] >> _63), (pool[3] << _1) | _1
    state[0], state[1] = _added(state[2], state[3], pool[0], pool[1])
    _step(state)


@kernel()
def uniform(state: Array) -> float:
    """Return the next number in [0, 1) of `Generator.random`."""
    _step(state)
    turned, by = state[0] ^ state[1], state[0] >> _58
    word = (turned >> by) | (turned << ((np.uint64(64) - by) & _63))
    return float(word >> _11) * (1.0 / 9007199254740992.0)


@kernel()
def _hashed(word: Any, constant: Any, multiplier: Any) -> Any:
    """Return a hash of 32 bits and the next constant."""
    word = (word ^ constant) & _U32
    constant = (constant * multiplier) & _U32
    word = (word * constant) & _U32
    return word ^ (word >> _16), constant


@kernel()
def _step(state: Array) -> None:
    """Advance the generator: state = state * multiplier + increment, in 128 bits."""
    high, low = state[0], state[1]
    a, b, c, d = low >> _32, low & _U32, _LOW >> _32, _LOW & _U32
    middle = a * d + ((b * d) >> _32)
    other = b * c + (middle & _U32)
    upper = a * c + (middle >> _32) + (other >> _32) + high * _LOW + low * _HIGH
    state[0], state[1] = _added(upper, low * _LOW, state[2], state[3])


@kernel()
def _added(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    """Return the sum of two numbers of 128 bits."""
    total = low + other_low
    carry = _1 if total < low else np.uint64(0)
    return high + other_high + carry, total
