"""The graph of sites that share columns, against a literal twin and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from flareclust._foundation.errors import UserError
from flareclust.core.overlap import components, judge_overlap
from tests.examples import examples

MASKS = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6), elements=st.booleans())


def share(masks, i, j):
    return any(masks[i][f] and masks[j][f] for f in range(len(masks[i])))


def twin_components(masks):
    """Parts are joined as long as any two have a site each that share a column."""
    parts = [[i] for i in range(len(masks))]
    pair = (0, 0)
    while pair:
        pair = next(
            ((p, q) for p in parts for q in parts if p < q and any(share(masks, i, j) for i in p for j in q)), None
        )
        if pair:
            parts = sorted([part for part in parts if part not in pair] + [sorted(pair[0] + pair[1])])
    return parts


@settings(max_examples=examples(200), deadline=None)
@given(MASKS)
def test_components_and_verdict_equal_their_twins(masks):
    m = len(masks)
    parts = twin_components(masks.tolist())
    assert components(masks) == parts
    verdict = judge_overlap(masks, [f"site-{i}" for i in range(m)])
    assert verdict.connected == verdict.assumption_1 == (len(parts) == 1)
    complete = all(share(masks.tolist(), i, j) for i in range(m) for j in range(i))
    assert verdict.complete == verdict.assumption_2 == complete
    assert verdict.method == ("A" if verdict.connected and not complete else "B")
    assert all(type(flag) is bool for flag in verdict[:4])


def test_a_common_column_makes_the_graph_complete_and_method_b_follows():
    verdict = judge_overlap(np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0]], bool), ["a", "b", "c"])
    assert verdict[:5] == (True, True, True, True, "B")
    assert "any two sites share a column" in verdict.text


def test_a_chain_is_connected_and_method_a_follows_whose_assumption_nobody_can_check():
    verdict = judge_overlap(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool), ["a", "b", "c"])
    assert verdict[:5] == (True, False, True, False, "A")
    assert "one pair of them without a common one (first a and c)" in verdict.text
    assert "nobody can check" in verdict.text


def test_parts_that_share_nothing_are_named_in_a_warning():
    masks = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]], bool)
    assert components(masks) == [[0, 2], [1, 3]]
    verdict = judge_overlap(masks, ["a", "b", "c", "d"])
    assert verdict[:5] == (False, False, False, False, "B")
    assert verdict.text.startswith("the sites fall into")
    assert "2 parts" in verdict.text
    assert "{a, c}; {b, d}" in verdict.text


def test_constant_columns_are_named_in_the_verdict():
    verdict = judge_overlap(np.array([[1, 0], [0, 1]], bool), ["a", "b"], ["unit", "year"])
    assert not verdict.connected
    assert verdict.text.endswith("Constant columns link no sites: unit, year")


def test_of_large_parts_the_first_sites_are_named():
    masks = np.array([[True, False]] * 8 + [[False, True]])
    assert "{s0, s1, s2, s3, s4 and 3 more}; {s8}" in judge_overlap(masks, [f"s{i}" for i in range(9)]).text


def test_one_site_is_a_complete_graph_and_a_site_without_columns_a_part_of_its_own():
    assert judge_overlap(np.array([[True, False]]), ["a"])[:5] == (True, True, True, True, "B")
    assert components(np.array([[True], [False], [True]])) == [[0, 2], [1]]


@pytest.mark.parametrize("masks", [[[1.0, 0.0]], [True, False], np.empty((0, 3), bool)])
def test_masks_must_be_true_or_false_for_each_site_and_column(masks):
    with pytest.raises(UserError, match="for each site and column"):
        components(masks)


def test_sites_must_be_named_one_for_each_row():
    with pytest.raises(UserError, match="must be 2 names"):
        judge_overlap(np.array([[True], [True]]), ["a"])
