"""Columns of sites with different ones, scaled by what all sites that have a column say of it."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust import JobFailed
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task
from flareclust.testing.promised import overlapping_sites
from flareclust.testing.tools import exchanges
from tests.unit.preparation.described_cases import FEDERATED, frames

WIDE = {site: frame.assign(**{c: 1e3 * frame[c] + 7 for c in frame if c == "crp"}) for site, frame in frames().items()}
NAMES = ["age", "crp", "iron", "lactate", "sodium", "urea"]
RNG = np.random.default_rng(2)
BELLS = {
    site: frame.assign(**{c: RNG.normal(NAMES.index(c), 10.0 ** NAMES.index(c), len(frame)) for c in frame})
    for site, frame in frames().items()
}
POOLED = pd.concat(list(BELLS.values()))


def scaled_by_hand(result, sites):
    found = pd.DataFrame([result.arrays["mean"], result.arrays["deviation"]], columns=list(result.columns))
    return {site: (frame - found.loc[0, frame.columns]) / found.loc[1, frame.columns] for site, frame in sites.items()}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
@pytest.mark.parametrize("name", ["masked", "fkm-common"])
def test_a_scaled_job_is_the_job_on_scaled_rows(name, scale, secure):
    result = flareclust.run(name, WIDE, k=4, scale=scale, secure_sums=secure)
    sites = {site: frame[[c for c in frame if c in result.columns]] for site, frame in WIDE.items()}
    expected = flareclust.run(name, scaled_by_hand(result, sites), k=4, secure_sums=secure)
    mean, deviation = result.arrays["mean"], result.arrays["deviation"]
    np.testing.assert_allclose(result.centroids, expected.centroids * deviation + mean, rtol=1e-9, atol=1e-9)
    for site, frame in WIDE.items():
        np.testing.assert_array_equal(result.site_labels[site], expected.site_labels[site])
        np.testing.assert_array_equal(result.predict(frame), result.site_labels[site])


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_quartiles_and_ranges_are_those_of_the_rows_of_the_sites_with_the_column(name, missing):
    result = flareclust.run(name, BELLS, k=4, scale="robust", missing=missing)
    own = POOLED[list(result.columns)]
    spread = own.quantile(0.75) - own.quantile(0.25)
    np.testing.assert_allclose(result.arrays["deviation"], spread, rtol=0.1)
    assert (np.abs(result.arrays["mean"] - own.median()) < 0.1 * spread).all()
    result = flareclust.run(name, BELLS, k=4, scale="range", missing=missing)
    inside = ((own - result.arrays["mean"]) / result.arrays["deviation"]).stack().dropna().between(0, 1)
    assert inside.mean() > 0.99  # never exact extremes
    assert (result.arrays["deviation"] < 1.1 * (own.max() - own.min())).all()


def test_agreed_ranges_need_no_bins():
    ranges = {name: [-20.0, 20.0] for name in NAMES}
    result = flareclust.run("masked", frames(), k=4, scale="range", table_ranges=ranges)
    np.testing.assert_array_equal(result.arrays["deviation"], 40.0)
    assert not any(record["step"] == StepName.BINNED for record in result.outcome.rounds)


def test_imputed_columns_are_filled_with_means_whatever_scales_them():
    result = flareclust.run("fkm-imputed", WIDE, k=4, scale="robust")
    filled = {
        site: frame.reindex(columns=list(result.columns)).fillna(
            pd.Series(result.arrays["fill"], index=list(result.columns))
        )
        for site, frame in WIDE.items()
    }
    expected = flareclust.run("fkm-common", scaled_by_hand(result, filled), k=4)
    mean, deviation = result.arrays["mean"], result.arrays["deviation"]
    np.testing.assert_allclose(result.centroids, expected.centroids * deviation + mean, rtol=1e-9, atol=1e-9)
    for site, frame in WIDE.items():
        np.testing.assert_array_equal(result.predict(frame), result.site_labels[site])


@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
def test_scaled_under_a_policy(scale):
    result = flareclust.run("masked", WIDE, k=4, scale=scale, policy={})
    assert not result.left_out
    assert np.ptp(result.centroids[:, list(result.columns).index("iron")]) > 10


@pytest.mark.parametrize("name", FEDERATED)
def test_beside_numbers_in_bins_no_exact_sums_are_sent(name):
    sites, _ = overlapping_sites()
    for task, sent in exchanges(registry.get(name), sites, k=4, scale="robust"):
        if task.step == StepName.DESCRIBE:
            assert not len(sent["mean"])
        if task.step == StepName.KNOWN_MOMENTS:
            for mean, spread in zip(sent["centroids"][:, 0], np.sqrt(sent["m2"][:, 0] / sent["counts"]), strict=True):
                assert mean % (2.0 ** np.ceil(np.log2(spread / 64)) / 2) == 0


def test_a_site_counts_nothing_of_columns_that_it_lacks():
    sites, _ = overlapping_sites()
    executor, _ = registry.get("masked").build(4, 0, {"scale": "robust"})
    described = executor.answer(
        Task(StepName.DESCRIBE, 0, {}, "a"), Table(np.eye(4), ("a", "b", "c", "d")), never_abort
    ).arrays
    asked = {"columns": described["codes"], "low": np.full(4, -20.0), "width": np.full(4, 0.5)}
    table = Table(np.ascontiguousarray(sites["north"].X[:, :2]), ("c", "a"))
    counts = executor.answer(Task(StepName.BINNED, 0, asked, "a"), table, never_abort).arrays["counts"]
    assert counts.sum(axis=1).tolist() == [267, 0, 267, 0]


# ---- categories ----


def with_sex():
    rng = np.random.default_rng(1)
    sites = {}
    for site, frame in frames().items():
        sex = rng.integers(2, size=len(frame)).astype(float)
        own = {} if site == "west" else {"sex=f": sex, "sex=m": 1 - sex}
        sites[site] = frame.assign(**own)
    return sites


@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
def test_a_category_that_a_site_lacks_counts_as_one_column(scale):
    sites = with_sex()
    result = flareclust.run("masked", sites, k=4, scale=scale, categories=[["sex=f", "sex=m"]])
    both = [list(result.columns).index(name) for name in ("sex=f", "sex=m")]
    divisor = result.arrays["deviation"][both]
    assert divisor[0] == divisor[1]
    pooled = pd.concat(list(sites.values()))
    share = pooled["sex=f"].mean()
    numbers = [j for j in range(len(result.columns)) if j not in both]
    spread = [pooled[result.columns[j]].std() / result.arrays["deviation"][j] for j in numbers]
    of_number = np.median(np.square(spread))
    np.testing.assert_allclose(2 * share * (1 - share) / divisor[0] ** 2, 2 / np.pi * of_number, rtol=0.05)
    np.testing.assert_allclose(result.arrays["mean"][both], [share, 1 - share], atol=0.02)


def test_categories_that_no_site_has_are_named():
    with pytest.raises(JobFailed, match=r"no site has a column 'sex=x' or 'sex=y', which categories name"):
        flareclust.run("masked", with_sex(), k=4, scale="standard", categories=[["sex=x", "sex=y"]])
