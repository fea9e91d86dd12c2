"""The two best scores of a tile, against NumPy; whole numbers, so that no sum is rounded."""

import numpy as np
import pytest
from llvmlite import ir
from numba import njit

from flareclust.core import two_best as module
from flareclust.core.two_best import GROUP, TILE, two_best

#: Numbers in a vector and vectors at work at a time, with AVX-512, with AVX, and without either.
WIDTHS = [(16, 4), (8, 2), (4, 4)]


@pytest.fixture(scope="module", params=WIDTHS, ids=["AVX-512", "AVX", "other"])
def call(request):
    """The function as it is built for each kind of processor; each of these can compute what the others do."""
    lanes, vectors = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LANES", lanes)
        patch.setattr(module, "_VECTORS", vectors)
        patch.setattr(module, "_FLOATS", ir.VectorType(ir.FloatType(), lanes))
        patch.setattr(module, "_INTS", ir.VectorType(ir.IntType(32), lanes))

        @njit
        def compiled(tile, groups, half, best, second, nearest):
            two_best(tile, groups, half, best, second, nearest)

        found(
            compiled, np.zeros((1, TILE), np.float32), np.zeros((1, 1, GROUP), np.float32), np.zeros(GROUP, np.float32)
        )
        assert f"<{lanes} x float>" in next(iter(compiled.inspect_llvm().values()))
        yield compiled


def found(call, tile, groups, half):
    results = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    call(tile, groups, half, *results)
    return results


@pytest.mark.parametrize("d", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("n_groups", [1, 2, 5])
def test_the_two_best_scores_and_whose_the_best_is(call, d, n_groups):
    rng = np.random.default_rng(d)
    tile = rng.integers(-9, 10, (d, TILE)).astype(np.float32)
    groups = rng.integers(-9, 10, (n_groups, d, GROUP)).astype(np.float32)
    half = rng.integers(0, 100, n_groups * GROUP).astype(np.float32)
    scores = groups.transpose(0, 2, 1).reshape(len(half), d) @ tile - half[:, None]

    best, second, nearest = found(call, tile, groups, half)

    assert len(set(scores.argmax(axis=0))) > 1
    np.testing.assert_array_equal(best, np.sort(scores, axis=0)[-1])
    np.testing.assert_array_equal(second, np.sort(scores, axis=0)[-2])  # as high as the best where two are
    np.testing.assert_array_equal(nearest, scores.argmax(axis=0))


def test_one_centroid_beside_places_without_one(call):
    groups, half = np.zeros((1, 1, GROUP), np.float32), np.full(GROUP, 3e38, np.float32)
    half[0] = 2.0
    best, second, nearest = found(call, np.ones((1, TILE), np.float32), groups, half)
    assert set(best) == {-2.0}
    assert set(second) == {-np.float32(3e38)}
    assert set(nearest) == {0}
