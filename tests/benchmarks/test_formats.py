"""The figures of reading file formats: every way of reading takes all rows, and the table of the page is the record's."""

import json

import numpy as np
import pytest

from benchmarks import formats
from benchmarks.speed.page import PAGE
from flareclust._foundation.errors import UserError
from flareclust.data.tables import read_table


def test_all_formats_hold_the_same_table_and_are_read_every_way(tmp_path):
    formats.write_files(tmp_path, 300)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(formats.TITLES)
    for name in formats.TITLES:
        np.testing.assert_array_equal(read_table(tmp_path / name).X, np.load(tmp_path / "rows.npy"))
        for read in formats.WAYS.values():
            read(tmp_path / name)


def test_reading_looks_at_every_cell(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((300, 4)))
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 300 + "3,\n")
    formats.kept(tmp_path / "rows.npy")
    with pytest.raises(UserError, match="missing"):
        formats.read(tmp_path / "rows.csv")


def test_the_page_shows_the_figures_that_were_measured():
    """If this fails, run `python -m benchmarks.formats --record`."""
    text = PAGE.read_text(encoding="utf-8")
    assert formats.with_table(text, json.loads(formats.RECORD.read_text(encoding="utf-8"))) == text
