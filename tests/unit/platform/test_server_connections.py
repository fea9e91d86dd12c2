"""What servers and relays make of connections: sites that return, kits that run twice, and what is forgotten once they are closed."""

import inspect
import uuid
from threading import Event
from types import SimpleNamespace

import pytest
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey, RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.stats_pool import StatsPoolManager, new_time_pool
from nvflare.fuel.utils.class_utils import instantiate_class
from nvflare.private.fed.server.client_manager import ClientManager

from flareclust.platform import _private, server
from flareclust.platform._private import mend_connections
from flareclust.platform.session import guard

JOB, OTHER_JOB = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Federation:
    """The sites that a server knows, two jobs of theirs, and what the component is told and tells."""

    def __init__(self) -> None:
        self.manager, self.told = ClientManager(), []
        self.engine = SimpleNamespace(
            server=SimpleNamespace(client_manager=self.manager),
            run_processes={},
            notify_dead_job=lambda *words: self.told.append(words),
        )
        self.component = instantiate_class("flareclust.engines.server.ReturningSites", {})

    def register(self, name: str, token: str) -> None:
        """As NVFlare's server does: a site that connects again has its new token only."""
        sites = self.manager.get_clients()
        for old in [old for old, site in sites.items() if site.name == name]:
            del sites[old]
        sites[token] = Client(name, token)
        self._fire(EventType.CLIENT_REGISTER_PROCESSED, FLContext())

    def start(self, job: str) -> None:
        self.engine.run_processes[job] = {RunProcessKey.PARTICIPANTS: dict(self.manager.get_clients())}

    def heartbeat(self, name: str, token: str) -> None:
        fl_ctx, peer = FLContext(), FLContext()
        peer.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
        fl_ctx.set_peer_context(peer)
        self.manager.heartbeat(token, name, name, fl_ctx)
        self._fire(EventType.CLIENT_HEARTBEAT_PROCESSED, fl_ctx)

    def _fire(self, event: str, fl_ctx: FLContext) -> None:
        fl_ctx.set_prop(ReservedKey.ENGINE, self.engine, private=True, sticky=False)
        self.component.handle_event(event, fl_ctx)


@pytest.fixture
def federation():
    made = Federation()
    made.register("north", "n1")
    made.register("south", "s1")
    return made


def test_a_site_that_was_started_again_is_told_to_each_running_job_once(federation):
    federation.start(JOB)
    federation.start(OTHER_JOB)
    assert federation.told == []
    for _ in range(2):
        federation.register("north", "n2")
    expected = [(job, "north", "the site was started again") for job in (JOB, OTHER_JOB)]
    assert federation.told == expected
    federation.register("north", "n3")
    assert federation.told == expected, "the jobs know that the site's process for them is gone"


def test_a_job_that_begins_after_the_return_is_told_nothing(federation):
    federation.register("north", "n2")
    federation.start(JOB)
    federation.register("south", "s2")
    assert federation.told == [(JOB, "south", "the site was started again")]


def test_a_site_that_is_gone_is_left_to_nvflare(federation):
    federation.start(JOB)
    del federation.manager.get_clients()["n1"]
    federation.register("west", "w1")
    assert federation.told == []


def test_jobs_without_participants_disturb_nothing(federation):
    """NVFlare lists a job that way while it ends."""
    federation.engine.run_processes = {JOB: {}, OTHER_JOB: {RunProcessKey.PARTICIPANTS: None}}
    federation.register("north", "n2")
    assert federation.told == []


def test_a_kit_that_runs_at_two_places_is_named_once(federation, caplog):
    federation.heartbeat("north", "n1")
    assert caplog.messages == []
    federation.register("north", "n2")
    for _ in range(3):
        federation.heartbeat("north", "n1")
        federation.heartbeat("north", "n2")
    said = [record.getMessage() for record in caplog.records if record.name == server.__name__]
    assert said == [
        "north connects from two places; stop the process of its kit at one of them, then run the job again"
    ]
    federation.register("south", "s2")
    federation.heartbeat("south", "s1")
    assert "south connects from two places" in caplog.text


class Wire(Connection):
    """A connection that leads nowhere."""

    def get_conn_properties(self) -> dict:
        return {}

    def close(self) -> None:
        pass

    def send_frame(self, frame: object) -> None:
        pass


#: By name, whether the process is still connected: sites, processes of jobs at the server and at sites, sessions.
PROCESSES = {
    "north": True,
    "south": False,
    f"server.{JOB}": False,
    f"server.{OTHER_JOB}": True,
    f"north.{JOB}": False,
    f"north.{OTHER_JOB}": True,
    f"_admin_{uuid.UUID(int=3)}": False,
    f"_admin_{uuid.UUID(int=4)}": True,
}

#: A site that has no connection of its own to the server.
BEHIND_A_RELAY = "relay.west"

#: What is left: all but what was of one use and is gone.
LEFT = {name for name, connected in PROCESSES.items() if connected} | {"south"}


@pytest.fixture
def connect(monkeypatch):
    """What makes a process to which all of them were connected, and which has had a message of each, with NVFlare's own manager."""
    monkeypatch.setattr(ConnManager, "close_connection", inspect.unwrap(ConnManager.close_connection))
    times = new_time_pool("Msg_Travel")
    monkeypatch.setattr(StatsPoolManager, "pools", {"msg_travel": times})

    def connected() -> ConnManager:
        manager, connector = (
            ConnManager(Endpoint("server")),
            ConnectorInfo("", None, {}, Mode.PASSIVE, 0, 0, True, Event()),
        )
        times.record_value(f"{BEHIND_A_RELAY}#request:task", 0.01)
        for name, stays in PROCESSES.items():
            wire = Wire(connector)
            manager.handle_new_connection(wire)
            manager.update_endpoint(manager.sfm_conns[wire.name], {"endpoint_name": name})
            times.record_value(f"{name}#request:task", 0.01)
            if not stays:
                manager.close_connection(wire)
        return manager

    return connected


def test_nvflare_keeps_what_was_connected_once(connect):
    """If this fails, `_forget_closed` of flareclust.platform._private can go."""
    assert {*connect().sfm_endpoints} == {*PROCESSES}


def test_a_guarded_process_forgets_processes_of_jobs_and_sessions_that_are_gone(connect):
    for _ in range(2):  # as where a job's process is guarded by both of its sides
        guard()
    manager, times = connect(), StatsPoolManager.get_pool("msg_travel")
    assert {*manager.sfm_endpoints} == LEFT
    assert {*times.cat_bins} == {f"{name}#request:task" for name in {*LEFT, BEHIND_A_RELAY}}
    assert manager.get_connections(f"north.{OTHER_JOB}"), "what is connected stays so"
    assert manager.find_endpoint("south").state == EndpointState.DISCONNECTED
    assert times.update_lock.acquire(blocking=False), "NVFlare goes on to measure"


@pytest.mark.parametrize("lacking", ["sfm_endpoints", "StatsPoolManager", "msg_travel", "cat_bins"])
def test_an_nvflare_that_lacks_these_attributes_closes_connections_all_the_same(connect, monkeypatch, lacking):
    mend_connections()
    times = StatsPoolManager.get_pool("msg_travel")
    if lacking == "sfm_endpoints":
        monkeypatch.setattr(_private, "_forget_closed", lambda endpoints: endpoints.no_such_attribute)
    elif lacking == "StatsPoolManager":
        monkeypatch.delattr(f"nvflare.fuel.f3.stats_pool.{lacking}")
    elif lacking == "msg_travel":
        StatsPoolManager.delete_pool(lacking)
    else:
        monkeypatch.setitem(StatsPoolManager.pools, "msg_travel", SimpleNamespace(update_lock=times.update_lock))
    manager = connect()
    assert len(manager.sfm_conns) == sum(PROCESSES.values())
    assert times.update_lock.acquire(blocking=False)


def test_an_nvflare_without_such_a_manager_is_left_as_it_is(monkeypatch):
    monkeypatch.delattr("nvflare.fuel.f3.sfm.conn_manager.ConnManager")
    mend_connections()
