"""NVFlare's FedAvg, all of its own code, with chosen clients; the wire is the only thing put in its place."""

import json
import logging
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.platform.client_selection import ClientSelection, SelectiveFedAvg
from flareclust.sites.class_list import of_server

#: Each client's mean: training moves the model there, and the loss is the squared distance to it.
MEANS = {"site-1": 1.0, "site-2": 2.0, "site-3": 3.0, "site-4": 10.0, "site-5": 9.0}


def honest(name, task, params):
    if task == "train":
        return FLModel(params={"w": np.array([MEANS[name]])}, meta={})
    return FLModel(metrics={"loss": float((params["w"][0] - MEANS[name]) ** 2)})


class Wire:
    """What NVFlare does between `broadcast` and the callbacks, at once and in this process; notes who was asked what."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def broadcast(self, task, fl_ctx, targets, min_responses=0, wait_time_after_min_received=0, abort_signal=None):
        self.asked.append((task.name, list(targets)))
        sent = FLModelUtils.from_shareable(task.data)
        for name in targets:
            answer = self.answers(name, task.name, sent.params)
            if answer is None:
                continue  # too late
            reply = answer if isinstance(answer, Shareable) else FLModelUtils.to_shareable(answer)
            client_task = SimpleNamespace(client=SimpleNamespace(name=name), task=task, result=reply)
            task.result_received_cb(client_task, fl_ctx)


def connected(controller, answers=honest, names=tuple(MEANS)):
    """Put a controller on a wire; return both."""
    wire, engine, fl_ctx = Wire(answers), MagicMock(), FLContext()
    engine.get_clients.return_value = [SimpleNamespace(name=name) for name in names]
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    controller.engine, controller.fl_ctx, controller.abort_signal = engine, fl_ctx, Signal()
    controller.broadcast = controller.broadcast_and_wait = wire.broadcast
    controller.get_num_standing_tasks = lambda: 0
    controller.save_model = lambda model: None
    return controller, wire


class WithFirstModel(ClientSelection, FedAvg):
    """FedAvg whose first model is an argument, as it is in jobs without a persistor."""


def trained(controller, answers=honest, names=tuple(MEANS)):
    controller, wire = connected(controller, answers, names)
    controller.run()
    return wire


def settings(**more):
    start = {"w": np.array([0.0])}
    return {"num_clients": 1, "num_rounds": 3, "candidates": 5, "model": start, "persistor_id": "", **more}


def rounds(wire):
    return [targets for name, targets in wire.asked if name == "train"]


def test_pow_d_has_the_candidates_with_the_largest_losses_train():
    wire = trained(WithFirstModel(**settings()))
    # From 0, site-4 is farthest; from its 10, site-1; from its 1, site-4 again.
    assert rounds(wire) == [["site-4"], ["site-1"], ["site-4"]]
    assert [name for name, _ in wire.asked] == 3 * ["validate", "train"]
    assert all(sorted(targets) == sorted(MEANS) for name, targets in wire.asked if name == "validate")


def test_pow_d_with_clusters_has_different_clusters_train():
    clusters = {"site-1": [0], "site-2": [0], "site-3": [0], "site-4": [1], "site-5": [1]}
    by_loss, by_cluster = (
        rounds(trained(WithFirstModel(**settings(num_clients=2, num_rounds=1, clusters=clusters, method=method))))
        for method in ("pow-d", "pow-d-kfed")
    )
    assert by_loss == [["site-4", "site-5"]]
    assert by_cluster == [["site-4", "site-3"]]


def test_a_client_without_clusters_is_one_of_its_own():
    clusters = {"site-4": [1]}
    wire = trained(WithFirstModel(**settings(num_clients=2, num_rounds=1, clusters=clusters, method="pow-d-kfed")))
    assert rounds(wire) == [["site-4", "site-5"]]


def test_random_selection_asks_for_no_loss_and_goes_by_the_rows():
    rows = {"site-1": 1, "site-2": 1, "site-3": 1, "site-4": 10**9, "site-5": 1}
    wire = trained(WithFirstModel(**settings(method="random", rows=rows, num_rounds=20)))
    assert wire.asked == 20 * [("train", ["site-4"])]


@pytest.mark.parametrize("method", ["random", "pow-d"])
def test_the_choice_follows_from_the_seed_and_not_from_the_order_of_the_clients(method):
    def found(seed, names):
        own = settings(method=method, seed=seed, num_rounds=6, num_clients=2, candidates=3)
        return trained(WithFirstModel(**own), names=names).asked

    assert found(1, tuple(MEANS)) == found(1, tuple(reversed(MEANS)))
    assert found(1, tuple(MEANS)) != found(2, tuple(MEANS))


def test_twice_the_clients_are_asked_unless_the_job_says_otherwise():
    wire = trained(WithFirstModel(**settings(candidates=None, num_clients=2)))
    assert [len(targets) for name, targets in wire.asked if name == "validate"] == [4, 4, 4]


def test_where_all_clients_train_no_loss_is_asked():
    wire = trained(WithFirstModel(**settings(num_clients=9)))
    assert {name for name, _ in wire.asked} == {"train"}


def spoilt(name, task, params):
    """Of the five, only site-2 sends a loss."""
    if task == "train" or name == "site-2":
        return honest(name, task, params)
    return {
        "site-1": FLModel(metrics={"loss": float("nan")}),
        "site-3": FLModel(metrics={"loss": "large"}),
        "site-4": make_reply(ReturnCode.EXECUTION_EXCEPTION),
        "site-5": FLModel(metrics={"accuracy": 1.0}),
    }[name]


def test_candidates_without_a_loss_are_left_out_and_named(caplog):
    with caplog.at_level(logging.WARNING):
        wire = trained(WithFirstModel(**settings(num_clients=2, num_rounds=1)), spoilt)
    assert rounds(wire) == [["site-2"]]
    for words in (
        "site-1 cannot be chosen in this round: it sent a 'loss' that is not finite",
        "site-3 cannot be chosen in this round: it sent a 'loss' that is no number",
        "site-4 cannot be chosen in this round: it failed with NVFlare's return code EXECUTION_EXCEPTION",
        "site-5 cannot be chosen in this round: it sent no metric 'loss'",
    ):
        assert words in caplog.text


def test_a_reply_that_is_no_model_and_one_that_never_comes_leave_the_others():
    def answers(name, task, params):
        if task == "validate" and name in ("site-4", "site-5"):
            return Shareable() if name == "site-4" else None
        return honest(name, task, params)

    assert rounds(trained(WithFirstModel(**settings(num_rounds=1)), answers)) == [["site-3"]]


def test_without_any_loss_the_job_ends_with_the_reason():
    controller, _ = connected(WithFirstModel(**settings()), lambda name, task, params: None)
    with pytest.raises(
        JobFailed, match="none of the 5 candidates of round 0 has sent a finite loss, by the job's loss_metric"
    ):
        controller.run()


def test_a_job_that_is_aborted_while_candidates_answer_does_not_fail():
    def answers(name, task, params):
        controller.abort_signal.trigger("stop")

    controller, wire = connected(WithFirstModel(**settings()), answers)
    controller.current_round = 0
    assert len(controller.sample_clients(1)) == 1
    assert [name for name, _ in wire.asked] == ["validate"]


def test_the_loss_may_have_another_name_and_task():
    def answers(name, task, params):
        if task == "score":
            return FLModel(metrics={"error": -MEANS[name]})
        return honest(name, task, params)

    wire = trained(WithFirstModel(**settings(loss_task="score", loss_metric="error", num_rounds=1)), answers)
    assert rounds(wire) == [["site-1"]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"method": "powd"}, r"method must be one of random, pow-d, pow-d-kfed; got 'powd' \(did you mean 'pow-d'\?\)"),
        ({"method": "pow-d-kfed"}, "'pow-d-kfed' needs the clusters of the clients"),
        ({"candidates": 0}, "candidates must be an integer of at least 1"),
        ({"rows": {"site-1": 0}}, "rows of site-1 must be an integer of at least 1"),
        ({"loss_timeout": 0}, "loss_timeout must be an integer of at least 1"),
        ({"num_clients": 0}, "num_clients must be an integer of at least 1"),
        ({"num_rounds": 0}, "num_rounds must be an integer of at least 1"),
    ],
)
def test_wrong_settings_are_refused_where_the_job_is_made(more, message):
    with pytest.raises(UserError, match=message):
        SelectiveFedAvg(**more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"candidates": 1, "num_clients": 2}, "candidates is 1, fewer than the 2 clients"),
        ({"rows": {"site-1": 5}}, "rows has no number for site-2, site-3, site-4, site-5"),
    ],
)
def test_settings_that_do_not_fit_the_clients_end_the_job_with_advice(more, message):
    controller, _ = connected(WithFirstModel(**settings(**more)))
    with pytest.raises(UserError, match=message):
        controller.run()


def test_a_job_names_the_class_and_all_its_settings(tmp_path):
    given = {
        "num_clients": 2,
        "num_rounds": 7,
        "method": "pow-d-kfed",
        "candidates": 4,
        "rows": {"site-1": 5, "site-2": 6},
        "clusters": {"site-1": [0, 1], "site-2": []},
        "seed": 3,
        "loss_task": "score",
        "loss_metric": "error",
        "loss_timeout": 30,
        "persistor_id": "mine",
        "task_name": "learn",
        "task_check_period": 0.1,
        "stop_cond": "accuracy >= 0.9",
        "patience": 3,
        "aggregation_weights": {"site-1": 2.0},
    }
    job = FedJob("selective", min_clients=2)
    job.set_app_packages(["flareclust"])
    job.to_server(SelectiveFedAvg(**given))
    job.export_job(str(tmp_path))
    (file,) = tmp_path.rglob("config_fed_server.json")
    (workflow,) = json.loads(file.read_text())["workflows"]
    assert workflow["path"] == "flareclust.flare.client_selection.SelectiveFedAvg"
    assert workflow["args"] == given
    assert workflow["path"] in of_server(), "kits do not list it"
    assert not list(tmp_path.rglob("custom"))
    rebuilt = SelectiveFedAvg(**workflow["args"])
    assert (rebuilt.method, rebuilt.rows, rebuilt.clusters) == (given["method"], given["rows"], given["clusters"])
