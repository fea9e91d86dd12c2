"""Re-running papers: entries, reports, the page made of them, the command; what it prints is what was measured."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

from benchmarks import papers
from benchmarks.papers import base, figures, report, running
from benchmarks.papers.__main__ import main
from benchmarks.papers.base import Entry, Line, Report, Study, Value, agreement, agreements, run_entry
from benchmarks.papers.report import markdown_table, page_text, read, read_all, save, write_page
from benchmarks.papers.running import run_papers, study_name
from benchmarks.papers.samples import at_most
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.data.datasets import Dataset
from flareclust.experiment.trials import Cell, Trial, TrialResult
from tests.paths import ROOT

pytestmark = pytest.mark.slow


def toy_trial(seed, value=1.0, cell="a", fail=False, calls=None):
    def measure():
        if calls is not None:
            calls.append((cell, seed))
        if fail:
            raise JobFailed("no site sent a reply that could be used")
        return TrialResult({"l2": value + seed})

    return Trial({"cell": cell}, seed, {"value": value}, measure)


def toy_entry(name="toy-table1", covers=("toy-figure1",), fail=(), calls=None):
    def run(study):
        cells = study.cells([toy_trial(seed, fail=seed in fail, calls=calls) for seed in range(study.seeds)])
        figure, (axes,) = figures.panels(["l2"])
        figures.bars(axes, ["a"], {"ours": [cells[0].mean.get("l2", math.nan)]})
        lines = [Line({"cell": "a"}, "2.0", base.mean_std(cells[0], "l2"), "defaults; agrees")]
        return Report(name, f"Toy: {name}", lines, figure, ["It does not reproduce."], "About the toy.")

    return Entry(name, covers, "a toy", run)


def cell(mean, std, n=10, metric="l2"):
    return Cell({}, {metric: mean}, {metric: std}, n, 0)


# ---- finding ----


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all", ["toy-table1", "toy-table2", "other-table1"]),
        ("toy", ["toy-table1", "toy-table2"]),
        ("toy-table2", ["toy-table2"]),
        ("toy-figure1", ["toy-table1"]),
    ],
)
def test_a_name_means_all_a_paper_an_entry_or_what_it_covers(name, expected):
    entries = [toy_entry(), toy_entry("toy-table2", ()), toy_entry("other-table1", ())]
    assert [entry.name for entry in papers.find(name, entries)] == expected


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(
        UserError, match=r"'toy-tabel1' \(did you mean 'toy-table1'\?\); known: all, toy, toy-table1, toy-f"
    ):
        papers.find("toy-tabel1", [toy_entry()])


def test_every_name_is_there_once_and_names_its_paper():
    names = [name for entry in papers.ENTRIES for name in (entry.name, *entry.covers)]
    assert len(set(names)) == len(names)
    pattern = rf"({'|'.join(papers.PAPERS)})-[a-z]+[0-9a-z.-]*"
    assert [name for name in names if not re.fullmatch(pattern, name)] == []
    assert all(entry.title and "\n" not in entry.title for entry in papers.ENTRIES)


def test_entries_come_in_the_order_of_the_papers():
    order = [papers.PAPERS.index(entry.paper) for entry in papers.ENTRIES]
    assert order == sorted(order)
    assert order.count(0) == 9


# ---- running one ----


def test_an_entrys_report_counts_seeds_and_failed_runs_and_says_why():
    made = run_entry(toy_entry(fail=(1,)), Study(seeds=3, quick=True))
    assert (made.seeds, made.failed, made.quick) == (3, 1, True)
    assert made.lines[0].ours == "2.0 ± 1.0"  # of 1 and 3
    assert made.notes == [
        "It does not reproduce.",
        "1 runs failed; the first, a/s1: no site sent a reply that could be used",
    ]
    assert made.seconds > 0


def test_an_entry_may_state_fewer_seeds_of_its_own():
    entry = Entry("toy-table1", (), "a toy", lambda study: Report("", "Toy", [], seeds=3))
    assert run_entry(entry, Study(seeds=10)).seeds == 3


# ---- words and numbers ----


def test_values_are_printed_as_the_paper_prints_them():
    assert str(Value(7.2, 4.3)) == "7.2 ± 4.3"
    assert str(Value(0.9, None, 2)) == "0.90"
    assert base.mean_std(cell(71_834.0, 42_999.0), "l2", scale=1e4) == "7.2 ± 4.3"
    assert base.mean_only(cell(0.987, 0.1, metric="purity"), "purity") == "0.99"
    assert base.mean_std(None, "l2") == base.mean_std(cell(1, 1), "nmi") == "-"
    assert base.reading("n_init=1", "") == "n_init=1"
    assert base.reading("n_init=1", "agrees") == "n_init=1; agrees"


@pytest.mark.parametrize(
    ("found", "expected"), [(15.0, "1.0, 15 found"), (14.25, "1.0, 14.2 found"), (10.0, "1.0, 10 found")]
)
def test_the_number_of_centroids_stands_beside_their_distance(found, expected):
    assert base.with_found("1.0", Cell({}, {"centroids_found": found}, {"centroids_found": 0.0}, 2, 0)) == expected


def test_means_agree_within_two_standard_errors_and_rounding():
    # Both with std 3 over 10 runs: the error of a mean is 1, of the difference sqrt 2; so 2 sqrt 2 + 0.05 apart agree.
    paper = Value(10.0, 3.0)
    edge = 2 * math.sqrt(2) + 0.05
    assert agreement(paper, cell(10 + edge - 1e-6, 3), "l2") == "agrees"
    assert agreement(paper, cell(10 + edge + 1e-6, 3), "l2") == "higher"
    assert agreement(paper, cell(10 - edge - 1e-6, 3), "l2") == "lower"
    assert agreement(paper, cell(100_000.0, 30_000.0), "l2", scale=1e4) == "agrees"


def test_rounding_alone_is_no_disagreement_and_a_missing_deviation_is_taken_to_be_ours():
    assert agreement(Value(0.99, None, 2), cell(0.9940, 0.0), "l2") == "agrees"
    assert agreement(Value(0.99, None, 2), cell(0.9960, 0.0), "l2") == "higher"
    assert agreement(Value(10.0), cell(12.8, 3.0), "l2") == "agrees"


def test_nothing_is_said_where_a_value_is_missing():
    assert agreement(None, cell(1, 1), "l2") == agreement(Value(1.0), None, "l2") == ""
    assert agreement(Value(1.0), cell(1, 1), "nmi") == ""


def test_several_measures_agree_only_together():
    both = Cell({}, {"purity": 0.99, "nmi": 0.5}, {"purity": 0.0, "nmi": 0.0}, 10, 0)
    assert agreements((Value(0.99, None, 2), Value(0.5, None, 2)), both, ("purity", "nmi")) == "agrees"
    assert agreements((Value(0.99, None, 2), Value(0.7, None, 2)), both, ("purity", "nmi")) == "lower"
    assert agreements((None, None), both, ("purity", "nmi")) == ""


def test_a_sample_is_always_the_same_rows_with_their_labels():
    X = np.arange(40.0).reshape(20, 2)
    data = Dataset("rows", X, np.arange(20), owners=np.arange(20) * 2)
    part = at_most(data, 5)
    assert part.name == "rows (5 rows)"
    assert part.X.shape == (5, 2)
    np.testing.assert_array_equal(part.X[:, 0], 2.0 * part.y)
    np.testing.assert_array_equal(part.owners, 2 * part.y)
    np.testing.assert_array_equal(part.X, at_most(data, 5).X)
    assert at_most(data, 20) is data


# ---- reports ----


def test_the_table_has_the_keys_of_all_lines_and_keeps_its_columns():
    lines = [Line({"data": "s1", "k": "a|b"}, "1", "2", "x; agrees"), Line({"data": "s2", "split": "iid"}, "-", "3")]
    assert markdown_table(lines).splitlines() == [
        "| data | k | split | paper | ours | reading |",
        "| --- | --- | --- | --- | --- | --- |",
        "| s1 | a\\|b |  | 1 | 2 | x; agrees |",
        "| s2 |  | iid | - | 3 |  |",
    ]


def test_a_saved_report_is_read_as_it_was(tmp_path):
    made = run_entry(toy_entry(), Study(seeds=2))
    folder = save(made, tmp_path, "python -m benchmarks.papers toy", "abc123")
    again = read(folder)
    assert replace(again.report, figure=None) == replace(made, figure=None)
    assert (again.command, again.commit, again.figure) == (
        "python -m benchmarks.papers toy",
        "abc123",
        folder / "figure.png",
    )
    assert (folder / "table.md").read_text() == f"# Toy: toy-table1\n\n{markdown_table(made.lines)}"
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_figure_is_the_same_file_and_pyplot_is_not_touched(tmp_path):
    for name in ("one", "two"):
        save(run_entry(toy_entry(), Study(seeds=2)), tmp_path / name)
    one, two = ((tmp_path / name / "toy-table1" / "figure.png").read_bytes() for name in ("one", "two"))
    assert one == two
    assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()


def test_a_report_without_figure_leaves_none_of_an_earlier_one(tmp_path):
    made = run_entry(toy_entry(), Study(seeds=2))
    save(made, tmp_path)
    folder = save(replace(made, figure=None), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["report.json", "table.md"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "x"}'])
def test_a_damaged_report_is_named(tmp_path, text):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "report.json").write_text(text)
    with pytest.raises(
        UserError, match=r"toy has no complete report of a paper .*run `python -m benchmarks.papers` again"
    ):
        read_all(tmp_path)


def test_the_commit_is_that_of_our_own_checkout_only(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(report, "__file__", str(tmp_path / "site-packages" / "flareclust" / "papers" / "report.py"))
    assert report.commit_of_checkout() is None


# ---- the page ----


@pytest.fixture
def reports(tmp_path):
    folder = tmp_path / "reports"
    long = [Line({"data": f"s{i % 2}", "n": str(i)}, "1", "2", "defaults; lower") for i in range(40)]
    save(run_entry(toy_entry("feca-table1", ()), Study(seeds=2)), folder, "python -m benchmarks.papers all")
    save(Report("feca-extra", "Long one", long, None, seeds=10, quick=True), folder, "python -m benchmarks.papers all")
    return folder


def test_the_page_says_where_it_comes_from_and_what_does_not_reproduce(reports, tmp_path):
    page = write_page(reports, tmp_path / "docs" / "reproduction.md")
    text = page.read_text()
    assert text.startswith("# The papers, re-run\n")
    assert "n = 2, 10" in text
    assert "```console\n$ python -m benchmarks.papers all\n```" in text
    assert "quick form" in text
    assert "- Toy: feca-table1\n    - It does not reproduce.\n" in text
    assert "![Toy: feca-table1](images/reproduction/feca-table1.png)" in text
    copy, original = tmp_path / "docs/images/reproduction/feca-table1.png", reports / "feca-table1/figure.png"
    assert copy.read_bytes() == original.read_bytes()
    assert "| [Toy: feca-table1](#toy-feca-table1) | 1 | 0 | 0 | 0 |" in text
    assert "| [Long one](#long-one) | 0 | 40 | 0 | 0 |" in text


def test_the_pages_links_lead_to_its_headings(reports):
    text = page_text(read_all(reports))
    headings = {report.anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
    targets = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(targets) == 2
    assert set(targets) <= headings


def test_long_tables_are_folded_by_their_first_column_and_lose_no_line(reports):
    text = page_text(read_all(reports))
    assert "<summary>data s0: 20 lines</summary>" in text
    assert "<summary>data s1: 20 lines</summary>" in text
    assert text.count("defaults; lower") == 40


def test_a_page_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no reports; make some with `python -m benchmarks.papers all --out"):
        write_page(tmp_path, tmp_path / "page.md")


# ---- running many ----


def test_an_entry_that_cannot_be_run_does_not_end_the_others(tmp_path):
    def refuse(study):
        raise UserError("data set s1 cannot be fetched")

    broken = Entry("toy-table9", (), "broken", refuse)
    said = []
    ran = run_papers([broken, toy_entry()], Study(seeds=2), tmp_path, say=said.append)
    assert [one.error for one in ran] == ["data set s1 cannot be fetched", None]
    assert ran[1].report.lines[0].ours == "1.5 ± 0.5"
    assert (tmp_path / "toy-table1" / "report.json").exists()
    assert said[0] == "toy-table9 (1 of 2): broken"
    with pytest.raises(UserError, match="cannot be fetched"):
        run_papers([broken], Study(seeds=2), tmp_path, say=said.append)


def test_what_was_done_is_not_done_again_until_the_code_changes(tmp_path, monkeypatch):
    calls = []
    for _ in range(2):
        ran = run_papers([toy_entry(calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
        assert ran[0].report.lines[0].ours == "1.5 ± 0.5"
    assert sorted(calls) == [("a", 0), ("a", 1)]
    monkeypatch.setattr(running, "code_digest", lambda: "other code")
    run_papers([toy_entry(calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
    assert len(calls) == 4
    assert len(list((tmp_path / "toy-table1").glob("trials-*.jsonl"))) == 1


def test_failed_trials_are_run_again(tmp_path):
    calls = []
    for fail in ((1,), ()):
        ran = run_papers([toy_entry(fail=fail, calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
    assert sorted(calls) == [("a", 0), ("a", 1), ("a", 1)]
    assert ran[0].report.failed == 0


def test_a_studys_name_says_what_decides_its_results(tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    studies = [Study(2), Study(3), Study(2, quick=True), Study(2, features=one), Study(2, features=two)]
    names = [study_name(toy_entry(), study) for study in studies]
    assert len(set(names)) == 5
    assert names[0] == study_name(toy_entry(), Study(2))
    assert re.fullmatch(r"toy-table1, 2 seeds, code [0-9a-f]{8}", names[0])


# ---- the command ----


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)

    def call(*args):
        with pytest.raises(SystemExit) as ended:
            main([*args])
        return ended.value.code or 0, *capsys.readouterr()

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def toys(monkeypatch):
    entries = [toy_entry(), toy_entry("toy-table2", (), fail=(0,))]
    monkeypatch.setattr(papers, "find", lambda name: entries if name == "all" else entries[:1])


def test_the_command_prints_one_object_and_writes_all_files(command, toys, tmp_path):
    code, out, err = command("toy", "--no-track", "--quick", "--json", "--out", "out", "--page", "page.md")
    assert code == 0, err
    printed = json.loads(out)
    (made,) = printed["reports"]
    assert (made["name"], made["seeds"], made["folder"], made["failed"]) == ("toy-table1", 2, "out/toy-table1", 0)
    assert printed["page"] == "page.md"
    assert "$ python -m benchmarks.papers toy --quick\n" in (tmp_path / "page.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "out", "page.md"]


def test_failed_runs_make_the_command_fail_after_all_is_written(command, toys, tmp_path):
    code, out, err = command("all", "--no-track", "--seeds", "3", "--out", "out")
    assert code == 1
    assert err.splitlines()[-1] == "error: 1 runs failed; the reports say why"
    assert re.search(r"toy-table1 +1 +1 +0 +0 +0 ", out)
    assert "--seeds 3" in json.loads((tmp_path / "out/toy-table2/report.json").read_text())["command"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["feca-tabel1"], "did you mean 'feca-table1'?"),
        (["feca-table5", "--features", "x.npz"], "--features is for feca-table2"),
        (["feca-table2", "--features", "x.npz"], "there is no file x.npz"),
        (["feca-table5", "--page", "."], "is a folder; --page must name a file"),
    ],
)
def test_wrong_requests_end_with_one_line(command, args, words, tmp_path):
    code, out, err = command(*args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
    assert list(tmp_path.iterdir()) == []


# ---- slow: everything ----


def test_a_tracked_entry_is_an_mlflow_parent_with_its_trials_and_its_report(shared_data, tmp_path):
    command = [sys.executable, "-m", "benchmarks.papers", "feca-table5", "--quick", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reports"][0]["failed"] == 0
    from flareclust.tracking.store import connect

    client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("flareclust-papers")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) == 1 + 2 * 2
    assert parent.data.metrics["trials/done"] == 4
    files = [item.path for item in client.list_artifacts(parent.info.run_id, "report")]
    assert sorted(files) == ["report/figure.png", "report/report.json", "report/table.md"]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_quick_form_of_everything_runs(shared_data, tmp_path):
    command = [sys.executable, "-m", "benchmarks.papers", "all", "--quick", "--no-track", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--page", "page.md"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert [made["name"] for made in printed["reports"]] == [entry.name for entry in papers.ENTRIES]
    assert all(made["lines"] for made in printed["reports"])
    pictures = list((tmp_path / "images" / "reproduction").glob("*.png"))
    assert len(pictures) == len(papers.ENTRIES)
    assert max(picture.stat().st_size for picture in pictures) < 120_000
