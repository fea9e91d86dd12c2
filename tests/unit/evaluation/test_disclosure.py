"""The checks of an output: by hand, one finding at a time."""

import numpy as np
import pytest

from flareclust.evaluation.disclosure import FAIL, PASS, REVIEW, Cells, Finding, Output, Rule, record_of, worst

POLICY = Rule(10, known=True)


def output(counts=None, divided=False, **more):
    cells = None
    if counts is not None:
        counts = np.array(counts)
        names = [f"site {r}" for r in range(len(counts))], [f"cluster {c}" for c in range(counts.shape[1])]
        cells = Cells(counts, *names, divided=divided)
    return Output("u", more.pop("kind", "table"), "title", ("a.json", "b.html"), cells, **more)


def checked(rule=POLICY, **of):
    return record_of(output(**of), rule, "flareclust run", "2026-01-01")


@pytest.mark.parametrize(("smallest", "status"), [(9, FAIL), (10, PASS), (1, FAIL)])
def test_a_cell_below_the_threshold_of_the_policy_fails(smallest, status):
    found = checked(counts=[[smallest, 30]])
    assert found["status"] == status
    assert found["properties"]["smallest_cell"] == smallest
    assert [file["sdc"]["summary"]["threshold"] for file in found["files"]] == [int(smallest < 10)] * 2
    assert found["outcome"] == ({"cluster 0": {"site 0": "threshold"}} if smallest < 10 else {})


def test_nothing_passes_where_the_policy_is_not_known():
    assert checked(Rule(), counts=[[10_000]])["status"] == REVIEW
    assert checked(Rule(), counts=[[9]])["status"] == FAIL
    assert "the sites have no policy" in checked(Rule(), counts=[[9]])["comments"]


def test_a_policy_below_the_usual_threshold_needs_a_review_between_the_two():
    rule = Rule(3, known=True)
    assert [checked(rule, counts=[[n]])["status"] for n in (2, 3, 9, 10)] == [FAIL, REVIEW, REVIEW, PASS]


def test_empty_cells_are_no_cells():
    found = checked(counts=[[0, 12]])
    assert (found["status"], found["properties"]["cells"]) == (PASS, 1)


@pytest.mark.parametrize(("counts", "words"), [([[20, 0]], "1 cell of 0 rows, and 1 cell with all"), ([[20, 20]], "")])
def test_zeros_and_full_cells_of_a_divided_table_are_class_disclosure(counts, words):
    found = checked(counts=counts, divided=True)
    assert found["status"] == (REVIEW if words else PASS)
    assert words in found["summary"]


def test_one_column_divides_nothing():
    assert checked(counts=[[20], [30]], divided=True)["status"] == PASS


def test_unknown_cells_are_for_review_with_the_reason():
    assert checked(unknown="nobody counted")["summary"] == "review; nobody counted"
    assert checked()["status"] == REVIEW


def test_single_rows_fail_whatever_the_rule_is():
    for rule in (POLICY, Rule(), Rule(known=True, noise={"epsilon": 1.0})):
        assert checked(rule, kind="microdata")["summary"] == "fail; it shows single rows"


def test_same_values_are_class_disclosure():
    found = checked(counts=[[50]], same=2)
    assert found["status"] == REVIEW
    assert found["files"][0]["sdc"]["summary"]["all-values-are-same"] == 2


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        (Rule(known=True, noise={"epsilon": 1.0, "delta": 1e-6}), PASS),
        (Rule(known=True, noise={"epsilon": 10.0}), REVIEW),
        (Rule(known=False, noise={"epsilon": 1.0}), REVIEW),
        (Rule(known=True, noise={}), REVIEW),
    ],
)
def test_noise_stands_in_the_place_of_a_threshold_with_its_parameters(rule, status):
    found = checked(rule, counts=[[2]])
    assert found["status"] == status
    assert found["properties"]["threshold"] is None
    assert found["properties"]["smallest_cell"] is None  # it would be an exact number
    assert all(f"{name} {value}" in found["summary"] for name, value in rule.noise.items())


def test_exact_numbers_are_not_covered_by_noise():
    rule = Rule(known=True, noise={"epsilon": 1.0})
    assert checked(rule, counts=[[2]], noisy=False)["status"] == FAIL
    assert checked(rule, counts=[[20]], noisy=False)["status"] == REVIEW


def test_the_worst_finding_decides_and_stands_first():
    found = checked(counts=[[3]], findings=(Finding(REVIEW, "look"),))
    assert found["summary"] == "fail; 1 cell of fewer than 10 rows; the smallest has 3; look"
    assert worst([]) == PASS


def test_long_lists_of_cells_are_cut():
    found = checked(counts=np.full((40, 40), 2))
    assert sum(map(len, found["outcome"].values())) == 500
    assert found["files"][0]["sdc"]["summary"]["threshold"] == 1600
