"""How large and how small values may be: the same for all algorithms, and refused before anything is computed."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.validation import LARGEST_VALUE, LEAST_VALUE
from flareclust.protocol.registry import algorithms, get

#: Algorithms that do not know values beyond bounds of the site's own are not among these (docs/differential-privacy.md).
#: What gmm adds to all variances by default has a unit, as in scikit-learn. Noise is in the unit of the bounds, and networks compute in float32: neither goes with the unit of the rows.
OTHERS = {name for name in algorithms() if {"differentially-private", "embeds"} & get(name).promises}
CASES = [
    *((name, {"reg_covar": 0.0} if name == "gmm" else {}) for name in algorithms() if name not in OTHERS),
    *((name, {"scale": "standard"}) for name in algorithms() if get(name).partial),
    *(("dkmpp", {"clusterer": clusterer}) for clusterer in ("spectral", "convex")),
    ("ffcm", {"version": "v1"}),
    ("portfolio", {"polish": 2}),
]


def blobs():
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0, 0], [8, 0, 1], [0, 8, 2], [8, 8, 3.0]])
    return {f"site-{i}": np.concatenate([center + rng.normal(size=(15, 3)) for center in centers]) for i in range(1, 5)}


def scaled(sites, exponent):
    return {site: np.ldexp(rows, exponent) for site, rows in sites.items()}


def run(name, params, sites):
    return flareclust.run(name, sites, k=4, seed=1, **params)


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
def test_up_to_the_bounds_values_in_another_unit_give_the_same_clusters_and_metrics(name, params):
    sites = blobs()
    largest = max(np.abs(rows).max() for rows in sites.values())
    usual = run(name, params, sites)
    # The largest powers of two by which no value leaves the bounds. One that a standard deviation leaves is none.
    up, down = int(np.log2(LARGEST_VALUE / largest)), -int(np.log2(1 / (8 * LEAST_VALUE)))
    for exponent in (up, down):
        found = run(name, params, scaled(sites, exponent))
        np.testing.assert_allclose(np.ldexp(found.centroids, -exponent), usual.centroids, rtol=1e-9, atol=1e-9)
        assert not found.outcome.refused
        assert found.metrics["simplified_silhouette"] == pytest.approx(usual.metrics["simplified_silhouette"], rel=1e-9)
        assert found.metrics["davies_bouldin"] == pytest.approx(usual.metrics["davies_bouldin"], rel=1e-9)
        unit = 1.0 if params.get("scale") else 2.0 ** (2 * exponent)
        assert found.metrics["inertia"] == pytest.approx(usual.metrics["inertia"] * unit, rel=1e-9)


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
@pytest.mark.parametrize(
    ("exponent", "words"),
    [
        (194, "has values beyond 1e\\+59, whose squares cannot be added up; give the columns in a larger unit"),
        (460, "has values beyond 1e\\+59"),
        (-340, "has no value beyond 1e-100, whose squares are too small; give the columns in a smaller unit"),
        (-540, "has no value beyond 1e-100"),
        (-1030, "has no value beyond 1e-100"),
    ],
)
def test_values_beyond_the_bounds_are_refused_before_anything_is_computed(name, params, exponent, words):
    with pytest.raises((JobFailed, UserError), match=words) as refused:
        run(name, params, scaled(blobs(), exponent))
    assert "round 1" not in str(refused.value)


def test_a_table_of_zeros_and_one_with_both_large_and_tiny_values_are_no_reason_to_refuse():
    sites = blobs()
    sites["site-4"] = np.zeros((20, 3))
    sites["site-3"][:, 2] = 1e-200
    assert run("pooled", {}, sites).outcome.refused.keys() <= {"site-4"}


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed"])
def test_a_column_that_hardly_varies_beside_others_that_do_is_named(name):
    sites = blobs()
    for rows in sites.values():
        rows[:, 1] *= 1e-110
    with pytest.raises(JobFailed, match=r"the standard deviation of column 2 of 3 is below 1e-100; give such columns"):
        run(name, {"scale": "standard"}, sites)
