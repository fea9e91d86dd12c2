"""Every known attack, in this process and with few questions: nothing at a site with a policy, rows at one without."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.attacks import __main__ as command
from benchmarks.attacks import fillers, report, server
from benchmarks.attacks.case import IN_PROCESS, Case, Found, recovered
from benchmarks.attacks.differencing import number_recovered
from benchmarks.attacks.server import group_sums
from benchmarks.attacks.unmixing import sums_of_groups
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core import microaggregation
from flareclust.core.microaggregation import groups_of, microaggregate, released

QUICK = [case for case in command.CASES if case.form == IN_PROCESS]

#: Attacks that have no counterpart without a policy: what they used is gone, and the page says what it gave.
CLOSED = {"sums-beyond", "ledger", "sparse", "fillers", "fillers-job", "own-mixtures"}

#: Attacks that take more than a few seconds.
LONG = {"borders", "every-step", "every-step-newer", "sums"}


def _case(case: Case) -> object:
    """Return an attack as a case; `make test` has the short ones."""
    return pytest.param(case, marks=[pytest.mark.slow] if case.name in LONG else [], id=case.name)


@pytest.mark.parametrize("case", [_case(case) for case in QUICK])
def test_an_attack_gets_nothing_and_would_without_a_policy(case: Case) -> None:
    records = case.records(quick=True)
    if case.remains:
        assert any(record["recovered"] for record in records), "say so in docs/attacks.md if it is stopped"
        return
    assert [(record["recovered"], record["changed"], record["ran"]) for record in records] == [(0, 0, 0)] * len(records)
    controls = [record["control"] for record in records]
    if case.name in CLOSED:
        assert set(controls) == {None}
        assert case.before != "not measured"
    else:
        assert max(controls) > 0, "an attack that never gets anything shows nothing"


def test_claims_are_counted_as_by_the_other_attacks() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 1e6, 0.0]
    claims = [*rows[:20], *(rows[20:30] + np.array([1e-4, 0.0, 0.0])), *(rows[30:40] * (1 + 1e-9)), np.full(3, np.nan)]
    assert recovered(claims, rows) == number_recovered(claims[:-1], rows) == 30
    assert recovered([], rows) == 0


def test_the_command_fails_where_an_attack_gets_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Case("a", "asks", "server", IN_PROCESS, "-", "-", lambda quick: [Found("iris", 0, 150, "1 exchange", 3)])
    one = replace(nothing, name="b", run=lambda quick: [Found("iris", 1, 150, "1 exchange", 3)])
    file = tmp_path / "found.json"
    for cases, code in (([nothing], 0), ([nothing, one], 1), ([nothing, replace(one, remains=True)], 0)):
        monkeypatch.setattr(command, "CASES", cases)
        assert command.main(["--quick", "--json", str(file)]) == code
        assert [record["name"] for record in report.read(file)] == [case.name for case in cases]
    for what in ({"changed": 1}, {"ran": 2}):
        changed = replace(nothing, run=lambda quick, what=what: [Found("iris", 0, 150, "1 job", **what)])
        monkeypatch.setattr(command, "CASES", [changed])
        assert command.main(["--quick"]) == 1
    assert "NOT STOPPED" in capsys.readouterr().out


def test_some_attacks_can_be_run_again_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = Case("a", "asks", "server", IN_PROCESS, "-", "-", lambda quick: [Found("iris", 0, 150, "1 exchange")])
    second = replace(first, name="b")
    file = tmp_path / "found.json"
    monkeypatch.setattr(command, "CASES", [first, second])
    command.main(["--quick", "--json", str(file)])
    monkeypatch.setattr(command, "CASES", [replace(first, before="all"), second])
    command.main(["--quick", "--only", "a", "--json", str(file)])
    assert [(record["name"], record["before"]) for record in report.read(file)] == [("a", "all"), ("b", "-")]
    assert command.main(["--only", "c"]) == 2


def test_groups_are_found_out_of_the_rows_that_jobs_see() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 4))
    [seen] = microaggregate(rows, 10)
    sums, found = sums_of_groups(np.random.default_rng(1).permutation(seen), 10)
    assert found == len(seen)
    np.testing.assert_allclose(sums, group_sums(rows, 10)[0], rtol=1e-6, atol=1e-9)


def test_values_among_zeros_are_recovered_without_the_rule_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    [sparse] = [case for case in command.CASES if case.name == "sparse"]
    monkeypatch.setattr(server, "grouped", lambda X, floor: (X, groups_of(X, floor)))
    assert [found.recovered > 0 for found in sparse.run(True)] == [True, True]


def test_hidden_cells_are_recovered_from_a_mean_of_all_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def filled_with_means_of_all(X: FloatArray, floor: int) -> tuple[FloatArray, IntArray]:
        rows = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        return released(rows, groups_of(rows, floor))

    for module in (microaggregation, server, fillers):
        monkeypatch.setattr(module, "grouped", filled_with_means_of_all)
    for name in ("fillers", "fillers-job"):
        [case] = [case for case in command.CASES if case.name == name]
        assert all(found.recovered for found in case.run(True))


# ---- the page ----


def test_the_page_is_made_of_the_records() -> None:
    """If this fails, run `python -m benchmarks.attacks --page`."""
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.read())


def test_the_records_are_of_all_attacks_and_all_are_stopped() -> None:
    """If this fails, run `python -m benchmarks.attacks`."""
    records = report.read()
    assert list(dict.fromkeys(record["name"] for record in records)) == [case.name for case in command.CASES]
    assert all(record["stopped"] for record in records if not record["remains"])
    for case in command.CASES:
        own = [record for record in records if record["name"] == case.name]
        said = {(record["attack"], record["opponent"], record["before"], record["stops"]) for record in own}
        assert said == {(case.attack, case.opponent, case.before, case.stops)}
