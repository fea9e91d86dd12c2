"""Profiles of rows with missing cells: against pandas, at a floor of known cells, and as they were where nothing is missing."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.evaluation import profile_words
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.reports.page import report_page
from flareclust.federation.profiles import ClusterProfiles
from flareclust.federation.site import rows_shown
from flareclust.protocol import cluster_arrays, registry
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.task import PROFILED_KNOWN, StepName, Task
from tests.unit.experiment.test_profiles import asked, gappy, patients

#: What a server asks of the bins of two columns before there is any split.
QUESTION = {
    "edges": np.zeros((2, 19)),
    "split_column": np.zeros(15, dtype=int),
    "split_edge": np.zeros(15, dtype=int),
    "leaves": np.array([0]),
}


@pytest.fixture(scope="module")
def result() -> flareclust.Result:
    return flareclust.run("lloyd", gappy(), k=3, missing="mean", scale="standard")


@pytest.mark.parametrize("missing", ["mean", "partial"])
def test_without_gaps_the_arrays_are_those_of_a_job_that_takes_none(missing):
    expected = flareclust.run("lloyd", patients(), k=3, scale="standard").arrays
    found = flareclust.run("lloyd", patients(), k=3, scale="standard", missing=missing)
    described = {name for name in expected if name.startswith("profile_")}
    assert {name for name in found.arrays if name.startswith("profile_")} == described
    for name in described:
        np.testing.assert_array_equal(found.arrays[name], expected[name])
    assert "cells" not in found.profiles()


def test_the_tree_has_every_row_in_one_leaf(result):
    tree = profiles_of(result.arrays, result.columns).tree
    np.testing.assert_array_equal(tree.rows[tree.leaves()].sum(axis=0), result.arrays[cluster_arrays.ROWS])
    assert tree.accuracy > 0.8


def test_a_saved_result_has_its_profiles_again_and_renumbered_ones(result, tmp_path):
    result.save(tmp_path / "out")
    loaded = flareclust.load_result(tmp_path / "out")
    pd.testing.assert_frame_equal(loaded.profiles(), result.profiles())
    assert "Missing cells are left out." in report_page(result)


def test_a_site_with_a_policy_says_nothing_of_its_missing_cells():
    found = flareclust.run(
        "lloyd", gappy(), k=3, missing="mean", scale="standard", policy={"min_count": 10, "round_counts": 5}
    )
    assert (found.arrays["profile_bins"] % 5 == 0).all()
    assert found.arrays[cluster_arrays.ROWS].sum() > 300
    assert cluster_arrays.CELLS not in found.arrays


def test_a_column_that_no_site_describes_in_a_cluster_says_nothing(result):
    cells, means = result.arrays[cluster_arrays.CELLS].copy(), result.arrays[cluster_arrays.MEANS].copy()
    cells[1, 1], means[1, 1] = 0, 0.0
    profiles = profiles_of({**result.arrays, cluster_arrays.CELLS: cells, cluster_arrays.MEANS: means}, result.columns)
    assert np.isnan(profiles.mean[1, 1])
    assert np.isnan(profiles.z[1, 1])
    assert "crp" not in profile_words.sentence(profiles, 1)


@pytest.mark.parametrize("missing", ["mean", "partial"])
def test_no_number_below_min_count_leaves_a_site_or_follows(missing):
    frames = gappy(share=0.85)
    seen = asked(frames, {"missing": missing, "min_count": 7})
    moments = {site: arrays for step, site, arrays in seen if step == StepName.PROFILE_KNOWN}
    in_all = {site: arrays for step, site, arrays in seen if step == StepName.KNOWN_SCALES}
    for site, own in moments.items():
        assert (own["counts"][own["counts"] > 0] >= 7).all()
        if missing == "mean":  # with partial, sums of so few cells never leave
            rest = (in_all[site]["counts"][0] - own["counts"].sum(axis=0))[1:]  # nobody lacks the first
            assert ((rest == 0) | (rest >= 7)).all()
    assert any((own["counts"] == 0).any() for own in moments.values())
    bins = [arrays for step, _, arrays in seen if step == StepName.PROFILE_KNOWN_BINS]
    assert len(bins) >= 6
    assert all((one["bins"][one["bins"] > 0] >= 7).all() for one in bins)
    assert all((one["rows"][one["rows"] > 0] >= 7).all() for one in bins)


def test_a_columns_mean_is_of_min_count_known_cells_or_is_not_sent():
    """A mean that gaps are filled with would be the one known cell of its column."""
    frames = gappy()
    frames["north"].loc[6:, "crp"] = np.nan  # six cells, of which some are missing before
    known = frames["north"]["crp"].notna().sum()
    for least, sent in ((known, known), (known + 1, 0)):
        seen = asked(frames, {"missing": "mean", "min_count": int(least)})
        (north,) = [arrays for step, site, arrays in seen if step == StepName.KNOWN_SCALES and site == "north"]
        assert north["counts"][0, 1] == sent
        assert (north["m2"][0, 1] > 0) == (sent > 0)
        assert sent or north["centroids"][0, 1] == 0


def test_clusters_of_a_profile_are_those_of_the_rounds():
    """A column that few rows of a cluster know counts as missing in the rounds; sums of other clusters would differ by a row."""
    nan = np.nan
    rows = np.array([[0.1 * i, 0.0, nan] for i in range(8)] + [[5 + 0.1 * i, 1.0, 9 + 0.1 * i] for i in range(8)])
    rows[0] = [2.4, 0.0, 9.0]  # by its third column one of the others
    rows[8:, 2] = nan
    executor = registry.get("lloyd").build(2, 0, {"missing": "partial", "min_count": 3})[0]
    task = Task("profile_known", 0, {"centroids": np.array([[0.0, 0.0, 0.0], [5.0, 1.0, 9.0]])}, "site-1")
    task.arrays["fill"] = np.zeros(3)
    own, profiles = rows_shown(executor, task, Table(rows)), ClusterProfiles(executor.params, executor)
    labels, known = profiles._known(task, own)
    assert labels[0] == 0
    assert not known[0, 2]
    assert executor.labels(task, own)[0] == 1
    reply = profiles.profile_known(task, own)
    assert reply["counts"].tolist() == [[8, 8, 0], [8, 8, 0]]


def test_a_site_may_have_no_cluster_that_a_profile_can_tell_of():
    centroids = 10.0 * np.arange(5)[:, None] * np.ones(2)
    rows = np.repeat(centroids, 3, axis=0) + np.random.default_rng(0).normal(size=(15, 2))
    executor = registry.get("lloyd").build(5, 0, {"missing": "partial", "min_count": 4})[0]
    reply = executor.answer(
        Task(StepName.PROFILE_KNOWN, 0, {"centroids": centroids, "fill": np.zeros(2)}, "north"), rows, never_abort
    )
    assert reply.arrays["rows"].shape == (0,)
    arrived = SiteReply(dict(reply.arrays))
    assert accept(PROFILED_KNOWN, {"north": arrived}, ["north"])[1] == {}


@pytest.mark.parametrize(("min_count", "sent"), [(6, [6, 9]), (7, [0, 9])])
def test_a_leaf_with_min_count_rows_of_a_cluster_is_sent_and_none_with_fewer(min_count, sent):
    centroids = np.array([[0.0, 0.0], [50.0, 50.0]])
    rows = np.repeat(centroids, [6, 9], axis=0) + np.random.default_rng(0).normal(size=(15, 2))
    executor = registry.get("lloyd").build(2, 0, {"missing": "mean", "min_count": min_count})[0]
    task = Task(StepName.PROFILE_KNOWN_BINS, 0, {**QUESTION, "centroids": centroids}, "site-1")
    own = rows_shown(executor, task, Table(rows))
    reply = ClusterProfiles(executor.params, executor).profile_known_bins(task, own)
    assert reply["rows"].tolist() == [sent]


@pytest.mark.parametrize(
    ("missing", "step"), [("mean", "profile"), ("mean", "profile_bins"), ("refuse", "profile_known")]
)
def test_a_site_answers_the_step_only_that_fits_its_missing_cells(missing, step):
    """Floors of rows hold nothing of known cells."""
    executor = registry.get("lloyd").build(2, 0, {"missing": missing})[0]
    rows = np.random.default_rng(0).normal(size=(20, 2))
    task = Task(step, 0, {"centroids": rows[:2], **(QUESTION if "bins" in step else {})}, "site-1")
    with pytest.raises(Refusal, match=f"asked for the step {step}, which does not go"):
        executor.answer(task, rows, never_abort)
