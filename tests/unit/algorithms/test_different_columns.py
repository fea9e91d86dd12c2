"""Sites with different columns, by `masked` and `proxy`: clusters found, units, names, and settings by the names of sites."""

import logging

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.core.rounds import match
from flareclust.data.tables import Table
from flareclust.preparation.result import columns_of, warnings
from flareclust.protocol.rounds import Round
from tests.unit.algorithms.different_columns_cases import (
    CHAIN,
    agreement,
    by_name,
    chain_sites,
    far_apart,
    in_order,
    run,
    tables,
    truth,
    window_sites,
)

BOTH = ("masked", "proxy")


def means(found, sites, true):
    """The means (k, D) of the true clusters, in the order of the result's columns."""
    return truth(Round(columns=columns_of(found.arrays)), sites, true)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        *(("masked", {"method": method}) for method in ("auto", "A", "B")),
        ("masked", {"scale": "standard"}),
        ("proxy", {}),
        *(("proxy", {"covariance": covariance}) for covariance in ("ledoit-wolf", "diagonal")),
        ("proxy", {"boxes": True}),
        ("proxy", {"scale": "standard"}),
    ],
)
@pytest.mark.parametrize("seed", [0, 3])
def test_separated_clusters_are_found_with_their_means_and_rows(algorithm, settings, seed):
    sites, true, _ = window_sites(m=3, width=6, seed=seed)
    found = run(algorithm, sites, 3, seed, **settings)
    assert agreement(found, true) == 1
    assert found.arrays["mask"].all()
    best = means(found, sites, true)
    own, of = match(found.centroids, best)
    np.testing.assert_allclose(found.centroids[own], best[of], atol=1e-9)
    rows = np.bincount(np.concatenate(list(true.values())))
    np.testing.assert_array_equal(found.arrays["counts"][own], rows[of])


@pytest.mark.parametrize("algorithm", BOTH)
def test_clusters_are_found_by_direction(algorithm):
    centers = far_apart(3, 6) - 20.0  # around 0, so that directions differ
    centers[:, ::2] = [[20, 20, 20], [-20, 20, -20], [20, -20, -20]]
    centers[:, 1::2] = [[0, 0, 0], [20, -20, 20], [-20, 20, -20]]
    sites, classes = tables({"a": (0, 1, 2, 3), "b": (2, 3, 4, 5), "c": (4, 5, 0, 1)}, centers)
    assert agreement(run(algorithm, sites, 3, phi="cosine"), classes) == 1


@pytest.mark.parametrize("algorithm", BOTH)
def test_sites_in_a_chain_find_clusters_though_the_ends_share_no_column(algorithm):
    centers = far_apart(3, 6)
    sites, classes = tables(CHAIN, centers)
    found = run(algorithm, sites, 3)
    assert agreement(found, classes) == 1
    gaps = np.linalg.norm(centers[:, None] - in_order(found, 6)[None], axis=2)
    assert gaps.min(axis=1).max() < 1.0
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2]


@pytest.mark.parametrize("algorithm", BOTH)
def test_the_number_of_local_clusters_is_found_by_the_silhouette(algorithm):
    sites, true, _ = window_sites(k=5, m=4, d=12, width=8, n=50, seed=2)
    held = dict(zip(sites, ([0, 1], [1, 2, 3], [2, 3, 4, 0], [0, 4]), strict=True))
    kept = {site: np.isin(true[site], held[site]) for site in sites}
    some = {site: Table(table.X[kept[site]], table.columns) for site, table in sites.items()}
    found = run(algorithm, some, 5, k_local="silhouette")
    assert np.bincount(found.arrays["received_site"]).tolist() == [2, 3, 4, 2]
    assert agreement(found, {site: true[site][kept[site]] for site in sites}) == 1


@pytest.mark.parametrize("algorithm", BOTH)
def test_the_order_of_columns_and_of_sites_does_not_matter(algorithm):
    sites, _, _ = window_sites(seed=4)
    shuffled = {}
    for site in reversed(sites):
        mix = np.random.default_rng(len(site)).permutation(len(sites[site].columns))
        own = tuple(np.array(sites[site].columns)[mix].tolist())
        shuffled[site] = Table(np.ascontiguousarray(sites[site].X[:, mix]), own)
    one, other = run(algorithm, sites, 3), run(algorithm, shuffled, 3)
    key = lambda c: c["c0"]
    for a, b in zip(sorted(by_name(one), key=key), sorted(by_name(other), key=key), strict=True):
        assert a == pytest.approx(b)


@pytest.mark.parametrize("algorithm", BOTH)
def test_standardised_columns_give_the_same_labels_in_any_unit(algorithm):
    sites, true, _ = window_sites(seed=6, m=3, width=6)
    units = {f"c{j}": 10.0 ** (j - 4) for j in range(9)}
    other = {s: Table(t.X * [units[n] for n in t.columns] + 5, t.columns) for s, t in sites.items()}
    one, scaled = (run(algorithm, of, 3, scale="standard") for of in (sites, other))
    for site in sites:
        np.testing.assert_array_equal(one.labels[site], scaled.labels[site])
    for a, b in zip(by_name(one), by_name(scaled), strict=True):
        assert {n: v * units[n] + 5 for n, v in a.items()} == pytest.approx(b)
    assert agreement(scaled, true) == 1


@pytest.mark.parametrize("algorithm", BOTH)
def test_sites_with_the_same_columns_need_no_names(algorithm, sites):
    found = run(algorithm, sites, 4)
    assert found.arrays["mask"].all()
    assert min(len(np.unique(found.labels[site])) for site in sites) == 4


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_constant_column_links_no_sites_and_the_user_is_warned(algorithm):
    rng = np.random.default_rng(0)
    columns = {"north": ("a", "b", "batch"), "south": ("x", "y", "batch"), "west": ("x", "z", "batch")}
    sites = {}
    for site, own in columns.items():
        rows = np.repeat([[0.0, 0.0], [30.0, 30.0]], 40, axis=0) + rng.normal(size=(80, 2))
        sites[site] = Table(np.column_stack([rows, np.full(80, 7.0)]), own)
    found = run(algorithm, sites, 2)
    (reported,) = [text for text in warnings(found.arrays, 0) if "without a shared column" in text]
    assert "{north}; {south, west}" in reported
    assert reported.endswith("Constant columns link no sites: batch")


@pytest.mark.parametrize(
    ("algorithm", "settings"), [("masked", {"method": "auto"}), ("masked", {"method": "A"}), ("proxy", {})]
)
def test_a_constant_column_at_every_second_site_changes_nothing(algorithm, settings):
    def constant(rng, i):
        return np.full(100, 7.0) if i % 2 == 0 else None

    for seed in range(4):
        plain, true = chain_sites(seed)
        found = [
            agreement(run(algorithm, sites, 4, seed, scale="standard", **settings), true)
            for sites in (plain, chain_sites(seed, constant)[0])
        ]
        assert found[1] == found[0] > 0.95


# ---- settings ----


@pytest.mark.parametrize(
    ("algorithm", "settings"), [("masked", {"method": "A"}), ("masked", {"method": "B"}), ("proxy", {})]
)
def test_more_clusters_than_all_sites_found_are_refused_with_advice(algorithm, settings):
    sites, _, _ = window_sites(m=2, d=6, width=4)
    with pytest.raises(JobFailed, match=r"6 .*7.*k_local"):
        run(algorithm, sites, 7, k_local=3, **settings)


@pytest.mark.parametrize("algorithm", BOTH)
def test_sites_that_settings_name_wrongly_are_warned_of(algorithm, caplog):
    sites, _, _ = window_sites(m=2, d=6, width=4)
    with caplog.at_level(logging.WARNING):
        run(algorithm, sites, 3, k_local={"site1": 3}, clusterer={"site-9": "kmedoids", "site-0": "kmeans"})
    assert [record.getMessage() for record in caplog.records if " names " in record.getMessage()] == [
        "k_local names 'site1' (did you mean 'site-1'?), which is none of the sites",
        "clusterer names 'site-9' (did you mean 'site-1'?), which is none of the sites",
    ]


@pytest.mark.parametrize("algorithm", BOTH)
def test_sites_may_cluster_in_their_own_ways(algorithm):
    sites, classes = tables(CHAIN, far_apart(3, 6))
    own = {"clusterer": {"a": "agglomerative", "b": "kmedoids"}, "k_local": {"a": "silhouette"}}
    assert agreement(run(algorithm, sites, 3, **own), classes) == 1
