"""Columns that are scaled first: the same as scaled rows, in every algorithm that has `scale`, and nothing more disclosed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import flareclust
from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import never_abort
from flareclust.aggregators.portfolio import PortfolioAggregator
from flareclust.core.scaling import pooled_spread, rounded_spread
from flareclust.engines.late_sites import place
from flareclust.evaluation import agreement
from flareclust.evaluation.batch_effects import batch_effects
from flareclust.executors.pooled import PooledExecutor
from flareclust.executors.portfolio import PortfolioExecutor
from flareclust.federation.server import ServerJob
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task

SCALABLE = [
    name
    for name, one in registry.algorithms().items()
    if one.federated and not one.partial and "scale" in one.parameters()
]
GROUP = np.arange(240) % 3
RNG = np.random.default_rng(0)
X = np.column_stack(
    [
        np.array([0, 6, 12])[GROUP] + RNG.normal(size=240),
        5e4 + 1e3 * RNG.normal(size=240),
        80 * (GROUP == 1) + RNG.normal(size=240),
    ]
)
SITES = {"a": X[:60], "b": X[60:140], "c": X[140:]}


def test_all_algorithms_of_numbers_can_scale():
    expected = {
        "dkmpp",
        "feca",
        "ffcm",
        "fkm",
        "gmm",
        "kfed",
        "kprototypes",
        "lloyd",
        "mavg",
        "minibatch",
        "pooled",
        "portfolio",
        "tree",
    }
    assert set(SCALABLE) == expected


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
@pytest.mark.parametrize("name", SCALABLE)
def test_a_scaled_job_is_the_job_on_scaled_rows(name, secure):
    result = flareclust.run(name, SITES, k=3, scale="standard", secure_sums=secure)
    mean, deviation = result.arrays["mean"], result.arrays["deviation"]
    np.testing.assert_allclose(deviation, X.std(axis=0), rtol=0.15)
    scaled = {site: (rows - mean) / deviation for site, rows in SITES.items()}
    expected = flareclust.run(name, scaled, k=3, secure_sums=secure)
    np.testing.assert_array_equal(result.centroids, expected.centroids * deviation + mean)
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert result.metrics["inertia"] == expected.metrics["inertia"]


@pytest.mark.parametrize("name", SCALABLE)
def test_scaled_under_a_policy(name):
    result = flareclust.run(name, SITES, k=3, scale="standard", policy={})
    assert (np.abs(result.centroids - X.mean(axis=0)) < 3 * X.std(axis=0)).all()
    assert np.ptp(result.centroids[:, 2]) > 40  # not scaled, the second column hides the groups
    assert len(result.labels) == len(X)


def test_totals_and_single_replies_give_the_same_scaling():
    both = [flareclust.run("pooled", SITES, k=3, scale="standard", secure_sums=secure) for secure in (False, True)]
    for name in ("mean", "deviation"):
        np.testing.assert_allclose(both[0].arrays[name], both[1].arrays[name], rtol=1e-12)
    assert "site_means" in both[0].arrays
    assert "site_means" not in both[1].arrays  # nobody knows them then


def test_rows_of_later_sites_and_users_are_in_the_columns_units(tmp_path):
    result = flareclust.run("pooled", SITES, k=3, scale="standard", out=tmp_path / "out")
    np.testing.assert_array_equal(result.predict(X), result.labels)
    again = flareclust.load_result(tmp_path / "out")
    np.testing.assert_array_equal(again.predict(X), result.labels)
    np.testing.assert_array_equal(place(tmp_path / "out", X, "late"), result.labels)
    assert (tmp_path / "out" / "picture.png").exists()


def test_a_late_site_of_kfed_clusters_its_rows_scaled(tmp_path):
    """Its labels come of clusters of its own; unscaled, the wide column alone makes them."""
    result = flareclust.run("kfed", SITES, k=3, scale="standard", out=tmp_path / "out")
    np.testing.assert_array_equal(place(tmp_path / "out", SITES["b"], "late"), result.site_labels["b"])


def test_a_range_of_k_is_scaled_as_well():
    assert flareclust.run("lloyd", SITES, k="2..5", scale="standard", criterion="silhouette").k == 3


def test_a_constant_column_stays_and_decides_nothing():
    sites = {site: np.column_stack([rows, np.full(len(rows), 7.0)]) for site, rows in SITES.items()}
    result = flareclust.run("pooled", sites, k=3, scale="standard")
    np.testing.assert_array_equal(result.centroids[:, 3], 7.0)
    np.testing.assert_array_equal(result.labels, flareclust.run("pooled", SITES, k=3, scale="standard").labels)


def test_a_small_site_is_left_out():
    result = flareclust.run("pooled", {**SITES, "small": X[:3]}, k=3, scale="standard", min_count=5)
    assert "fewer rows than min_count=5" in result.left_out["small"]


@pytest.mark.parametrize("deviation", [0.0, -1.0, np.nan])
def test_a_site_checks_the_scaling_that_it_is_sent(deviation):
    task = Task("cluster", 0, {"mean": np.zeros(3), "deviation": np.full(3, deviation)}, "a")
    with pytest.raises(BadMessage, match="deviation"):
        PooledExecutor(3, scale="standard").answer(task, X, never_abort)


def test_the_best_solution_so_far_keeps_the_scaling():
    server = PortfolioAggregator(3, scale="standard")
    executor = PortfolioExecutor(3, scale="standard")
    server = ServerJob(server)
    round_ = server.first()
    assert round_.step == StepName.SCALES
    while (found := server.so_far(round_)) is None:
        replies = {
            site: {name: value for name, value in executor.answer(Task(round_.step, round_.index, round_.sent, site), rows, never_abort).arrays.items() if name != "seconds"}
            for site, rows in SITES.items()
        }  # fmt: skip
        round_ = server.advance(round_, replies)
    assert not round_.done
    np.testing.assert_array_equal(found.sent["deviation"], round_.sent["deviation"])
    assert abs(server.result(found)["centroids"][:, 1] - 5e4).max() < 3e3


def test_different_columns_are_scaled_in_steps_of_their_own():
    assert StepName.SCALES not in registry.get("fkm-common").executor_class().steps


rows_of_sites = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 60), st.integers(1, 3)),
    elements=st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
)


@settings(deadline=None)
@given(rows_of_sites)
def test_rounded_spread_is_near_and_hides_single_rows(rows):
    n, mean, deviation = rounded_spread(rows)
    true = np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 0.0)
    coarse = np.maximum(true * max(1 / 64, 4 / len(rows)), np.where(true > 0, 0, np.abs(rows[0]) * 2.0**-20))
    assert n == len(rows)
    assert (np.abs(mean - rows.mean(axis=0)) <= coarse * 1.001).all()
    assert (np.abs(deviation - true) <= coarse * 2.001).all()
    # Sums on this grid, n times as wide, say where a row lies within 4 deviations at best.
    grid = np.exp2(np.ceil(np.log2(coarse[true > 0])))
    assert (len(rows) * grid >= 4 * true[true > 0]).all()
    np.testing.assert_array_equal(mean[true > 0] / grid, np.round(mean[true > 0] / grid))
    np.testing.assert_array_equal(deviation[true > 0] / grid, np.round(deviation[true > 0] / grid))


@pytest.mark.parametrize("value", [0.1, -0.1, 5e4 + 1 / 3, -(2.0**20), 0.0])
def test_the_mean_of_a_constant_column_is_rounded_on_a_grid_of_its_own_size(value):
    """The power of two at or above a millionth (2^-20) of the value, whatever its sign and the number of rows."""
    for n in (2, 3, 50):
        _, mean, deviation = rounded_spread(np.full((n, 1), value))
        grid = 2.0 ** np.ceil(np.log2(abs(value) * 2.0**-20)) if value else 1.0
        np.testing.assert_array_equal(mean, [np.round(value / grid) * grid])
        np.testing.assert_array_equal(deviation, [0.0])


def test_spread_of_sites_is_that_of_their_rows():
    parts = list(SITES.values())
    n = np.array([float(len(part)) for part in parts])
    found = pooled_spread(
        n, np.array([part.mean(axis=0) for part in parts]), np.array([len(part) * part.var(axis=0) for part in parts])
    )
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, X.std(axis=0), rtol=1e-12)


# ---- what sites mean by their columns ----

NAMES = ("age", "weight", "size")


@pytest.mark.parametrize(
    ("factor", "offset", "words"),
    [
        (0.1, 0, "is about 10 times smaller"),
        (1000, 0, "is about 1,000 times larger"),
        (2.54, 0, "2.54 (inches)"),
        (1.8, 32, "Fahrenheit"),
        (1, 400, "has values apart from those of other sites"),
    ],
)
def test_another_unit_is_named_with_site_and_column(factor, offset, words):
    rng = np.random.default_rng(1)
    sites = {f"s{i}": rng.normal([50, 70, 37], [15, 12, 4], (200, 3)) for i in range(4)}
    sites["s2"][:, 2] = sites["s2"][:, 2] * factor + offset
    result = flareclust.run("pooled", sites, k=2, scale="standard")
    named = [text for text in result.warnings if "column" in text]
    assert len(named) == 1
    assert named[0].startswith("s2: column 'column 3'")
    assert words in named[0]


def test_sites_that_differ_within_reason_are_not_named():
    rng = np.random.default_rng(1)
    means = np.array([[50, 70, 170], [58, 75, 172], [41, 66, 165]]) + rng.normal(size=(3, 3))
    deviations = np.array([[15, 12, 9], [11, 14, 10], [19, 10, 8.0]])
    cells = np.full((3, 3), 200)
    assert agreement.unit_warnings(["a", "b", "c"], cells, means, deviations, NAMES) == []
    assert agreement.unit_warnings(["a"], cells[:1], means[:1], deviations[:1], NAMES) == []


def test_of_two_sites_one_is_named():
    found = agreement.unit_warnings(
        ["a", "b"], np.full((2, 1), 50), np.array([[1.7], [170.0]]), np.array([[0.1], [10.0]]), ["size"]
    )
    assert found == ["a: column 'size' is about 100 times smaller than at other sites; is it in another unit?"]


def test_a_cluster_of_one_site_may_be_a_batch_effect():
    counts = {"a": np.array([40, 50, 0]), "b": np.array([30, 60, 1]), "c": np.array([0, 1, 99])}
    (text,) = batch_effects(counts)
    assert text.startswith("cluster 2 may be a batch effect: 99 % of its rows are those of c, and they are 99 %")
    assert batch_effects({"c": counts["c"]}) == []
    assert batch_effects({"a": np.array([5, 0]), "b": np.array([0, 100])})[0].startswith("cluster 1")


def test_a_batch_effect_is_among_the_warnings():
    sites = {**SITES, "d": SITES["a"] + [0, 0, 5000]}
    assert any(
        "batch effect" in text and " d," in text
        for text in flareclust.run("pooled", sites, k=4, scale="standard").warnings
    )
    assert not any("batch effect" in text for text in flareclust.run("pooled", SITES, k=3, scale="standard").warnings)


# ---- other ways to scale ----


@pytest.mark.parametrize("scale", ["robust", "range"])
@pytest.mark.parametrize("name", SCALABLE)
def test_jobs_with_other_scales_are_those_on_scaled_rows(name, scale):
    result = flareclust.run(name, SITES, k=3, scale=scale)
    mean, deviation = result.arrays["mean"], result.arrays["deviation"]
    scaled = {site: (rows - mean) / deviation for site, rows in SITES.items()}
    expected = flareclust.run(name, scaled, k=3)
    np.testing.assert_array_equal(result.centroids, expected.centroids * deviation + mean)
    np.testing.assert_array_equal(result.labels, expected.labels)


@pytest.mark.parametrize("scale", ["robust", "range"])
def test_bins_add_up_to_the_same_with_secure_sums(scale):
    plain, secure = (flareclust.run("lloyd", SITES, k=3, scale=scale, secure_sums=one) for one in (False, True))
    for name in ("mean", "deviation"):
        np.testing.assert_allclose(plain.arrays[name], secure.arrays[name], rtol=1e-12)


def test_robust_scaling_takes_median_and_quartiles():
    result = flareclust.run("pooled", SITES, k=3, scale="robust")
    width = 8 * X.std(axis=0) / 128
    between = np.subtract(*np.quantile(X, [0.75, 0.25], axis=0))
    assert (np.abs(result.arrays["mean"] - np.median(X, axis=0)) < 2 * width)[:2].all()
    np.testing.assert_allclose(result.arrays["deviation"], between, atol=3 * width.max(), rtol=0.1)


def test_range_scaling_brings_nearly_all_cells_into_0_to_1():
    result = flareclust.run("pooled", SITES, k=3, scale="range")
    scaled = (X - result.arrays["mean"]) / result.arrays["deviation"]
    assert ((scaled >= 0) & (scaled <= 1)).mean() > 0.98
    assert not np.isin(result.arrays["mean"], X).any()
    assert scaled.min() > -0.1
    assert scaled.max() < 1.1


def test_a_schema_states_ranges():
    ranges = [[0.0, 20.0], None, [0.0, 100.0]]
    result = flareclust.run("pooled", SITES, k=3, scale="range", table_ranges=ranges)
    np.testing.assert_array_equal(result.arrays["mean"][[0, 2]], [0, 0])
    np.testing.assert_array_equal(result.arrays["deviation"][[0, 2]], [20, 100])
    assert 4e3 < result.arrays["deviation"][1] < 8e3
    ranges[1] = [4e4, 6e4]
    result = flareclust.run("pooled", SITES, k=3, scale="range", table_ranges=ranges)
    assert result.arrays["mean"].tolist() == [0, 4e4, 0]
    assert [record["step"] for record in result.outcome.rounds] == ["scales", "cluster", "assess"]


def test_a_column_without_quartiles_is_scaled_by_its_deviation():
    rows = {site: np.column_stack([one, np.arange(len(one)) % 10 == 0]) for site, one in SITES.items()}
    result = flareclust.run("pooled", rows, k=3, scale="robust")
    standard = flareclust.run("pooled", rows, k=3, scale="standard")
    for name in ("mean", "deviation"):
        assert result.arrays[name][3] == standard.arrays[name][3]


def test_given_centroids_are_in_the_units_of_the_columns(sites):
    X = np.concatenate(list(sites.values()))
    start = X[:4] * [1, 100, 10_000]
    large = {site: rows * [1, 100, 10_000] for site, rows in sites.items()}
    result = flareclust.run("lloyd", large, k=4, scale="standard", start=start.tolist(), rounds=1)
    mean, deviation = result.arrays["mean"], result.arrays["deviation"]
    pooled = np.concatenate(list(large.values()))
    labels = (((pooled - mean) / deviation)[:, None] - ((start - mean) / deviation)[None]) ** 2
    nearest = labels.sum(axis=2).argmin(axis=1)
    expected = np.array([pooled[nearest == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(result.centroids, expected, rtol=1e-9)
