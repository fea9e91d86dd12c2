"""What the page of a run calls the steps: words, and no names of the code."""

import pytest

import flareclust
from flareclust.experiment.reports.page import WORDS, _step_words, report_page
from flareclust.federation.site import job_lines
from flareclust.protocol import registry
from tests.paths import of_the_whole
from tests.unit.algorithms.dp_cases import policy

STEPS = sorted(
    {
        step
        for algorithm in registry.algorithms().values()
        if algorithm.federated
        for step in job_lines(algorithm.executor_class())
    }
)


def test_wrappers_and_counting_steps_are_among_the_steps():
    assert {"names", "finer_bins", "fuzzy", "update_counts", "place"} <= set(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_words(step):
    words = _step_words(step, "rows")
    assert words not in (step, step.replace("_", " "))
    assert " " in words
    assert "_" not in words


@of_the_whole
def test_no_words_are_of_steps_that_are_gone():
    assert not WORDS.keys() - set(STEPS)


def test_different_steps_have_different_words():
    assert len(set(WORDS.values())) == len(WORDS)


def test_a_step_of_a_users_own_algorithm_is_shown_by_its_name():
    assert _step_words("own_sums", "rows") == "own sums"
    assert _step_words("own_bins", "rows") == "own bins"


def test_the_page_shows_no_raw_names():
    found = flareclust.run("fkm", "iris", k=3, n_sites=3, scale="robust")
    page = report_page(found)
    assert {"bins", "scales"} <= {record["step"] for record in found.outcome.rounds}
    assert ">numbers of values in bins of the columns</td>" in page
    assert not [step for step in STEPS if f">{step}</td>" in page]


def test_the_page_names_twelve_sites_and_counts_the_others():
    found = flareclust.run("lloyd", "iris", k=3, n_sites=13, rounds=1, profile=False)
    assert f"{', '.join(found.outcome.sites[:12])} and 1 more." in report_page(found)


def test_the_split_of_a_privacy_budget_has_words(sites):
    page = report_page(flareclust.run("dp-lloyd", sites, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0)))
    start = "noisy number of rows, with noisy sums of their values and products 20 %; noisy numbers of rows in cells along the main axes 25 %"
    assert f"By step: {start}; means of clusters 3 x 16.7 %; the assessment" in page
