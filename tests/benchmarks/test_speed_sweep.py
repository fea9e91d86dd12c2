"""The measurement of how much of a sweep kernels take (`python -m benchmarks.speed.sweep`)."""

import json
import platform
import sys
import time
from collections import Counter

import numpy as np
import pytest

from benchmarks.speed import samples, sweep
from benchmarks.speed.page import PAGE, between


def test_the_page_shows_the_sweep_that_was_measured():
    """If this fails, run `python -m benchmarks.speed.sweep --record`."""
    text = PAGE.read_text(encoding="utf-8")
    assert between(text, "sweep", sweep.table(json.loads(sweep.RECORD.read_text(encoding="utf-8")))) == text


def test_what_is_in_no_kernel_and_no_library_is_outside():
    found = Counter({"kernels": 3, "NumPy, BLAS": 2, "SciPy, scikit-learn": 1, "Python": 3, "other": 1})
    assert sweep.outside(found) == pytest.approx(0.4)
    lines = [{"algorithm": name, "trials": 2, "cpu": 0.01, "samples": dict(found)} for name in ("feca", "kfed")]
    assert sweep.rows_of(lines)[1:] == [
        "| kfed | 10 ms | 30% | 20% | 10% | 30% | 10% | 40% |",
        "| all | 10 ms | 30% | 20% | 10% | 30% | 10% | 40% |",
    ]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("", "kernels"),
        ("/usr/lib/libm.so.6", "kernels"),
        ("/site-packages/numpy.libs/libscipy_openblas64_.so", "NumPy, BLAS"),
        ("/site-packages/scipy/linalg/_fblas.so", "SciPy, scikit-learn"),
        ("/usr/bin/python3.11", "Python"),
        ("/usr/lib/libpython3.11.so.1.0", "Python"),
        ("/usr/lib/libc.so.6", "other"),
    ],
)
def test_a_file_is_of_one_part(path, part):
    assert samples._part(path) == part


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="reads registers of x86-64 under Linux"
)
def test_samples_are_where_the_time_goes():
    """Both take the same CPU time, so half of the samples are in each."""
    values = np.ones(1_000_000)

    def work(action):
        until = time.process_time() + 0.3
        while time.process_time() < until:
            action()

    with samples.sampled() as found:
        work(lambda: np.sqrt(values, out=values))
        work(lambda: sum(range(50_000)))
    assert found["NumPy, BLAS"] + found["Python"] > 0.8 * found.total() > 0
    assert 0.25 < found["Python"] / found.total() < 0.75
