"""Executors over rows in parts: whole federations come to what they come to over arrays, and what cannot is refused."""

from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.gmm import EXPECTATION, FIT_DIAGONAL
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import algorithms, get
from flareclust.protocol.task import StepName, Task
from flareclust.sites.cluster import ClusterTable
from flareclust.sites.part_rows import check_in_parts
from flareclust.testing import checks_for
from tests.parts import LocalParts, cut
from tests.paths import ROOT


def sites(m=3, n=400, d=4, spread=1.0):
    rng = np.random.default_rng(7)
    centers = 6 * rng.normal(size=(5, d))
    return {f"site-{i}": spread * (centers[rng.integers(5, size=n)] + rng.normal(size=(n, d))) for i in range(m)}


def in_parts(X, columns=None):
    return ClusterTable(cut(X, 1, len(X) // 3, len(X) // 2), columns or tuple(f"c{j}" for j in range(X.shape[1])))


@pytest.fixture
def over_parts(monkeypatch):
    """Lets every site answer from rows in parts."""
    asked, whole = [], ClusteringExecutor.answer

    def answer(self, task, data, aborted, site=None):
        if isinstance(data, ClusterTable):
            return whole(self, task, data, aborted, site)
        asked.append(task.step)
        table = data if isinstance(data, Table) else Table(data)
        if not len(table):
            raise Refusal("has no rows")  # which the headers of its files say
        check_in_parts(self, site)
        found = whole(self, task, in_parts(table.X, table.columns), aborted)
        return found if found.labels is None else replace(found, labels=np.fromiter(found.labels, np.int64))

    def switch():
        monkeypatch.setattr(ClusteringExecutor, "answer", answer)
        return asked

    return switch


#: The algorithms whose sums can be added part by part.
IN_PARTS = [name for name, algorithm in algorithms().items() if algorithm.in_parts]

CASES = [
    ("lloyd", {}, {}),
    ("lloyd", {"seeds": "rows", "rounds": 3}, {}),
    ("lloyd", {"start": [[float(3 * r)] * 4 for r in range(5)], "min_count": 30}, {}),
    ("lloyd", {"scale": "standard", "compare": "spread"}, {}),
    ("lloyd", {}, {"profile": True}),
    ("lloyd", {}, {"secure_sums": True, "secure_min_sites": 3}),
    ("lloyd", {"scale": "standard", "compare": "spread"}, {"secure_sums": True, "secure_min_sites": 3}),
    ("pooled", {"n_init": 2}, {}),
    ("pooled", {"scale": "standard"}, {"profile": True}),
    ("mavg", {}, {}),
]


@pytest.mark.parametrize(("name", "params", "options"), CASES)
def test_a_federation_comes_to_the_same_as_over_arrays(over_parts, name, params, options):
    options = JobOptions(k=5, seed=3, **options)
    named = {site: Table(X, ("a", "b", "c", "d")) for site, X in sites().items()}
    alone = run_inprocess(get(name), params, named, options)
    asked = over_parts()
    found = run_inprocess(get(name), params, named, options)
    assert StepName.CLUSTER in asked or UPDATE in asked
    assert not found.refused
    np.testing.assert_allclose(found.centroids, alone.centroids, rtol=1e-12, atol=1e-12)
    assert found.n_rounds == alone.n_rounds
    for site in named:
        np.testing.assert_array_equal(found.labels[site], alone.labels[site])
    for metric, value in alone.metrics.items():
        assert found.metrics[metric] == pytest.approx(value, rel=1e-12)
    for array in alone.arrays.keys() & found.arrays.keys():
        if alone.arrays[array].dtype.kind != "f":
            np.testing.assert_array_equal(found.arrays[array], alone.arrays[array], err_msg=array)
        else:
            np.testing.assert_allclose(found.arrays[array], alone.arrays[array], rtol=1e-12, atol=1e-12, err_msg=array)


def test_the_algorithms_that_refusals_name_are_those_that_can():
    federated = {name: algorithm.build(3)[0] for name, algorithm in algorithms().items() if algorithm.federated}
    for name, executor in federated.items():
        if name in IN_PARTS:
            check_in_parts(executor, None)
            continue
        with pytest.raises(Refusal, match="which can run lloyd, mavg, pooled"):
            check_in_parts(executor, None)


def test_the_page_of_mixtures_says_why_a_site_with_a_cluster_refuses_them():
    with pytest.raises(Refusal, match="which can run lloyd, mavg, pooled"):
        check_in_parts(get("gmm").build(3)[0], None)
    page = (ROOT / "docs" / "algorithms" / "gmm.md").read_text(encoding="utf-8")
    assert "A site that computes on a [Dask cluster](../site-data.md#a-dask-cluster) refuses `gmm`" in page


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("lloyd", {"metric": "cosine"}),
        ("lloyd", {"missing": "mean"}),
        ("lloyd", {"missing": "partial"}),
        ("lloyd", {"scale": "robust"}),
        ("lloyd", {"trim_rows": 0.1}),
        ("pooled", {"small_clusters": "dissolve"}),
        ("mavg", {"local_kmeans": "summary"}),
    ],
)
def test_settings_that_need_all_rows_in_one_process_are_refused_by_name(name, setting):
    executor, _ = get(name).build(3, params=setting)
    (key,) = setting
    with pytest.raises(Refusal, match=f"takes {key}=.* only"):
        check_in_parts(executor, None)


def test_a_policy_is_refused():
    executor, _ = get("lloyd").build(3)
    with pytest.raises(Refusal, match="has a policy, whose groups of rows are made in one process"):
        check_in_parts(executor, SiteSession(Policy(), "job"))


#: Of three components of four columns.
MIXTURE = {"centroids": np.eye(3, 4), "weights": np.ones(3), "factors": np.ones((3, 4)), "moments": np.array(12)}


@pytest.mark.parametrize(
    ("name", "params", "step", "arrays"),
    [
        ("pooled", {"k_min": 2}, StepName.SCORE, {"candidates": np.ones((3, 4)), "candidate": np.zeros(3, np.int64)}),
        (
            "pooled",
            {},
            StepName.PROFILE_BINS,
            {
                "edges": np.ones((4, 3)),
                "split_column": np.zeros(15, np.int64),
                "split_edge": np.zeros(15, np.int64),
                "leaves": np.zeros(1, np.int64),
                "centroids": np.ones((3, 4)),
            },
        ),
        ("gmm", {"covariance": "diag"}, EXPECTATION, MIXTURE),
        ("gmm", {"covariance": "diag"}, FIT_DIAGONAL, {}),
    ],
)
def test_a_step_that_needs_all_rows_in_one_process_is_refused(name, params, step, arrays):
    """The extremes of the columns, which stand for the rows elsewhere, are not taken for rows."""
    executor, _ = get(name).build(3, params=params)
    with pytest.raises(Refusal, match="where this step cannot be computed"):
        executor.answer(Task(step, 1, arrays, "site-0"), in_parts(sites()["site-0"]), never_abort)


@pytest.mark.parametrize(
    ("X", "told"),
    [
        ([[1e200, 1.0], [0.0, 1.0], [1.0, 1.0]], "beyond"),
        ([[1.0, 1.0]], "fewer rows than min_count=2"),
        (np.ones((30, 2)), "has no cluster of at least"),
    ],
)
def test_rows_are_refused_as_those_of_an_array(X, told):
    executor, _ = get("lloyd").build(3)
    X, task = np.asarray(X), Task(StepName.CLUSTER, 0, {}, "site-0")
    with pytest.raises(Refusal, match=told):
        executor.answer(task, X, never_abort)
    with pytest.raises(Refusal, match=told):
        executor.answer(task, ClusterTable(LocalParts(X), ("a", "b")), never_abort)


def test_centroids_of_other_columns_are_refused():
    executor, _ = get("lloyd").build(3)
    task = Task(UPDATE, 1, {"centroids": np.zeros((3, 7))}, "site-0")
    with pytest.raises(Refusal, match="rows of 4 columns where the federation has 7"):
        executor.answer(task, in_parts(sites()["site-0"]), never_abort)


def test_late_rows_get_the_labels_of_a_finished_result():
    executor, _ = get("lloyd").build(5, params={"scale": "standard"})
    X = sites()["site-0"]
    scaled = {"mean": X.mean(axis=0), "deviation": X.std(axis=0)}
    task = Task(StepName.PLACE, 0, {"centroids": (X[:5] - scaled["mean"]) / scaled["deviation"], **scaled}, "site-0")
    alone = executor.answer(task, X, never_abort)
    found = executor.answer(task, in_parts(X), never_abort)
    assert found.arrays["rows"] == alone.arrays["rows"] == len(X)
    assert list(found.labels) == alone.labels.tolist()


#: The promises that need neither policies nor other processes.
PROMISED = (
    "same_seed_same_centroids",
    "result_is_finite_and_at_most_k",
    "nothing_sent_is_a_row",
    "small_clusters_stay",
    "size_does_not_grow_with_rows",
    "bad_site_is_left_out",
    "degenerate_sites",
    "no_equations_for_a_row",
    "assessment_equals_pooled",
)


@pytest.mark.parametrize("promise", PROMISED)
@pytest.mark.parametrize("name", IN_PARTS)
def test_promises_hold_over_parts(over_parts, name, promise):
    check = dict(checks_for(get(name)))[promise]
    asked = over_parts()
    check(get(name))
    assert asked
