"""The published data sets have the stated shape and content."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from flareclust.data import published as official
from flareclust.data.datasets import load
from flareclust.data.published import _content_sha256
from tests.unit.data.dataset_cases import FILE_SHAPES, STORED, _expect, needs_files


@needs_files
@pytest.mark.parametrize("name", FILE_SHAPES)
def test_published_files_have_the_stated_shape_and_content(name: str) -> None:
    data = load(name, verify=True)
    _expect(data, *FILE_SHAPES[name])
    assert (data.owners is not None) == (name in ("har", "femnist", "garst_grid"))


@needs_files
@pytest.mark.parametrize("name", [name for name, entry in official.OFFICIAL.items() if entry.content])
def test_the_content_hashes_are_those_of_the_published_files(name: str) -> None:
    from flareclust.data.npy_files import npz_arrays

    entry = official.OFFICIAL[name]
    assert _content_sha256(npz_arrays(Path(STORED) / entry.file, entry.keys)) == entry.content


@needs_files
def test_the_labels_of_s1_belong_to_the_author_centroids() -> None:
    data = load("s1")
    assert (cdist(data.X, data.centroids).argmin(axis=1) == data.y).mean() == pytest.approx(0.993, abs=0.001)


@needs_files
def test_qmnist_names_the_writers_of_mnist() -> None:
    data = load("qmnist", verify=True)
    _expect(data, 60_000, 784, 10, False)
    assert len(np.unique(data.owners)) == 539
    mnist = load("mnist")
    np.testing.assert_array_equal(mnist.y, data.y)
    assert (mnist.X.min(), mnist.X.max()) == (0, 255)


@needs_files
def test_har_columns_have_distinct_names() -> None:
    columns = load("har").columns
    assert columns[0] == "tBodyAcc-mean()-X"
    assert len(set(columns)) == 561


@needs_files
def test_every_setting_of_garst_grid_is_a_split_of_the_grid() -> None:
    data = load("garst_grid:beta10_ppc200_noise1.5")
    assert data.n_clusters == 16
    assert data.X.shape == (3200, 2)
    assert np.unique(data.owners).tolist() == [0, 1, 2, 3, 4]
    means = np.array([data.X[data.y == c].mean(axis=0) for c in range(16)])
    assert np.abs(means - data.centroids).max() < 4.5 * 1.5 / np.sqrt(200)
