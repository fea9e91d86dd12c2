"""Every row goes to exactly one site, and each split has the distribution it is named for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.data.partition import _power_sizes, partition
from tests.unit.data.partition_cases import SPLITS, _rows


def _mixes(spec: str, y: np.ndarray, m: int, seed: int = 0) -> np.ndarray:
    """Return (m, classes) how many rows of each class each site has."""
    sites = partition(spec, np.zeros((len(y), 1)), y, m, np.random.default_rng(seed))
    return np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in sites.values()])


@settings(deadline=None)  # the first beta split imports scipy
@given(st.sampled_from(SPLITS), st.integers(1, 60), st.integers(1, 12), st.integers(0, 99), st.data())
def test_every_row_goes_to_exactly_one_site(spec: str, n: int, m: int, seed: int, data: st.DataObject) -> None:
    m = min(m, n)
    X = np.random.default_rng(seed).integers(-2, 3, size=(n, 2)).astype(np.float64)  # with repeated rows
    y = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)))
    if spec == "clusters:2" and not len(np.unique(y)) / m <= 2 <= len(np.unique(y)):
        return
    sites = partition(spec, X, y, m, np.random.default_rng(seed))
    assert list(sites) == [f"site-{i}" for i in range(1, m + 1)]
    np.testing.assert_array_equal(np.arange(n), np.sort(np.concatenate(list(sites.values()))))
    for rows in sites.values():
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize("spec", SPLITS)
def test_the_same_seed_gives_the_same_split_and_another_seed_another(spec: str) -> None:
    X, y = _rows()
    first, again, other = (partition(spec, X, y, 4, np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert all(np.array_equal(first[site], again[site]) for site in first)
    assert any(not np.array_equal(first[site], other[site]) for site in first)


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.1", "dirichlet:1e-6", "dirichlet:1e6"])
def test_equal_sized_splits_differ_by_one_row_at_most(spec: str) -> None:
    _, y = _rows(classes=5, each=21)
    sizes = _mixes(spec, y, 10).sum(axis=1)
    assert sorted(sizes) == [10] * 5 + [11] * 5


def test_iid_has_the_spread_of_sampling_without_replacement() -> None:
    _, y = _rows()  # N = 1000 in classes of 200, sites of 100
    counts = np.concatenate([_mixes("iid", y, 10, seed) for seed in range(40)])
    hypergeometric = 100 * 0.2 * 0.8 * (1000 - 100) / (1000 - 1)
    assert counts.mean() == pytest.approx(20)
    # Within a split the counts of a class sum to 200, so the variance about 20 is the hypergeometric one exactly.
    assert ((counts - 20) ** 2).mean() == pytest.approx(hypergeometric, rel=0.1)


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet-class"])
def test_a_small_alpha_concentrates_and_a_large_one_does_not(name: str) -> None:
    _, y = _rows()
    counts = [np.stack([_mixes(f"{name}:{a}", y, 10, seed) for seed in range(20)]) for a in (0.03, 0.3, 30)]
    # The variance over sites of what they hold of a class of 200 rows.
    small, middle, large = ((c / 200).var(axis=1).mean() for c in counts)
    assert small > 1.5 * middle > 3 * large


def test_dirichlet_of_a_huge_alpha_is_a_draw_from_the_global_mix() -> None:
    _, y = _rows(each=2000)
    shares = _mixes("dirichlet:1e6", y, 10) / 1000
    # 1000 draws with probability 0.2: a standard deviation of 0.0126; five of them.
    assert np.abs(shares[:5] - 0.2).max() < 0.064
    assert _mixes("dirichlet-class:1e6", y, 10) == pytest.approx(200, abs=2)


def test_dirichlet_of_a_tiny_alpha_gives_one_class_per_site() -> None:
    _, y = _rows()  # a class fills two sites of 100 exactly, so none has to mix
    assert ((_mixes("dirichlet:1e-6", y, 10) > 0).sum(axis=1) == 1).all()
    assert ((_mixes("dirichlet-class:1e-6", y, 10) > 0).sum(axis=0) == 1).all()


@pytest.mark.parametrize("alpha", ["1e-308", "1e308"])
def test_extreme_alphas_still_split(alpha: str) -> None:
    _, y = _rows()
    for name in ("dirichlet", "dirichlet-class"):
        assert _mixes(f"{name}:{alpha}", y, 10).sum() == 1000


def test_dirichlet_class_shares_have_the_moments_of_the_distribution() -> None:
    y = np.zeros(10_000, dtype=np.int64)
    a, m = 0.5, 4
    shares = np.concatenate([_mixes(f"dirichlet-class:{a}", y, m, seed) for seed in range(300)]).ravel() / len(y)
    variance = (1 / m) * (1 - 1 / m) / (m * a + 1)  # of a component of Dir(a, ..., a)
    assert ((shares - 1 / m) ** 2).mean() == pytest.approx(variance, rel=0.15)


def test_dirichlet_class_rounds_the_cuts_to_the_nearest_row() -> None:
    # With nearly equal shares of 11 rows the cut is near 5.5: as often above as below it.
    y = np.zeros(11, dtype=np.int64)
    first = np.array([_mixes("dirichlet-class:1e4", y, 2, seed)[0, 0] for seed in range(400)])
    assert set(first) == {5, 6}
    assert (first == 6).mean() == pytest.approx(0.5, abs=0.1)  # four standard deviations


def test_the_first_site_of_dirichlet_has_the_moments_of_a_dirichlet_multinomial() -> None:
    a, k, size = 0.5, 4, 50
    y = np.repeat(np.arange(k), 1000)  # pools so large that no class runs out
    counts = np.array([_mixes(f"dirichlet:{a}", y, 80, seed)[0] for seed in range(400)])
    p, total = 1 / k, k * a
    variance = size * p * (1 - p) * (size + total) / (1 + total)
    assert ((counts - size * p) ** 2).mean() == pytest.approx(variance, rel=0.15)


def test_dirichlet_matches_a_literal_row_by_row_twin_when_classes_run_out() -> None:
    y = np.repeat(np.arange(3), [3, 6, 9])
    runs = 3000

    def literal(rng: np.random.Generator) -> np.ndarray:
        pool = np.bincount(y).astype(float)
        mix = rng.dirichlet([0.8] * 3)
        for _ in range(9):
            p = np.where(pool > 0, mix, 0)
            pool[rng.choice(3, p=p / p.sum())] -= 1
        taken: np.ndarray = np.bincount(y) - pool  # by the first of two sites
        return taken

    rng = np.random.default_rng(1)
    expected = np.array([literal(rng) for _ in range(runs)])
    actual = np.array([_mixes("dirichlet:0.8", y, 2, seed)[0] for seed in range(runs)])
    # Standard errors of a mean are below 0.06 and of a mean square below 0.5 here; four of the difference's.
    np.testing.assert_allclose(expected.mean(axis=0), actual.mean(axis=0), atol=0.3)
    np.testing.assert_allclose((expected**2).mean(axis=0), (actual**2).mean(axis=0), atol=2.5)


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 50))
def test_clusters_gives_each_site_exactly_c_classes_and_each_class_a_holder(c: int, m: int, seed: int) -> None:
    _, y = _rows(classes=6, each=30)
    if m * c < 6:
        return
    counts = _mixes(f"clusters:{c}", y, m, seed)
    assert ((counts > 0).sum(axis=1) == c).all()
    for held in counts.T:
        assert held.max() - held[held > 0].min() <= 1
        assert held.sum() == 30


def test_clusters_with_scarce_classes_gives_at_most_c_classes() -> None:
    y = np.repeat(np.arange(4), [1, 1, 50, 2])
    for seed in range(30):
        counts = _mixes("clusters:2", y, 10, seed)
        assert ((counts > 0).sum(axis=1) <= 2).all()
        assert (counts.sum(axis=0) == [1, 1, 50, 2]).all()


def test_clusters_leave_a_scarce_class_to_as_many_sites_as_it_has_rows() -> None:
    y = np.repeat(np.arange(3), [50, 50, 2])
    for seed in range(30):
        assert ((_mixes("clusters:2", y, 10, seed) > 0).sum(axis=1) == 2).all()


def test_the_odd_row_of_a_class_goes_to_any_of_its_holders() -> None:
    sizes = {tuple(_mixes("clusters:1", np.zeros(3, dtype=np.int64), 2, seed).ravel()) for seed in range(20)}
    assert sizes == {(1, 2), (2, 1)}


def test_clusters_that_cannot_be_placed_are_refused_with_what_would_do() -> None:
    X, y = _rows(classes=5, each=10)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"room for 4 of the 5 classes; use clusters:3 or at least 3 sites"):
        partition("clusters:2", X, y, 2, rng)
    with pytest.raises(UserError, match="there are only 5"):
        partition("clusters:6", X, y, 2, rng)


def test_power_sizes_worked_by_hand() -> None:
    # Shares 1, 1/2, 1/3, 1/4 of 25/12 make 12, 6, 4, 3 of 25.
    assert _power_sizes(25, 4, 1.0).tolist() == [12, 6, 4, 3]
    assert _power_sizes(7, 3, 50.0).tolist() == [5, 1, 1]
    assert _power_sizes(3, 3, 2.0).tolist() == [1, 1, 1]
    assert _power_sizes(10, 4, 1e-9).tolist() == [3, 3, 2, 2]


@given(st.integers(1, 300), st.integers(1, 300), st.floats(1e-3, 1e3))
def test_power_sizes_fall_sum_to_n_and_leave_nobody_out(n: int, m: int, a: float) -> None:
    m = min(m, n)
    sizes = _power_sizes(n, m, a)
    assert sizes.sum() == n
    assert sizes.min() >= 1
    assert (np.diff(sizes) <= 0).all()


def test_power_sizes_are_proportional_where_rows_abound() -> None:
    X, y = _rows(each=2000)
    sizes = [len(rows) for rows in partition("power:1.2", X, y, 8, np.random.default_rng(0)).values()]
    ideal = np.arange(1, 9) ** -1.2
    np.testing.assert_allclose(10_000 * ideal / ideal.sum(), sizes, atol=1)
