"""The measurement of a summary's k-means (`python -m benchmarks.summary`), on few rows."""

import numpy as np

from benchmarks import summary
from flareclust.core.chunks import is_mapped


def test_each_way_has_a_line_and_the_summary_is_within_a_twentieth(tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.core.summary.PIECE", 1 << 18)  # several pieces
    monkeypatch.setattr(summary, "SAMPLE", 2000)
    summary.write_rows(tmp_path / "rows.npy", 16_000, "sorted, far")
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert is_mapped(X)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in summary.measured(X, "sorted, far")]
    assert [line[1] for line in lines] == list(summary.WAYS)
    passes, worst = {name: (int(passes), float(worst)) for _, name, passes, _, _, worst in lines}["summary, n_init=10"]
    assert passes == 2
    assert worst < 1.05
