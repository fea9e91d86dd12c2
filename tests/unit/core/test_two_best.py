"""The two best scores of a tile, against NumPy; whole numbers, so that no sum is rounded."""

import subprocess
import sys

import numpy as np
import pytest
from llvmlite import ir
from numba import njit

from flareclust.core import screen
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


def as_built(*arguments):
    """Compile what calls `two_best`, and call it."""

    @njit
    def compiled(tile, groups, half, best, second, nearest):
        two_best(tile, groups, half, best, second, nearest)

    return found(compiled, *arguments)


def drawn(d, n_groups):
    rng = np.random.default_rng(d)
    shapes = (d, TILE), (n_groups, d, GROUP), (n_groups * GROUP,)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture
def unbuildable(monkeypatch):
    """An llvmlite that lacks an operation."""

    def lacks(*_):
        raise AttributeError("'FloatType' object has no attribute 'as_pointer'")

    return lambda: monkeypatch.setattr(module, "_vector_at", lacks)


@pytest.mark.parametrize(("d", "n_groups"), [(1, 1), (7, 2), (300, 3)])
def test_where_it_cannot_be_built_loops_give_the_same_bits_with_one_warning(unbuildable, d, n_groups):
    arguments = drawn(d, n_groups)
    built = as_built(*arguments)
    unbuildable()
    with pytest.warns(RuntimeWarning, match="does not build its fastest kernel .'FloatType' object") as warned:
        plain = as_built(*arguments)
    assert len(warned) == 1
    for one, other in zip(built, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_labels_are_those_of_the_loops(unbuildable):
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(500, 6)), rng.normal(size=(12, 6))
    origin = X.mean(axis=0)
    rows = screen.screen_of(X, origin, X.var(axis=0))
    built, plain = np.zeros((2, len(X)), np.int64)
    assert screen.screened_labels(X, origin, rows, centroids, built) > 0
    unbuildable()
    with pytest.warns(RuntimeWarning):
        njit(screen.screened_labels.py_func)(X, origin, rows, centroids, plain)
    np.testing.assert_array_equal(built, plain)
    np.testing.assert_array_equal(built, ((X[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1))


def test_where_not_even_the_names_are_there_the_module_can_be_imported():
    arguments = drawn(7, 2)
    code = f"""
import numba.extending, numpy as np, sys
del numba.extending.intrinsic
from flareclust.core.two_best import two_best
rng = np.random.default_rng(7)
arguments = [rng.normal(size=shape).astype(np.float32) for shape in {[one.shape for one in arguments]}]
results = np.empty(64, np.float32), np.empty(64, np.float32), np.empty(64, np.int32)
two_best(*arguments, *results)
sys.stdout.buffer.write(b"".join(one.tobytes() for one in results))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"".join(one.tobytes() for one in as_built(*arguments))
    assert done.stderr.count(b"does not build its fastest kernel (cannot import name 'intrinsic'") == 1
