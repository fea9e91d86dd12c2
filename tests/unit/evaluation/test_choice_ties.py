"""Rules that like several numbers of clusters equally, or none."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.evaluation import criteria
from flareclust.evaluation.selection import at_end, summary, tie
from flareclust.experiment.reports.page import report_page
from tests.unit.evaluation.choice_cases import NAN, selection_with, sites


@pytest.mark.parametrize(
    ("rule", "columns", "expected"),
    [
        ("silhouette", {"silhouette": [0.1, 0.3, 0.7, 0.2]}, True),
        ("silhouette", {"silhouette": [0.7, 0.7, 0.7, 0.2]}, True),
        ("silhouette", {"silhouette": [0.7, NAN, NAN, NAN]}, True),
        ("silhouette", {"silhouette": [NAN] * 4}, False),
        ("separation", {"separated": [0.0] * 4}, False),
        ("separation", {"separated": [1.0] * 4}, False),
        ("elbow", {"inertia": [10] * 4}, False),
        ("elbow", {"inertia": [40, 30, 20, 10]}, False),  # a straight line has no elbow
    ],
)
def test_a_rule_decides_where_its_values_differ(rule, columns, expected):
    assert criteria.decides(selection_with(**columns), rule) is expected


def test_the_best_are_named_with_their_numbers_of_clusters():
    known = selection_with(separated=[0.2, 0.5, 0.5, 0.1])
    assert criteria.tied(known, "separation") == [3, 4]
    arrays = {f"choice_{name}": value for name, value in known._asdict().items()}
    assert tie(arrays, "separation").startswith("separation likes k=3 and 4 equally")
    assert tie({**arrays, "choice_separated": np.array([0.2, 0.5, 0.4, 0.1])}, "separation") == ""
    assert tie({}, "separation") == ""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([500.0, 496.0, 400.0, 100.0], "hardly prefers k=2 to k=3, within 1% of it"),
        ([497.0, 500.0, 496.0, 499.0], "hardly prefers k=3 to k=2, 4 and 5,"),
        ([500.0, 494.0, 400.0, 100.0], None),
        ([500.0, NAN, NAN, NAN], None),
        ([500.0, 500.0, 499.0, 1.0], "k=2 and 3 equally"),
    ],
)
def test_values_within_a_hundredth_of_the_best_are_named(values, expected):
    known = selection_with(calinski_harabasz=values)
    arrays = {f"choice_{name}": value for name, value in known._asdict().items()}
    found = tie(arrays, "calinski-harabasz")
    assert expected in found if expected else found == ""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([500.0, 300.0, 200.0, 100.0], ""),  # no k is below 2
        ([100.0, 500.0, 300.0, 100.0], ""),
        (
            [100.0, 300.0, 400.0, 500.0],
            "k=5 is the largest of the range 2..5, and calinski-harabasz may prefer a larger one",
        ),
    ],
)
def test_a_choice_at_the_end_of_the_range_is_named(values, expected):
    known = selection_with(calinski_harabasz=values)
    arrays = {f"choice_{name}": value for name, value in known._asdict().items()}
    assert at_end(arrays, "calinski-harabasz", {}).startswith(expected)
    assert bool(at_end(arrays, "calinski-harabasz", {})) == bool(expected)
    above = {**arrays, "choice_k": arrays["choice_k"] + 2, "choice_calinski_harabasz": np.array(values[::-1])}
    assert ("k=4 is the smallest of the range 4..7" in at_end(above, "calinski-harabasz", {})) == bool(expected)


def test_the_smallest_index_of_davies_and_bouldin_is_the_best():
    known = selection_with(davies_bouldin=[0.503, 0.5, 0.9, 0.506])
    assert criteria.nearly_tied(known, "davies-bouldin") == [2]


def test_a_near_tie_is_among_the_warnings_and_in_the_report():
    """Six blobs in three pairs: three clusters and six are about as good."""
    rng = np.random.default_rng(0)
    centers = [(0, 0), (3.3, 0), (60, 0), (63.3, 0), (30, 52), (33.3, 52)]
    rows = {f"s{i}": np.concatenate([rng.normal(c, 1, (40, 2)) for c in centers]) for i in range(3)}
    result = flareclust.run("pooled", rows, "3..6")
    (warning,) = (one for one in result.warnings if "hardly prefers" in one)
    assert f"<li>{warning}</li>" in report_page(result)


def test_rules_that_decide_nothing_are_not_reported():
    arrays = {
        f"choice_{name}": value for name, value in selection_with(silhouette=[0.1, 0.4, 0.2, 0.3])._asdict().items()
    }
    found = summary(arrays, {})
    assert found is not None
    assert found["rules"] == {"silhouette": 3}


def test_a_rule_that_tells_no_k_from_another_chooses_none():
    with pytest.raises(JobFailed, match=r"elbow tells none of k=2\.\.3 from the others.*another criterion"):
        flareclust.run("pooled", sites(), "2..3", criterion="elbow")
    with pytest.raises(JobFailed, match="elbow tells none"):
        flareclust.run("kfed", sites(), "2..3", criterion="elbow")


def test_one_k_needs_no_decision():
    assert flareclust.run("pooled", sites(), "4..4", criterion="elbow").k == 4


def test_a_tie_is_among_the_warnings():
    """Three narrow blobs far apart: all pairs are separated at k=2 and at k=3, not all at k=4, which divides a blob."""
    rng = np.random.default_rng(0)
    rows = {f"s{i}": np.concatenate([rng.normal(c, 1, (40, 2)) for c in ((0, 0), (99, 0), (0, 99))]) for i in range(3)}
    result = flareclust.run("pooled", rows, "2..4", criterion="separation")
    assert result.to_json()["choice"]["separated"][:2] == [1, 1]
    assert result.to_json()["choice"]["separated"][2] < 1
    assert result.k == 2
    assert any(warning.startswith("separation likes k=2 and 3 equally") for warning in result.warnings)
    assert not any("equally" in warning for warning in flareclust.run("pooled", rows, "2..4").warnings)
