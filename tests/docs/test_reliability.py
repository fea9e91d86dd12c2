"""The page on faults is what its generator makes of the records of the fault tests."""

import importlib
import json

import pytest

from tests.paths import ROOT

DOCS, RECORDS = (ROOT / name for name in ("docs", "benchmarks/records"))


@pytest.fixture
def generator():
    return importlib.import_module("benchmarks.pages.reliability")


@pytest.fixture
def records():
    return json.loads((RECORDS / "reliability.json").read_text())


@pytest.fixture
def lying():
    return json.loads((RECORDS / "lying_sites.json").read_text())


@pytest.fixture
def chaos():
    return json.loads((RECORDS / "chaos.json").read_text())


def test_the_page_is_what_the_records_say(generator, records, lying, chaos):
    assert (DOCS / "reliability.md").read_text() == generator.page(records, lying, chaos)


def test_schedules_that_broke_a_promise_are_listed_with_what_is_known_of_them(chaos):
    pages = importlib.import_module("benchmarks.pages.reliability_random")
    assert chaos["broken"] == list(pages.OPEN), "each is mended, or open under its number"
    assert set(pages.OPEN) <= {seed for seed, *_ in pages.FOUND}
    assert chaos["schedules"] > 0
    assert min(chaos["faults"].values()) > 0, "each fault was tried"


def test_every_record_is_shown_with_its_seconds(generator, records, lying, chaos):
    text = generator.page(records, lying, chaos)
    for record in records:
        assert record["seconds"] > 0
        assert record["message"]
        assert f"**{record['fault']}**" in text
        assert f"| {record['seconds']} |" in text


def test_a_fault_without_a_record_is_refused(generator, records, lying, chaos):
    with pytest.raises(ValueError, match="site raises"):
        generator.page([record for record in records if record["fault"] != "site raises"], lying, chaos)
    with pytest.raises(ValueError, match="flood"):
        generator.page([*records, {**records[0], "fault": "flood"}], lying, chaos)


def test_what_was_measured_with_two_liars_is_within_twice_the_clean_distance(lying):
    iid = [cell for cell in lying["cells"] if cell["partition"] == "iid"]
    clean = {(c["data"], c["algorithm"]): c["none"]["l2"] for c in iid if not c["lying sites"]}
    two = [cell for cell in iid if cell["lying sites"] == 2 and cell["lie"] != "single"]
    assert len(clean) == 10
    assert {cell["lie"] for cell in two} == {"random", "shifted", "colluding"}
    for cell in two:
        for option in ("trimmed", "median"):
            assert cell[option]["l2"] <= 2 * clean[cell["data"], cell["algorithm"]], (cell, option)
