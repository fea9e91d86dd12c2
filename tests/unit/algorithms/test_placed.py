"""Late sites through the federation: the server's side of a job that only places rows."""

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust._foundation.version import fits
from flareclust.aggregators.placed import FILE, PlacedAggregator
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.late_jobs import place_at, placed_rows
from flareclust.engines.late_sites import place
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, run_federation
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.registry import algorithms, get
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import GRANTED

FEDERATED = [name for name, algorithm in algorithms().items() if algorithm.federated and not algorithm.partial]


def placed_by_job(folder, late):
    """Run the job of `place_at` in this process; return its outcome and the late site's labels."""
    finished, about = outcome_files.read(folder)
    executor, _ = get(about["algorithm"]).build(about["k"], about["seed"], about["params"])
    np.savez(folder / FILE, allow_pickle=False, **executor.placing(finished.arrays))
    aggregator = PlacedAggregator(about["k"], about["seed"])
    aggregator.read(folder)
    labels = {}

    def ask(step, round_, arrays, asked):
        replies = {}
        for site in asked:
            try:
                answer = executor.answer(Task(step, round_, dict(arrays), site), late[site], never_abort)
            except Refusal as reason:
                replies[site] = SiteReply(problem=str(reason))
                continue
            labels[site] = answer.labels
            replies[site] = SiteReply(answer.arrays)
        return replies

    return run_federation(aggregator, ask, list(late), FederationOptions(min_sites=1, assess=False)), labels


@pytest.fixture
def finished(tmp_path, sites):
    """Return a function that leaves the result of an algorithm in a folder; site-4 comes late."""

    def run(name):
        early = {site: rows for site, rows in sites.items() if site != "site-4"}
        policy = GRANTED if get(name).executor_class().private else None
        outcome = run_inprocess(get(name), {}, early, JobOptions(k=4, seed=3), policy=policy)
        outcome_files.write(outcome, tmp_path, {"algorithm": name, "k": 4, "seed": 3, "params": {}})
        return tmp_path, outcome

    return run


@pytest.mark.parametrize("name", FEDERATED)
def test_a_late_site_gets_no_other_sites_reply(finished, name):
    """Nor what the server kept: what labels need, and nothing else of a result."""
    _, outcome = finished(name)
    executor, _ = get(name).build(4, 3, {})
    sent = executor.placing(outcome.arrays)
    model = {"deepfeca": {"weights", "image"}, "gmm": {"weights", "factors"}, "dp-gmm": {"weights", "factors"}}.get(
        name, set()
    )
    model |= {"representatives", "representative_cluster", "representative_reach"} if name == "tree" else set()
    assert set(sent) <= {"centroids", "anchors", "tau", "tau_site"} | model
    np.testing.assert_array_equal(sent["centroids"], outcome.centroids)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_job_places_rows_as_the_offline_command_does(finished, sites, name):
    folder, outcome = finished(name)
    placed, labels = placed_by_job(folder, {"site-4": sites["site-4"]})
    np.testing.assert_array_equal(labels["site-4"], place(folder, sites["site-4"], "site-4"))
    np.testing.assert_array_equal(placed.centroids, outcome.centroids)
    assert placed_rows(placed) == (0 if get(name).executor_class().private else len(sites["site-4"]))
    assert placed.metrics == {}


def test_nothing_but_the_number_of_rows_leaves_a_late_site(sites):
    """The lead chooses the centroids of such a job; sums by cluster would disclose rows that are alone in one."""
    executor, _ = get("feca").build(4, 3, {})
    answer = executor.answer(
        Task(StepName.PLACE, 0, {"centroids": sites["site-4"][:4]}, "site-4"), sites["site-4"], never_abort
    )
    assert set(answer.arrays) == {"rows", SECONDS}
    assert answer.arrays["rows"] == len(sites["site-4"])


def test_a_placing_job_that_asks_for_the_assessment_gets_none(finished, sites):
    """A job is configuration: its sender may switch the assessment on."""
    folder, outcome = finished("feca")
    np.savez(folder / FILE, allow_pickle=False, centroids=outcome.centroids)
    aggregator = PlacedAggregator(4, 3)
    aggregator.read(folder)
    asked = []

    def ask(step, round_, arrays, who):
        asked.append(step)
        return {site: SiteReply({"rows": np.array(1)}) for site in who}

    with pytest.raises(JobFailed, match="no step 'assess'"):
        run_federation(aggregator, ask, ["site-4"], FederationOptions(min_sites=1, assess=True))
    assert asked == [StepName.PLACE]


def test_sites_that_took_part_are_not_placed_again(finished, tmp_path):
    folder, _ = finished("feca")
    with pytest.raises(UserError, match="site-1 took part"):
        place_at(folder, tmp_path, ["site-1"])
    with pytest.raises(UserError, match="name the late site"):
        place_at(folder, tmp_path, [])
    with pytest.raises(UserError, match="expected a folder with"):
        place_at(tmp_path / "nothing", tmp_path, ["site-4"])


@pytest.mark.parametrize("name", ["kfed", "portfolio", "masked"])
def test_a_server_takes_jobs_that_place_rows_whatever_the_algorithm(name):
    executor, _ = get(name).build(3, 0, {})
    assert fits(executor.version(), PlacedAggregator(3).version())
    assert not fits("0.1.0", PlacedAggregator(3).version())
