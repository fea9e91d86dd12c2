"""The engine for provisioned federations against a server that misbehaves on demand; real ones are in tests/integration/federation."""

import json
import socket
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pytest
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import AuthorizationError, InternalError, InvalidJobDefinition, NoConnection

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.platform import job_monitor as watched
from flareclust.platform import provisioned as production
from flareclust.platform import scratch, session
from flareclust.platform.session import _ADMIN_FILE, admin_of
from tests.fake_server import FakeServer
from tests.patience import PATIENCE
from tests.unit.platform.production_cases import COMPLETED


def test_the_result_of_a_completed_job_is_fetched(serve, outcome):
    server = FakeServer(["SUBMITTED", "DISPATCHED", "RUNNING", COMPLETED], outcome)
    found = serve(server)
    np.testing.assert_array_equal(found.centroids, outcome.centroids)
    assert found.job == "job-1"
    assert server.aborted == []


def test_a_signed_job_lies_in_a_folder_that_a_later_run_removes(serve, outcome, monkeypatch):
    server, found = FakeServer([COMPLETED], outcome), []
    monkeypatch.setattr(server, "submit_job", lambda folder, token=None: found.append(Path(folder).parent) or "job-1")
    leftovers = []
    server.on_look = lambda number: leftovers.append((found[0] / scratch._MARK).is_file())
    serve(server)
    assert all(leftovers)
    assert leftovers
    assert not found[0].exists()


def test_every_exchange_is_passed_on_once_while_the_job_runs(serve, outcome):
    server = FakeServer(["RUNNING"] * 4 + [COMPLETED], outcome)
    records = []

    def look(number: int) -> None:
        if number == 2:
            server.records = outcome.rounds[:1]

    server.on_look = look
    serve(server, on_round=lambda record: records.append((record["step"], record["round"])))
    assert records == [(record["step"], record["round"]) for record in outcome.rounds]


def test_a_complete_result_counts_whatever_word_nvflare_has_for_it(serve, outcome):
    """A site that is lost while the finished job waits for it makes the job ABNORMAL."""
    np.testing.assert_array_equal(serve(FakeServer(["FINISHED:ABNORMAL"], outcome)).centroids, outcome.centroids)


def test_an_aborted_job_has_no_result(serve, outcome):
    with pytest.raises(JobFailed, match="aborted by somebody"):
        serve(FakeServer(["RUNNING", "FINISHED:ABORTED"], outcome))


def test_the_controllers_own_words_reach_the_user(serve):
    log = "2026 - ERROR - Aborting current RUN due to FATAL_SYSTEM_ERROR received: round 0: 1 of 3 sites took part\n"
    with pytest.raises(JobFailed, match=r"^round 0: 1 of 3 sites took part$") as failure:
        serve(FakeServer(["FINISHED:EXECUTION_EXCEPTION"], error_log=log))
    assert not failure.value.transient


@pytest.mark.parametrize(
    ("log", "words", "transient"),
    [
        (
            "Aborting job J due to reported failure from site-2: unsafe component",
            "site-2 does not allow the classes",
            False,
        ),
        (
            "Failing job J due to reported failure from site-2.J: infrastructure error",
            "most likely it does not allow",
            False,
        ),
        ("Failing job J due to reported failure from site-2.J: exception", "process at site-2 ended", True),
        ("nothing of use", "no reason that this kit may read", True),
    ],
)
def test_what_only_the_servers_log_knows_reaches_the_user(serve, log, words, transient):
    with pytest.raises(JobFailed, match=words) as failure:
        serve(FakeServer(["FINISHED:ABNORMAL"], server_log=f"2026-11-21 - FederatedServer - INFO - {log}\n"))
    assert failure.value.transient is transient


def test_too_few_connected_sites_submit_nothing(serve):
    server = FakeServer([COMPLETED])
    server.sites = ["site-2"]
    with pytest.raises(JobFailed, match="at least 2 sites are needed, and only site-2 is connected") as failure:
        serve(server)
    assert failure.value.transient
    assert server.submitted == []
    server.sites = []
    with pytest.raises(JobFailed, match="at least 3 sites are needed, and none is connected"):
        serve(server, min_sites=3)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (AuthorizationError("no"), "lead@hub.org may not submit jobs"),
        (InvalidJobDefinition("bad meta"), "does not take the job: bad meta"),
    ],
)
def test_a_refused_submission_is_the_users_matter(serve, refusal, words):
    server = FakeServer([COMPLETED])
    server.refuse = refusal
    with pytest.raises(UserError, match=words):
        serve(server)


def test_a_folder_that_is_no_admins_kit_is_named(tmp_path):
    (tmp_path / "startup").mkdir()
    with pytest.raises(UserError, match="is no kit of a lead or an admin"):
        admin_of(tmp_path)
    (tmp_path / _ADMIN_FILE).write_text("{}")
    with pytest.raises(UserError, match="is no kit of a lead or an admin"):
        admin_of(tmp_path)


def test_one_session_is_enough_for_a_job(serve, outcome):
    """Opening one takes more than a second."""
    server = FakeServer(["SUBMITTED", "RUNNING", "RUNNING", COMPLETED], outcome)
    serve(server)
    assert server.opened == 1


def test_sites_that_are_about_to_connect_are_waited_for(serve, outcome, monkeypatch):
    """As after a restart of the server, when a flow submits the lost job again at once."""
    server = FakeServer([COMPLETED], outcome)
    monkeypatch.setattr(production, "_CONNECT_SECONDS", 30)
    answers = [["site-1"], ["site-1"], ["site-1", "site-2"]]
    monkeypatch.setattr(production, "connected_sites", lambda session: answers.pop(0))
    assert serve(server).job == "job-1"
    assert answers == []


def test_a_job_that_is_not_deployed_says_who_did_not_take_it(serve):
    server = FakeServer(["FINISHED:FAILED_TO_RUN"])
    server.deployed = ["site-1: OK", "server: app app does not pass", "site-2: NVFLARE_ERROR: no right"]
    with pytest.raises(JobFailed, match=r"start the job: server: app app does not pass; site-2: no right$") as failure:
        serve(server)
    assert "site-1" not in str(failure.value)


def test_a_site_that_did_not_take_a_completed_job_is_left_out(serve, outcome):
    """A right that the site does not grant, say; NVFlare completes the job with the others and says so in its meta only."""
    server = FakeServer([COMPLETED], outcome)
    server.deployed = [
        "server: OK",
        "site-1: OK",
        "invalid_clients: x",
        "site-3: user 'lead@hub.org' is not authorized for 'submit_job'",
    ]
    found = serve(server)
    assert found.sites == ["site-1", "site-2", "site-3", "site-4"]
    assert found.refused == {"site-3": "did not take the job: user 'lead@hub.org' is not authorized for 'submit_job'"}


def test_an_error_of_the_caller_is_the_callers_and_ends_the_job(serve, outcome):
    server = FakeServer(["RUNNING"], outcome)
    server.records = outcome.rounds

    def fail(record) -> None:
        raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        serve(server, on_round=fail)
    assert server.aborted == ["job-1"]


def test_without_statistics_a_job_is_followed_all_the_same(serve, outcome):
    server = FakeServer(["RUNNING", "RUNNING", COMPLETED], outcome)
    server.stats_refuse = AuthorizationError("no right to view")
    records = []
    np.testing.assert_array_equal(serve(server, on_round=records.append).centroids, outcome.centroids)
    assert records == outcome.rounds, "from the result"


def test_a_long_job_is_looked_at_less_often_but_its_end_is_noticed_within_seconds(serve, outcome, monkeypatch):
    clock, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        clock[0] += seconds + 0.1  # a look takes a moment

    monkeypatch.setattr(watched, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    serve(FakeServer([*["RUNNING"] * 500, COMPLETED], outcome), task_timeout=10_000)
    assert len(pauses) == 500
    assert all(pause <= 0.021 * sum(pauses[:i]) + 0.1 * i for i, pause in enumerate(pauses[1:], start=1))
    assert pauses[-1] == max(pauses) == 5.0


def test_a_job_that_may_not_be_followed_is_the_users_matter(serve):
    with pytest.raises(UserError, match="does not permit this kit to follow"):
        serve(FakeServer([AuthorizationError("no right to view")]))


def test_standard_output_comes_back_however_threads_overlap(capsys):
    entered, leave = Event(), Event()

    def other():
        with session.quiet():
            entered.set()
            leave.wait(5)
            print("a greeting")

    thread = Thread(target=other)
    with session.quiet():
        thread.start()
        assert entered.wait(5)
    print("still quiet")
    leave.set()
    thread.join()
    print("heard")
    assert capsys.readouterr().out == "heard\n"


@pytest.fixture
def failing(kit, monkeypatch):
    """Open a session of which connecting raises an error, `times` or each time."""

    def opened(error, times=99):
        made, closed = [], []

        class Failing:
            def __init__(self, *_):
                made.append(self)

            def try_connect(self, timeout):
                if len(made) <= times:
                    raise error

            def close(self):
                closed.append(self)

        session._guard_downloads()  # of NVFlare's own session
        monkeypatch.setattr(session, "Session", Failing)
        try:
            with session.open_session(kit):
                pass
        finally:
            assert len(closed) == len(made) <= 2, "its threads would keep the process for ever"

    return opened


@pytest.mark.parametrize(
    "error", [FLCommunicationError("failed to challenge server: timeout: "), InternalError("login failed: x")]
)
def test_a_server_that_is_too_slow_may_answer_another_time(failing, error):
    with pytest.raises(
        JobFailed, match=r"did not answer in time \((failed to challenge server: timeout|login failed: x)\)"
    ) as caught:
        failing(error)
    assert caught.value.transient


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("odd")])
def test_a_session_that_is_not_reached_is_closed(failing, error):
    with pytest.raises(type(error)):
        failing(error)


def test_a_server_whose_connection_was_reset_is_asked_again(failing, monkeypatch):
    monkeypatch.setattr(session, "speaks_tls", lambda host, port, timeout: True)
    monkeypatch.setattr(session, "server_ends_soon", lambda kit, host, port: None)
    failing(NoConnection("cannot connect to server for 10.0 seconds"), times=1)


def test_a_connection_that_comes_to_be_while_its_session_closes_is_ended(kit, monkeypatch):
    """NVFlare tells those that there are to end, and then waits for all."""
    ended = Event()

    class Reconnecting:
        def __init__(self, *_):
            told = iter((lambda: None, ended.set))  # it was there the second time
            self.driver = SimpleNamespace(shutdown=lambda: next(told, ended.set)())
            connectors = {"CH00001": SimpleNamespace(driver=self.driver)}
            communicator = SimpleNamespace(conn_manager=SimpleNamespace(connectors=connectors))
            self.api = SimpleNamespace(cell=SimpleNamespace(core_cell=SimpleNamespace(communicator=communicator)))

        def try_connect(self, timeout):
            pass

        def close(self):
            self.driver.shutdown()
            assert ended.wait(PATIENCE)

    session._guard_downloads()  # of NVFlare's own session
    monkeypatch.setattr(session, "Session", Reconnecting)
    with session.open_session(kit):
        assert not ended.is_set()
    assert ended.is_set()


def refuse(listener, times):
    """Answer connections as a server does that takes no TLS of this kind, and hang up on further ones."""
    for _ in range(times):
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    listener.accept()[0].close()


@pytest.mark.parametrize(
    ("there", "error", "words"),
    [
        ("speaks", UserError, "does not talk to the kit .* compare both clocks"),
        ("goes away", JobFailed, "does not answer"),
        (
            "listens",
            JobFailed,
            "does not answer",
        ),  # as a server that is stopped, or behind a forwarder that cannot reach it
        ("hangs up", JobFailed, "does not answer"),
        ("", JobFailed, "does not answer"),
    ],
)
def test_a_server_that_does_not_want_the_kit_is_distinguished_from_one_that_is_away(failing, kit, there, error, words):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if there:
            listener.listen()
        if there in ("speaks", "goes away"):
            Thread(target=refuse, args=[listener, 4 if there == "speaks" else 1], daemon=True).start()
        if there == "hangs up":
            Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        about = {"username": "lead@hub.org", "host": "127.0.0.1", "project_name": "x"}
        about["port"] = listener.getsockname()[1]
        (kit / _ADMIN_FILE).write_text(json.dumps({"admin": about}))
        with pytest.raises(error, match=words):
            failing(NoConnection("cannot connect to server"))
