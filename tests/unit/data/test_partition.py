"""Every row goes to exactly one site, and each split has the distribution it is named for."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import UserError
from flareclust.data.partition import SPECS, Spec, parse, partition
from flareclust.data.partition_draws import draw_until_drawn, power_sizes

SPLITS = [
    "iid",
    "dirichlet:0.3",
    "dirichlet:1e-6",
    "dirichlet:1e6",
    "dirichlet-class:0.3",
    "dirichlet-class:1e-6",
    "clusters:2",
    "power:1.2",
    "beta:0.1",
    "beta:1e-6",
    "beta:0.1,nearest",
]


def _rows(classes: int = 5, each: int = 200) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(classes), each)
    return np.random.default_rng(0).normal(size=(len(y), 2)) + 10 * y[:, None], y


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
    assert power_sizes(25, 4, 1.0).tolist() == [12, 6, 4, 3]
    assert power_sizes(7, 3, 50.0).tolist() == [5, 1, 1]
    assert power_sizes(3, 3, 2.0).tolist() == [1, 1, 1]
    assert power_sizes(10, 4, 1e-9).tolist() == [3, 3, 2, 2]


@given(st.integers(1, 300), st.integers(1, 300), st.floats(1e-3, 1e3))
def test_power_sizes_fall_sum_to_n_and_leave_nobody_out(n: int, m: int, a: float) -> None:
    m = min(m, n)
    sizes = power_sizes(n, m, a)
    assert sizes.sum() == n
    assert sizes.min() >= 1
    assert (np.diff(sizes) <= 0).all()


def test_power_sizes_are_proportional_where_rows_abound() -> None:
    X, y = _rows(each=2000)
    sizes = [len(rows) for rows in partition("power:1.2", X, y, 8, np.random.default_rng(0)).values()]
    ideal = np.arange(1, 9) ** -1.2
    np.testing.assert_allclose(10_000 * ideal / ideal.sum(), sizes, atol=1)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """Return 16 Gaussians on a 4 x 4 grid of spacing 5, the data the beta split was published with."""
    y = np.repeat(np.arange(16), 50)
    centres = np.array(list(product((-7.5, -2.5, 2.5, 7.5), repeat=2)))
    return centres[y] + np.random.default_rng(0).normal(size=(800, 2)), y


def _concentration(spec: str) -> float:
    """Return the share of a cluster that its largest owner has, over 20 seeds and 5 sites."""
    X, y = _grid()
    tops = []
    for seed in range(20):
        sites = partition(spec, X, None, 5, np.random.default_rng(seed))
        counts = np.array([np.bincount(y[rows], minlength=16) for rows in sites.values()])
        tops.append(counts.max(axis=0).mean() / 50)
    return float(np.mean(tops))


def test_a_small_beta_is_more_local_than_a_large_one() -> None:
    small, large = _concentration("beta:0.1"), _concentration("beta:10")
    assert small > large + 0.05
    assert _concentration("beta:1e4") == pytest.approx(_concentration("iid"), abs=0.02)
    assert _concentration("beta:0.1,nearest") == small


@pytest.mark.parametrize(("b", "published"), [(0.1, 0.875), (1, 0.69), (10, 0.33)])
def test_nearest_is_as_local_as_the_data_sets_published_with_the_paper(b: float, published: float) -> None:
    # Measured on the authors' files of 50 points per cluster and noise 1; their five locations are one draw of ours.
    assert _concentration(f"beta:{b},nearest") == pytest.approx(published, abs=0.05)


def test_given_that_somebody_draws_the_sites_draw_as_if_repeated_until_somebody_did() -> None:
    rates = np.array([0.05, 0.3, 1.2])
    p = 1 - np.exp(-rates)
    exact = {
        drawn: np.prod([q if d else 1 - q for d, q in zip(drawn, p, strict=True)])
        for drawn in product((False, True), repeat=3)
        if any(drawn)
    }
    total = sum(exact.values())
    n = 200_000
    drawn = draw_until_drawn(np.tile(rates, (n, 1)), np.random.default_rng(0))
    for pattern, probability in exact.items():
        share = (drawn == pattern).all(axis=1).mean()
        assert share == pytest.approx(probability / total, abs=4 * np.sqrt(0.25 / n))
    assert drawn.any(axis=1).all()


def test_vanishing_and_infinite_rates_are_drawn_by_exactly_whom_they_should() -> None:
    n = 100_000
    drawn = draw_until_drawn(np.tile([1e-200, 3e-200, 0.0], (n, 1)), np.random.default_rng(0))
    np.testing.assert_allclose([0.25, 0.75, 0], drawn.mean(axis=0), atol=0.006)
    drawn = draw_until_drawn(np.tile([1e-9, np.inf, np.inf], (n, 1)), np.random.default_rng(0))
    np.testing.assert_allclose([0, 1, 1], drawn.mean(axis=0), atol=1e-3)


def test_rows_that_nobody_draws_go_to_the_nearest_location_where_asked() -> None:
    X = np.array([[0.0, 0.0], [1.0, 1.0]] * 50)
    sites = partition("beta:1e-9,nearest", X, None, 2, np.random.default_rng(3))
    owners = {tuple(np.unique(X[rows], axis=0).ravel()) for rows in sites.values()}
    # Equal rows have one nearest location, so no two sites share a place.
    assert all(len(rows) in (0, 50, 100) for rows in sites.values())
    assert len(owners) == 2


def test_far_below_the_distances_the_split_is_by_inverse_distance() -> None:
    # Rows in one place, two sites: the odds are the inverse distances. The locations are the seed's first two draws.
    X = np.concatenate([np.zeros((20_000, 1)), [[1.0]]])
    first, second = np.random.default_rng(5).uniform(0, 1, (2, 1)).ravel()
    for b in ("1e-6", "1e-200"):
        sites = partition(f"beta:{b},redraw", X, None, 2, np.random.default_rng(5))
        share = len(sites["site-1"]) / len(X)
        assert share == pytest.approx((1 / first) / (1 / first + 1 / second), abs=0.015)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("iid", Spec("iid")),
        (" dirichlet:0.3 ", Spec("dirichlet", 0.3)),
        ("clusters:4", Spec("clusters", 4.0)),
        ("beta:0.1", Spec("beta", 0.1)),
        ("beta:0.1,nearest", Spec("beta", 0.1, "nearest")),
        ("none", Spec("none")),
        ("owners", Spec("owners")),
        ("owners:10", Spec("owners", 10.0)),
        ("features-overlap:0.3", Spec("features-overlap", 0.3)),
        ("qmnist-a2", Spec("qmnist-a2")),
    ],
)
def test_specifications_are_parsed_and_written_back(text: str, spec: Spec) -> None:
    assert parse(text) == spec
    assert str(spec) == text.strip()
    assert parse(spec) == spec


@given(st.floats(1e-300, 1e300))
def test_writing_a_specification_loses_nothing(value: float) -> None:
    spec = Spec("dirichlet", value)
    assert parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichet:0.3", r"unknown partition 'dirichet' \(did you mean 'dirichlet'"),
        ("", "unknown partition ''.*choose one of iid, dirichlet:A"),
        ("iid:3", "'iid' takes no value, got '3'"),
        ("none:1", "takes no value"),
        ("dirichlet", "'dirichlet' needs a value; write 'dirichlet:A'"),
        ("dirichlet:", "needs a value"),
        ("dirichlet:zero", "needs a positive number, got 'zero'"),
        ("dirichlet:0", "needs a positive number, got '0'"),
        ("power:-1", "needs a positive number"),
        ("beta:inf", "needs a positive number"),
        ("beta:nan", "needs a positive number"),
        ("clusters:2.5", "needs an integer of at least 1, got '2.5'"),
        ("clusters:0", "needs an integer of at least 1"),
        ("owners:", r"'owners' needs a value; write 'owners\[:N\]'"),
        ("owners:0", "needs an integer of at least 1, got '0'"),
        ("owners:2.5", "needs an integer of at least 1"),
        ("owner", r"unknown partition 'owner' \(did you mean 'owners'"),
        ("beta:0.1,furthest", "no option 'furthest'; write 'beta:B"),
        ("beta:0.1,", "no option ''"),
        ("power:1,nearest", "no option 'nearest'"),
        ("features-overlap", "'features-overlap' needs a value; write 'features-overlap:S'"),
        ("features-overlap:1", "'features-overlap' needs a number between 0 and 1, got '1'"),
        ("features-shared:0", "needs a number between 0 and 1"),
        ("features-shared:nan", "needs a number between 0 and 1"),
        ("feature-shared:0.1", r"unknown partition 'feature-shared' \(did you mean 'features-shared'"),
        ("har-a1:0.3", "'har-a1' takes no value"),
    ],
)
def test_wrong_specifications_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(text)


def test_every_listed_specification_has_a_line_of_help_and_works() -> None:
    X, y = _rows(each=10)
    for name, form in SPECS.items():
        assert form.usage.startswith(name)
        assert form.text
        assert "\n" not in form.text
        if form.splits_columns:
            spec = name if form.value == "no" else f"{name}:0.5"
            with pytest.raises(UserError, match=rf"'{spec}' assigns columns as well as rows.*split_features"):
                partition(spec, X, y, 3, np.random.default_rng(0))
        elif name != "none":
            spec = name if form.value == "no" or form.value_may_lack else f"{name}:2"
            assert len(partition(spec, X, y, 3, np.random.default_rng(0), owners=np.arange(len(X)) % 3)) == 3


@pytest.mark.parametrize("spec", SPLITS)
def test_site_numbers_that_make_no_sense_are_refused(spec: str) -> None:
    X, y = _rows(each=2)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"more sites \(50\) than rows \(10\)"):
        partition(spec, X, y, 50, rng)
    for m in (0, -1, True, 2.0):
        with pytest.raises(UserError, match="number of sites must be an integer of at least 1"):
            partition(spec, X, y, m, rng)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"more sites \(1\) than rows \(0\)"):
        partition(spec, X[:0], y[:0], 1, rng)


def test_missing_and_misfitting_labels_are_refused() -> None:
    X, y = _rows(each=2)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"'clusters:2' needs a class label for every row.*iid, power:A, beta:B"):
        partition("clusters:2", X, None, 2, rng)
    with pytest.raises(UserError, match=r"expected one label per row, shape \(10,\), got shape \(9,\)"):
        partition("dirichlet:1", X, y[:9], 2, rng)


def test_none_is_not_a_split() -> None:
    X, y = _rows(each=2)
    with pytest.raises(UserError, match=r"a folder with one file per site, or a mapping"):
        partition("none", X, y, 2, np.random.default_rng(0))


def test_labels_may_be_any_values() -> None:
    X, y = _rows(each=4)
    names = np.array(["b", "a", "e", "d", "c"])[y]
    sites = partition("clusters:1", X, names, 5, np.random.default_rng(0))
    assert sorted(str(np.unique(names[rows]).item()) for rows in sites.values()) == list("abcde")


def test_every_owner_is_a_site_in_the_order_of_their_numbers() -> None:
    owners = np.array([7, 3, 7, 11, 3])
    X = np.zeros((5, 2))
    for m in (1, 3, 100):  # follows from the data, whatever is said
        sites = partition("owners", X, None, m, np.random.default_rng(0), owners)
        assert {site: rows.tolist() for site, rows in sites.items()} == {
            "site-1": [1, 4],
            "site-2": [0, 2],
            "site-3": [3],
        }
        assert list(sites) == ["site-1", "site-2", "site-3"]
        assert all(rows.dtype == np.int64 for rows in sites.values())


def test_the_first_owners_are_those_of_the_lowest_numbers_and_others_rows_are_left_out() -> None:
    owners = np.array([7, 3, 7, 11, 3])
    sites = partition("owners:2", np.zeros((5, 2)), None, 9, np.random.default_rng(0), owners)
    assert {site: rows.tolist() for site, rows in sites.items()} == {"site-1": [1, 4], "site-2": [0, 2]}


def test_owners_draws_nothing() -> None:
    rng, untouched = np.random.default_rng(4), np.random.default_rng(4)
    partition("owners", np.zeros((5, 2)), None, 2, rng, np.arange(5))
    assert rng.random() == untouched.random()


def test_missing_misfitting_and_too_few_owners_are_refused() -> None:
    X, y = _rows(each=2)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match=r"'owners:3' needs to know whose each row is.*; iid, power:A, beta:B"):
        partition("owners:3", X, y, 2, rng)
    with pytest.raises(UserError, match=r"expected one owner per row, shape \(10,\), got shape \(9,\)"):
        partition("owners", X, y, 2, rng, np.arange(9))
    with pytest.raises(UserError, match=r"'owners:4' asks for 4 owners, but there are only 3; write 'owners'"):
        partition("owners:4", X, y, 2, rng, np.arange(10) % 3)


def test_the_advice_about_labels_and_owners_names_no_split_that_needs_the_other() -> None:
    X, y = _rows(each=2)
    for spec, labels in (("dirichlet:1", None), ("owners", y)):
        with pytest.raises(UserError, match=r"iid, power:A, beta:B\[,redraw\] work without"):
            partition(spec, X, labels, 2, np.random.default_rng(0))
