"""Sites that are expected and not connected are waited for, and named in the result."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines.options import ExpectedSites
from flareclust.platform import job_monitor
from flareclust.platform.provisioned import fetch_job
from tests.fake_server import FakeServer
from tests.unit.platform.production_cases import COMPLETED

HERE, ABSENT = ["site-1", "site-2", "site-3"], "site-4"


@pytest.fixture
def server(outcome):
    """A server that three of four sites are connected to, and that runs a job with them."""
    kept = {name: outcome.labels[name] for name in HERE if name in outcome.labels}
    server = FakeServer([COMPLETED], replace(outcome, sites=HERE, labels=kept))
    server.sites = list(HERE)
    return server


def job(name="feca", user="lead@hub.org", sites=(*HERE, ABSENT), **about):
    """A job in the server's list; the last line is of a site that did not take it."""
    detail = ["server: OK", *(f"{site}: OK" for site in sites), "site-9: not authorized"]
    return {"name": name, "submitter_name": user, "job_deploy_detail": detail, **about}


def connect_at(server: FakeServer, question: int, *sites: str) -> None:
    """Let sites be connected from when the server is asked for its status for the n-th time."""

    def connect(number: int) -> None:
        if number == question:
            server.sites = sorted({*server.sites, *sites})

    server.on_status = connect


def test_an_absent_site_that_is_named_is_left_out_with_what_to_do(serve, server):
    found = serve(server, expected=ExpectedSites(expect_sites=(*HERE, ABSENT)))
    assert found.sites == [*HERE, ABSENT]
    assert list(found.refused) == [ABSENT]
    assert found.refused[ABSENT].startswith(
        "was not connected when the job began, and is expected; start it (startup/start.sh"
    )


def test_an_expected_site_that_is_disabled_at_the_server_is_called_disabled_and_no_other(serve, server):
    server.said = {"disabled_sites": [ABSENT, "site-long-gone"]}
    found = serve(server, expected=ExpectedSites(expect_sites=(*HERE, ABSENT, "site-5")))
    assert found.refused[ABSENT] == "is disabled at the server (nvflare system disable-client)"
    assert found.refused["site-5"].startswith("was not connected when the job began")
    assert list(found.refused) == [ABSENT, "site-5"]


def test_without_names_those_of_earlier_jobs_of_this_kind_by_this_user_are_expected(serve, server):
    server.listed = [job(sites=HERE[:2]), job(), job("feca-2", sites=["x"]), job(user="admin@hub.org", sites=["y"])]
    found = serve(server, expected=ExpectedSites())
    assert list(found.refused) == [ABSENT]
    assert "had part in one of your last 10 jobs of this kind" in found.refused[ABSENT]


def test_a_site_that_has_been_away_for_many_jobs_is_not_expected_any_more(serve, server):
    server.listed = [job(sites=HERE)] * 10 + [job()]
    assert serve(server, expected=ExpectedSites()).refused == {}


def test_names_count_and_not_what_was_before(serve, server):
    server.listed = [job()]
    assert serve(server, expected=ExpectedSites(expect_sites=tuple(HERE))).refused == {}
    assert serve(server).refused == {}, "a job of its own expects nobody"


def test_a_job_that_is_fetched_names_who_was_in_jobs_of_its_name_before_it_and_not_in_it(server, kit, monkeypatch):
    about = {"status": COMPLETED, "name": "mine", "submit_time": 200.0, "job_deploy_detail": ["server: OK"]}
    about["submitter_name"] = "hub@hub.org"
    server.get_job_meta = lambda job: about
    monkeypatch.setattr(job_monitor, "open_session", server.session)
    server.listed = [
        job("mine", "hub@hub.org", sites=["later"], submit_time=300.0),
        job("mine", "hub@hub.org", submit_time=100.0),
        job("other", "hub@hub.org", sites=["x"], submit_time=100.0),
        job("mine", sites=["of another user"], submit_time=100.0),
    ]
    found, _, date = fetch_job("job-1", kit)
    assert list(found.refused) == [ABSENT]
    assert "had part in one of your last 10 jobs of this kind" in found.refused[ABSENT]
    assert date.startswith("1970")
    assert list(fetch_job("job-1", kit, expect_sites=["site-5"])[0].refused) == ["site-5"]


def test_a_list_of_jobs_that_is_not_permitted_costs_nothing(serve, server, monkeypatch):
    def refuse(**_):
        raise PermissionError("no right to list")

    monkeypatch.setattr(server, "list_jobs", refuse)
    assert serve(server, expected=ExpectedSites()).refused == {}


def test_a_site_that_joined_or_refused_is_not_called_absent(serve, server):
    """What decides is the job, not who was connected when it was submitted."""
    server.deployed = ["server: OK", *(f"{site}: OK" for site in HERE[:2]), "site-3: no right"]
    server.outcome = replace(server.outcome, sites=HERE[:2])
    found = serve(server, expected=ExpectedSites(expect_sites=tuple(HERE)))
    assert found.refused == {"site-3": "did not take the job: no right"}


def test_all_expected_sites_are_waited_for_and_the_missing_are_named_meanwhile(serve, server, caplog):
    connect_at(server, 4, ABSENT)
    server.outcome = replace(server.outcome, sites=[*HERE, ABSENT])
    expected = ExpectedSites(expect_sites=(*HERE, ABSENT), wait_seconds=60)
    assert serve(server, expected=expected).refused == {}
    assert [text for text in caplog.messages if "waiting" in text] == [
        "waiting up to 60 s for sites; connected: site-1, site-2, site-3; missing: site-4"
    ]


def test_a_number_of_sites_is_waited_for(serve, server, caplog):
    server.sites = []
    connect_at(server, 3, *HERE)
    assert serve(server, expected=ExpectedSites(wait_for=3, wait_seconds=60)).job == "job-1"
    assert [text for text in caplog.messages if "waiting" in text] == [
        "waiting up to 60 s for 3 sites; connected: none"
    ]


def test_after_the_time_the_job_goes_on_without_the_missing(serve, server, monkeypatch):
    monkeypatch.setattr(job_monitor, "time", ticking(0.5))
    found = serve(server, expected=ExpectedSites(expect_sites=(*HERE, ABSENT), wait_seconds=5))
    assert list(found.refused) == [ABSENT]


def test_after_the_time_too_few_sites_are_one_sentence_that_names_the_missing(serve, server, monkeypatch):
    monkeypatch.setattr(job_monitor, "time", ticking(0.5))
    expected = ExpectedSites(expect_sites=(*HERE, ABSENT), wait_seconds=5)
    with pytest.raises(
        JobFailed, match=r"only site-1, site-2, site-3 are connected to the server \w+; start site-4 \(startup"
    ):
        serve(server, expected=expected, min_sites=4)
    assert server.submitted == []


def test_a_wait_for_nobody_knows_whom_is_refused(serve, server):
    with pytest.raises(UserError, match=r"no earlier job says which sites to wait for; name them \(--expect-sites"):
        serve(server, expected=ExpectedSites(wait_seconds=5))


@pytest.fixture
def run(serve, server, kit, monkeypatch):
    """Run FeCA on the server's sites as a user does; `serve` is here for the short times that it sets."""
    monkeypatch.setattr(job_monitor, "open_session", server.session)
    monkeypatch.setattr(job_monitor, "time", ticking(0.5))

    def run(**settings):
        return flareclust.run("feca", engine="production", kit=kit, **{"k": 4} | settings)

    return run


def test_the_result_of_a_run_lists_an_absent_site_and_warns_of_it(run):
    result = run(expect_sites=[*HERE, ABSENT])
    assert list(result.left_out) == [ABSENT]
    (warning,) = [text for text in result.warnings if text.startswith(ABSENT)]
    assert warning == f"{ABSENT} {result.left_out[ABSENT]}"


def test_a_run_expects_the_sites_of_earlier_ones_unless_it_names_some(run, server):
    server.listed = [job()]
    assert list(run().left_out) == [ABSENT]
    assert run(expect_sites=HERE).left_out == {}


def test_of_the_two_jobs_of_a_range_of_k_only_the_first_waits(run, server, caplog):
    run(k="3..4", expect_sites=[*HERE, ABSENT], wait_seconds=5)
    assert len(server.submitted) == 2
    assert len([text for text in caplog.messages if "waiting" in text]) == 1


def lost(server: FakeServer) -> None:
    """Let the first job with the token `key` be one of four sites that the server has lost in a crash."""
    server.tokens, server.known = {"key-0": "lost"}, {"lost": "RUNNING"}
    server.deployed = job()["job_deploy_detail"]


@pytest.mark.parametrize("again", [{"token": "key"}, {"resume": "lost"}])
def test_a_job_that_replaces_a_lost_one_waits_for_its_sites(serve, server, caplog, again):
    lost(server)
    connect_at(server, 8, ABSENT)
    server.outcome = replace(server.outcome, sites=[*HERE, ABSENT])
    submitted_with = []
    submit = server.submit_job

    def seen(folder, token=None):
        submitted_with.append(list(server.sites))
        return submit(folder, token)

    server.submit_job = seen
    assert serve(server, **again).refused == {}
    assert submitted_with[-1] == [*HERE, ABSENT]
    assert any("waiting up to 60 s" in text and text.endswith("missing: site-4") for text in caplog.messages)


def test_a_site_of_the_lost_job_that_stays_away_is_waited_for_once_and_named(serve, server, monkeypatch, caplog):
    lost(server)
    server.tokens["key-1"], server.known["failed"] = "failed", "FINISHED:EXECUTION_EXCEPTION"
    monkeypatch.setattr(job_monitor, "time", ticking(5))
    found = serve(server, token="key")
    assert found.job == "job-3"
    assert found.refused[ABSENT].startswith(
        "was not connected when the job began, and had part in the job that this one replaces;"
    )
    assert len([text for text in caplog.messages if "waiting" in text]) == 1


def ticking(step: float) -> SimpleNamespace:
    """Return a clock that is `step` seconds later whenever somebody looks at it, and on which nobody sleeps."""
    seconds = count(step, step)
    return SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda pause: None)
