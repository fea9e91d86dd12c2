"""Reports of re-run papers, and the page made of them."""

import re
import subprocess
import sys
from dataclasses import replace

import matplotlib
import pytest

from benchmarks.papers import report
from benchmarks.papers.base import Line, Report, Study, run_entry
from benchmarks.papers.report import markdown_table, page_text, read, read_all, save, write_page
from flareclust._foundation.errors import UserError
from tests.benchmarks.papers_cases import toy_entry

pytestmark = pytest.mark.slow


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
