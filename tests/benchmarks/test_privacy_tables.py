"""The tables of docs/differential-privacy.md are those of the records that the scripts have written."""

import json

import pytest

from benchmarks import privacy_cost, privacy_many_columns
from benchmarks.privacy import compare

RECORDS = compare.ROOT / "benchmarks" / "records"


@pytest.mark.parametrize(
    ("script", "name", "key"),
    [
        (privacy_cost, "privacy_cost", "figures"),
        (privacy_many_columns, "privacy_many_columns", None),
        (compare, "privacy_compare", None),
    ],
)
def test_the_page_shows_the_figures_that_were_measured(script, name, key):
    """If this fails, run the script."""
    page = compare.PAGE.read_text(encoding="utf-8")
    record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    assert script.with_table(page, record[key] if key else record) == page
