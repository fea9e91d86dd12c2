"""The comparison of the engine devices with the in-process engine covers cohorts, and fails where results differ."""

from dataclasses import replace

import pytest

from benchmarks.devices import equal


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


def test_the_case_with_a_cohort_asks_a_tenth_of_the_devices(monkeypatch):
    asked = []
    run = equal.run_devices

    def watched(*args, **more):
        asked.append(run(*args, **more))
        return asked[-1]

    monkeypatch.setattr(equal, "run_devices", watched)
    assert equal.differing(equal.CASES["fkm"], 50) == []
    assert {record["sites"] for record in asked[0].rounds} == {5}
