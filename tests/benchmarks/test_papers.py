"""Re-running papers: entries, samples, and values as the papers print them."""

import math
import re

import numpy as np
import pytest

from benchmarks import papers
from benchmarks.papers import base
from benchmarks.papers.base import Entry, Report, Study, Value, agreement, agreements, run_entry
from benchmarks.papers.samples import at_most
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import Dataset
from flareclust.experiment.sweeps import trials as study_trials
from tests.benchmarks.papers_cases import toy_entry

pytestmark = pytest.mark.slow


def cell(mean, std, n=10, metric="l2"):
    return study_trials.Cell({}, {metric: mean}, {metric: std}, n, 0)


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
    assert order.count(0) == 11


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
    assert (
        base.with_found("1.0", study_trials.Cell({}, {"centroids_found": found}, {"centroids_found": 0.0}, 2, 0))
        == expected
    )


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
    both = study_trials.Cell({}, {"purity": 0.99, "nmi": 0.5}, {"purity": 0.0, "nmi": 0.0}, 10, 0)
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
