"""What a server passes on, and what the process of a site answers."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import nvflare
import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, MessageType
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.utils.admin_name_utils import new_admin_client_name
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.defs import RequestHeader
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.client_app_runner import ClientAppRunner
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from flareclust._foundation.version import __version__
from flareclust.platform import peers
from flareclust.platform.admission import ServerValidator, SiteDeployer
from flareclust.platform.launcher import SiteProcessLauncher
from flareclust.platform.peers import (
    ANSWERED,
    _answering_problem,
    _asking_problem,
    _passing_problem,
    _returning_problem,
    _SafeProcessor,
    job_problem,
)
from tests.kit_certificates import write_certificates
from tests.unit.platform.peer_cases import Cell, starting

JOB = "6f5b0d43-10f7-4c2c-9a0e-2d7a6f0a9b11"


@pytest.mark.parametrize(
    ("endpoint", "origin", "destination"),
    [
        ("north", "north", "server"),
        ("north", f"north.{JOB}", f"server.{JOB}"),
        (f"north.{JOB}", f"north.{JOB}", "server"),
        (f"north.{JOB}", f"north.{JOB}", "north"),
        ("relay", f"relay.north.{JOB}", f"server.{JOB}"),
        (f"server.{JOB}", f"server.{JOB}", "north"),
        ("_admin_1", "_admin_1", "server"),
    ],
)
def test_a_server_passes_on_what_belongs_to_jobs(endpoint, origin, destination):
    assert _passing_problem(endpoint, origin, destination) is None


@pytest.mark.parametrize(
    ("endpoint", "origin", "destination", "problem"),
    [
        ("south", "south", "north", "sent a message to 'north'"),
        ("south", f"south.{JOB}", f"north.{JOB}", f"sent a message to 'north.{JOB}'"),
        ("_admin_1", "_admin_1", "north", "sent a message to 'north'"),
        ("south", "server", "north", "in the name of 'server'"),
        ("south", "north", "server", "in the name of 'north'"),
        ("south", "southern", "server", "in the name of 'southern'"),
        ("south", f"server.{JOB}", f"north.{JOB}", f"in the name of 'server.{JOB}'"),
        ("", "server", "north", "in the name of 'server'"),
        ("south", "", "server", "in the name of ''"),
        ("south", "south", "servers", "sent a message to 'servers'"),
        ("relay.south", "relay.south", "relay.north", "sent a message to 'relay.north'"),
    ],
)
def test_a_server_drops_what_one_kit_sends_to_another_or_in_the_name_of_another(endpoint, origin, destination, problem):
    assert problem in _passing_problem(endpoint, origin, destination)


@pytest.mark.parametrize(
    ("channel", "topic"),
    [
        *(("server_parent_listener", "get_clients"), ("server_parent_listener", "update_run_status")),
        *(("server_command", "handle_dead_job"), ("server_command", "abort"), ("_net_manager", "peers")),
        *(("cellnet.channel", "bulk"), ("_net_manager", "stop")),
    ],
)
def test_a_server_takes_no_commands_of_its_own_from_members(channel, topic):
    for member in ("south", f"south.{JOB}", "_admin_1"):
        assert f"asked for {topic!r} on {channel!r}" == _asking_problem(member, channel, topic)
    assert _asking_problem(f"server.{JOB}", channel, topic) is None


@pytest.mark.parametrize(
    ("channel", "topic"),
    [
        *(("server_command", "get_task"), ("server_command", "submit_update"), ("task", "heart_beat")),
        *(("aux_communication", "ObjectStreamer.Request"), ("cellnet.channel", "bye"), ("hci_channel", "command")),
    ],
)
def test_a_server_takes_what_jobs_and_sessions_ask(channel, topic):
    assert _asking_problem("south", channel, topic) is None


@pytest.mark.parametrize("topic", ["fed.event", "status", "ObjectStreamer.Request"])
def test_auxiliary_requests_are_for_jobs_and_streams_only(topic):
    user, stream = new_admin_client_name(), topic.startswith("ObjectStreamer")
    for member, destination in (("south", "server"), (user, "server"), (user, f"server.{JOB}")):
        problem = _asking_problem(member, "aux_communication", topic, destination)
        assert problem == (None if stream else f"asked for {topic!r} on 'aux_communication'")
    assert _asking_problem(f"south.{JOB}", "aux_communication", topic, f"server.{JOB}") is None


def test_a_member_returns_messages_of_its_own_processes_only():
    for destination in ("south", f"south.{JOB}"):
        assert _returning_problem("south", {MessageHeaderKey.DESTINATION: destination}) is None
    for headers in ({MessageHeaderKey.DESTINATION: "north"}, {}, None, "south"):
        assert "returned a message that was for" in _returning_problem("south", headers)
    assert _returning_problem(f"server.{JOB}", {MessageHeaderKey.DESTINATION: "north"}) is None


def test_a_site_answers_its_server_and_its_own_jobs():
    assert _answering_problem("north", "server") is None
    assert _answering_problem("north", f"server.{JOB}") is None
    assert _answering_problem("north", f"north.{JOB}") is None
    assert _answering_problem("relay.north", f"relay.north.{JOB}") is None
    assert _answering_problem("relay.north", "relay.south") is not None
    for other in ("south", "_admin_1", "servers", "northern", ""):
        assert _answering_problem("north", other) is not None


@pytest.mark.parametrize(
    "name", ["local", "startup", "", "..", JOB.upper(), f"{JOB}/..", f"{JOB}\n", None, 7, "simulate_job"]
)
def test_no_job_has_the_name_of_a_folder_of_the_kit(name):
    assert job_problem(name) is not None
    assert job_problem(JOB) is None


@pytest.fixture
def processors(monkeypatch):
    """NVFlare's processors of requests, each of which answers and does nothing else; put back afterwards."""
    for processor in ClientRequestProcessors.request_processors:
        monkeypatch.setattr(type(processor), "process", lambda self, req, app_ctx: AdminMessage(req.topic, "answered"))
    listed = list(ClientRequestProcessors.request_processors)
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", listed)
    return listed


@pytest.fixture(autouse=True)
def kit(tmp_path, monkeypatch):
    """A kit's folder, in which NVFlare starts a server and which a site's arguments name."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(component, *, cell):
    """Have a component see that the process of a site or server starts in the current folder."""
    component.handle_event(EventType.SYSTEM_BOOTSTRAP, starting(Path.cwd(), cell))


def message(origin, destination="north", endpoint=None, **headers):
    asked = {MessageHeaderKey.MSG_TYPE: MessageType.REQ, MessageHeaderKey.ORIGIN: origin}
    made = Message({**asked, MessageHeaderKey.DESTINATION: destination, **headers}, None)
    made.set_prop(MessagePropKey.ENDPOINT, Endpoint(endpoint or origin))
    return made


@pytest.mark.parametrize("component", [SiteDeployer, SiteProcessLauncher])
def test_a_started_site_answers_only_what_jobs_need(component, processors, caplog):
    cell = Cell("north")
    started(component(), cell=cell)
    started(component(), cell=cell)  # the second component of a kit changes nothing any more
    assert len(cell.filters) == 1
    reported = {}
    for processor in processors:
        assert isinstance(processor, _SafeProcessor)
        reported |= {
            topic: processor.process(AdminMessage(topic, "cat rows.csv"), None).body for topic in processor.get_topics()
        }
    assert {topic for topic, body in reported.items() if body == "answered"} <= ANSWERED
    assert "does not answer sys.shell" in reported["sys.shell"]
    assert set(reported) - ANSWERED >= {
        "sys.shell",
        "sys.report_env",
        "sys.configure_site_log",
        "train.configure_job_log",
        "train.delete_run",
    }
    assert cell.filters[0](message("server")) is None
    assert cell.filters[0](message("south")) is not None
    assert "a message was dropped: 'south' is no cell of the server or of this site" in caplog.text


def test_requests_about_jobs_name_a_job(processors):
    started(SiteDeployer(), cell=Cell("north"))
    for job, answer in ((JOB, "answered"), ("local", "was given 'local' as the name of a job, which is none")):
        assert answer in asked(processors, "train.deploy", job)


def asked(processors, topic, job, app_ctx=None):
    (processor,) = [p for p in processors if topic in p.get_topics()]
    request = AdminMessage(topic, "")
    request.set_header(RequestHeader.JOB_ID, job)
    return processor.process(request, app_ctx).body


@pytest.mark.parametrize("certificate", [True, False])
def test_a_site_reports_its_version_of_flareclust_and_the_end_of_its_certificate(tmp_path, monkeypatch, certificate):
    listed = list(ClientRequestProcessors.request_processors)
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", listed)
    started(SiteDeployer(), cell=Cell("north"))
    engine = SimpleNamespace(args=SimpleNamespace(workspace=str(tmp_path)))
    ends = datetime(2030, 1, 1, tzinfo=timezone.utc)
    if certificate:
        write_certificates(
            tmp_path, root=(ends - timedelta(9), ends + timedelta(9)), client=(ends - timedelta(9), ends)
        )
    found = json.loads(asked(listed, "sys.report_version", "", engine))
    own = {"version": nvflare.__version__, "flareclust": __version__}
    assert found.pop("free_disk") > 0
    assert found == (own | {"certificate_end": ends.timestamp()} if certificate else own)


def test_a_site_whose_certificate_cannot_be_read_reports_its_version(tmp_path, monkeypatch):
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", list(ClientRequestProcessors.request_processors))
    started(SiteDeployer(), cell=Cell("north"))
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "client.crt").write_text("none")
    engine = SimpleNamespace(args=SimpleNamespace(workspace=str(tmp_path)))
    found = json.loads(asked(ClientRequestProcessors.request_processors, "sys.report_version", "", engine))
    assert found["flareclust"] == __version__


def test_a_site_deletes_no_folder_of_a_job(processors):
    started(SiteDeployer(), cell=Cell("north"))
    for job in (JOB, "local"):
        answer = asked(processors, "train.delete_run", job)
        assert answer.startswith("this site keeps the folders of its jobs, with labels and the record of requests;")


def test_a_site_starts_no_job_a_second_time(processors, tmp_path):
    """Its process would write over the labels that the first one has left."""
    started(SiteDeployer(), cell=Cell("north"))
    engine = ClientEngine.__new__(ClientEngine)
    engine.args = SimpleNamespace(workspace=str(tmp_path))
    (tmp_path / JOB / "app_north").mkdir(parents=True)
    for name in ("fl_app.txt", "meta.json"):
        (tmp_path / JOB / name).write_text("")
    assert asked(processors, "train.start_job", JOB, engine) == "answered"
    (tmp_path / JOB / "labels.csv").write_text("row,label\n")
    answer = asked(processors, "train.start_job", JOB, engine)
    assert answer == f"this site has run the job {JOB} before, and runs none twice"


def test_a_processor_of_a_later_nvflare_is_not_answered_unasked(processors):
    class Later(RequestProcessor):
        def get_topics(self):
            return ["sys.later"]

        def process(self, req, app_ctx):
            raise AssertionError

    processors.append(Later())
    started(SiteDeployer(), cell=Cell("north"))
    assert "does not answer sys.later" in processors[-1].process(AdminMessage("sys.later", ""), None).body


def test_a_started_server_drops_what_is_not_of_a_job():
    cell = Cell("server")
    started(ServerValidator(), cell=cell)
    (drops,) = cell.filters
    assert drops(message("north", f"server.{JOB}")) is None
    assert drops(message("south", "north")) is not None
    assert drops(message("server", "north", endpoint="south")) is not None
    listener = "server_parent_listener"
    for of in (MessageHeaderKey, StreamHeaderKey):
        assert drops(message("south", "server", **{of.CHANNEL: listener, of.TOPIC: "get_clients"})) is not None
        assert drops(message("south", "server", **{of.CHANNEL: "server_command", of.TOPIC: "get_task"})) is None
    headers = {MessageHeaderKey.DESTINATION: "north"}
    returned = {MessageHeaderKey.MSG_TYPE: MessageType.RETURN, MessageHeaderKey.ORIGINAL_HEADERS: headers}
    assert drops(message("south", "server", **returned)) is not None
    assert drops(message("north", "server", **returned)) is None
    reply = {MessageHeaderKey.MSG_TYPE: MessageType.REPLY, MessageHeaderKey.CHANNEL: "_net_manager"}
    assert drops(message("south", "server", **reply)) is None


def test_a_session_is_of_the_user_that_opened_it():
    cell, session = Cell("server"), new_admin_client_name()
    cell.resolver.require_match(session, "south", "connection 0")  # which NVFlare lets pass
    started(ServerValidator(), cell=cell)
    cell.resolver.require_match(session, "lead@hub.org", "connection 1")
    cell.resolver.require_match(session, "lead@hub.org", "connection 2")
    with pytest.raises(ValueError, match=f"connection 3: the session {session} is another user's"):
        cell.resolver.require_match(session, "south", "connection 3")
    cell.resolver.require_match(new_admin_client_name(), "lead@hub.org", "connection 4")
    with pytest.raises(ValueError, match="requires identity 'north'"):
        cell.resolver.require_match("north", "south", "connection 5")


def test_a_server_forgets_the_oldest_sessions_of_a_user_and_none_of_another(monkeypatch):
    monkeypatch.setattr(peers, "_MOST_SESSIONS", 3)
    cell, mine = Cell("server"), new_admin_client_name()
    started(ServerValidator(), cell=cell)
    cell.resolver.require_match(mine, "lead@hub.org", "connection 0")
    first, *others = [new_admin_client_name() for _ in range(5)]
    for session in (first, *others):
        cell.resolver.require_match(session, "south", "connection 1")
    cell.resolver.require_match(first, "lead@hub.org", "connection 2")
    for session in (mine, first, *others[-3:]):
        with pytest.raises(ValueError, match="is another user's"):
            cell.resolver.require_match(session, "north", "connection 3")


def test_a_sites_deployer_receives_what_happens_in_the_process_of_a_job(monkeypatch):
    """NVFlare tells the components of a site in that process of nothing but what is built; the guard of jobs was not set up there."""
    handlers = []
    made = SimpleNamespace(add_handler=handlers.append)
    monkeypatch.setattr(ClientAppRunner, "create_run_manager", lambda self, *asked: made)
    SiteDeployer()
    latest = SiteDeployer()
    assert ClientAppRunner().create_run_manager(None, None, None, None) is made
    assert handlers == [latest], "once, however often a kit is read"


def test_without_the_events_of_jobs_a_site_is_not_guarded(monkeypatch, tmp_path, processors):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(ClientAppRunner, "create_run_manager")
    deployer = SiteDeployer()
    started(deployer, cell=Cell("north"))
    assert "no ClientAppRunner.create_run_manager" in deployer._unguarded


def test_a_job_at_a_site_answers_the_server_and_its_own_site(processors):
    cell, fl_ctx = Cell(f"relay.north.{JOB}"), FLContext()
    fl_ctx.set_prop(ReservedKey.ENGINE, SimpleNamespace(get_cell=lambda: cell), private=True, sticky=False)
    SiteDeployer().handle_event(EventType.ABOUT_TO_START_RUN, fl_ctx)
    (drops,) = cell.filters
    asked = {MessageHeaderKey.CHANNEL: "aux_communication", MessageHeaderKey.TOPIC: "fed.event"}
    for origin in ("server", f"server.{JOB}", "relay.north"):
        assert drops(message(origin, **asked)) is None
    for origin in ("relay.south", f"relay.south.{JOB}", "relay", new_admin_client_name()):
        assert drops(message(origin, **asked)) is not None


def test_a_site_takes_no_auxiliary_requests_but_streams(processors):
    cell = Cell("north")
    started(SiteDeployer(), cell=cell)
    for of in (MessageHeaderKey, StreamHeaderKey):
        event = {of.CHANNEL: "aux_communication", of.TOPIC: "fed.event"}
        log = {of.CHANNEL: "aux_communication", of.TOPIC: "ObjectStreamer.Abort"}
        assert cell.filters[0](message("server", **event)) is not None
        assert cell.filters[0](message("server", **log)) is None
        assert cell.filters[0](message("server", f"north.{JOB}", **event)) is None, (
            "on the way to a job, behind a relay"
        )


def test_a_site_tells_nobody_about_its_network(processors):
    cell = Cell("north")
    started(SiteDeployer(), cell=cell)
    assert cell.filters[0](message("server", **{MessageHeaderKey.CHANNEL: "_net_manager"})) is not None
