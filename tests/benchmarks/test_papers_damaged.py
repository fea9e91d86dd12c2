"""The re-runs of the paper on different columns from a damaged start: how far the rounds repair it."""

import numpy as np
import pytest

from benchmarks.papers import (
    masked_damaged,
)
from benchmarks.papers.masked_damaged import DAMAGED, errors_by_round, expected, with_noise
from benchmarks.papers.masked_setups import experiment, masked_as_printed
from benchmarks.papers.masked_values import har
from flareclust.experiment.prepare import OneTable, prepare
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.submit import submit
from flareclust.experiment.sweeps import trials as study_trials

pytestmark = pytest.mark.slow
from tests.benchmarks.masked_cases import STAND_INS


def test_noise_has_the_length_asked_for_and_leaves_unknown_entries_unknown(rng):
    centroids = np.array([[3.0, 4, np.nan], [0, 0, 10]])
    moved = with_noise(centroids, 0.5, rng)
    np.testing.assert_array_equal(np.isnan(moved), np.isnan(centroids))
    np.testing.assert_allclose(np.sqrt(np.nansum((moved - centroids) ** 2, axis=1)), [2.5, 5])
    np.testing.assert_array_equal(with_noise(centroids, 0.0, rng), centroids)


def test_what_is_left_of_a_damage_by_hand():
    # 0.2^0 * 0.3 with 0.4 at right angles; 0.06 with 0.08; nothing with 0.1.
    assert expected(0.8, 0.3, [0.4, 0.08]) == pytest.approx([0.5, 0.1])
    assert expected(1.0, 0.3, [0.0, 0.1]) == pytest.approx([0.3, 0.1])


def test_without_damage_it_is_the_algorithm_and_its_last_error_is_e3():
    one, dataset = har("1"), STAND_INS["har"]
    asked = experiment(one, masked_as_printed(one), dataset, 0)
    prepared = prepare(asked, OneTable(dataset))
    outcome = submit(asked, prepared)
    errors = errors_by_round(prepared, outcome)
    assert errors[-1] == pytest.approx(evaluate(asked, prepared, outcome, 0.0).metrics["relative_distance"])
    trial = masked_damaged._trial(one, dataset, 0.8, 0.0, 0)
    assert list(trial.measure().final.values()) == pytest.approx(errors)


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_the_federated_rounds_take_a_damage_back_at_the_rate_of_the_step_size(alpha):
    trial = masked_damaged._trial(har("2"), STAND_INS["har"], alpha, 0.1, 0)
    errors = list(trial.measure().final.values())
    assert errors == pytest.approx([0.1 * (1 - alpha) ** round_ for round_ in range(4)], rel=0.1, abs=0.003)


def test_rates_that_are_not_those_of_the_step_size_are_noted():
    def cell(damage, *errors):
        final = {f"distance_{round_}": error for round_, error in enumerate(errors)}
        return study_trials.Cell(masked_damaged._key(har("1"), 0.8, damage), final, dict.fromkeys(final, 0.0), 10, 0)

    whole = cell(0.0, 0.001, 0.001, 0.001, 0.001)
    good, stuck = cell(0.5, 0.5, 0.1, 0.02, 0.0041), cell(0.5, 0.5, 0.1, 0.09, 0.09)
    words = [masked_damaged._lines([whole, one], har("1"), 0.8)[1] for one in (good, stuck)]
    assert [one.reading.rpartition("; ")[2] for one in words] == ["agrees", "higher"]
    assert words[0].paper == "0.5000, 0.1000, 0.0200, 0.0041"
    assert words[0].reading == "factors 0.20, 0.20, 0.21; agrees"
    assert len(masked_damaged._notes(words[:1])) == 1
    assert "alpha 0.8" in masked_damaged._notes(words)[1]
    assert DAMAGED.partial
