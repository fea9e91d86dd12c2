"""The measurement of a summary's k-means (`python -m benchmarks.summary`), on few rows."""

import json

import numpy as np

from benchmarks import summary
from benchmarks.speed.page import PAGE, between
from flareclust.core.chunks import is_mapped


def test_each_way_has_a_line_and_the_summary_is_within_a_twentieth(tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.core.local.PIECE", 1 << 18)  # several pieces
    monkeypatch.setattr(summary, "SAMPLE", 2000)
    summary.write_rows(tmp_path / "rows.npy", 16_000, "sorted, far")
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert is_mapped(X)
    lines = {line["way"]: line for line in summary.measured(X, "sorted, far")}
    assert list(lines) == list(summary.WAYS)
    line = lines["summary, n_init=10"]
    assert line["passes"] == 2
    assert line["largest"] < 1.05
    assert summary.row({**line, "cpu": 1.25, "inertia": 1.0, "largest": 1.5}) == (
        "| sorted, far | summary, n_init=10 | 2 | 1.2 s | 1.000 | 1.500 |"
    )


def test_the_page_shows_the_summary_that_was_measured():
    """If this fails, run `python -m benchmarks.summary --record`."""
    text = PAGE.read_text(encoding="utf-8")
    assert between(text, "summary", summary.table(json.loads(summary.RECORD.read_text(encoding="utf-8")))) == text
