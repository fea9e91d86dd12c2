"""The course of a federation: quorum, refusals, silent sites, disagreement about columns, assessment."""

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, quorum, run_federation
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.exchanges import refusal_texts
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept, gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import SECONDS, Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import iid_sites


class MeanExecutor(ClusteringExecutor):
    """Sends the mean; refuses in a round that is named to it."""

    steps = {StepName.CLUSTER: Step(Schema(centroids="k d"))}

    def __init__(self, k=1, seed=0, refuse_in=-1):
        super().__init__(k, seed)
        self.refuse_in = refuse_in

    def local(self, task, rows):
        if task.round == self.refuse_in:
            raise Refusal("does not want to")
        return {"centroids": rows.X.mean(axis=0, keepdims=True)}


class MeanAggregator(ClusteringAggregator):
    """Averages the means, for three rounds."""

    executor = MeanExecutor

    def merge(self, round_, replies, rng):
        mean = np.mean([reply["centroids"] for reply in replies.values()], axis=0)
        return Round({"centroids": mean}, done=round_.index == 2, diagnostics={"sites": float(len(replies))})


def asker(executors, sites, silent_from=None):
    """Answer as sites do; those in `silent_from` stop answering in the round given."""

    def ask(step, round_, arrays, asked):
        replies = {}
        for site in asked:
            if silent_from and round_ >= silent_from.get(site, 99):
                continue
            try:
                answer = executors[site].answer(Task(step, round_, arrays, site), sites[site], never_abort)
                replies[site] = SiteReply(answer.arrays)
            except Refusal as reason:
                replies[site] = SiteReply(problem=str(reason))
        return replies

    return ask


SITES = {name: np.full((4, 2), float(i)) + np.arange(4)[:, None] for i, name in enumerate("abcde")}


def run(executors=None, silent_from=None, sites=SITES, on_round=lambda record: None, **options):
    executors = executors or {site: MeanExecutor() for site in sites}
    return run_federation(
        MeanAggregator(1),
        asker(executors, sites, silent_from),
        list(sites),
        FederationOptions(**options),
        on_round=on_round,
    )


def test_rounds_go_on_until_the_aggregator_is_done():
    outcome = run()
    assert outcome.n_rounds == 3
    assert [record["step"] for record in outcome.rounds] == ["cluster"] * 3 + ["assess"]
    np.testing.assert_allclose(outcome.centroids, [[3.5, 3.5]])


@pytest.mark.parametrize(("m", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (10, 6)])
def test_the_default_quorum_is_more_than_half(m, needed):
    assert quorum(m, None) == needed


def test_a_site_that_refuses_is_left_out_and_named():
    executors = {site: MeanExecutor(refuse_in=1 if site == "b" else -1) for site in SITES}
    outcome = run(executors)
    assert outcome.refused == {"b": "does not want to"}
    assert [len(record["sites"]) for record in outcome.rounds] == [5, 4, 4, 5]  # it still takes part in the assessment


@pytest.mark.parametrize(("name", "step"), [("lloyd", "update"), ("minibatch", "sample"), ("ffcm", "fuzzy")])
@pytest.mark.parametrize("index", [4, -1])
def test_a_site_that_speaks_of_a_centroid_that_was_not_sent_is_refused_by_name(name, step, index):
    sites, _ = iid_sites(m=5)

    def federation(ask):
        return run_federation(get(name).build(4, 0, {"rounds": 2})[1], ask, list(sites))

    executors = dict.fromkeys(sites, get(name).build(4, 0, {"rounds": 2})[0])
    honest = asker(executors, sites)

    def ask(asked_step, round_, arrays, asked):
        replies = honest(asked_step, round_, arrays, asked)
        if asked_step == step and "site-3" in asked:
            replies["site-3"].arrays["cluster"][-1] = index
        return replies

    outcome = federation(ask)
    words = "below 0" if index < 0 else "beyond the 4 that were sent"
    assert outcome.refused == {"site-3": f"sent a bad reply: cluster: holds values {words}"}
    assert [len(record["sites"]) for record in outcome.rounds] == [5, 4, 4, 5]
    without = federation(asker(executors, sites, silent_from={"site-3": 1}))
    np.testing.assert_array_equal(outcome.centroids, without.centroids)


def test_a_silent_site_is_left_out_of_everything_that_follows():
    outcome = run(silent_from={"d": 1})
    assert outcome.refused == {"d": "did not answer in time"}
    assert [len(record["sites"]) for record in outcome.rounds] == [5, 4, 4, 4]


def test_below_the_quorum_the_job_fails_with_every_reason():
    executors = {site: MeanExecutor(refuse_in=0 if site in "ab" else -1) for site in SITES}
    with pytest.raises(JobFailed) as caught:
        run(executors, silent_from={"c": 0})
    text = str(caught.value)
    assert "2 of 5 sites took part where at least 3 are needed" in text
    assert "2 sites (a, b): each does not want to; c did not answer in time" in text


def test_min_sites_sets_the_quorum():
    executors = {site: MeanExecutor(refuse_in=0 if site in "abcd" else -1) for site in SITES}
    assert len(run(executors, min_sites=1).refused) == 4
    with pytest.raises(JobFailed, match="at least 5 are needed"):
        run(silent_from={"a": 2}, min_sites=5)


def test_a_site_with_other_columns_is_named_by_the_majority():
    outcome = run(sites=SITES | {"c": np.ones((4, 3)) * np.arange(4)[:, None]})
    assert outcome.refused == {"c": "has 3 columns where 4 other sites have 2"}


def test_bytes_are_those_of_the_arrays():
    outcome = run()
    per_cluster_reply = 2 * 8 + 8  # one centroid of two columns, and the seconds
    per_assessment = 4 * 8 + 8
    assert outcome.bytes_up == 5 * (3 * per_cluster_reply + per_assessment)
    assert outcome.bytes_down == 5 * (2 * 2 * 8 + 2 * 8)  # rounds 1 and 2, then the assessment


def test_progress_is_reported_as_it_happens():
    seen = []
    run(on_round=seen.append)
    assert [(record["step"], record["round"]) for record in seen] == [
        ("cluster", 0),
        ("cluster", 1),
        ("cluster", 2),
        ("assess", 3),
    ]


def test_without_assessment_there_are_no_metrics():
    outcome = run(assess=False)
    assert outcome.metrics == {}
    assert [record["step"] for record in outcome.rounds] == ["cluster"] * 3


def test_a_record_says_when_an_exchange_ended_and_how_long_each_site_computed():
    started = datetime.now(timezone.utc)
    outcome = run()
    times = [datetime.fromisoformat(str(record["ended"])) for record in outcome.rounds]
    assert started - timedelta(seconds=1) <= times[0]
    assert times == sorted(times)
    took = [record["seconds_sites"] for record in outcome.rounds]
    assert all(list(one) == record["sites"] for one, record in zip(took, outcome.rounds, strict=True))
    assert all(round(seconds, 1) == seconds >= 0.0 for one in took for seconds in one.values())


def test_a_sites_odd_account_of_its_time_is_ignored():
    good = {"centroids": np.ones((1, 2))}
    for odd in (np.array("x"), np.array(np.nan), np.array(-3.0), np.ones(4), None):
        replies, problems, took = accept(
            MeanExecutor.job_steps()[StepName.CLUSTER].schema, {"a": SiteReply(good | {SECONDS: odd})}, ["a"]
        )
        assert (list(replies), problems, took) == (["a"], {}, {"a": 0.0})


def test_all_sites_refusing_the_assessment_leaves_the_centroids():
    class Shy(MeanExecutor):
        def labels(self, task, rows):
            raise Refusal("does not assess")

    outcome = run({site: Shy() for site in SITES})
    assert outcome.metrics == {}
    assert len(outcome.centroids) == 1
    assert set(outcome.refused) == set(SITES)


def test_fewer_rows_than_k_refuses_by_name_and_the_others_go_on(sites):
    outcome = run_inprocess(get("feca"), {}, sites | {"small": np.ones((3, 3))}, JobOptions(k=4))
    assert outcome.refused == {"small": "has fewer rows than k=4"}


def test_k_above_every_site_fails_with_all_names(sites):
    with pytest.raises(JobFailed) as caught:
        run_inprocess(get("feca"), {}, sites, JobOptions(k=1000))
    assert f"{len(sites)} sites ({', '.join(sites)}): each has fewer rows than k=1000" in str(caught.value)


@pytest.mark.parametrize("bad", [{"k": 0}, {"k": 2.5}, {"k": 3, "seed": -1}, {"k": 3, "min_sites": 0}])
def test_options_are_checked(bad):
    with pytest.raises(UserError):
        JobOptions(**bad)


def test_labels_stay_out_of_what_is_sent(sites):
    executor, _ = get("kfed").build(4)
    result = {"centroids": np.eye(3), "tau": np.zeros(0, np.int64), "tau_site": np.zeros(0, np.int64)}
    answer = executor.answer(Task(StepName.ASSESS, 1, result, "site-1"), sites["site-1"], never_abort)
    assert answer.labels is not None
    assert set(answer.arrays) == {"counts", "sse", "silhouette", "scatter", SECONDS}


@pytest.mark.parametrize("algorithm", ["feca", "kfed"])
def test_an_empty_reply_is_refused_by_name(algorithm):
    schema = get(algorithm).executor_class().job_steps()[StepName.CLUSTER].schema
    empty = schema.pack(
        {name: np.zeros((0, 2)[: len(field.axes)]) for name, field in schema.fields.items() if field.dtype == "float64"}
        | {name: np.zeros(0, np.int64) for name, field in schema.fields.items() if field.dtype == "int64"}
    )
    replies, problems, _ = accept(schema, {"a": SiteReply(empty)}, ["a"])
    assert (replies, problems) == ({}, {"a": "sent an empty reply"})


@pytest.mark.parametrize(("columns", "taken"), [(2, True), (0, False), (3, False)])
def test_an_empty_reply_counts_where_the_schema_has_it_and_the_columns_fit(columns, taken):
    schema = Schema(may_be_empty=True, centroids="k d", counts=counts("k", minimum=1))
    full, other = ({"centroids": np.ones((k, 2)), "counts": np.full(k, 3)} for k in (2, 1))
    empty = {"centroids": np.empty((0, columns)), "counts": np.empty(0, np.int64)}
    replies, problems, _ = accept(schema, {"a": SiteReply(full), "b": SiteReply(empty), "c": SiteReply(other)}, "abc")
    assert list(replies) == (["a", "b", "c"] if taken else ["a", "c"])
    assert set(problems) == (set() if taken else {"b"})


def test_replies_are_gathered_end_to_end_with_the_number_of_each():
    replies = [
        {"centroids": np.full((rows, 2), float(rows)), "counts": np.full(rows, rows), "inertia": np.array(1.0)}
        for rows in (2, 0, 1)
    ]
    arrays, site = gathered(replies)
    assert {name: value.tolist() for name, value in arrays.items()} == {
        "centroids": [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]],
        "counts": [2, 2, 1],
    }
    assert site.tolist() == [0, 0, 2]


def test_values_whose_squares_overflow_are_refused_by_name(sites):
    outcome = run_inprocess(get("kfed"), {}, sites | {"huge": np.eye(9, 3) * 1e200}, JobOptions(k=4))
    assert list(outcome.refused) == ["huge"]
    assert "beyond 1e+59" in outcome.refused["huge"]


def test_a_site_with_fewer_rows_than_min_count_tells_nothing_in_the_assessment(sites):
    """From the sums over one row its place could be worked out, most easily with one column."""
    lone = {site: rows[:, :1] for site, rows in sites.items()} | {"lone": np.array([[23.4567]])}
    outcome = run_inprocess(get("kfed"), {"labels_by": "nearest"}, lone, JobOptions(k=4))
    assert outcome.refused == {"lone": "has fewer rows than min_count=2"}
    assert all("lone" not in record["sites"] for record in outcome.rounds)
    executor, _ = get("feca").build(4)
    with pytest.raises(Refusal, match="would disclose the rows"):
        executor.answer(Task(StepName.ASSESS, 1, {"centroids": np.eye(1)}, "lone"), lone["lone"], never_abort)


def test_records_say_what_had_happened_until_then():
    outcome = run(silent_from={"d": 2})
    assert [sorted(record["refused"]) for record in outcome.rounds] == [[], [], ["d"], ["d"]]
    total = sum(record["seconds_merge"] for record in outcome.rounds)
    assert total == pytest.approx(outcome.seconds_merge)


def test_a_loss_in_the_assessment_is_distinguished():
    class Shy(MeanExecutor):
        def labels(self, task, rows):
            raise Refusal("does not assess")

    outcome = run({site: Shy() if site == "b" else MeanExecutor() for site in SITES})
    assert outcome.refused == {"b": "does not assess (in the assessment)"}


@pytest.mark.parametrize("centroids", [np.full((5, 3), 1.0), np.full((1, 3), np.nan)])
def test_a_site_checks_what_the_server_sends(sites, centroids):
    executor, _ = get("feca").build(4)
    with pytest.raises((Refusal, BadMessage)):
        executor.answer(Task(StepName.ASSESS, 1, {"centroids": centroids}, "a"), sites["site-1"], never_abort)


def test_many_sites_with_one_reason_are_reported_in_one_sentence():
    many = {f"s{i:03}": np.ones((1, 2)) for i in range(400)}
    with pytest.raises(JobFailed) as caught:
        run_inprocess(get("feca"), {}, many, JobOptions(k=3))
    assert str(caught.value).endswith(
        "400 sites (s000, s001, s002, s003, s004 and 395 more): each has fewer rows than k=3"
    )


def test_each_reason_is_said_once():
    found = refusal_texts({"a": "is busy", "b": "has no rows", "c": "is busy"})
    assert found == ["2 sites (a, c): each is busy", "b has no rows"]
