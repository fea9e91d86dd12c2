"""The measurement of runs from the last centroids (`python -m benchmarks.restart`), on few rows."""

import json

import numpy as np
import pytest

from benchmarks import restart


def test_the_page_shows_what_was_measured():
    """If this fails, run `python -m benchmarks.restart --record`."""
    record = json.loads(restart.RECORD.read_text(encoding="utf-8"))
    text = restart.PAGE.read_text(encoding="utf-8")
    assert restart.page_with(text, record) == text


@pytest.mark.parametrize(("share", "left"), [(None, 39), (0.1, 36), (0.0, 30)])
def test_what_is_withdrawn(share, left):
    rows = np.arange(80.0).reshape(40, 2)
    sites = {f"site-{i}": part for i, part in enumerate(np.array_split(rows, 4))}
    found = restart.without(sites, share, np.random.default_rng(0))
    assert sum(map(len, found.values())) == left
    assert set(np.concatenate(list(found.values()))[:, 0]) <= set(rows[:, 0])
    assert list(found) == list(sites)[len(sites) - len(found) :]


def test_a_data_set_has_a_line_for_all_that_is_withdrawn(monkeypatch):
    monkeypatch.setitem(restart.DATA, "iris", {"k": 3})
    lines = restart.measured("iris", 1)
    assert [line["what"] for line in lines] == list(restart.WITHDRAWN)
    assert all(line["again"] >= 1 and line["fewer"] > 0 for line in lines)
