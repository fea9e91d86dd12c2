"""Profiles under differential privacy: functions of what was released, without an exchange or a budget of their own."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import profile_words
from flareclust.evaluation.noisy_profiles import FREE, NoisyProfiles, noisy_profiles_of
from flareclust.experiment.reports.columns import heat_tables
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import _profile_lines
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from flareclust.tracking.note import describe
from tests.unit.experiment.test_profiles import COLUMNS, patients

POLICY = {
    "differential_privacy": {
        "bounds": [[0, 110], [0, 200], [0, 1], [0, 1]],
        "epsilon": 4.0,
        "delta": 1e-6,
        "budget": 100.0,
    }
}
NAMES = ("dp-lloyd", "dp-oneshot", "dp-gmm")


@pytest.fixture(scope="module", params=NAMES)
def result(request) -> flareclust.Result:
    return flareclust.run(request.param, patients(1000), k=3, epsilon=4.0, delta=1e-6, policy=POLICY, profile=True)


def test_the_frame_follows_from_the_saved_arrays_without_rows(result, tmp_path):
    result.save(tmp_path / "out")
    loaded = flareclust.load_result(tmp_path / "out")
    pd.testing.assert_frame_equal(loaded.profiles(), result.profiles())
    with np.load(tmp_path / "out" / "result.npz") as saved:
        counts, centroids, low, high = (saved[name] for name in ("counts", "centroids", "low", "high"))
        signal = saved["signal_to_noise"]
    frame = loaded.profiles().set_index(["cluster", "column"])
    np.testing.assert_array_equal(frame["mean"].unstack()[COLUMNS], centroids)
    center = counts @ centroids / counts.sum()
    np.testing.assert_allclose(frame["of_range"].unstack()[COLUMNS], (centroids - center) / (high - low))
    np.testing.assert_array_equal(frame["rows"].unstack()["age"], counts)
    np.testing.assert_allclose(frame["share"].unstack()["age"], counts / counts.sum())
    np.testing.assert_array_equal(frame["signal_to_noise"].unstack()["age"], signal)
    assert {"sd", "z", "median", "eta_squared", "cramers_v"}.isdisjoint(frame.columns)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_adds_no_exchange_and_spends_nothing(name):
    sites = {site: frame.to_numpy() for site, frame in patients(200).items()}
    params = {"epsilon": 2.0, "delta": 1e-6} | ({"start": "spread"} if name != "dp-oneshot" else {})
    steps, sent, spent = [], [], []
    for profile in (True, False):
        policy = Policy.of(POLICY)
        outcome = run_inprocess(registry.get(name), params, sites, JobOptions(k=3, profile=profile), policy=policy)
        steps.append([record["step"] for record in outcome.rounds])
        sent.append((outcome.bytes_down, outcome.bytes_up))
        spent.append([record["diagnostics"].get("budget_share") for record in outcome.rounds])
        assert not outcome.warnings or "profile" not in " ".join(outcome.warnings)
    assert steps[0] == steps[1]
    assert sent[0] == sent[1]
    assert spent[0] == spent[1]


def test_terminal_report_and_description_show_it(result):
    lines = list(_profile_lines(result))
    assert lines[-1] == FREE
    page = report_page(result)
    assert page.count(FREE) == 1
    assert "the tables do not add up to each other" in FREE
    assert "Released means of each cluster" in page
    assert "higher" in page
    assert "have no profile" not in page
    profiles = noisy_profiles_of(result.arrays, result.centroids, result.columns)
    assert all(f"{rows:,} rows" in page for rows in profiles.rows)
    inflamed = int(profiles.mean[:, 1].argmax())
    assert "crp higher: " in profile_words.sentence(
        profiles, inflamed
    ) or "crp much higher: " in profile_words.sentence(profiles, inflamed)
    assert "what is special about it" in describe(result, experiment_of(result))


def test_the_report_says_beside_the_clusters_what_noise_hides(result):
    lost = replace(result, arrays={**result.arrays, "signal_to_noise": np.zeros(len(result.centroids))})
    page = report_page(lost)
    assert "Clusters 0, 1 and 2 cannot be distinguished from noise" in page
    assert "No warnings" not in page
    narrow = replace(result, arrays={**result.arrays, "high": result.arrays["low"] + np.array([110, 1e-9, 1, 1])})
    assert "Nothing is known of crp" in report_page(narrow)


def experiment_of(result: flareclust.Result) -> object:
    from flareclust.experiment.config import Experiment

    return Experiment(algorithm=result.algorithm, data="patients", k=3, policy=POLICY)


@pytest.mark.parametrize("of", ["sites", "tree"])
def test_what_would_cost_budget_is_refused(result, of):
    with pytest.raises(UserError, match=f"no profiles of {of}: they would be further queries"):
        result.profiles(of)


def test_no_profile_leaves_it_out_of_report_and_terminal():
    found = flareclust.run("dp-lloyd", patients(200), k=3, policy=POLICY, profile=False)
    assert list(_profile_lines(found)) == []
    assert "cost no further privacy budget" not in report_page(found)
    assert len(found.profiles()) == 12  # it is in the released numbers all the same


def test_secure_sums_have_it_as_well():
    found = flareclust.run(
        "dp-lloyd", patients(300), k=3, policy=POLICY, secure_sums=True, epsilon=4.0, delta=1e-6, profile=True
    )
    np.testing.assert_array_equal(
        found.profiles().pivot(index="cluster", columns="column", values="mean")[COLUMNS], found.centroids
    )


def noisy(
    signal: list[float], centroids: list[list[float]], columns: tuple[str, ...] = ("age", "crp")
) -> NoisyProfiles:
    d = len(columns)
    arrays = {
        "counts": np.array([100, 300]),
        "signal_to_noise": np.array(signal),
        "reach": np.array(1.0),
        "low": np.zeros(d),
        "high": np.array([100.0, 200.0])[:d],
    }
    found = noisy_profiles_of(arrays, np.array(centroids), columns)
    return found


def test_means_that_are_no_more_than_noise_are_not_printed():
    """Half the way between the centroids is 20: noise moves them by 0.3, which is wider than the range of the share."""
    profiles = noisy([50.0, 50.0], [[20.0, 0.3], [60.0, 1.0]], ("age", "smoker=yes"))
    profiles = noisy_profiles_of({**profiles.arrays, "high": np.array([100.0, 1.0])}, profiles.mean, profiles.columns)
    assert profiles.in_noise.tolist() == [[False, True], [False, True]]
    assert profiles.unknown().startswith("nothing is known of smoker=yes: the noise")
    (table,) = heat_tables(profiles)
    cells = [getattr(cell, "text", cell) for row in table.rows for cell in row]
    assert "60.0" in cells
    assert "100 %" not in cells
    assert "30 %" not in cells
    assert cells.count("–") == 2  # noqa: RUF001
    assert noisy([50.0, 50.0], [[20.0, 10.0], [60.0, 12.0]]).unknown() == ""


def test_clusters_that_noise_could_have_made_are_named_and_nothing_is_said_of_them():
    profiles = noisy([50.0, 1.9], [[20.0, 10.0], [60.0, 12.0]])
    assert (
        profiles.unclear()
        == "cluster 1 cannot be distinguished from noise, which moves a centroid by more than half a radius there"
    )
    assert profile_words.sentence(profiles, 1) == "cannot be distinguished from noise"
    assert profile_words.telling(profiles, 1) == []
    assert noisy([1.0, 0.0], [[20.0, 10.0], [60.0, 12.0]]).unclear().startswith("clusters 0 and 1 cannot")
    assert noisy([2.0, 2.0], [[20.0, 10.0], [60.0, 12.0]]).unclear() == ""


def test_differences_are_parts_of_the_declared_range_and_none_within_noise():
    profiles = noisy([50.0, 50.0], [[20.0, 10.0], [60.0, 12.0]])
    np.testing.assert_allclose(profiles.center, [50.0, 11.5])
    np.testing.assert_allclose(profiles.of_range, [[-0.3, -0.0075], [0.1, 0.0025]])
    assert [one.text for one in profile_words.telling(profiles, 0)] == ["age much lower: 20.0 (all 50.0)"]
    assert [one.text for one in profile_words.telling(profiles, 1)] == ["age higher: 60.0 (all 50.0)"]
    # 20 radii from one centroid to the next: noise of 20 / 2.5 / sqrt(2) hides 10, not 30.
    close = noisy([2.5, 2.5], [[20.0, 10.0], [60.0, 12.0]])
    assert [one.text for one in profile_words.telling(close, 0)] == ["age much lower: 20.0 (all 50.0)"]
    assert profile_words.sentence(close, 1) == "near the mean of all clusters in every column, or within noise"


def test_a_result_of_an_older_version_has_none():
    assert noisy_profiles_of({"counts": np.ones(2), "reach": np.ones(())}, np.zeros((2, 2)), None) is None
