"""The measurement of reading mapped rows (`python -m benchmarks.streams`), on few rows."""

import json
import os

import pytest

from benchmarks import streams
from benchmarks.speed.page import PAGE, between


def test_the_page_shows_what_was_measured():
    """If this fails, run `python -m benchmarks.streams --record`."""
    record = json.loads(streams.RECORD.read_text(encoding="utf-8"))
    assert between(text := PAGE.read_text(encoding="utf-8"), "streams", streams.table(record)) == text


def test_all_ways_read_parts_of_a_file_of_its_own(tmp_path):
    streams.write_file(file := tmp_path / "rows.npy", 1500)
    lines = streams.measured(file, part=256_000, turns=2)
    assert [line["pass"] for line in lines] == ["raw", "column sums", "nearest of 8"]
    assert lines[0]["of_raw"] == 1
    assert all(line["rate"] > 0 for line in lines)
    with pytest.raises(SystemExit, match="1,500 rows are less"):
        streams.measured(file)


def test_read_ahead_is_set_and_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "DISKS", tmp_path)
    assert streams.read_ahead_of(tmp_path) is None
    with streams.reading_ahead(None, None) as kib:
        assert kib is None
    with pytest.raises(SystemExit, match="leave out --read-ahead"), streams.reading_ahead(None, 128):
        pass
    device = tmp_path.stat().st_dev
    setting = tmp_path / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb"
    setting.parent.mkdir()
    setting.write_text("8192\n")
    assert streams.read_ahead_of(tmp_path) == setting
    with streams.reading_ahead(setting, None) as kib:
        assert (kib, setting.read_text()) == (8192, "8192\n")
    with streams.reading_ahead(setting, 128) as kib:
        assert (kib, setting.read_text()) == (128, "128")
    assert setting.read_text() == "8192"
