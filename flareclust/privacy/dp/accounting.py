"""The account of privacy: zero-concentrated differential privacy (zCDP), and what it says in epsilon and delta.

A release is rho-zCDP. Releases on the same rows add up, also where later ones depend on earlier ones: rho_1 + rho_2 + ...
(Bun and Steinke 2016, Lemma 1.7). What was spent in all is turned into (epsilon, delta) only for reports.

Source of the conversion: Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Proposition
12 and Corollary 13: rho-zCDP implies (epsilon, delta) for
delta = inf over a > 1 of exp((a - 1)(a rho - epsilon)) / (a - 1) (1 - 1/a)^a, that is
epsilon = inf over a > 1 of a rho + log(1 - 1/a) - log(a delta) / (a - 1). OpenDP's own conversion gives the same.
"""

import math
from functools import lru_cache

from flareclust._foundation.errors import UserError

#: More protects nothing: rows would be as good as disclosed. Less would need more noise than the numbers have bits.
MOST_EPSILON, LEAST_EPSILON = 1000.0, 1e-6
LARGEST_DELTA, LEAST_DELTA = 0.01, 1e-30

#: Of a budget that is split into shares, so that rounding never makes their sum larger than the whole.
WHOLE = 1 - 1e-12


def check_epsilon(name: str, value: object) -> float:
    """Return `value` as a float; raise UserError unless it is a number in the range of useful epsilons."""
    return _check_range(name, value, LEAST_EPSILON, MOST_EPSILON)


def check_delta(name: str, value: object) -> float:
    """Return `value` as a float, or raise UserError unless it is a probability that is small."""
    return _check_range(name, value, LEAST_DELTA, LARGEST_DELTA, ", well below 1 / number of rows")


def _check_range(name: str, value: object, least: float, most: float, hint: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise UserError(f"{name} must be a number from {least:g} to {most:g}{hint}, got {value!r}")
    return float(value)


def epsilon_of(rho: float, delta: float) -> float:
    """Return the least epsilon that rho-zCDP is known to imply at delta; 0 for rho = 0."""
    if rho == 0:
        return 0.0

    def bound(log_order: float) -> float:
        above = math.exp(log_order)  # a - 1
        order = 1 + above
        return order * rho + math.log(above / order) - (math.log(order) + math.log(delta)) / above

    from scipy.optimize import minimize_scalar  # takes longer to import than a small federation to run

    # The best order lies near 1 + (log(1 / delta) / rho)^0.5. Any order gives a valid epsilon, so a search that stopped
    # early would only disclose too much.
    near = math.log(math.sqrt(-math.log(delta) / rho))
    found = minimize_scalar(bound, bounds=(near - 6, near + 6), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


@lru_cache(maxsize=256)
def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho with `epsilon_of(rho, delta) <= epsilon`, to 12 digits and never more.

    Raises:
        UserError: epsilon or delta is none.
    """
    check_epsilon("epsilon", epsilon)
    check_delta("delta", delta)
    low, high = 0.0, epsilon  # rho-zCDP never implies less than epsilon = rho at deltas such as these
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
        if high - low <= 1e-13 * high:
            break
    return low
