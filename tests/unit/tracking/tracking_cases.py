"""Federations and processes that several test files of tracking use."""

import numpy as np

CENTROIDS = np.array([[0.0, 0.1], [10.0, 1 / 3]])
