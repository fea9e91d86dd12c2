"""The engine for provisioned federations against a server that misbehaves on demand; real ones are in tests/integration/federation."""

import json
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError, InvalidJobDefinition, NoConnection

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines import provisioned as production
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.flare import job_monitor as watched
from flareclust.flare import session
from flareclust.flare.session import ADMIN_FILE, admin_of
from flareclust.protocol.registry import get
from tests.fake_server import FakeServer

COMPLETED = "FINISHED:COMPLETED"


@pytest.fixture
def kit(tmp_path) -> Path:
    """The kit of a lead, as far as it is read without a connection."""
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    about = {"username": "lead@hub.org", "host": "server", "port": 8002, "project_name": "clinics"}
    (tmp_path / "kit" / ADMIN_FILE).write_text(json.dumps({"admin": about}))
    return tmp_path / "kit"


@pytest.fixture
def outcome(sites):
    return run_inprocess(get("feca"), {}, sites, JobOptions(k=4))


@pytest.fixture
def serve(monkeypatch, kit):
    """Let the engine meet a server; the returned function runs a FeCA job on it."""
    monkeypatch.setattr(production, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(production, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(watched, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watched, "ROUNDS_SECONDS", 0.0)
    monkeypatch.setattr(watched, "DISPATCH_SECONDS", 0.2)

    def run(server: FakeServer, *, token=None, on_round=lambda record: None, **options):
        monkeypatch.setattr(watched, "open_session", server.session)
        try:
            return production.run_production(get("feca"), {}, JobOptions(k=4, **options), kit, on_round, token=token)
        finally:
            assert server.opened == server.closed, "an open session keeps the process from ending"

    return run


def test_the_result_of_a_completed_job_is_fetched(serve, outcome):
    server = FakeServer(["SUBMITTED", "DISPATCHED", "RUNNING", COMPLETED], outcome)
    found = serve(server)
    np.testing.assert_array_equal(found.centroids, outcome.centroids)
    assert found.job == "job-1"
    assert server.aborted == []


def test_every_exchange_is_passed_on_once_while_the_job_runs(serve, outcome):
    server = FakeServer(["RUNNING"] * 4 + [COMPLETED], outcome)
    told = []

    def look(number: int) -> None:
        if number == 2:
            server.records = outcome.rounds[:1]

    server.on_look = look
    serve(server, on_round=lambda record: told.append((record["step"], record["round"])))
    assert told == [(record["step"], record["round"]) for record in outcome.rounds]


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


def test_sites_lost_below_the_quorum_are_named(serve):
    log = (
        "Client site-3 is deemed disconnected!\nClient site-1 is deemed disconnected!\n"
        "FATAL_SYSTEM_ERROR received: Aborting job due to deployment policy violation\n"
    )
    with pytest.raises(JobFailed, match="fewer sites are left than the job needs; lost: site-1, site-3"):
        serve(FakeServer(["FINISHED:EXECUTION_EXCEPTION"], error_log=log))


def test_a_server_that_was_started_again_has_lost_the_job(serve):
    server = FakeServer(["RUNNING"])
    server.restart_at(4)
    with pytest.raises(JobFailed, match="started again and has lost the job") as failure:
        serve(server)
    assert failure.value.transient
    assert server.aborted == [], "it cannot be aborted"


def test_a_short_interruption_is_survived(serve, outcome):
    server = FakeServer(["RUNNING", ConnectionError("gone"), RuntimeError("still gone"), "RUNNING", COMPLETED], outcome)
    np.testing.assert_array_equal(serve(server).centroids, outcome.centroids)
    assert server.opened > 1


def test_a_server_that_stays_away_ends_the_wait(serve, monkeypatch):
    monkeypatch.setattr(watched, "UNREACHABLE_SECONDS", 0.2)
    server = FakeServer(["RUNNING", ConnectionError("gone")])

    def vanish(number: int) -> None:
        server.down = number > 2

    server.on_look = vanish
    with pytest.raises(JobFailed, match="did not answer") as failure:
        serve(server)
    assert failure.value.transient


def test_a_job_beyond_its_deadline_is_aborted(serve):
    server = FakeServer(["RUNNING"])
    with pytest.raises(JobFailed, match="deadline of 1 s"):
        serve(server, deadline=1)
    assert server.aborted == ["job-1"]


def test_an_interrupted_caller_aborts_its_job(serve):
    server = FakeServer(["RUNNING"])

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    server.on_look = interrupt
    with pytest.raises(KeyboardInterrupt):
        serve(server)
    assert server.aborted == ["job-1"]


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


def test_with_its_token_a_running_job_is_taken_up_again(serve, outcome):
    server = FakeServer([COMPLETED], outcome)
    server.tokens, server.running = {"key-0": "earlier"}, {"earlier"}
    server.known = {"earlier": "RUNNING"}
    server.records = outcome.rounds

    def finish(record) -> None:
        server.known["earlier"] = COMPLETED

    assert serve(server, token="key", on_round=finish).job == "earlier"
    assert server.submitted == ["key-0"]


def test_failed_lost_and_other_jobs_of_a_token_are_passed_over(serve, outcome):
    server = FakeServer([COMPLETED], outcome)
    server.tokens = {"key-0": "failed", "key-1": "lost", "key-2": "other"}
    server.known = {"failed": "FINISHED:EXECUTION_EXCEPTION", "lost": "RUNNING"}
    assert serve(server, token="key").job == "job-4"
    assert server.submitted == ["key-0", "key-1", "key-2", "key-3"]


def test_a_folder_that_is_no_admins_kit_is_named(tmp_path):
    (tmp_path / "startup").mkdir()
    with pytest.raises(UserError, match="is no kit of a lead or an admin"):
        admin_of(tmp_path)
    (tmp_path / ADMIN_FILE).write_text("{}")
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
    monkeypatch.setattr(production, "CONNECT_SECONDS", 30)
    answers = [["site-1"], ["site-1"], ["site-1", "site-2"]]
    monkeypatch.setattr(production, "connected_sites", lambda session: answers.pop(0))
    assert serve(server).job == "job-1"
    assert answers == []


def test_a_job_that_is_not_deployed_says_who_did_not_take_it(serve):
    server = FakeServer(["FINISHED:FAILED_TO_RUN"])
    server.deployed = ["site-1: OK", "server: app app does not pass signature verification"]
    with pytest.raises(JobFailed, match="did not start the job: server: app app does not pass signature") as failure:
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
    told = []
    np.testing.assert_array_equal(serve(server, on_round=told.append).centroids, outcome.centroids)
    assert told == outcome.rounds, "from the result"


def test_a_job_that_may_not_be_followed_is_the_users_matter(serve):
    with pytest.raises(UserError, match="does not permit this kit to follow"):
        serve(FakeServer([AuthorizationError("no right to view")]))


def test_a_job_caught_by_a_crash_before_it_ran_is_lost(serve):
    """NVFlare never takes up a dispatched job again."""
    server = FakeServer(["DISPATCHED"])
    server.restart_at(3)
    with pytest.raises(JobFailed, match="has lost the job") as failure:
        serve(server)
    assert failure.value.transient


def test_a_job_that_waits_in_the_queue_survives_a_crash(serve, outcome):
    server = FakeServer(["SUBMITTED", "SUBMITTED", "RUNNING", "RUNNING", COMPLETED], outcome)
    server.restart_at(2, takes_up={"job-1"})
    np.testing.assert_array_equal(serve(server).centroids, outcome.centroids)


def test_a_dispatched_job_that_nobody_runs_is_not_taken_up_again(serve, outcome):
    server = FakeServer([COMPLETED], outcome)
    server.tokens, server.known = {"key-0": "dead"}, {"dead": "DISPATCHED"}
    assert serve(server, token="key").job == "job-2"


def test_a_result_that_cannot_be_fetched_at_once_is_fetched_later(serve, outcome):
    server = FakeServer([COMPLETED], outcome)
    server.fetch_errors = [ConnectionError("gone"), ConnectionError("gone")]
    np.testing.assert_array_equal(serve(server).centroids, outcome.centroids)


def test_a_job_is_aborted_if_the_server_vanishes_right_after_taking_it(serve, monkeypatch):
    monkeypatch.setattr(watched, "UNREACHABLE_SECONDS", 0.2)
    server = FakeServer([ConnectionError("gone")])
    with pytest.raises(JobFailed, match="did not answer") as failure:
        serve(server)
    assert failure.value.transient
    assert server.aborted == ["job-1"]


def test_a_second_signal_waits_until_the_job_is_aborted(serve):
    server = FakeServer(["RUNNING"])

    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    def abort(job: str) -> None:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        server.aborted.append(job)

    server.on_look, server.abort_job = interrupt, abort
    with pytest.raises(KeyboardInterrupt):
        serve(server)
    assert server.aborted == ["job-1"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("odd")])
def test_a_session_that_is_not_reached_is_closed(kit, monkeypatch, error):
    """Its threads would keep the process for ever."""
    closed = []

    class Unreachable:
        def __init__(self, *_):
            pass

        def try_connect(self, timeout):
            raise error

        def close(self):
            closed.append(self)

    monkeypatch.setattr(session, "Session", Unreachable)
    with pytest.raises(type(error)), session.open_session(kit):
        pass
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("there", "error", "words"), [(True, UserError, "does not talk to the kit"), (False, JobFailed, "does not answer")]
)
def test_a_server_that_does_not_want_the_kit_is_told_from_one_that_is_away(kit, monkeypatch, there, error, words):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if there:
            listener.listen()
        about = {
            "username": "lead@hub.org",
            "host": "127.0.0.1",
            "port": listener.getsockname()[1],
            "project_name": "x",
        }
        (kit / ADMIN_FILE).write_text(json.dumps({"admin": about}))

        class Refused:
            def __init__(self, *_):
                pass

            def try_connect(self, timeout):
                raise NoConnection("cannot connect to server")

            def close(self):
                pass

        monkeypatch.setattr(session, "Session", Refused)
        with pytest.raises(error, match=words), session.open_session(kit):
            pass
