"""With secure sums sites say which clusters are nearly all their own; the server learns how many sites, not which."""

import logging

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.evaluation.batch_effects import batch_effects, hidden_batch_effects, own_clusters
from flareclust.federation.assessment import Assessment
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from tests.unit.privacy.secure_cases import OPTIONS, asker, lloyd_sites, run_lloyd, silent_in

SAID = "may be a batch effect, as of another unit or device: at least 90% of its rows are those of one site"


def drifting(seed: int = 0) -> dict[str, FloatArray]:
    """Sites of two clusters, one of which measures everything 20 higher."""
    rng = np.random.default_rng(seed)
    sites = {f"site-{i}": np.repeat([[0.0, 0.0], [6.0, 0.0]], 60, axis=0) + rng.normal(size=(120, 2)) for i in range(4)}
    return sites | {"site-2": sites["site-2"] + [0, 20]}


@pytest.mark.parametrize("algorithm", ["lloyd", "portfolio", "pooled", "kfed"])
@pytest.mark.parametrize("policy", [None, {"min_count": 10}], ids=["none", "groups"])
def test_the_result_names_the_cluster_and_the_log_the_site(
    algorithm: str, policy: dict[str, int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    result = flareclust.run(algorithm, drifting(), k=3, seed=0, secure_sums=True, policy=policy)
    (text,) = [text for text in result.warnings if "batch effect" in text]
    which = int(np.argmax(result.centroids[:, 1]))
    assert text == f"cluster {which} {SAID}, which secure sums do not name; its own log does"
    assert not any("site-2" in warning for warning in result.warnings)
    of_site = [record.getMessage() for record in caplog.records if "are of this site" in record.getMessage()]
    assert of_site == [f"site-2: nearly all rows of cluster {which} are of this site, and most rows of it"]


def test_sites_alike_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    outcome = run_inprocess(get("lloyd"), {}, iid_sites()[0], OPTIONS)
    assert outcome.warnings == []
    assert outcome.rounds[-1]["step"] == StepName.OWN_CLUSTERS
    assert not [record for record in caplog.records if "of this site" in record.getMessage()]


def test_the_sites_say_of_themselves_what_the_server_would_say_of_their_numbers() -> None:
    rng = np.random.default_rng(0)
    some = 0
    for _ in range(500):
        counts = {site: rng.integers(0, 100, 3) * rng.integers(0, 2, 3) for site in ("a", "b", "c")}
        own = np.sum([own_clusters(one, np.sum(list(counts.values()), axis=0)) for one in counts.values()], axis=0)
        assert bool(hidden_batch_effects(own)) == bool(batch_effects(counts))
        some += bool(own.any())
    assert 50 < some < 450


def test_without_one_site_the_result_stays_and_says_what_was_not_looked_at() -> None:
    sites, _ = iid_sites()
    outcome = run_lloyd(silent_in(StepName.OWN_CLUSTERS, "site-3", asker(sites, lloyd_sites(sites))), sites)
    whole = run_inprocess(get("lloyd"), {}, sites, OPTIONS)
    assert (outcome.metrics, outcome.refused) == (whole.metrics, {})
    assert outcome.warnings == ["clusters were not looked at for batch effects: site-3 did not answer in time"]


def test_a_site_answers_masked_only_and_once_and_checks_what_it_is_sent() -> None:
    centroids, X = np.zeros((2, 2)), np.random.default_rng(0).normal(size=(50, 2))
    executor = get("lloyd").executor_class()(k=2)
    task = Task(StepName.OWN_CLUSTERS, 1, {"centroids": centroids, "sizes": np.array([50, 50])}, "site-1")
    with pytest.raises(Refusal, match="only masked"):
        executor.answer(task, X, never_abort)
    gate = PolicyEnforcer(Policy())
    gate.check_request(StepName.ASSESS, 1, {"centroids": centroids})
    gate.check_request(StepName.OWN_CLUSTERS, 1, task.arrays)
    with pytest.raises(Refusal, match="too late"):
        gate.check_request(StepName.OWN_CLUSTERS, 2, task.arrays)


@pytest.mark.parametrize("sizes", [np.array([50]), np.array([50, -1]), np.array([50.0, 1.0]), None], ids=str)
def test_numbers_that_do_not_fit_the_centroids_are_refused_without_rows(sizes: FloatArray | None) -> None:

    arrays = {"centroids": np.zeros((2, 2))} | ({} if sizes is None else {"sizes": sizes})
    executor = get("lloyd").executor_class()(k=2)
    rows = SiteRows(Table(np.zeros((50, 2))), np.random.default_rng(0), never_abort, SiteContext(2))
    with pytest.raises(BadMessage, match="sizes"):
        Assessment(executor.params, executor).own_clusters(Task(StepName.OWN_CLUSTERS, 1, arrays, "a"), rows)
