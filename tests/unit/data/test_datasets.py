"""Data sets come by name with their truth, also from files of one's own."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from flareclust._foundation.errors import UserError
from flareclust.data.datasets import describe, get, load, names
from tests.unit.data.dataset_cases import FILE_SHAPES, _expect

# What the sets' authors state: rows, columns, clusters; and whether true centroids are known.
SHAPES = {
    "digits": (1797, 64, 10, False),
    "iris": (150, 4, 3, False),
    "wine": (178, 13, 3, False),
    "breast_cancer": (569, 30, 2, False),
    "blobs": (1500, 2, 5, True),
    "grid16": (800, 2, 16, True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_sets_that_are_always_at_hand_need_no_files(folder: Path, name: str) -> None:
    data = load(name)
    assert data.name == name
    _expect(data, *SHAPES[name])
    np.testing.assert_array_equal(data.X, load(name).X)
    assert (data.columns is None) == (name in ("blobs", "grid16"))
    assert not list(folder.iterdir())


def test_grid16_is_a_unit_gaussian_at_every_point_of_the_grid(folder: Path) -> None:
    data = load("grid16")
    assert data.centroids[:5].tolist() == [[-7.5, -7.5], [-7.5, -2.5], [-7.5, 2.5], [-7.5, 7.5], [-2.5, -7.5]]
    assert np.bincount(data.y).tolist() == [50] * 16
    noise = data.X - data.centroids[data.y]
    assert noise.std() == pytest.approx(1, abs=0.08)  # the standard error for 1600 numbers is 0.018
    means = np.array([noise[data.y == c].mean(axis=0) for c in range(16)])
    assert np.abs(means).max() < 4.5 / np.sqrt(50)


def test_the_labels_of_blobs_belong_to_the_centroids(folder: Path) -> None:
    data = load("blobs")
    assert (cdist(data.X, data.centroids).argmin(axis=1) == data.y).mean() > 0.99


def test_every_data_set_has_one_line_of_description() -> None:
    assert names() == list(describe())
    assert set(names()) == {*SHAPES, *FILE_SHAPES, "mnist", "qmnist"}
    assert all(text and "\n" not in text for text in describe().values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", r"unknown data set 'digit' \(did you mean 'digits'"),
        ("nothing_like_it", r"unknown data set 'nothing_like_it'\. There are digits, iris.*\.npy, \.npz"),
        ("iris:3", "'iris' has no setting '3'"),
        ("garst_grid:beta1_ppc50_noise2", "no setting 'beta1_ppc50_noise2'.*did you mean 'beta1_ppc50_noise1"),
        ("digits:pca", "'digits' has no setting 'pca'; write 'digits', or 'digits:pca2'"),
        ("digits:pca0", "'digits' has 64 columns, so the setting pcaD takes D from 1 to 64; got pca0"),
        ("digits:pca65", "got pca65"),
        ("iris:pca2:pca1", "'iris' has no setting 'pca2'"),
        ("digits:pca1.5", "no setting 'pca1.5'"),
        ("missing.csv", "missing.csv: no such file"),
        ("folder/missing", "no such file"),
    ],
)
def test_unknown_names_say_what_there_is(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(name)


# Tables from files


def test_an_own_npz_may_carry_labels_and_centroids(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "own.npz", X=np.ones((3, 2), np.float32), y=np.array([0, 1, 1], np.uint8), centroids=[[1, 2], [3, 4]]
    )
    data = load(str(tmp_path / "own.npz"))
    _expect(data, 3, 2, 2, True)
    assert data.name == "own"
    (tmp_path / "plain.csv").write_text("a,b\n1,2\n")
    data = load(tmp_path / "plain.csv")
    assert (data.X.tolist(), data.y, data.n_clusters, data.columns) == ([[1, 2]], None, None, ("a", "b"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(4, int)}, r"`y` must hold one integer per row, \(3,\), got int64 of shape \(4,\)"),
        ({"y": np.zeros(3)}, "`y` must hold one integer per row.*got float64"),
        ({"centroids": np.zeros((2, 5))}, "`centroids` have 5 columns, X has 2"),
        ({"centroids": np.full((2, 2), np.nan)}, "`centroids`: 4 cells are missing"),
    ],
)
def test_truth_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "own.npz", X=np.ones((3, 2)), **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        load(tmp_path / "own.npz")


# Fetching


def test_an_npz_that_lacks_an_array_is_refused(folder: Path) -> None:
    (folder / "s1").mkdir()
    np.savez(folder / "s1" / "s1.npz", X=np.ones((3, 2)))
    with pytest.raises(UserError, match="lacks the arrays 'y', 'centroids'"):
        load("s1")


def test_generated_sets_can_be_written_and_read_as_files(folder: Path) -> None:
    for name in ("iris", "grid16"):
        path = get(name, folder)
        assert path == folder / name / f"{name}.npz"
        stored, data = load(path), load(name)
        np.testing.assert_array_equal(data.X, stored.X)
        np.testing.assert_array_equal(data.y, stored.y)
        assert (stored.columns, stored.n_clusters) == (data.columns, data.n_clusters)


def test_a_folder_that_cannot_be_written_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot be written.*choose another folder"):
        get("iris", tmp_path / "file")
