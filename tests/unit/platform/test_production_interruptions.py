"""Jobs of provisioned federations whose server, sites or caller go away, and jobs that are taken up again."""

import errno
import signal
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError, NoConnection

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.platform import job_monitor as watched
from tests.fake_server import FakeServer
from tests.kit_certificates import write_certificates
from tests.unit.platform.production_cases import COMPLETED


def test_sites_lost_below_the_quorum_are_named(serve):
    log = (
        "Client site-3 is deemed disconnected!\nClient site-1 is deemed disconnected!\n"
        "FATAL_SYSTEM_ERROR received: Aborting job due to deployment policy violation\n"
    )
    with pytest.raises(JobFailed, match="fewer sites are left than the job needs; lost: site-1, site-3"):
        serve(FakeServer(["FINISHED:EXECUTION_EXCEPTION"], error_log=log))


@pytest.mark.parametrize(("status", "look"), [("RUNNING", 4), ("DISPATCHED", 3)])
def test_a_server_that_was_started_again_has_lost_the_job(serve, status, look):
    """Also one that was dispatched and did not run yet, which NVFlare never takes up again."""
    server = FakeServer([status])
    server.restart_at(look)
    with pytest.raises(JobFailed, match="started again and has lost the job") as failure:
        serve(server)
    assert failure.value.transient
    assert server.aborted == [], "it cannot be aborted"


def test_a_server_that_ends_the_jobs_it_has_lost_is_believed_at_once(serve):
    server = FakeServer(["RUNNING", "FINISHED:ABANDONED"])
    with pytest.raises(JobFailed, match="has lost the job: it was started again, or its disk was full") as failure:
        serve(server)
    assert failure.value.transient


def test_a_short_interruption_is_survived(serve, outcome):
    server = FakeServer(["RUNNING", ConnectionError("gone"), RuntimeError("still gone"), "RUNNING", COMPLETED], outcome)
    np.testing.assert_array_equal(serve(server).centroids, outcome.centroids)
    assert server.opened > 1


def test_a_server_that_stays_away_ends_the_wait(serve, monkeypatch):
    monkeypatch.setattr(watched, "_UNREACHABLE_SECONDS", 0.2)
    server = FakeServer(["RUNNING", ConnectionError("gone")])

    def vanish(number: int) -> None:
        server.down = number > 2

    server.on_look = vanish
    with pytest.raises(JobFailed, match=r"did not answer for 0.2 s; last: gone") as failure:
        serve(server)
    assert failure.value.transient


def test_a_job_beyond_its_deadline_is_aborted(serve):
    server = FakeServer(["RUNNING"])
    with pytest.raises(JobFailed, match=r"deadline of 1 s .* task_timeout \(--task-timeout\) above 0:") as failure:
        serve(server, deadline=1)
    assert not failure.value.transient
    assert server.aborted == ["job-1"]


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


def test_a_result_that_does_not_fit_on_the_disk_is_no_matter_of_the_server(serve, outcome):
    server = FakeServer([COMPLETED], outcome)
    server.fetch_errors = [OSError(errno.ENOSPC, "No space left on device")]
    with pytest.raises(
        JobFailed, match=r"job job-1 cannot be written to .* \(No space left on device\); make"
    ) as failure:
        serve(server)
    assert not failure.value.transient
    assert "and fetch it: flareclust fetch job-1 --kit " in str(failure.value)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (AuthorizationError("no right to view"), UserError, "does not permit this kit to ask for its status"),
        (NoConnection("gone"), JobFailed, r"asked for its status \(gone\): is it still running"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_server_that_does_not_give_its_status_ends_in_an_error_of_ours(
    serve, outcome, monkeypatch, error, kind, words, at
):
    server, asked = FakeServer([COMPLETED], outcome), []
    answer = server.check_status

    def refuse(*args):
        asked.append(args)
        if len(asked) > at:
            raise error
        return answer(*args)

    monkeypatch.setattr(server, "check_status", refuse)
    with pytest.raises(kind, match=words) as failure:
        serve(server)
    assert getattr(failure.value, "transient", True)
    assert server.submitted == []


def test_a_job_is_aborted_if_the_server_vanishes_right_after_taking_it(serve, monkeypatch):
    monkeypatch.setattr(watched, "_UNREACHABLE_SECONDS", 0.2)
    server = FakeServer([ConnectionError("gone")])
    with pytest.raises(JobFailed, match="did not answer") as failure:
        serve(server)
    assert failure.value.transient
    assert server.aborted == ["job-1"]


@pytest.mark.parametrize("more_signals", [0, 3])
def test_an_interrupted_caller_aborts_its_job_before_a_second_signal_counts(serve, more_signals):
    server = FakeServer(["RUNNING"])

    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    def abort(job: str) -> None:
        for _ in range(more_signals):
            signal.raise_signal(signal.SIGINT)
        server.aborted.append(job)

    server.on_look, server.abort_job = interrupt, abort
    with pytest.raises(KeyboardInterrupt):
        serve(server)
    assert server.aborted == ["job-1"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_jobs_that_an_earlier_crash_lost_are_named(serve, outcome, caplog):
    server = FakeServer([COMPLETED], outcome)
    server.start_time = 100.0
    server.running = {"new"}
    server.listed = [
        {"job_id": "lost", "status": "RUNNING", "submit_time": 50.0},
        {"job_id": "new", "status": "RUNNING", "submit_time": 50.0},
        {"job_id": "later", "status": "RUNNING", "submit_time": 150.0},
        {"job_id": "done", "status": "FINISHED:COMPLETED", "submit_time": 50.0},
    ]
    serve(server)
    named = [record.getMessage() for record in caplog.records if "was lost" in record.getMessage()]
    assert named == [watched.lost_words("lost")]


def test_a_lead_is_told_before_certificates_end(serve, outcome, kit, caplog, monkeypatch):
    now = datetime.now(timezone.utc)
    begins, ends = now - timedelta(days=300), now + timedelta(days=9)
    write_certificates(kit, root=(begins, now + timedelta(days=900)), client=(begins, ends))
    asked = []
    monkeypatch.setattr(watched, "server_ends_soon", lambda *about: asked.append(about) or "the server's, too")
    server = FakeServer([COMPLETED], outcome)
    reported = {"server": {"version": "2.9.0"}, "north": {"certificate_end": ends.timestamp()}, "south": "nonsense"}
    reported["west"] = {"certificate_end": (now + timedelta(days=90)).timestamp()}
    monkeypatch.setattr(server, "report_version", lambda target_type: reported, raising=False)
    serve(server)
    said = f"the certificate client.crt ends {ends:%Y-%m-%d %H:%M} UTC; ask for a new kit before that"
    north = (
        f"the certificate of north ends {ends:%Y-%m-%d %H:%M} UTC; provision anew and hand out the new kits before that"
    )
    assert [record.getMessage() for record in caplog.records] == [said, "the server's, too", north]
    assert asked == [(kit, "server", 8002)]


def test_a_server_that_does_not_list_its_jobs_runs_new_ones(serve, outcome, monkeypatch):
    server = FakeServer([COMPLETED], outcome)
    monkeypatch.setattr(server, "list_jobs", lambda **_: 1 / 0)
    np.testing.assert_array_equal(serve(server).centroids, outcome.centroids)
