"""Client selection in the project's own federated averaging: who trains, who gets nothing, and that jobs do what one process does."""

import json
from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.core.client_selection import Selection
from flareclust.engines.inprocess import run_inprocess
from flareclust.federation.checkpoint import Checkpoint, Progress, read, write
from flareclust.personal.aggregator import _FedAvgState
from flareclust.personal.jobs import FEDAVG, IFCA, train_in_jobs
from flareclust.personal.methods import train_models
from flareclust.personal.models import Linear
from flareclust.personal.result import save
from flareclust.personal.run import _prepare_devices, run_personal
from flareclust.personal.selection import SelectionSettings
from flareclust.personal.settings import PersonalSettings
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName
from tests.unit.personal.job_cases import ONE, losing, sites, with_executor
from tests.unit.personal.planted import planted

WAYS = [
    {"method": "global", "devices": 6, "select": "random", "per_round": 2},
    {"method": "global", "devices": 11, "select": "pow-d", "per_round": 2, "candidates": 7},
    {"method": "global", "devices": 6, "select": "pow-d-kfed", "per_round": 2, "k": 3},
    {"method": "kfed", "devices": 11, "k": 2, "select": "pow-d", "per_round": 2, "candidates": 3},
    {"method": "kfed", "devices": 6, "k": 4, "k_local": 2, "select": "random", "per_round": 1},
    {"method": "ifca", "devices": 11, "k": 2, "select": "random", "per_round": 4},
]


def both_ways(model="linear", **settings):
    chosen = PersonalSettings(**{"data": "iris", "rounds": 4, "lr": 0.05, "model": model, **settings})
    split, _ = _prepare_devices(chosen)
    return run_personal(chosen), train_in_jobs(chosen, split, run_inprocess, lambda *round_: None)


@pytest.mark.parametrize("settings", WAYS)
def test_jobs_select_the_devices_of_one_process_and_train_the_same_models(settings):
    here, jobs = both_ways(**settings)
    for name, value in here.models.items():
        np.testing.assert_array_equal(jobs.models[name], value)
    assert jobs.selected == here.selected
    assert len(here.selected) == 4
    assert {len(names) < settings["devices"] for names in here.selected} == {True}
    np.testing.assert_array_equal(jobs.accuracy[-1], here.accuracy[-1])
    tested = ~np.isnan(jobs.accuracy)
    assert not tested[:-1].all(), "a device that was not asked tested a model"
    np.testing.assert_array_equal(jobs.accuracy[tested], here.accuracy[tested])
    assert (jobs.clustering_up, jobs.clustering_down) == (here.bytes["clustering_up"], here.bytes["clustering_down"])


def test_networks_of_selected_devices_are_those_of_jobs_up_to_rounding():
    pytest.importorskip("torch", reason="needs the extra deep")
    here, jobs = both_ways("mlp", method="global", devices=5, hidden=8, select="pow-d", per_round=2)
    assert jobs.selected == here.selected
    for name, value in here.models.items():
        np.testing.assert_allclose(jobs.models[name], value, atol=1e-6)


def test_averaged_gradients_are_those_of_the_selected_devices():
    pytest.importorskip("torch", reason="needs the extra deep")
    settings = {"data": "iris", "method": "ifca", "k": 2, "averaging": "gradients", "hidden": 4, "rounds": 3}
    some = run_personal(PersonalSettings(**settings, devices=6, select="random", per_round=2))
    every = run_personal(PersonalSettings(**settings, devices=6))
    assert [len(names) for names in some.selected] == [2, 2, 2]
    assert not np.array_equal(some.models["0.weight"], every.models["0.weight"])


def test_bytes_are_of_the_selected_devices_and_of_the_candidates():
    for select, asked in (("random", 0), ("pow-d", 4)):
        result = run_personal(
            PersonalSettings(
                data="iris", method="global", model="linear", rounds=3, devices=6, select=select, per_round=2
            )
        )
        size = sum(value[0].nbytes for value in result.models.values())
        assert result.bytes["up"] == 3 * (2 * size + 8 * asked)
        assert result.bytes["down"] == 3 * (2 + asked) * size


def asked_of(algorithm=FEDAVG, own=None, options=ONE, **params):
    """Run a job; return its outcome and who was asked in each exchange."""
    own = sites(40, 50, 60, 70, 80) if own is None else own
    asked = []

    class Noting:
        def answer(self, task, *rest):
            asked.append((task.step, task.round, task.site))
            return super().answer(task, *rest)

    base = algorithm.executor_class()
    noting = with_executor(algorithm, type("NotingExecutor", (Noting, base), {}))
    outcome = run_inprocess(noting, {"rounds": 3, **params}, own, options, workers=1)
    return outcome, asked


def test_a_site_that_is_not_selected_is_asked_nothing_in_that_round():
    outcome, asked = asked_of(select="pow-d", per_round=1, candidates=3)
    steps = [record["step"] for record in outcome.rounds]
    assert steps == [StepName.ROWS, *3 * [StepName.LOSSES, StepName.TRAIN], StepName.TEST]
    assert [record["round"] for record in outcome.rounds] == [0, 1, 1, 2, 2, 3, 3, 4]
    for record in outcome.rounds[1:-1]:
        there = {site for step, round_, site in asked if (step, round_) == (record["step"], record["round"])}
        assert there == set(record["sites"])
        assert len(there) == (3 if record["step"] == StepName.LOSSES else 1)
    weights = [record["bytes_down"] for record in outcome.rounds if record["step"] == StepName.TRAIN]
    every = [record["bytes_down"] for record in asked_of()[0].rounds if record["step"] == StepName.TRAIN]
    assert [5 * size for size in weights] == every
    assert len(outcome.rounds[-1]["sites"]) == 5  # all test the last model


def test_the_candidate_with_the_largest_loss_trains():
    own = sites(40, 40, 40, 40)
    for column in own["site-3"].X[:, 1:].T:
        column *= 30  # far from the plane of the others, so a large loss where it is on the wrong side
    own["site-3"].X[:, 0] = 1 - own["site-3"].X[:, 0]
    outcome, _ = asked_of(own=own, select="pow-d", per_round=1, candidates=4, rounds=4, lr=0.1)
    taken = [record["sites"] for record in outcome.rounds if record["step"] == StepName.TRAIN]
    assert ["site-3"] in taken
    assert taken != [["site-3"]] * 4


def test_selection_is_the_one_of_nvflares_controllers():
    outcome, _ = asked_of(select="random", per_round=2)
    rows = {site: n - round(0.2 * n) for site, n in zip(outcome.sites, (40, 50, 60, 70, 80), strict=True)}
    ours = [record["sites"] for record in outcome.rounds if record["step"] == StepName.TRAIN]
    assert ours == [sorted(Selection("random", 2, seed=ONE.seed).drawn(rows, t)) for t in range(3)]


def test_the_quorum_counts_the_selected_and_a_lost_site_is_not_selected_again():
    own = {f"site-{i}": table for i, table in enumerate(sites(*[40] * 6).values())}
    outcome = losing("site-2", since=1)(FEDAVG, {"rounds": 8, "select": "random", "per_round": 3}, own, ONE)
    taken = [record["sites"] for record in outcome.rounds if record["step"] == StepName.TRAIN]
    assert "site-2" not in {site for names in taken for site in names}
    assert sorted(map(len, taken)) == [2, 3, 3, 3, 3, 3, 3, 3]  # it was drawn once
    assert outcome.refused == {"site-2": "was lost"}
    with pytest.raises(JobFailed, match=r"0 of 1 sites took part where at least 1 are needed.*site-2 was lost"):
        losing("site-2", since=1)(FEDAVG, {"rounds": 40, "select": "random", "per_round": 1}, own, ONE)


def test_a_site_that_cannot_train_is_never_selected():
    outcome, _ = asked_of(own=sites(40, 50, 6), select="random", per_round=1, rounds=12, min_count=6)
    taken = {site for record in outcome.rounds if record["step"] == StepName.TRAIN for site in record["sites"]}
    assert taken == {"site-1", "site-2"}
    with_one_left = asked_of(own=sites(40, 6, 6), select="random", per_round=1, min_count=6)[0]
    assert with_one_left.warnings == ["per_round is 1, and 1 sites could train: all of them did in the last round"]


def test_a_checkpoint_keeps_who_is_asked(tmp_path):
    for asked in (("b", "a"), None):
        state = Checkpoint(
            Round({"weights": np.zeros(1)}, state=_FedAvgState(), step=StepName.TRAIN, sites=asked),
            Progress(["a", "b"], ["a", "b"]),
        )
        write(tmp_path / "checkpoint.npz", state, {})
        assert read(tmp_path / "checkpoint.npz", {}, FEDAVG.build(1)[1]).round_.sites == asked


def test_secure_sums_and_selection_exclude_each_other():
    names = ("site-1", "site-2", "site-3")
    secure = ONE.model_copy(update={"secure_sums": True, "min_sites": 3, "secure_min_sites": 3, "secure_sites": names})
    with pytest.raises(UserError, match="select=random needs the rows or losses of single sites"):
        run_inprocess(FEDAVG, {"select": "random", "per_round": 1}, sites(40, 40, 40), secure)


def test_a_loss_that_is_not_finite_ends_the_run_with_advice(monkeypatch):
    monkeypatch.setattr(Linear, "losses", lambda self, models, data: np.full((1, len(data)), np.nan))
    settings = {"data": "iris", "method": "global", "model": "linear", "devices": 4, "select": "pow-d", "per_round": 1}
    with pytest.raises(JobFailed, match=r"round 1: the loss of site-\d is not finite.*smaller lr"):
        run_personal(PersonalSettings(**settings))
    with pytest.raises(JobFailed, match="cannot be selected: the loss of the model on its rows is not finite"):
        asked_of(select="pow-d", per_round=1)


def test_the_files_say_who_trained_in_each_round(tmp_path):
    settings = PersonalSettings(data="iris", model="linear", rounds=3, **WAYS[0])
    result = save(run_personal(settings), tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [row["sites"] for row in rows] == result.selected
    assert json.loads((tmp_path / "out" / "result.json").read_text())["selected"] == result.selected
    every = run_personal(settings.model_copy(update={"select": "all", "per_round": None}))
    assert (every.selected, every.to_json()["selected"]) == ((), None)


def test_rounds_whose_accuracy_nobody_knows_have_their_number_only(tmp_path):
    result = run_personal(PersonalSettings(data="iris", model="linear", rounds=3, method="global", devices=3))
    accuracy = result.accuracy.copy()
    accuracy[1] = np.nan
    unknown = save(replace(result, accuracy=accuracy), tmp_path / "out")
    assert unknown.rounds()[1] == {"round": 2}
    assert len(unknown.rounds()[2]) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"select": "powd", "per_round": 2}, "did you mean 'pow-d'"),
        ({"select": "random"}, "select=random needs per_round"),
        ({"per_round": 2}, "per_round is 2 without effect: all devices train"),
        ({"candidates": 2}, "candidates is 2 without effect: all devices train"),
        ({"select": "random", "per_round": 2, "candidates": 4}, "candidates is 4 without effect: random asks"),
        ({"select": "pow-d", "per_round": 2, "candidates": 2}, "candidates is 2 where per_round is 2"),
        ({"select": "pow-d", "per_round": 4}, "per_round is 4 without effect: 4 devices train a model"),
        ({"select": "pow-d", "per_round": 2, "candidates": 5}, "candidates is 5, and 4 devices train a model"),
        ({"select": "pow-d-kfed", "per_round": 2}, "pow-d-kfed needs k"),
        ({"select": "pow-d-kfed", "per_round": 2, "k": 9}, "k is 9, more clusters than 4 devices"),
        ({"select": "pow-d", "per_round": 2, "k": 2}, "k is 2 without effect: global has no clusters"),
        ({"method": "local", "select": "random", "per_round": 2}, "select is random without effect: each device"),
        ({"method": "ifca", "k": 2, "select": "pow-d", "per_round": 2}, "select is pow-d without effect: ifca has k"),
        (
            {"method": "kfed", "k": 2, "select": "pow-d-kfed", "per_round": 1},
            "select is pow-d-kfed without effect: the devices of a model are of one cluster",
        ),
        (
            {"method": "kfed", "k": 2, "select": "random", "per_round": 3, "data": "digits"},
            "per_round is 3 without effect: no model has more than [23] devices",
        ),
    ],
)
def test_selections_without_effect_are_refused_in_one_line(settings, message):
    with pytest.raises(UserError, match=message) as refused:
        run_personal(
            PersonalSettings(**{"data": "iris", "method": "global", "devices": 4, "model": "linear", **settings})
        )
    assert "\n" not in str(refused.value)


def test_a_function_call_refuses_what_settings_refuse():
    split, _ = planted(devices=4)
    selecting = SelectionSettings(select="random", per_round=1)
    with pytest.raises(UserError, match="select is random without effect: each device trains its own"):
        train_models("local", Linear(3, 2), split, k=1, rounds=1, selecting=selecting)


@pytest.mark.parametrize(
    ("algorithm", "params", "message"),
    [
        (IFCA, {"select": "pow-d", "per_round": 1}, "select is pow-d, and ifca has k models"),
        (FEDAVG, {"select": "pow-d-kfed", "per_round": 1}, "clusters and select=pow-d-kfed go together"),
        (FEDAVG, {"clusters": {"a": [0]}}, "clusters and select=pow-d-kfed go together"),
    ],
)
def test_jobs_refuse_selections_without_effect(algorithm, params, message):
    with pytest.raises(UserError, match=message):
        algorithm.build(1, 0, params)
