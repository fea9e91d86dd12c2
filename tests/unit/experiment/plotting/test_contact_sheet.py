"""What a contact sheet shows, read from its pixels."""

import numpy as np
import pytest

from flareclust.experiment.plotting.contact_sheet import CLUSTERS, IMAGES, contact_sheet
from flareclust.experiment.plotting.style import save


def sheet(sites, labels, shape, k, **how):
    """Return the sheet's pixels (height, width, 3), and the words beside its rows."""
    axes = contact_sheet(sites, labels, shape, k, **how).axes[0]
    return np.asarray(axes.images[0].get_array()), [tick.get_text() for tick in axes.get_yticklabels()]


def flat(values, pixels):
    """Return an image (pixels,) of one value for each of the values."""
    return np.repeat(np.asarray(values, float)[:, None], pixels, axis=1)


def test_images_of_a_cluster_are_in_its_row_and_all_are_counted():
    sites = {"a": flat([0, 100, 100], 64), "b": flat([200, 0], 64)}
    labels = {"a": np.array([0, 1, 1]), "b": np.array([2, 0])}
    pixels, words = sheet(sites, labels, (8, 8, 1), 4)
    assert words == [f"cluster {j}\n{text}" for j, text in enumerate(("2 images", "2 images", "1 image", "0 images"))]
    bands = np.split(pixels, 4)
    assert [sorted({round(float(value), 6) for value in band.ravel()}) for band in bands] == [
        [0.0, 1.0],  # black images on white
        [0.5, 1.0],
        [1.0],
        [1.0],
    ]


def test_words_are_beside_the_middle_of_their_row():
    axes = contact_sheet({"a": flat([0, 100], 64)}, {"a": np.array([0, 1])}, (8, 8, 1), 4).axes[0]
    height = len(axes.images[0].get_array())
    np.testing.assert_allclose(axes.get_yticks(), height * np.array([1, 3, 5, 7]) / 8)


def test_colours_are_those_of_the_rows():
    row = np.tile([255.0, 0.0, 51.0], 48)[None]
    pixels, _ = sheet({"a": row}, {"a": np.zeros(1, int)}, (6, 8, 3), 1)
    colours = {tuple(colour) for colour in pixels.reshape(-1, 3).round(6).tolist()}
    assert colours == {(1.0, 0.0, 0.2), (1.0, 1.0, 1.0)}


def test_so_many_images_are_drawn_at_random_from_all_sites_and_always_the_same():
    values = np.arange(1.0, 201)
    sites, labels = {"a": flat(values[:100], 64), "b": flat(values[100:], 64)}, dict.fromkeys("ab", np.zeros(100, int))
    pixels, words = sheet(sites, labels, (8, 8, 1), 1)
    shown = set(pixels.ravel().tolist()) - {1.0}
    assert IMAGES - 1 <= len(shown) <= IMAGES  # white could be one of them
    assert min(shown) < 0.5 < max(shown)
    assert words == ["cluster 0\n200 images"]
    np.testing.assert_array_equal(sheet(sites, labels, (8, 8, 1), 1)[0], pixels)


def test_rows_without_a_label_are_not_shown():
    pixels, words = sheet({"a": flat([0, 50], 64)}, {"a": np.array([-1, -1])}, (8, 8, 1), 1)
    assert (pixels == 1).all()
    assert words == ["cluster 0\n0 images"]


@pytest.mark.parametrize("shape", [(1, 1, 1), (200, 300, 3), (1, 500, 1), (97, 20, 1)])
def test_large_and_small_images_come_to_about_one_size(tmp_path, shape):
    row = np.random.default_rng(0).uniform(size=(2, int(np.prod(shape))))
    figure = contact_sheet({"a": row}, {"a": np.array([0, 1])}, shape, 2)
    height, width, _ = np.asarray(figure.axes[0].images[0].get_array()).shape
    assert 32 <= max(height / 2, width / IMAGES) <= 110
    assert save(figure, tmp_path / "sheet.png").stat().st_size > 1000


def test_a_large_image_is_averaged():
    halves = np.tile(np.repeat([0.0, 1.0], 96), 192)[None]
    board = np.indices((192, 192)).sum(axis=0).ravel()[None] % 2.0
    pixels, _ = sheet({"a": np.vstack([halves, board])}, {"a": np.array([0, 1])}, (192, 192, 1), 2)
    assert set(pixels[: len(pixels) // 2].ravel()) == {0.0, 1.0}
    assert set(pixels[len(pixels) // 2 :].ravel()) == {0.5, 1.0}


def test_more_clusters_than_a_sheet_shows_are_said():
    figure = contact_sheet({"a": flat(range(80), 64)}, {"a": np.arange(80)}, (8, 8, 1), 80)
    assert len(figure.axes[0].get_yticklabels()) == CLUSTERS
    assert figure.get_supxlabel().endswith("; the first 60 of 80 clusters")
