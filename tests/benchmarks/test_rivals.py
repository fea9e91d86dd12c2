"""The comparison with Flower's simulation: the same work in all contenders, and the table of the page is the record's."""

import json

import numpy as np
import pytest

from benchmarks.devices import mixture
from benchmarks.devices.rivals import own, page
from benchmarks.devices.rivals.work import WORK
from benchmarks.speed.page import PAGE


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_the_engines_and_the_plain_loop_that_flower_shares_find_the_same(tmp_path, work):
    rows = tmp_path / "rows.npy"
    np.save(rows, mixture.plane(40).part_of(np.arange(40)).values)
    found = {name: run(rows, 40, work) for name, run in own.CONTENDERS.items()}
    np.testing.assert_array_equal(found["devices"], found["in-process"])
    np.testing.assert_allclose(found["loop"], found["devices"], rtol=0, atol=1e-12)


def test_the_page_shows_the_figures_that_were_measured():
    """If this fails, run `python -m benchmarks.devices.rivals --flower PYTHON --record`."""
    text = PAGE.read_text(encoding="utf-8")
    assert page.with_table(text, json.loads(page.RECORD.read_text(encoding="utf-8"))) == text
