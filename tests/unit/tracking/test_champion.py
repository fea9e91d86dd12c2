"""Which version of a registered model has the alias: the rule, and the rule in a real MLflow registry."""

import contextlib
import sqlite3
import uuid

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.tracking import promotion
from flareclust.tracking.runs import ERROR_TAG, Tracker, numbers_of
from flareclust.tracking.store import NoAnswer

SILHOUETTE, DAVIES_BOULDIN = "final/simplified_silhouette", "final/davies_bouldin"


def version(number, silhouette=None):
    return promotion._Version(number, {} if silhouette is None else {SILHOUETTE: silhouette})


def test_the_first_version_gets_the_alias_whatever_it_is_worth():
    assert promotion.decide(version(1), None).takes_over
    assert promotion.decide(version(7, -0.9), None).takes_over


@pytest.mark.parametrize(
    ("new", "old", "takes_over"),
    [
        (0.7, 0.6, True),
        (0.6, 0.7, False),
        (0.6, 0.6, True),
        (0.6, np.nextafter(0.6, 1), False),
        (-0.1, -0.2, True),
        (0.0, None, True),  # 0 is a value, and not a missing one
        (None, 0.0, False),
        (None, None, False),
    ],
)
def test_the_alias_moves_to_a_version_that_is_at_least_as_good(new, old, takes_over):
    decision = promotion.decide(version(2, new), version(1, old))
    assert decision.takes_over is takes_over
    assert "version 1" in decision.reason


def test_of_some_metrics_the_smaller_value_is_the_better_one():
    small, large = promotion._Version(2, {DAVIES_BOULDIN: 0.5}), promotion._Version(1, {DAVIES_BOULDIN: 0.6})
    assert promotion.decide(small, large, DAVIES_BOULDIN).takes_over
    assert not promotion.decide(promotion._Version(3, large.metrics), small, DAVIES_BOULDIN).takes_over


def test_only_the_stated_metric_counts():
    new = promotion._Version(2, {SILHOUETTE: 0.1, DAVIES_BOULDIN: 0.1, "final/ari": 1.0})
    old = promotion._Version(1, {SILHOUETTE: 0.2, DAVIES_BOULDIN: 0.2, "final/ari": 0.5})
    assert [name for name in promotion._METRICS if promotion.decide(new, old, name).takes_over] == [
        DAVIES_BOULDIN,
        "final/ari",
    ]


def test_a_version_keeps_its_alias_when_it_is_offered_again():
    assert promotion.decide(version(1), version(1, 0.5)).takes_over


@pytest.mark.parametrize(
    ("silhouette", "sites", "takes_over"),
    [
        (0.9, 2, False),  # what is easy to cluster is not the better model
        (0.9, 3, True),
        (0.5, 3, True),
        (0.9, 4, True),
        (0.4, 4, False),
        (0.9, None, False),
    ],
)
def test_a_version_of_fewer_sites_does_not_take_over_however_good_it_is(silhouette, sites, takes_over):
    holder = promotion._Version(1, {SILHOUETTE: 0.5, promotion.SITES: 3})
    new = promotion._Version(2, {SILHOUETTE: silhouette} | ({} if sites is None else {promotion.SITES: sites}))
    decision = promotion.decide(new, holder)
    assert decision.takes_over is takes_over
    assert "version 1" in decision.reason


def test_the_number_of_sites_counts_where_the_holder_has_no_metric_too():
    assert not promotion.decide(
        promotion._Version(2, {SILHOUETTE: 0.5, promotion.SITES: 2}), promotion._Version(1, {promotion.SITES: 3})
    ).takes_over
    assert promotion.decide(promotion._Version(2, {SILHOUETTE: 0.5, promotion.SITES: 2}), version(1, 0.4)).takes_over


LIKE = {"algorithm": "feca", "k": 3}


@pytest.mark.parametrize(
    ("new", "found", "said"),
    [
        (LIKE | {"k": 2}, 3, "is of k=2, and version 1 is of k=3"),
        (LIKE | {"algorithm": "fkm"}, 3, "is of fkm, and version 1 is of feca"),
        (LIKE, 2, "has 2 centroids, and version 1 has 3"),
    ],
)
def test_versions_that_are_unlike_are_not_compared_and_the_reason_says_how_to_move_the_alias(new, found, said):
    holder = promotion._Version(1, {SILHOUETTE: 0.5, promotion.CENTROIDS: 3}, **LIKE)
    assert promotion.decide(promotion._Version(2, {SILHOUETTE: 0.9, promotion.CENTROIDS: 3}, **LIKE), holder).takes_over
    decision = promotion.decide(promotion._Version(2, {SILHOUETTE: 0.9, promotion.CENTROIDS: found}, **new), holder)
    assert not decision.takes_over
    assert decision.reason == (
        f"{said}, so the two are not compared; version 1 keeps it until somebody moves it by hand, "
        "on the model's page in MLflow"
    )


def test_metrics_that_grow_with_the_rows_are_refused():
    with pytest.raises(UserError, match="cannot be compared by 'final/inertia'; choose one of final/simplified"):
        promotion.decide(version(2), version(1), "final/inertia")


@pytest.mark.parametrize("alias", ["", "latest", "Latest", "v1", "V12", "a b", "a/b", "ä", "a" * 256])
def test_names_that_mlflow_would_refuse_after_the_job_are_refused_before_it(alias):
    with pytest.raises(UserError, match="cannot be an alias"):
        promotion.check_alias(alias)


@pytest.mark.parametrize("alias", ["champion", "v1-final", "the_best", "latest-2"])
def test_other_names_can_be_aliases(alias):
    assert promotion.check_alias(alias) == alias


# --- in a registry ---


def night(tracker, model, silhouette, params=None, **final):
    """Log a night's federation, register its model and offer it the alias."""
    run_id = tracker.start(uuid.uuid4().hex, "feca/iid/s0", params or {})
    centroids, final = np.eye(2), {"simplified_silhouette": silhouette} | final
    tracker.log(run_id, numbers_of(final))
    tracker.log_model(run_id, centroids)
    number = tracker.register(run_id, model)
    return number, tracker.offer_alias(model, number, "champion")


def champion_of(tracker, model):
    aliases = tracker._client.get_registered_model(model).aliases
    return int(aliases["champion"]) if "champion" in aliases else None


def test_the_alias_follows_the_best_night(tracker):
    aliases = []
    for silhouette in (0.5, 0.4, None, 0.5, 0.6, 0.55):
        night(tracker, "nights", silhouette)
        aliases.append(champion_of(tracker, "nights"))
    assert aliases == [1, 1, 1, 4, 5, 5]
    reported = [tracker._client.get_model_version("nights", n).tags["flareclust.champion"] for n in "1245"]
    assert reported[0] == "is the first to have it"
    assert reported[1] == "has final/simplified_silhouette 0.4, worse than 0.5; version 1 keeps it"
    assert reported[2] == "has final/simplified_silhouette 0.5, at least as good as 0.5 of version 1"


def test_what_the_rule_looks_at_is_read_from_the_runs(tracker):
    """A run with another k, one of another algorithm, one of fewer sites, and one that is like the first."""
    feca = {"algorithm": "feca", "k": 3}
    offered = [(feca, 3), (feca | {"k": 2}, 3), (feca | {"algorithm": "fkm"}, 3), (feca, 2), (feca, 3)]
    reasons = [night(tracker, "unlike", 0.5, params, sites_took_part=m)[1].reason for params, m in offered]
    assert champion_of(tracker, "unlike") == 5
    assert [reason.partition(";")[0].rpartition(", ")[2] for reason in reasons[1:4]] == [
        "so the two are not compared",
        "so the two are not compared",
        "but comes from 2 sites and that from 3",
    ]


def test_a_tracked_federation_says_how_many_sites_took_part(store, sites, tmp_path):
    """A site without enough rows is left out, and its night does not count as one of all sites."""
    import time

    from flareclust.experiment.config import Experiment
    from flareclust.experiment.prepared import Prepared
    from flareclust.experiment.results.artifacts import save
    from flareclust.experiment.results.evaluate import evaluate
    from flareclust.experiment.submit import submit
    from flareclust.tracking import run_logging

    few = {**sites, "small": next(iter(sites.values()))[:2]}
    experiment = Experiment(algorithm="feca", k=4, min_sites=2, engine="inprocess", tracking_uri=store, register_as="m")
    prepared, started = Prepared(4, few), time.time()
    outcome = submit(experiment, prepared)
    result = save(evaluate(experiment, prepared, outcome, 1.0), tmp_path / "out")
    run_id = run_logging.start_run(experiment, "few", {})
    run_logging._log_run(result, experiment, run_id, started)
    assert Tracker(store)._client.get_run(run_id).data.metrics[promotion.SITES] == len(sites) == len(few) - 1


def test_an_alias_that_an_operator_moved_back_is_what_the_next_night_is_compared_with(tracker):
    night(tracker, "moved", 0.5)
    night(tracker, "moved", 0.9)
    tracker._client.set_registered_model_alias("moved", "champion", "1")
    night(tracker, "moved", 0.6)
    assert champion_of(tracker, "moved") == 3


def test_a_champion_whose_run_is_gone_gives_way(tracker, store):
    night(tracker, "gone", 0.9)
    entry = tracker._client.get_model_version("gone", "1")
    with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as database, database:
        for table in ("latest_metrics", "metrics", "params", "tags", "runs"):
            database.execute(f"delete from {table} where run_uuid = ?", (entry.run_id,))
    assert night(tracker, "gone", 0.1)[1].takes_over
    assert champion_of(tracker, "gone") == 2


def test_what_is_not_in_the_registry_is_refused_and_nothing_changes(tracker):
    night(tracker, "known", 0.5)
    for arguments in (("known", 2, "champion"), ("unknown", 1, "champion")):
        with pytest.raises(UserError, match="has no version"):
            tracker.offer_alias(*arguments)
    with pytest.raises(UserError, match="cannot be an alias"):
        tracker.offer_alias("known", 1, "latest")
    assert champion_of(tracker, "known") == 1


# --- a run that was stopped ---


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "KILLED"), (SystemExit(1), "KILLED"), (ValueError("no"), "FAILED")]
)
def test_a_run_that_was_stopped_is_killed_and_one_that_failed_is_failed(store, error, status):
    from flareclust.experiment.config import Experiment
    from flareclust.tracking import run_logging

    experiment = Experiment(algorithm="feca", data="iris", k=3, tracking_uri=store)
    run_id = run_logging.start_run(experiment, f"key-{status}-{type(error).__name__}", {})
    assert run_logging.close_run(experiment, run_id, "the reason", stopped=run_logging.was_stopped(error))
    run = Tracker(store)._client.get_run(run_id)
    assert (run.info.status, run.data.tags[ERROR_TAG]) == (status, "the reason")


def test_a_store_that_does_not_answer_now_is_distinguished_from_one_that_is_wrong(monkeypatch):
    """Only the first is worth another try."""
    monkeypatch.setattr("flareclust.tracking.store.getproxies", dict)
    with pytest.raises(NoAnswer, match="start it"):
        Tracker("http://127.0.0.1:9")
    with pytest.raises(UserError) as wrong:
        Tracker("./runs")
    assert not isinstance(wrong.value, NoAnswer)
