"""The measurement of a job on a file larger than the memory (`python -m benchmarks.large_file`)."""

import json

import numpy as np
import pytest

from benchmarks import large_file
from benchmarks.speed.page import PAGE, between


def test_the_page_shows_the_job_that_was_measured():
    """If this fails, run `python -m benchmarks.large_file --record`."""
    record = json.loads(large_file.RECORD.read_text(encoding="utf-8"))
    assert between(text := PAGE.read_text(encoding="utf-8"), "large-file", large_file.table(record)) == text
    assert record["rows"] * 512 > 4 * record["limit"]


@pytest.mark.slow
def test_the_job_labels_all_rows(tmp_path):
    file = tmp_path / "rows.npy"
    large_file.write_file(file, 1500)
    assert np.load(file, mmap_mode="r").shape == (1500, large_file.COLUMNS)
    labels, taken = large_file.watched(lambda: large_file._job(file, 1 << 20))
    assert labels.shape == (1500,)
    assert taken["peak_mb"] > 0
