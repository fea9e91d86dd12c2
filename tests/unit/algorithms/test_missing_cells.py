"""Tables with gaps: a job with `missing=mean` is the job on rows filled with the means over all sites."""

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.microaggregation import microaggregate
from flareclust.core.scaling import known_spread, pooled_known_spread, rounded_spread
from flareclust.engines.late_sites import place
from flareclust.executors.pooled import PooledExecutor
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task

FILLING = [
    name
    for name, one in registry.algorithms().items()
    if one.federated and not one.partial and "missing" in one.parameters()
]
RNG = np.random.default_rng(4)
GROUP = np.arange(240) % 3
COMPLETE = np.column_stack([
    np.array([0, 6, 12])[GROUP] + RNG.normal(size=240),
    5e3 + 100 * RNG.normal(size=240),
    80 * (GROUP == 1) + RNG.normal(size=240),
])  # fmt: skip
X = np.where(RNG.random(COMPLETE.shape) < 0.05, np.nan, COMPLETE)
SITES = {"a": X[:60], "b": X[60:140], "c": X[140:]}


def test_all_algorithms_that_scale_can_fill():
    federated = {name: one for name, one in registry.algorithms().items() if one.federated and not one.partial}
    assert [name for name, one in federated.items() if "scale" in one.parameters()] == FILLING


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
@pytest.mark.parametrize("name", FILLING)
def test_a_job_with_gaps_is_the_job_on_filled_rows(name, secure):
    result = flareclust.run(name, SITES, k=3, missing="mean", secure_sums=secure)
    fill = result.arrays["fill"]
    np.testing.assert_allclose(fill, np.nanmean(X, axis=0), atol=0.1 * np.nanstd(X, axis=0).max())
    filled = {site: np.where(np.isnan(rows), fill, rows) for site, rows in SITES.items()}
    expected = flareclust.run(name, filled, k=3, secure_sums=secure)
    np.testing.assert_array_equal(result.centroids, expected.centroids)
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert result.metrics["inertia"] == expected.metrics["inertia"]


@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
def test_scaled_columns_are_filled_before(scale):
    result = flareclust.run("lloyd", SITES, k=3, missing="mean", scale=scale)
    fill, mean, deviation = (result.arrays[name] for name in ("fill", "mean", "deviation"))
    scaled = {site: (np.where(np.isnan(rows), fill, rows) - mean) / deviation for site, rows in SITES.items()}
    expected = flareclust.run("lloyd", scaled, k=3)
    np.testing.assert_array_equal(result.centroids, expected.centroids * deviation + mean)
    if scale == "standard":
        np.testing.assert_array_equal(fill, mean)


def test_means_and_deviations_are_those_of_the_known_cells():
    counts = np.array([np.count_nonzero(~np.isnan(rows), axis=0) for rows in SITES.values()])
    means = np.array([np.nanmean(rows, axis=0) for rows in SITES.values()])
    m2 = counts * np.array([np.nanvar(rows, axis=0) for rows in SITES.values()])
    found = pooled_known_spread(counts, means, m2)
    np.testing.assert_array_equal(found.counts, np.count_nonzero(~np.isnan(X), axis=0))
    np.testing.assert_allclose(found.mean, np.nanmean(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.nanstd(X, axis=0), rtol=1e-12)
    own = known_spread(COMPLETE, 2)
    for j in range(3):
        one = rounded_spread(COMPLETE[:, j : j + 1])
        assert (own.mean[j], own.deviation[j]) == (one.mean[0], one.deviation[0])


def test_totals_and_single_replies_give_the_same_means():
    both = [
        flareclust.run("pooled", SITES, k=3, missing="mean", scale="standard", secure_sums=s) for s in (False, True)
    ]
    for name in ("fill", "mean", "deviation"):
        np.testing.assert_allclose(both[0].arrays[name], both[1].arrays[name], rtol=1e-12)
    for result in both:
        np.testing.assert_array_equal(result.arrays["missing_cells"], np.isnan(X).sum(axis=0))
        assert int(result.arrays["rows_in_all"]) == len(X)


def test_missing_cells_are_counted_by_column():
    result = flareclust.run("pooled", SITES, k=3, missing="mean")
    (text,) = [text for text in result.warnings if "missing cells" in text]
    for j, number in enumerate(np.isnan(X).sum(axis=0)):
        assert f"'column {j + 1}' {number} (" in text
    complete = {"a": COMPLETE[:100], "b": COMPLETE[100:]}
    assert not any("missing" in text for text in flareclust.run("pooled", complete, k=3, missing="mean").warnings)


def test_columns_with_too_few_known_cells_are_not_described():
    rows = np.array([[1.0, 5.0], [2.0, np.nan], [4.0, np.nan], [7.0, np.nan]])
    sent = PooledExecutor(2, missing="mean").answer(Task(StepName.KNOWN_SCALES, 0, {}, "a"), rows, never_abort).arrays
    assert sent["counts"].tolist() == [[4, 0]]
    assert sent["centroids"][0, 1] == sent["m2"][0, 1] == 0
    assert 5.0 not in sent["centroids"]


def test_a_site_that_lacks_a_column_gets_the_mean_of_the_others():
    lacks = SITES["c"].copy()
    lacks[:, 1] = np.nan
    for policy in (None, {}):
        sites = {**SITES, "c": lacks}
        result = flareclust.run("pooled", sites, k=3, missing="mean", scale="standard", policy=policy)
        assert not result.left_out
        assert result.arrays["fill"][1] == pytest.approx(5e3, abs=60)
        assert not any("apart" in text for text in result.warnings)
    with pytest.raises(flareclust.JobFailed, match="column 2: no site has enough known cells"):
        flareclust.run("pooled", {"b": lacks, "c": lacks}, k=3, missing="mean")


@pytest.mark.parametrize("name", ["lloyd", "kfed", "pooled"])
def test_filled_under_a_policy(name):
    result = flareclust.run(name, SITES, k=3, missing="mean", scale="standard", policy={})
    assert np.ptp(result.centroids[:, 2]) > 40
    assert len(result.labels) == len(X)


def test_groups_of_similar_rows_are_made_of_filled_ones():
    made = np.concatenate(list(microaggregate(X, 10)))
    assert np.isfinite(made).all()
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    np.testing.assert_allclose(made.mean(axis=0), filled.mean(axis=0), atol=0.02 * np.nanstd(X, axis=0).max())
    complete = np.concatenate(list(microaggregate(COMPLETE, 10)))
    assert complete.shape[1] == 3


def test_cells_of_groups_with_few_known_ones_do_not_count():
    corners = np.repeat(RNG.normal(size=(10, 100)), 12, axis=0) * 100
    rows = np.column_stack([corners + RNG.normal(size=corners.shape), np.full(120, np.nan)])
    rows[::12, -1] = np.arange(10.0)  # one in each of ten groups
    rows[:6, -1] = [3.0, 4.0, 4.5, 4.5, 5.0, 6.0]  # enough in one of them
    made = np.concatenate(list(microaggregate(rows, 10)))
    assert made[:, -1].mean() == pytest.approx(4.5)
    rows[:6, -1] = np.nan  # in none: nobody gets their mean
    assert np.isnan(np.concatenate(list(microaggregate(rows, 10)))[:, -1]).all()


def test_rows_of_later_sites_and_users_may_have_gaps(tmp_path):
    result = flareclust.run("pooled", SITES, k=3, missing="mean", scale="robust", out=tmp_path / "out")
    np.testing.assert_array_equal(result.predict(X), result.labels)
    np.testing.assert_array_equal(flareclust.load_result(tmp_path / "out").predict(X), result.labels)
    np.testing.assert_array_equal(place(tmp_path / "out", X, "late"), result.labels)
    assert (tmp_path / "out" / "picture.png").exists()
    with pytest.raises(UserError, match="missing"):
        flareclust.run("pooled", {"a": COMPLETE}, k=3).predict(X)


def test_a_range_of_k_is_filled_as_well():
    assert flareclust.run("lloyd", SITES, k="2..5", missing="mean", scale="standard", criterion="silhouette").k == 3


def test_files_may_have_gaps(tmp_path):
    for site, rows in SITES.items():
        text = "\n".join(",".join("" if np.isnan(cell) else repr(float(cell)) for cell in row) for row in rows)
        (tmp_path / f"{site}.csv").write_text(f"age,crp,size\n{text}\n")
    result = flareclust.run("pooled", str(tmp_path), partition="none", k=3, missing="mean")
    np.testing.assert_array_equal(result.centroids, flareclust.run("pooled", SITES, k=3, missing="mean").centroids)
    assert any("'crp'" in text for text in result.warnings)
    with pytest.raises(flareclust.JobFailed, match="missing=mean"):
        flareclust.run("pooled", str(tmp_path), partition="none", k=3)


def test_a_site_does_not_answer_without_the_means():
    executor = PooledExecutor(3, missing="mean")
    with pytest.raises(Refusal, match="was not sent the means"):
        executor.answer(Task("cluster", 0, {}, "a"), X, never_abort)
    with pytest.raises(Refusal, match="or set missing=mean"):
        PooledExecutor(3).answer(Task("cluster", 0, {}, "a"), X, never_abort)
