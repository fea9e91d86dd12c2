"""Which library a process computes in, by samples of its instruction pointer: of x86-64 Linux only.

The system interrupts the main thread after each so many microseconds of CPU time of the process, and a handler of machine code
notes where it was. Profilers of Python see no operators of NumPy and no kernels; this sees all code, and slows none of it.
"""

import ctypes
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import carray, cfunc, types
from numba.extending import intrinsic

#: Most samples; their number is kept before them. Microseconds between two.
_SIZE, _INTERVAL = 1 << 20, 1000

#: Which of the 64-bit words of the context that a handler gets is the instruction pointer.
_POINTER = 21

_INFO_AND_RESTART = 4 | 0x10000000

#: The first pattern that a mapped file's path has; code that numba made is in no file.
PARTS = {
    "kernels": r"^$|libm[-.]|libsvml",
    "NumPy, BLAS": r"openblas|numpy",
    "SciPy, scikit-learn": r"scipy|scikit_learn|sklearn|libgomp",
    "Python": r"/(lib)?python[\d.]*$|libpython",
    "other": r"",
}


class _Action(ctypes.Structure):
    """The C structure `sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@intrinsic
def _memory_at(context: Any, address: Any) -> Any:
    """Return the pointer of an address."""
    return types.voidptr(address), lambda _, builder, signature, values: builder.inttoptr(
        values[0], numba.core.cgutils.voidptr_t
    )


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Give how many samples were in each of `PARTS`, once what is within is over; only the main thread may compute."""
    found: Counter[str] = Counter()
    samples = np.zeros(_SIZE, np.int64)
    address = samples.ctypes.data

    @cfunc(types.void(types.int32, types.voidptr, types.voidptr))  # type: ignore[untyped-decorator]
    def note(number: int, info: Any, context: Any) -> None:
        kept = carray(_memory_at(address), _SIZE, np.int64)
        if kept[0] < _SIZE - 1:
            kept[0] += 1
            kept[kept[0]] = carray(context, _POINTER + 1, np.int64)[_POINTER]

    before, action = _Action(), _Action(note.address, (ctypes.c_ulong * 16)(), _INFO_AND_RESTART, None)
    system = ctypes.CDLL(None)
    assert system.sigaction(signal.SIGPROF, ctypes.byref(action), ctypes.byref(before)) == 0
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL / 1e6, _INTERVAL / 1e6)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        system.sigaction(signal.SIGPROF, ctypes.byref(before), None)
        found.update(_part(path) for path in _files(samples[1 : samples[0] + 1]))


def _files(pointers: Any) -> list[str]:
    """Return the path of the mapped file that each pointer is in, empty for memory of no file."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    starts = np.array([int(line[0].split("-")[0], 16) for line in lines], np.uint64)
    paths = [line[5] if len(line) == 6 else "" for line in lines]
    return [paths[i] for i in (np.searchsorted(starts, pointers.astype(np.uint64), "right") - 1).tolist()]


def _part(path: str) -> str:
    return next(part for part, pattern in PARTS.items() if re.search(pattern, path))
