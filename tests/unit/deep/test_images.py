"""Rows as images."""

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.deep import images as deep_images


@pytest.mark.parametrize(
    ("image", "d", "shape"),
    [
        ("auto", 784, (28, 28, 1)),
        ("auto", 3072, (32, 32, 3)),
        ("auto", 64, (8, 8, 1)),
        ("auto", 49, None),  # too small to be an image
        ("auto", 30, None),
        ("none", 784, None),
        ("28x28", 784, (28, 28, 1)),
        ("4x6x3", 72, (4, 6, 3)),
    ],
)
def test_the_shape_follows_from_the_setting_and_the_number_of_columns(image, d, shape):
    assert deep_images.image_shape(image, d) == shape
    assert deep_images.shape_array(shape, d).tolist() == list(shape or (0, 0, d))


@pytest.mark.parametrize("image", ["", "28", "28x", "axb", "28x28x2", "0x5", "-1x4", "²x4"])
def test_a_setting_that_is_no_size_is_refused(image):
    with pytest.raises(UserError, match="expected auto, none, or height x width"):
        deep_images.image_shape(image, 64)


def test_a_size_that_does_not_fit_the_columns_is_refused():
    with pytest.raises(UserError, match="image=9x9 has 81 pixels where rows have 64 columns"):
        deep_images.image_shape("9x9", 64)


def test_pixels_go_where_they_were_and_each_image_is_standardised():
    rows = np.random.default_rng(0).uniform(0, 255, size=(5, 4 * 6 * 3))
    images = deep_images.as_images(rows, np.array([4, 6, 3]))
    assert images.shape == (5, 3, 4, 6)
    standardised = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    np.testing.assert_allclose(images[2, 1, 3, 5], standardised.reshape(5, 4, 6, 3)[2, 3, 5, 1])
    np.testing.assert_allclose(deep_images.as_images(7 * rows + 3, np.array([4, 6, 3])), images)


def test_an_image_of_one_grey_is_zero():
    assert (deep_images.as_images(np.full((2, 64), 9.0), np.array([8, 8, 1])) == 0).all()


def test_tables_stay_as_they_are():
    rows = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(deep_images.as_images(rows, np.array([0, 0, 3])), rows)
