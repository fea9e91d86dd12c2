"""Sites and runs of k-FED that several test files use."""

import numpy as np


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def pairwise(rows):
    return np.linalg.norm(rows[:, None] - rows[None], axis=2)
