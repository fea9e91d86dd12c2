"""The page on faults is what its generator makes of the records of the fault tests."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def generator():
    spec = importlib.util.spec_from_file_location("reliability", DOCS / "reliability.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def records():
    return json.loads((DOCS / "reliability.json").read_text())


def test_the_page_is_what_the_records_say(generator, records):
    assert (DOCS / "reliability.md").read_text() == generator.page(records)


def test_every_record_is_told_with_its_seconds(generator, records):
    text = generator.page(records)
    for record in records:
        assert record["seconds"] > 0
        assert record["told"]
        assert f"**{record['fault']}**" in text
        assert f"| {record['seconds']} |" in text


def test_a_fault_without_a_record_is_refused(generator, records):
    with pytest.raises(ValueError, match="site raises"):
        generator.page([record for record in records if record["fault"] != "site raises"])
    with pytest.raises(ValueError, match="flood"):
        generator.page([*records, {**records[0], "fault": "flood"}])
