"""Missing cells in a site's own columns, where sites have different ones: rows are dropped, or cells are filled."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust import JobFailed
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.experiment.tables.late_rows import place_file
from flareclust.preparation import alignment
from flareclust.preparation import result as partial
from flareclust.preparation.different import Description
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task
from tests.unit.preparation.described_cases import FEDERATED, frames

RNG = np.random.default_rng(3)
GAPS = {site: frame.mask(RNG.random(frame.shape) < 0.05) for site, frame in frames().items()}
FILL = pd.concat(list(GAPS.values())).mean()  # of the rows of the sites that have the column
FILLED = {site: frame.fillna(FILL) for site, frame in GAPS.items()}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
@pytest.mark.parametrize("name", FEDERATED)
def test_a_job_with_gaps_is_the_job_on_rows_that_pandas_has_filled(name, secure):
    result = flareclust.run(name, GAPS, k=4, missing="mean", secure_sums=secure)
    expected = flareclust.run(name, FILLED, k=4, secure_sums=secure)
    np.testing.assert_allclose(result.arrays["fill"], FILL[list(result.columns)], rtol=1e-9)
    np.testing.assert_allclose(result.centroids, expected.centroids, rtol=1e-9)
    np.testing.assert_allclose(result.metrics["inertia"], expected.metrics["inertia"], rtol=1e-9)
    for site, frame in GAPS.items():
        np.testing.assert_array_equal(result.site_labels[site], expected.site_labels[site])
        np.testing.assert_array_equal(result.predict(frame), result.site_labels[site])


@pytest.mark.parametrize("name", FEDERATED)
def test_rows_that_were_dropped_are_labelled_only(name):
    result = flareclust.run(name, GAPS, k=4, missing="drop-rows")
    expected = flareclust.run(name, {site: frame.dropna() for site, frame in GAPS.items()}, k=4)
    np.testing.assert_array_equal(result.centroids, expected.centroids)
    assert result.metrics["inertia"] == expected.metrics["inertia"]
    for site, frame in GAPS.items():
        complete = frame.notna().all(axis=1)
        assert len(result.site_labels[site]) == len(frame)
        np.testing.assert_array_equal(result.site_labels[site][complete], expected.site_labels[site])
        np.testing.assert_array_equal(result.predict(frame)[~complete], result.site_labels[site][~complete])
    gone = {site: int(frame.isna().any(axis=1).sum()) for site, frame in GAPS.items()}
    (text,) = [text for text in result.warnings if "missing: drop-rows" in text]
    assert text.startswith(f"{sum(gone.values())} of 800 rows were left out")
    assert all(f"{site} {number} of " in text for site, number in gone.items())


def test_missing_cells_are_counted_without_a_site_that_refuses_after_its_description(monkeypatch):
    others = {site: {*pd.concat([one for name, one in GAPS.items() if name != site])} for site in GAPS}
    lost = next(site for site, frame in GAPS.items() if {*frame} <= others[site])

    def refuses(self, task, *arguments, known_moments=Description.known_moments):
        if task.site == lost:
            raise Refusal("has lost its disk")
        return known_moments(self, task, *arguments)

    without = {site: frame for site, frame in GAPS.items() if site != lost}
    expected = flareclust.run("masked", without, k=4, missing="mean").arrays
    monkeypatch.setattr(Description, "known_moments", refuses)
    found = flareclust.run("masked", GAPS, k=4, missing="mean").arrays
    counts = dict(zip(found["column_names"].tolist(), found["missing_cells"].tolist(), strict=True))
    for name, number in zip(expected["column_names"].tolist(), expected["missing_cells"].tolist(), strict=True):
        assert counts[name] == number


def test_missing_cells_are_counted_over_the_sites_that_have_the_column():
    result = flareclust.run("masked", GAPS, k=4, missing="mean")
    missing = pd.concat(list(GAPS.values())).isna().sum() - sum(
        len(frame) * ~FILL.index.to_series().isin(frame.columns) for frame in GAPS.values()
    )
    assert dict(zip(result.columns, result.arrays["missing_cells"], strict=True)) == missing.to_dict()
    (text,) = [text for text in result.warnings if "missing cells" in text]
    share = 100 * missing["urea"] / len(GAPS["south"])
    assert f"'urea' {missing['urea']} ({share:.2g} %)" in text


@pytest.mark.parametrize("missing", ["mean", "drop-rows"])
def test_files_late_sites_and_the_model_take_rows_with_gaps(missing, tmp_path):
    (tmp_path / "sites").mkdir()
    for site, frame in GAPS.items():
        frame.to_csv(tmp_path / "sites" / f"{site}.csv", index=False)
    result = flareclust.run("masked", tmp_path / "sites", k=4, partition="none", missing=missing, out=tmp_path / "out")
    np.testing.assert_array_equal(result.centroids, flareclust.run("masked", GAPS, k=4, missing=missing).centroids)
    placed = place_file(tmp_path / "out", tmp_path / "sites" / "south.csv", "late")[0]
    np.testing.assert_array_equal(placed, result.site_labels["south"])
    np.testing.assert_array_equal(model_of(result, tmp_path).predict(None, GAPS["south"]), placed)
    only_gaps = GAPS["south"][GAPS["south"].isna().any(axis=1)]
    only_gaps.to_csv(tmp_path / "late.csv", index=False)
    assert (place_file(tmp_path / "out", tmp_path / "late.csv", "late")[0] >= 0).all()


def model_of(result, folder):
    from flareclust.tracking.model import NearestCentroid

    settings, centroids = folder / "settings.json", folder / "centroids.npy"
    gaps = partial.model_settings(result.algorithm, result.params, result.arrays)
    settings.write_text(json.dumps({"gaps": gaps}))
    np.save(centroids, result.centroids, allow_pickle=False)
    model = NearestCentroid()
    model.load_context(SimpleNamespace(artifacts={"centroids": centroids, "settings": settings}))
    return model


# ---- what a site does not send, and what it does not do ----


def test_columns_with_too_few_known_cells_are_not_described():
    rows = np.array([[1.0, 5.0, 3.0], [2.0, np.nan, 1.0], [4.0, 7.0, 9.0], [7.0, np.nan, 2.0]])
    table = Table(rows, ("a", "b", "c"))
    sent = alignment.moments_of_known(table, alignment._codes_of(table), 2)
    assert sent["cluster"].tolist() == [0, 2]
    np.testing.assert_allclose(sent["centroids"][:, 0], rows[:, [0, 2]].mean(axis=0), rtol=1e-15)
    assert not len(alignment.moments_of_known(table, alignment._codes_of(table), 5)["cluster"])
    at_mean = Table(np.array([[1.0, 2.0], [3.0, 4.0], [2.0, 3.0]]), ("a", "b"))  # a row is the mean of all
    assert not len(alignment.moments_of_known(at_mean, alignment._codes_of(at_mean), 2)["cluster"])


def test_the_description_of_a_job_that_fills_has_names_only():
    executor, _ = registry.get("masked").build(4, 0, {"missing": "mean", "scale": "standard"})
    sent = executor.answer(
        Task(StepName.DESCRIBE, 0, {}, "north"), Table(GAPS["north"].to_numpy(), ("a", "b", "c", "d")), never_abort
    )
    assert not len(sent.arrays["mean"])
    assert not len(sent.arrays["m2"])


def test_a_column_that_no_site_knows_well_enough_ends_the_job():
    two = np.where(np.arange(267) < 2, 1.0, np.nan)
    sites = GAPS | {"north": GAPS["north"].assign(age=two)}
    with pytest.raises(JobFailed, match="no site has enough rows to disclose the mean of age"):
        flareclust.run("masked", sites, k=4, missing="mean")


def test_without_missing_a_site_with_gaps_takes_no_part():
    with pytest.raises(JobFailed, match=r"remove or impute them at the site, or set missing=mean"):
        flareclust.run("proxy", GAPS, k=4)


def test_a_policy_fills_and_drops_nothing():
    result = flareclust.run("masked", GAPS, k=4, missing="mean", policy={})
    assert not result.left_out
    assert not any("missing" in text for text in result.warnings)  # nobody learns how many
    with pytest.raises(
        JobFailed, match=r"makes groups of all of its rows.*missing=mean, or say missing: drop-rows in the schema"
    ):
        flareclust.run("masked", GAPS, k=4, missing="drop-rows", policy={})


def test_a_site_without_a_complete_row_drops_out():
    even = np.arange(267) % 2 == 0
    sites = GAPS | {"north": GAPS["north"].assign(age=np.where(even, np.nan, 1.0), crp=np.where(even, 1.0, np.nan))}
    result = flareclust.run("masked", sites, k=4, missing="drop-rows")
    assert "no row without a missing cell" in result.left_out["north"]
