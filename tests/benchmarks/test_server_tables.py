"""The tables on the server's speed in docs/performance.md are those of the record that the script has written."""

import json

from benchmarks.speed import page, server


def test_the_page_shows_the_figures_that_were_measured():
    """If this fails, run `python -m benchmarks.speed.server --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert server.with_tables(text, json.loads(server.RECORD.read_text(encoding="utf-8"))) == text
