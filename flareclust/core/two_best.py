"""The two largest scores of each row of a tile, held in vector registers: one function, written in LLVM's own operations.

Why it exists: of a loop over rows LLVM makes vectors of 256 bits, and it writes each partial sum to memory. Here the sums
of 64 rows and five centroids stay in registers, in the widest vectors that the processor has, until they are compared:
twice as fast. Where the processor has narrower vectors LLVM divides these. In NumPy:

    scores = groups.transpose(0, 2, 1).reshape(len(half), -1) @ tile - half[:, None]
    second, best = np.sort(scores, axis=0)[-2:]
    nearest = scores.argmax(axis=0)

Where llvmlite has other operations than these, plain loops take their place, with a warning.
"""

import math
import warnings
from typing import Any

import numpy as np
from numba import njit, types

from flareclust._foundation.typing import Array
from flareclust.core.screen import GROUP, TILE

#: Contraction to fused multiply-adds; sums are not reordered.
_FAST = ("contract", "nsz", "nnan")


@njit(nogil=True, fastmath={*_FAST})  # type: ignore[untyped-decorator]
def _plain(tile: Array, groups: Array, half: Array, best: Array, second: Array, nearest: Array) -> None:
    """Do the same in loops."""
    scores = np.empty(TILE, np.float32)
    best[:], second[:], nearest[:] = -np.float32(np.inf), -np.float32(np.inf), 0
    for number in range(half.shape[0]):
        scores[:] = -half[number]
        for j in range(groups.shape[1]):
            coordinate = groups[number // GROUP, j, number % GROUP]
            for i in range(TILE):
                scores[i] += coordinate * tile[j, i]
        for i in range(TILE):
            lower = min(scores[i], best[i])
            second[i] = max(lower, second[i])
            if scores[i] > best[i]:
                best[i], nearest[i] = scores[i], number


def _warn(error: Exception) -> None:
    warnings.warn(
        f"k-means takes longer than it could: this llvmlite does not build its fastest kernel ({error}); that of numba 0.68 does",
        RuntimeWarning,
        stacklevel=1,
    )


try:
    from llvmlite import binding, ir
    from numba.core import cgutils
    from numba.extending import intrinsic

    #: Numbers in a vector, and how many vectors of rows are at work at a time: with `GROUP` the sums fill 20 of 32 registers,
    #: or 10 of the 16 that x86 has without AVX-512.
    _FEATURES = binding.get_host_cpu_features()
    _LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx") else 4
    _VECTORS = 2 if _LANES == 8 else 4

    _FLOAT, _INT, _SIZE = ir.FloatType(), ir.IntType(32), ir.IntType(64)
    _FLOATS, _INTS = ir.VectorType(_FLOAT, _LANES), ir.VectorType(_INT, _LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def two_best(typing: Any, tile: Any, groups: Any, half: Any, best: Any, second: Any, nearest: Any) -> Any:
        """Set best, second and nearest (64,) of a tile (d, 64); see the module for what they are, of equals the first.

        `groups` (g, d, 5) are centroids in groups, feature by feature, `half` (5 g,) what is taken from their scores.
        """
        return types.void(tile, groups, half, best, second, nearest), _build_or_compile

except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
    _warn(error)
    two_best = _plain


def _build_or_compile(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Build the vectors' operations, tried in a module of their own first; where they cannot be built, compile the loops."""
    trial = ir.Module()
    try:
        function = ir.Function(trial, ir.FunctionType(ir.VoidType(), [one.type for one in args]), "trial")
        start = ir.IRBuilder(function.append_basic_block())
        _build(context, start, signature, function.args)
        start.ret_void()
        binding.parse_assembly(str(trial)).verify()
    except Exception as error:  # noqa: BLE001 - whatever another llvmlite raises
        _warn(error)
        return context.compile_internal(builder, lambda t, g, h, b, s, n: _plain(t, g, h, b, s, n), signature, args)
    return _build(context, builder, signature, args)


def _build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    arrays = [context.make_array(kind)(context, builder, arg) for kind, arg in zip(signature.args, args, strict=True)]
    tile, groups, half, *results = (array.data for array in arrays)
    d, n_groups = (cgutils.unpack_tuple(builder, array.shape)[0] for array in arrays[:2])
    lowest, none = ir.Constant(_FLOATS, [-math.inf] * _LANES), ir.Constant(_INTS, [0] * _LANES)
    kinds = (_FLOATS, _FLOATS, _INTS)
    found = [[cgutils.alloca_once(builder, kind) for kind in kinds] for _ in range(_VECTORS)]  # best, second, nearest
    with cgutils.for_range(builder, _size(TILE // (_LANES * _VECTORS))) as part:
        first = builder.mul(part.index, _size(_LANES * _VECTORS))
        for places in found:
            for place, value in zip(places, (lowest, lowest, none), strict=True):
                builder.store(value, place)
        with cgutils.for_range(builder, n_groups) as group:
            scores = _scores_of(builder, builder.gep(tile, [first]), groups, half, d, group.index)
            for c in range(GROUP):
                number = builder.trunc(builder.add(builder.mul(group.index, _size(GROUP)), _size(c)), _INT)
                for score, places in zip(scores[c], found, strict=True):
                    _insert(builder, builder.load(score), _spread(builder, number), *places)
        for v, places in enumerate(found):
            at = builder.add(first, _size(v * _LANES))
            for result, place, kind in zip(results, places, kinds, strict=True):
                builder.store(builder.load(place), _vector_at(builder, result, at, kind), align=4)
    return context.get_dummy_value()


def _scores_of(builder: Any, rows: Any, groups: Any, half: Any, d: Any, group: Any) -> list[list[Any]]:
    """Return where the scores of a group's centroids are, a list of vectors for each."""
    sums = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(_VECTORS)] for _ in range(GROUP)]
    first = builder.mul(group, _size(GROUP))
    for c, places in enumerate(sums):
        less = builder.load(builder.gep(half, [builder.add(first, _size(c))]))
        for place in places:
            builder.store(_spread(builder, builder.fneg(less)), place)
    with cgutils.for_range(builder, d) as feature:
        at = builder.mul(feature.index, _size(TILE))
        y = [
            builder.load(_vector_at(builder, rows, builder.add(at, _size(v * _LANES)), _FLOATS), align=4)
            for v in range(_VECTORS)
        ]
        line = builder.mul(builder.add(builder.mul(group, d), feature.index), _size(GROUP))
        for c, places in enumerate(sums):
            g = _spread(builder, builder.load(builder.gep(groups, [builder.add(line, _size(c))])))
            for place, values in zip(places, y, strict=True):
                product = builder.fmul(g, values, flags=_FAST)
                builder.store(builder.fadd(builder.load(place), product, flags=_FAST), place)
    return sums


def _insert(builder: Any, score: Any, number: Any, best: Any, second: Any, nearest: Any) -> None:
    """Bring the scores of one more centroid among the two best; selections, no branches."""
    highest, next_best = builder.load(best), builder.load(second)
    above = builder.fcmp_ordered(">", score, highest)
    lower = builder.select(builder.fcmp_ordered("<", score, highest), score, highest)
    builder.store(builder.select(builder.fcmp_ordered(">", lower, next_best), lower, next_best), second)
    builder.store(builder.select(above, score, highest), best)
    builder.store(builder.select(above, number, builder.load(nearest)), nearest)


def _size(value: int) -> Any:
    return ir.Constant(_SIZE, value)


def _vector_at(builder: Any, pointer: Any, offset: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())


def _spread(builder: Any, value: Any) -> Any:
    """Return a vector with the value in every lane."""
    kind = ir.VectorType(value.type, _LANES)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(_INTS, [0] * _LANES))
