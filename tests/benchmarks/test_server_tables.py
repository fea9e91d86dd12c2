"""The tables in docs/performance.md are those of the records that the scripts have written."""

import json

from benchmarks import start_up
from benchmarks.speed import __main__ as speed
from benchmarks.speed import cases, federations, page, server


def test_the_page_shows_the_figures_of_sites_that_were_measured():
    """If this fails, run `python -m benchmarks.speed --record --only lloyd --shapes 5000,2,15`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(text, json.loads(speed.RECORD.read_text(encoding="utf-8"))) == text


def test_lines_that_were_not_measured_stay():
    """A measured line replaces that of its case and contender, and no other."""
    record = json.loads(speed.RECORD.read_text(encoding="utf-8"))
    line = {**record["lloyd"][1], "seconds": 1.0}
    merged = speed.together({group: [line] if group == "lloyd" else [] for group in cases.GROUPS})
    expected = [line if at == 1 else other for at, other in enumerate(record["lloyd"])]
    assert merged == {group: expected if group == "lloyd" else record[group] for group in cases.GROUPS}


def test_the_page_shows_the_figures_that_were_measured():
    """If this fails, run `python -m benchmarks.speed.server --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert server.with_tables(text, json.loads(server.RECORD.read_text(encoding="utf-8"))) == text


def test_the_page_shows_the_federations_that_were_measured():
    """If this fails, run `python -m benchmarks.speed.federations --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert federations.with_table(text, json.loads(federations.RECORD.read_text(encoding="utf-8"))) == text


def test_the_page_shows_the_start_that_was_measured():
    """If this fails, run `python -m benchmarks.start_up --record`."""
    text = page.PAGE.read_text(encoding="utf-8")
    record = json.loads(start_up.RECORD.read_text(encoding="utf-8"))
    assert page.between(text, "start-up", start_up.table(record)) == text


def test_a_goal_says_whether_it_is_met():
    assert page.against_goal(2.0, 2) == "≥ 2 met"
    assert page.against_goal(1.99, 2) == "≥ 2 **missed**"
    assert page.against_goal(5.0, None) == ""


def test_the_share_of_gemm_counts_all_iterations_and_the_last_labels():
    case = cases.Case(1000, 64, 10, gemm_goal=0.5)
    line = {"contender": "flareclust", "iterations": 4, "seconds": 0.0001, "gemm": 100.0}
    assert page.gemm_share(case, line) == "64 % (≥ 50% met)"  # 2 * 1000 * 64 * 10 * 5 in 0.1 ms: 64 GF/s
    assert page.gemm_share(case, {**line, "contender": "faiss (float32)"}) == "64 %"
    assert page.gemm_share(case._replace(d=2), line) == ""


def test_a_start_says_whether_its_goals_are_met_and_that_the_machine_was_busy():
    record = {"job": 9.5, "further": 0.3, "load": 0.5}
    assert start_up.verdict(record) == (
        "Its job took 9.5 s (goal: at most 9 s, **missed**), a further round 0.3 s (goal: at most 0.4 s, met)."
    )
    busy = start_up.verdict({**record, "load": 5.0})
    assert busy == f"{start_up.verdict(record)} The goals are for an idle machine, which this one was not."
