"""The tables in docs/performance.md are those of the records that the scripts have written."""

import json

from benchmarks.speed import __main__ as speed
from benchmarks.speed import federations, page, server


def test_the_page_shows_the_figures_of_sites_that_were_measured():
    """If this fails, run `python -m benchmarks.speed --record --only lloyd --shapes 5000,2,15`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(text, json.loads(speed.RECORD.read_text(encoding="utf-8"))) == text


def test_lines_that_were_not_measured_stay():
    """A measured line replaces that of its case and contender, and no other."""
    record = json.loads(speed.RECORD.read_text(encoding="utf-8"))
    line = {**record["lloyd"][1], "seconds": 1.0}
    merged = speed.together({group: [line] if group == "lloyd" else [] for group in speed.GROUPS})
    expected = [line if at == 1 else other for at, other in enumerate(record["lloyd"])]
    assert merged == {group: expected if group == "lloyd" else record[group] for group in speed.GROUPS}


def test_the_page_shows_the_figures_that_were_measured():
    """If this fails, run `python -m benchmarks.speed.server --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert server.with_tables(text, json.loads(server.RECORD.read_text(encoding="utf-8"))) == text


def test_the_page_shows_the_federations_that_were_measured():
    """If this fails, run `python -m benchmarks.speed.federations --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert federations.with_table(text, json.loads(federations.RECORD.read_text(encoding="utf-8"))) == text
