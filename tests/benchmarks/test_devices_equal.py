"""The comparison of the engine devices with the in-process engine covers cohorts, and fails where results differ; the table."""

import json
from dataclasses import replace

import pytest

from benchmarks.devices import __main__ as devices
from benchmarks.devices import equal, page
from benchmarks.speed.page import PAGE, between


@pytest.mark.slow  # `make nightly` runs the command as well
def test_all_cases_are_equal(capsys):
    assert equal.main(["--devices", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(equal.CASES)
    assert any(case.cohort for case in equal.CASES.values())


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("centroids", lambda outcome: replace(outcome, arrays={**outcome.arrays, "centroids": outcome.centroids + 1})),
        ("metrics", lambda outcome: replace(outcome, metrics={})),
        ("sites", lambda outcome: replace(outcome, rounds=[])),
    ],
)
def test_a_difference_is_named_and_is_the_exit_code(capsys, monkeypatch, field, change):
    run = equal.run_inprocess
    monkeypatch.setattr(equal, "CASES", {"pooled": equal.CASES["pooled"]})
    monkeypatch.setattr(equal, "run_inprocess", lambda *args, **more: change(run(*args, **more)))
    assert equal.main(["--devices", "40"]) == 1
    assert f"{field} DIFFER" in capsys.readouterr().out


def test_the_page_shows_the_devices_that_were_measured():
    """If this fails, run `python -m benchmarks.devices --record`; lines that are not measured stay."""
    text, record = PAGE.read_text(encoding="utf-8"), json.loads(devices.RECORD.read_text(encoding="utf-8"))
    assert between(text, "devices", page.table(record)) == text
    line = {**record[0], "cpu": 99.0}
    assert devices.together(record, [line]) == [line, *record[1:]]


def test_the_case_with_a_cohort_asks_a_tenth_of_the_devices(monkeypatch):
    asked = []
    run = equal.run_devices

    def watched(*args, **more):
        asked.append(run(*args, **more))
        return asked[-1]

    monkeypatch.setattr(equal, "run_devices", watched)
    assert equal.differing(equal.CASES["fkm"], 50) == []
    assert {record["sites"] for record in asked[0].rounds} == {5}
