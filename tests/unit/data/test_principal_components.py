"""Principal components of a data set."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from flareclust._foundation.errors import UserError
from flareclust.data.datasets import Dataset, load, principal
from tests.unit.data.dataset_cases import _expect, needs_files


@pytest.mark.parametrize(("name", "components"), [("digits", 20), ("digits", 61), ("iris", 4), ("wine", 1)])
def test_pca_gives_the_scores_of_scikit_learns_up_to_signs(name: str, components: int) -> None:
    from sklearn.decomposition import PCA

    whole, data = load(name), load(f"{name}:pca{components}")
    expected = PCA(components, svd_solver="full").fit_transform(whole.X)
    # Three columns of digits are constant, so 61 components are all that there are.
    signs = np.sign((expected * data.X).sum(axis=0))
    np.testing.assert_allclose(data.X, expected * signs, atol=1e-8 * np.abs(expected).max())
    assert data.name == f"{name}:pca{components}"
    assert data.columns is None
    np.testing.assert_array_equal(data.y, whole.y)
    _expect(data, len(whole.X), components, whole.n_clusters, False)


def test_all_components_keep_the_distances_and_the_true_centroids() -> None:
    whole, turned = load("grid16"), load("grid16:pca2")
    np.testing.assert_allclose(cdist(turned.X, turned.centroids), cdist(whole.X, whole.centroids), atol=1e-12)
    np.testing.assert_allclose(turned.X.mean(axis=0), 0, atol=1e-12)


def test_the_components_have_a_sign_of_their_own() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1, 5, 25] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    one, other = principal(Dataset("own", X), 3), principal(Dataset("own", X[::-1].copy()), 3)
    np.testing.assert_allclose(other.X[::-1], one.X, atol=1e-9)
    turn = np.linalg.lstsq(X - X.mean(axis=0), one.X, rcond=None)[0]
    assert (turn[np.abs(turn).argmax(axis=0), range(3)] > 0).all()
    assert one.X.std(axis=0)[0] > one.X.std(axis=0)[1] > one.X.std(axis=0)[2]


def test_a_constant_table_has_components_of_zero() -> None:
    data = principal(Dataset("flat", np.full((5, 3), 7.0)), 2)
    np.testing.assert_array_equal(np.zeros((5, 2)), data.X)


@needs_files
def test_pca_comes_after_a_data_sets_own_setting() -> None:
    first, named = load("garst_grid:pca1"), load("garst_grid:beta0.1_ppc50_noise1:pca1")
    assert named.name == first.name == "garst_grid:beta0.1_ppc50_noise1:pca1"
    np.testing.assert_array_equal(first.X, named.X)
    assert named.X.shape == (800, 1)
    assert named.centroids.shape == (16, 1)
    np.testing.assert_array_equal(named.owners, load("garst_grid").owners)
    with pytest.raises(UserError, match="no setting 'beta9'"):
        load("garst_grid:beta9:pca1")
