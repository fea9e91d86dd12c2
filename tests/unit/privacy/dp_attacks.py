"""What attacks on differentially private messages share: what is claimed, and what guesses prove."""

import numpy as np
from scipy.stats import beta

from flareclust._foundation.typing import FloatArray
from flareclust.privacy.dp.ledger import Ledger

#: What is claimed. With a large delta the bulk of the distributions decides, which thousands of runs show.
EPSILON, DELTA = 1.75, 0.01
_SURE = 0.95


class Free(Ledger):
    """A ledger that does not count: each run stands for the only one."""

    def spend(self, job: str, what: str, rho: float, job_limit: float, total_limit: float) -> None:
        """Let everybody spend."""


def proven_by(without: FloatArray, added: FloatArray) -> float:
    """Return the epsilon that an attack proves: a lower bound, with confidence.

    Args:
        without: the attacker's statistic in runs without the row, larger where the row seems to be there.
        added: the same in runs with it.
    """
    # The threshold comes from the first runs, and the others are judged by it.
    first = len(without) // 5
    threshold = np.quantile(without[:first], 0.98)
    return _bound(without[first:], added[first:], float(threshold))


def _bound(without: FloatArray, added: FloatArray, threshold: float) -> float:
    """Return a lower bound of epsilon, from P(above | added) <= e^epsilon P(above | without) + delta (Clopper, Pearson)."""
    n, wrong, right = len(without), int((without > threshold).sum()), int((added > threshold).sum())
    most_wrong = beta.ppf(1 - (1 - _SURE) / 2, wrong + 1, n - wrong)
    least_right = beta.ppf((1 - _SURE) / 2, right, n - right + 1) if right else 0.0
    return float(np.log(max(least_right - DELTA, 1e-12) / most_wrong))
