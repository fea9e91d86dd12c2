"""Whole jobs with secure sums: nothing but masked words, lost sites, settings that do not fit, both engines."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import Message
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.refinement import SPREAD, UPDATE
from flareclust.federation.server import ServerJob
from flareclust.platform.job import build_job
from flareclust.platform.simulator import run_simulator
from flareclust.privacy.secure_aggregation.fixed_point import WORDS
from flareclust.protocol.registry import algorithms, get
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.steps import counts_of
from flareclust.protocol.task import StepName
from flareclust.testing import iid_sites
from flareclust.testing.promised import overlapping_sites
from tests.unit.privacy.secure_cases import FEWER, OPTIONS, PLAIN, asker, lloyd_sites, run_lloyd, silent_in

COLUMNS = {StepName.SCALES, StepName.KNOWN_SCALES, StepName.ODD_COLUMNS, StepName.BINNED, StepName.FINER_BINNED}
SUMS = {name for step in (SPREAD, UPDATE) for name in (step, counts_of(step))}

# A federation


def test_nothing_but_masked_words_reaches_the_server() -> None:
    sites, _ = iid_sites()
    seen: list[tuple[str, Message]] = []
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        seen.extend((step, reply.arrays) for reply in replies.values())
        return replies

    outcome = run_lloyd(ask, sites)
    assert (outcome.refused, outcome.warnings) == ({}, [])
    assert {step for step, _ in seen} == {StepName.KEYS, *SUMS, StepName.ASSESS, StepName.OWN_CLUSTERS}
    for step, arrays in seen:
        assert set(arrays) == ({"key", "columns", SECONDS} if step == StepName.KEYS else {"masked", SECONDS})
    words = [arrays["masked"].ravel() for step, arrays in seen if step != StepName.KEYS]
    assert len(np.unique(np.concatenate(words))) == sum(map(len, words))  # not one word is there twice


def test_one_executor_for_all_sites_and_one_for_each_give_the_same_bits() -> None:
    sites, _ = iid_sites()
    apart, together = (
        run_lloyd(asker(sites, lloyd_sites(sites)), sites),
        run_inprocess(get("lloyd"), {}, sites, OPTIONS),
    )
    assert set(apart.arrays) == set(together.arrays)
    for name, value in apart.arrays.items():
        np.testing.assert_array_equal(value, together.arrays[name], err_msg=name)
    assert apart.metrics == together.metrics


@pytest.mark.parametrize("lost", ["silent", "refuses"])
def test_a_site_that_drops_out_ends_the_job_by_name(lost: str) -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))
    asked_for: list[tuple[str, int]] = []

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        asked_for.append((step, round_))
        replies = honest(step, round_, arrays, asked)
        if step == UPDATE:
            replies.pop("site-3")
        return replies | ({"site-3": SiteReply(problem="says no")} if step == UPDATE and lost == "refuses" else {})

    message = "did not answer in time" if lost == "silent" else "says no"
    with pytest.raises(
        JobFailed, match=f"round 4: site-3 {message}. With secure sums a job ends where a site drops out"
    ):
        run_lloyd(ask, sites)
    assert len(set(asked_for)) == len(asked_for)  # nobody was asked for a sum without it


def test_without_one_site_in_the_assessment_there_are_no_metrics_and_a_warning() -> None:
    sites, _ = iid_sites()
    outcome = run_lloyd(silent_in(StepName.ASSESS, "site-3", asker(sites, lloyd_sites(sites))), sites)
    assert outcome.metrics == {}
    why = "the masked sums of all sites are needed for them: site-3 did not answer in time (in the assessment)"
    assert outcome.warnings == [f"there are no metrics, since {why}"]
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, sites, OPTIONS).centroids, outcome.centroids)


def test_a_site_that_is_missing_from_the_start_is_left_out() -> None:
    sites, _ = iid_sites(m=5)
    tiny = sites | {"site-2": sites["site-2"][:1], "site-4": sites["site-4"][:, :2]}
    outcome = run_inprocess(get("lloyd"), {}, tiny, FEWER)
    assert "fewer rows than min_count=2" in outcome.refused["site-2"]
    assert outcome.refused["site-4"] == "has 2 columns where 3 other sites have 3"
    left = {site: sites[site] for site in ("site-1", "site-3", "site-5")}
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, left, OPTIONS).centroids, outcome.centroids)
    assert outcome.rounds[-1]["sites"] == list(left)
    few = {site: tiny[site] for site in ("site-1", "site-2", "site-3")}
    with pytest.raises(JobFailed, match="2 of 3 sites took part where at least 3 are needed"):
        run_inprocess(get("lloyd"), {}, few, OPTIONS)
    with pytest.raises(
        JobFailed, match=r"at least 5 sites \(min_sites; all sites unless it is given\), and 3 are left. site-2 has"
    ):
        run_inprocess(get("lloyd"), {}, tiny, OPTIONS)


def test_a_start_of_other_columns_leaves_out_whoever_lacks_them() -> None:
    sites, _ = iid_sites()
    with pytest.raises(JobFailed, match="has rows of 3 columns where the federation has 2"):
        run_inprocess(get("lloyd"), {"start": [[1, 2], [3, 4], [5, 6], [7, 8]]}, sites, OPTIONS)


def test_a_site_that_sends_no_key_is_left_out() -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        if step == StepName.KEYS:
            broken = {**replies["site-1"].arrays, "key": np.array([7])}
            replies["site-1"] = SiteReply(broken)
        return replies

    outcome = run_lloyd(ask, sites)
    assert outcome.refused == {"site-1": "sent a bad reply: expected JSON text, eight bytes to a number"}


def test_words_of_another_size_end_the_job_by_the_sites_name() -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        if step == UPDATE:
            replies["site-1"] = SiteReply({"masked": np.zeros((WORDS, 10**6), np.int64)})
        return replies

    with pytest.raises(
        JobFailed, match="site-1 sent a bad reply: masked: axis w has 1000000 entries where 17 were expected"
    ):
        run_lloyd(ask, sites)


def test_two_sites_are_too_few() -> None:
    with pytest.raises(UserError, match="at least 3 sites, got 2: of two, each would know the other's sums"):
        flareclust.run("lloyd", data="iris", k=3, n_sites=2, secure_sums=True)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("lloyd", {"robust": "median"}, "robust and cap judge single sites"),
        ("lloyd", {"cap": 2.0}, "robust and cap judge single sites"),
        ("portfolio", {"robust": "trimmed"}, "robust and cap judge single sites"),
        ("lloyd", {"start": "spectral"}, "start='spectral' clusters the sites' seeds, which are not sent"),
    ],
    ids=str,
)
def test_settings_that_need_single_sites_sums_are_refused(name: str, params: dict[str, object], message: str) -> None:
    sites, _ = iid_sites()
    with pytest.raises(UserError, match=message):
        run_inprocess(get(name), params, sites, OPTIONS)
    with pytest.raises(UserError, match=message):
        build_job(get(name), params, OPTIONS)


def test_what_is_not_masked_is_said() -> None:
    result = flareclust.run("kfed", data="iris", k=3, n_sites=3, secure_sums=True)
    assert any(
        "replies that are no sums reached the server as they are, site by site: those to cluster" in w
        for w in result.warnings
    )
    assert flareclust.run("lloyd", data="iris", k=3, n_sites=3, secure_sums=True).warnings == []


def test_server_and_sites_agree_on_what_adds_up() -> None:
    for algorithm in algorithms().values():
        if algorithm.federated:
            executor, aggregator = algorithm.build(2)
            assert aggregator.asks is None
            assert type(executor) is aggregator.executor, algorithm.name
            steps = ServerJob(aggregator).steps
            assert steps == {name: executor.step(name) for name in steps}, algorithm.name
            assert steps.keys() >= executor.job_steps().keys()
    steps = get("portfolio").executor_class().job_steps()
    assert {name for name, step in steps.items() if step.maskable} == {
        *COLUMNS,
        *SUMS,
        StepName.SCORE,
        StepName.ASSESS,
        *(
            name
            for name in StepName.PROFILING
            if name not in (StepName.PROFILE_TOTALS, counts_of(StepName.PROFILE_TOTALS))
        ),
    }


def test_jobs_with_secure_sums_have_the_tasks_and_others_do_not(tmp_path: object) -> None:
    def tasks(options: JobOptions, **params: str) -> list[str]:
        build_job(get("lloyd"), params, options).export_job(str(tmp_path))
        text = (tmp_path / "lloyd" / "app" / "config" / "config_fed_client.json").read_text()  # type: ignore[operator]
        found: list[str] = json.loads(text)["executors"][0]["tasks"]
        return found

    assert set(tasks(FEWER)) == {StepName.KEYS, StepName.NAMES, *COLUMNS, *SUMS, StepName.ASSESS, StepName.OWN_CLUSTERS}
    assert not {StepName.KEYS, counts_of(SPREAD), counts_of(UPDATE), *StepName.PROFILING} & set(tasks(PLAIN))
    profiled = PLAIN.model_copy(update={"profile": True})
    assert set(StepName.PROFILING) & set(tasks(profiled)) == {StepName.PROFILE, StepName.PROFILE_BINS}
    of_totals = set(tasks(FEWER.model_copy(update={"profile": True})))
    of_profile = {StepName.PROFILE_TOTALS, counts_of(StepName.PROFILE_TOTALS)}
    assert set(StepName.PROFILING) & of_totals == {StepName.OWN_CLUSTERS, *of_profile}
    assert set(StepName.PROFILING) & set(tasks(profiled, missing="mean")) == {
        StepName.PROFILE_KNOWN,
        StepName.PROFILE_KNOWN_BINS,
    }


def test_a_job_that_was_asked_for_without_secure_sums_is_as_it_was() -> None:
    sites, _ = iid_sites()
    outcome = run_inprocess(get("lloyd"), {}, sites, PLAIN)
    assert StepName.KEYS not in [record["step"] for record in outcome.rounds]


# NVFlare


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lloyd", pytest.param("masked", marks=pytest.mark.nightly)])
def test_the_simulator_gives_the_same_bits(name: str, tmp_path: object) -> None:
    sites, params = (iid_sites(m=3)[0], {}) if name == "lloyd" else (overlapping_sites()[0], {"scale": "standard"})
    there = run_simulator(get(name), params, sites, OPTIONS, tmp_path)  # type: ignore[arg-type]
    here = run_inprocess(get(name), params, sites, OPTIONS)
    assert set(there.arrays) == set(here.arrays)
    for array, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], value, err_msg=array)
    assert there.metrics == here.metrics
    assert there.warnings == here.warnings
    assert [record["step"] for record in there.rounds] == [record["step"] for record in here.rounds]


def test_the_simulator_refuses_more_sites_than_it_has_processes_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flareclust.platform.simulator.threads_for", lambda m: 2)
    with pytest.raises(UserError, match="secure_sums needs a process of its own for each of the 4 sites"):
        run_simulator(get("lloyd"), {}, iid_sites()[0], OPTIONS, tmp_path)  # type: ignore[arg-type]
