"""Whether clusters can be trusted: one answer, on rows with known clusters and on rows without any."""

import numpy as np
import pytest

import flareclust
from flareclust.evaluation.null_reference import Comparison, NullTest
from flareclust.evaluation.stability import ClusterStability, word
from flareclust.evaluation.verdict import verdict_on


def repeated(*indices: float) -> list[ClusterStability]:
    return [ClusterStability(c, 100, one, one, one, one, word(one)) for c, one in enumerate(indices)]


def compared(p: float) -> NullTest:
    null = np.array([1.0] * round(p * 20 - 1) + [-1.0] * (20 - round(p * 20)))
    return NullTest((3, 3), (Comparison("silhouette", "box", 0.0, p, null),))


@pytest.mark.parametrize(
    ("stability", "null", "said"),
    [
        (repeated(1.0, 0.9), compared(0.05), "yes: the rows have clusters, and these come back in repeated runs"),
        (repeated(1.0, 0.7), compared(0.05), "in part: cluster 0 comes back in repeated runs, cluster 1 may not"),
        (repeated(0.7, 0.7), compared(0.05), "in part: clusters come back in repeated runs, but not their borders"),
        (repeated(0.5, 0.4), compared(0.05), "no: none of the clusters comes back"),
        (repeated(1.0, 1.0), compared(0.5), "no: rows without clusters do as well"),
        ([], compared(0.5), "no: rows without clusters do as well"),
        ([], compared(0.05), "not tested: the rows have clusters; whether these come back was not tested"),
        (repeated(1.0, np.nan), None, "not tested: the clusters come back in repeated runs, but rows without clusters"),
        (repeated(1.0, 0.7), None, "in part: cluster 0 comes back in repeated runs, cluster 1 may not; rows without"),
        ([], None, "not tested: rows without clusters were not compared; flareclust stability"),
    ],
)
def test_the_answer_follows_from_repeats_and_rows_without_clusters(stability, null, said):
    assert verdict_on(stability, null, 0.4).sentence.startswith(said)


@pytest.mark.parametrize("null", [None, compared(0.05), compared(0.5)])
@pytest.mark.parametrize("stability", [[], repeated(1.0, 1.0), repeated(1.0, 0.7), repeated(0.2, 0.2)])
def test_the_silhouette_changes_no_answer(stability, null):
    words = {verdict_on(stability, null, value).word for value in (None, 0.1, 0.6, 0.95)}
    assert len(words) == 1


def test_a_low_silhouette_is_explained_where_the_clusters_are_there():
    said = verdict_on(repeated(1.0, 1.0), compared(0.05), 0.3).reasons[-1]
    assert said.startswith("silhouette 0.30: low, since clusters touch or there are many columns")
    assert "decides nothing" in verdict_on(repeated(1.0, 1.0), compared(0.5), 0.3).reasons[-1]


@pytest.mark.parametrize(("indices", "said"), [((1.0, 0.999), "index of 1.00"), ((1.0, 0.9), "index of 0.90 to 1.00")])
def test_indices_that_are_written_alike_are_written_once(indices, said):
    assert f"repeated runs: Jaccard {said}" in verdict_on(repeated(*indices), None, 0.5).reasons


def test_real_sites_are_not_told_to_run_what_needs_their_rows():
    assert "that takes the rows themselves, which stay at real sites" in verdict_on([], None, 0.5, remote=True).sentence


def _blobs(centers: np.ndarray, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.repeat(centers, rows, axis=0) + rng.normal(size=(len(centers) * rows, centers.shape[1]))


SETS = {
    "apart": (_blobs(np.array([[0, 0], [9, 0], [0, 9.0]]), 120, 0), 3, "yes"),
    "touching": (_blobs(np.eye(5)[:4] * 3.5, 200, 1), 4, "yes"),
    "many columns": (_blobs(np.random.default_rng(2).normal(size=(8, 40)), 60, 2), 8, "yes"),
    "uniform": (np.random.default_rng(3).uniform(size=(500, 2)), 4, "no"),
    "one Gaussian": (np.random.default_rng(4).normal(size=(500, 2)) * [3, 1], 2, "no"),
}


@pytest.mark.parametrize("name", SETS)
def test_rows_with_and_without_clusters_are_told_apart(name):
    X, k, expected = SETS[name]
    found = flareclust.stability("portfolio", X, k=k, n_sites=3, repeats=4, null=19)
    silhouette = found.result.metrics["simplified_silhouette"]
    assert verdict_on(found.clusters, found.null, silhouette).word == expected
