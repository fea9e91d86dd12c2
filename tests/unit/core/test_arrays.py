"""The checks of the numerical core bring a caller's arrays into the kernels' form, or say what is wrong."""

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.core import arrays


def test_as_matrix_copies_only_what_is_not_in_the_kernels_form():
    X = np.zeros((3, 2))
    assert arrays.as_matrix(X) is X
    X.flags.writeable = False
    assert arrays.as_matrix(X).flags.writeable


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(5), r"two axes.*\(5,\).*reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), "two axes"),
        (np.zeros((4, 0)), "at least one feature"),
        ([[1.0, np.nan], [np.inf, -np.inf], [0.0, 0.0]], "in 2 of 3 rows"),
        ([["a", "b"]], "array of numbers"),
        ([[1.0], [1.0, 2.0]], "array of numbers"),
        (None, "two axes"),
    ],
)
def test_as_matrix_says_what_is_wrong(values, message):
    with pytest.raises(UserError, match=message):
        arrays.as_matrix(values)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "each of the 3 rows"),
        ([1.0, -1.0, 1.0], "not negative"),
        ([1.0, np.nan, 1.0], "finite"),
        ([0, 0, 0], "not all be 0"),
        ("heavy", "array of numbers"),
    ],
)
def test_as_weights_says_what_is_wrong(weights, message):
    with pytest.raises(UserError, match=message):
        arrays.as_weights(weights, 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 1], "3 integers"), ([0.0, 1.0, 1.0], "float64"), ([0, 1, 2], r"0\.\.1"), ([0, -1, 1], r"0\.\.1")],
)
def test_as_labels_says_what_is_wrong(labels, message):
    with pytest.raises(UserError, match=message):
        arrays.as_labels(labels, 3, 2)


@pytest.mark.parametrize(
    ("value", "message"), [(0, "between 1 and.*4"), (5, "got 5"), (2.5, "integer"), ("3", "integer")]
)
def test_as_count_says_what_is_wrong(value, message):
    with pytest.raises(UserError, match=message):
        arrays.as_count(value, "k", 4)


def test_as_centroids_says_what_is_wrong():
    with pytest.raises(UserError, match="centroids have 3 features but X has 2"):
        arrays.as_centroids(np.zeros((1, 3)), 2)
    with pytest.raises(UserError, match="at least one row"):
        arrays.as_centroids(np.zeros((0, 2)), 2)
