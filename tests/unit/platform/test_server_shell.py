"""The aggregator and the controller as NVFlare calls them."""

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal
from nvflare.widgets.info_collector import GroupInfoCollector, InfoCollector

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, never_abort
from flareclust._foundation.version import __version__
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.aggregator import unpack
from flareclust.platform.controller import EXCHANGES, LIVE, RECORDS, WAITING, ClusteringController, _Stopped
from flareclust.protocol.registry import get
from flareclust.protocol.task import REFUSED, ROUND, STEP, StepName, Task
from tests.unit.platform.shell_cases import OLD_LIST, TOO_WIDE


def from_site(name: str, arrays: dict[str, FloatArray]):
    shareable = DXO(DataKind.WEIGHTS, data=arrays, meta={STEP: StepName.CLUSTER, ROUND: 0}).to_shareable()
    shareable.set_peer_props({ReservedKey.IDENTITY_NAME: name})
    return shareable


def test_the_aggregator_works_as_nvflares_do(sites):
    """ScatterAndGather calls reset, accept for each site, aggregate."""
    executor, aggregator = get("feca").build(4)
    fl_ctx = FLContext()
    replies = {}
    aggregator.reset(fl_ctx)
    for site in reversed(sites):
        replies[site] = executor.answer(Task(StepName.CLUSTER, 0, {}, site), sites[site], never_abort).arrays
        assert aggregator.accept(from_site(site, replies[site]), fl_ctx)
    merged = from_shareable(aggregator.aggregate(fl_ctx))
    here = run_inprocess(get("feca"), {}, sites, JobOptions(k=4))
    np.testing.assert_array_equal(merged.data["centroids"], here.centroids)
    assert merged.meta == {ROUND: 1}


def test_the_aggregator_refuses_what_does_not_fit():
    _, aggregator = get("feca").build(4)
    fl_ctx = FLContext()
    assert not aggregator.accept(from_site("a", {"centroids": np.ones((2, 2))}), fl_ctx)
    assert not aggregator.accept(make_reply(ReturnCode.EXECUTION_EXCEPTION), fl_ctx)
    with pytest.raises(JobFailed, match="no site"):
        aggregator.aggregate(fl_ctx)


def test_the_aggregator_goes_by_the_majority_about_columns():
    """As flareclust's own controller does."""
    _, aggregator = get("feca").build(4)
    fl_ctx = FLContext()
    for site, d in (("a", 2), ("b", 3), ("c", 2)):
        assert aggregator.accept(from_site(site, {"centroids": np.ones((2, d)), "radii": np.ones(2)}), fl_ctx)
    assert from_shareable(aggregator.aggregate(fl_ctx)).data["centroids"].shape[1] == 2


def test_unpack_names_what_is_wrong():
    said = "failed with NVFlare's return code TASK_UNKNOWN; log.txt of the job there says why, such as a full disk"
    assert unpack(make_reply(ReturnCode.TASK_UNKNOWN))[1] == said
    assert "not a DXO" in unpack(make_reply(ReturnCode.OK))[1]
    assert "METRICS" in unpack(DXO(DataKind.METRICS, data={"x": 1}).to_shareable())[1]
    assert unpack(DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: "x" * 999}).to_shareable())[1] == "x" * 400


def test_the_controller_tells_how_far_a_job_is():
    controller = ClusteringController("feca")
    controller._records = [{"step": "cluster", "round": r} for r in range(60)]
    controller._waiting = ["site-2", "site-1"]
    collector, fl_ctx = GroupInfoCollector(), FLContext()
    fl_ctx.set_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR, collector, private=True, sticky=False)
    controller.handle_event(InfoCollector.EVENT_TYPE_GET_STATS, fl_ctx)
    reported = collector.info[LIVE]
    assert reported[EXCHANGES] == 60
    assert reported[RECORDS][-1] == {"step": "cluster", "round": 59}
    assert len(reported[RECORDS]) < 60
    assert reported[WAITING] == ["site-1", "site-2"]


def time_out(task, *_, **__):
    task.completion_status = TaskCompletionStatus.TIMEOUT


def test_an_aborted_job_waits_for_no_site(context, monkeypatch):
    controller, signal, sent = ClusteringController("feca"), Signal(), []
    monkeypatch.setattr(controller, "broadcast", lambda task, *_, **__: sent.append(task) or signal.trigger("stop"))
    controller.communicator = WFCommServer()
    with pytest.raises(_Stopped):
        controller._ask(StepName.CLUSTER, 0, {}, ["site-1"], context, signal)
    assert sent[0].completion_status == TaskCompletionStatus.CANCELLED, "NVFlare sends it to nobody any more"


def test_a_task_ends_after_its_time_whatever_the_clock_of_the_machine_says(context, monkeypatch):
    controller, sent = ClusteringController("feca", task_timeout=60), []
    seconds = count(0, 10)
    clocks = {"monotonic": lambda: next(seconds), "time": lambda: 1e9 * next(seconds), "sleep": lambda pause: None}
    monkeypatch.setattr("flareclust.platform.controller.time", SimpleNamespace(**clocks))
    monkeypatch.setattr(controller, "broadcast", lambda task, *_, **__: sent.append(task))
    controller.communicator = WFCommServer()
    assert controller._ask(StepName.CLUSTER, 0, {}, ["site-1"], context, Signal()) == {}
    assert next(seconds) == 80, "it looked seven times after the start"
    assert sent[0].timeout == 0, "NVFlare's own would go by the clock"


def test_sites_that_nvflare_has_lost_are_distinguished_from_slow_ones(context, monkeypatch):
    controller = ClusteringController("feca")
    monkeypatch.setattr(controller, "broadcast", time_out)

    def say(event, prop, site):
        fl_ctx = FLContext()
        fl_ctx.set_prop(prop, site, private=True, sticky=False)
        controller.handle_event(event, fl_ctx)

    say(EventType.CLIENT_DISCONNECTED, FLContextKey.DISCONNECTED_CLIENT_NAME, "site-1")
    say(EventType.CLIENT_DISCONNECTED, FLContextKey.DISCONNECTED_CLIENT_NAME, "site-2")
    say(EventType.CLIENT_RECONNECTED, FLContextKey.RECONNECTED_CLIENT_NAME, "site-2")
    replies = controller._ask(StepName.CLUSTER, 0, {}, ["site-1", "site-2", "site-3"], context, Signal())
    assert set(replies) == {"site-1"}
    assert replies["site-1"].lost
    assert "was lost" in str(replies["site-1"].problem)


def test_a_reply_that_comes_too_late_is_named_and_not_used(monkeypatch):
    warned = []
    controller = ClusteringController("feca")
    monkeypatch.setattr(controller, "log_warning", lambda fl_ctx, text: warned.append(text))
    site = SimpleNamespace(name="site-2")
    controller.process_result_of_unknown_task(site, "update", "id", from_site("site-2", {}), FLContext())
    assert warned == ["site-2 answered 'update' too late; the reply was not used"]


OWN_NETWORK = "tests.unit.deep.networks_of_ours.Flat"


@pytest.mark.parametrize(
    ("algorithm", "settings", "listed", "reason"),
    [
        ("feca", {"needs": "99.1.0"}, None, f"has flareclust {__version__} where the job needs 99.1.0"),
        ("feca", {}, OLD_LIST, TOO_WIDE),
        (
            "deepfeca",
            {},
            '{"class_allow_list": ["some.other.Class"]}',
            f"does not allow {OWN_NETWORK}; its operator adds it to class_allow_list in local/resources.json",
        ),
    ],
    ids=["another version", "an old list of classes", "a network of the user's own"],
)
def test_a_server_that_may_not_run_a_job_ends_it(context, tmp_path, monkeypatch, algorithm, settings, listed, reason):
    if listed is not None:
        (tmp_path / "local" / "resources.json").write_text(listed)
    controller, reasons = ClusteringController(algorithm, **settings), []
    controller._aggregator = FeCAAggregator(2)
    if algorithm == "deepfeca":
        deepfeca = pytest.importorskip("flareclust.aggregators.deepfeca")
        controller._aggregator = deepfeca.DeepFeCAAggregator(2, network=OWN_NETWORK)
    monkeypatch.setattr(controller, "system_panic", lambda reason, fl_ctx: reasons.append(reason))
    controller.control_flow(Signal(), context)
    assert reasons == [f"the server {reason}"]


def test_the_communicator_checks_tasks_as_often_as_the_controller_says():
    communicator = WFCommServer()
    ClusteringController("feca", task_check_period=0.03).set_communicator(communicator)
    assert communicator._task_check_period == 0.03
