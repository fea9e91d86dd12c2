"""The tables in docs/performance.md are those of the records that the scripts have written."""

import json

from benchmarks import start_up
from benchmarks.speed import __main__ as speed
from benchmarks.speed import cases, federations, page, runs, server


def test_the_page_shows_the_figures_of_sites_that_were_measured():
    """If this fails, run `python -m benchmarks.speed --record --only lloyd --shapes 5000,2,15`."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(text, json.loads(speed.RECORD.read_text(encoding="utf-8"))) == text


def test_a_shape_is_what_a_person_reads():
    assert page.shape("100000,128,1000") == "100,000 rows, d = 128, k = 1,000"
    assert page.shape("100000,2,15,weighted") == "100,000 rows, d = 2, k = 15, weighted"


def test_lines_that_were_not_measured_stay():
    """A measured line replaces that of its case and contender, and no other; each keeps the run that it is of."""
    record = json.loads(speed.RECORD.read_text(encoding="utf-8"))
    line, limits = {**record["lloyd"][1], "seconds": 1.0}, {"processor": "another"}
    merged = speed.together(record, {"lloyd": [line]}, limits)
    now = runs.new_name(record["runs"])
    expected = [{**line, "run": now} if at == 1 else other for at, other in enumerate(record["lloyd"])]
    tables = {group: expected if group == "lloyd" else record[group] for group in cases.GROUPS}
    assert merged == {"runs": {**record["runs"], now: limits}, **tables}


def test_lines_of_the_server_that_were_not_measured_stay():
    record = json.loads(server.RECORD.read_text(encoding="utf-8"))
    line, limits = {**record["steps"][0], "ours": 1.0}, {"processor": "another"}
    merged = server.together(record, {"server": [], "steps": [line]}, limits)
    now = runs.new_name(record["runs"])
    assert merged["server"] == record["server"]
    assert merged["steps"] == [{**line, "run": now}, *record["steps"][1:]]
    assert merged["runs"][now] == limits


def test_runs_without_a_line_are_forgotten_and_the_others_described():
    intel = {"processor": "Intel", "python": "3.11.7", "threads": 1, "gemm_float64": 80.0}
    amd = {**intel, "processor": "AMD", "threads": 2, "load": 1.2, "fma_float64": 90.0, "read_gb": 30.0}
    lines = [{"run": "2026-01-02-1"}, {"run": "2026-01-01-1"}]
    used = runs.still_used({"2026-01-01-1": intel, "2026-01-01-2": intel, "2026-01-02-1": amd}, [lines])
    assert runs.letters(used) == {"2026-01-01-1": "a", "2026-01-02-1": "b"}
    assert runs.described(used, lines[:1]) == (
        "- Run *b*: 2026-01-02, 2 threads of an AMD, Python 3.11.7, at a load of 1; 2048³ product 80 GF/s in "
        "float64, multiply-adds in registers 90 GF/s in float64, memory read at 30.0 GB/s."
    )
    assert runs.described(used, lines[1:]) == (
        "- Run *a*: 2026-01-01, one thread of an Intel, Python 3.11.7, beside other work; 2048³ product 80 GF/s "
        "in float64."
    )


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
    line, run = {"contender": "flareclust", "iterations": 4, "seconds": 0.0001}, {"gemm_float64": 100.0}
    assert page.gemm_share(case, line, run) == "64 % (≥ 50% met)"  # 2 * 1000 * 64 * 10 * 5 in 0.1 ms: 64 GF/s
    assert page.gemm_share(case, {**line, "contender": "faiss (float32)"}, run) == "64 %"
    assert page.gemm_share(case._replace(d=2), line, run) == ""


def test_shares_of_multiply_adds_and_memory_are_of_the_limits_of_the_run():
    case, run = cases.Case(1000, 64, 10), {"fma_float64": 128.0, "read_gb": 51.2}
    line = {"iterations": 4, "seconds": 0.0001}
    assert page.fma_share(case, line, run) == "50 %"  # of 64 GF/s
    assert page.memory_share(case, line, run) == "50 %"  # five passes over 512 kB in 0.1 ms
    assert page.memory_share(case, {**line, "iterations": 0}, run) == "100 %"  # k-means++: a pass for each seed
    assert page.fma_share(case, line, {}) == page.memory_share(case, line, {}) == ""


def test_a_start_says_whether_its_goals_are_met_and_that_the_machine_was_busy():
    record = {"job": 9.5, "further": 0.3, "load": 0.5}
    assert start_up.verdict(record) == (
        "Its job took 9.5 s (goal: at most 9 s, **missed**), a further round 0.3 s (goal: at most 0.4 s, met)."
    )
    busy = start_up.verdict({**record, "load": 5.0})
    assert busy == f"{start_up.verdict(record)} The goals are for an idle machine, which this one was not."
