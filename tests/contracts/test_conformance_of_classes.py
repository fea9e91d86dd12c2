"""Proof that the checks notice classes that do more than a job may have done, or disclose more than their groups of rows."""

import re

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.assessment import Assessment
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.stages import SchemaStage
from flareclust.preparation import different
from flareclust.privacy.stages import GroupingStage
from flareclust.protocol.registry import BUILT_IN, Algorithm, get
from flareclust.protocol.schema import Schema
from flareclust.protocol.task import StepName
from flareclust.sites.class_list import of_server, of_sites
from flareclust.testing import ContractViolation
from flareclust.testing.always import check_nvflare_calls_ours
from flareclust.testing.policies import check_answers_follow_the_groups
from flareclust.testing.processes import check_constructors_do_nothing, check_local_is_pure, effects_of
from tests.paths import TESTS, of_the_whole

#: What an executor has seen in an earlier task.
KEPT: list[float] = []

HONEST = ("faulty.FaultyExecutor", "faulty.FaultyAggregator")


@pytest.mark.parametrize(
    ("executor", "aggregator", "words"),
    [
        ("faulty.OpeningExecutor", HONEST[1], "OpeningExecutor with an odd table: open"),
        (HONEST[0], "faulty.ImportingAggregator", "ImportingAggregator with an odd module: import antigravity"),
    ],
)
def test_the_check_of_constructors_notices_one_that_does_more(monkeypatch, executor, aggregator, words):
    monkeypatch.syspath_prepend(TESTS)
    with pytest.raises(ContractViolation, match=words):
        check_constructors_do_nothing(Algorithm("faulty", "misbehaves", executor, aggregator))


DOES_MORE = {
    "OpeningTogetherExecutor": r"with odd .*mode and table: open",
    "OpeningOrRefusingExecutor": r"with odd mode and table: open",
    "OpeningBesideNameExecutor": r"with an odd table beside xml\.dom\.minidom: open",
    "OpeningBesideAddressExecutor": r"with an odd table beside http.*: open",
    "OpeningTextExecutor": r"with usual arguments: open",
    "OpeningRestExecutor": r"takes any arguments \(\*\*rest\)",
    "OpeningMoreExecutor": r"takes any arguments \(\*rest\)",
    "RefusingExecutor": r"takes no usual arguments",
    "LookingExecutor": r"with an odd table: os\.stat",
    "EnvironmentExecutor": r"with an odd table: _Environ\.__getitem__",
    "EndingExecutor": r"with an odd table: open",
}


def test_the_check_of_constructors_notices_what_only_some_arguments_do(monkeypatch):
    """Files that are opened where two arguments are set, at the end, under any name; looks that are no events."""
    monkeypatch.syspath_prepend(TESTS)
    found = effects_of([*HONEST, *(f"faulty.{name}" for name in DOES_MORE)])
    for name, words in DOES_MORE.items():
        own = [line for line in found if line.startswith(f"faulty.{name} ")]
        assert any(re.search(words, line) for line in own), f"{name}: {own}"
    assert not [line for line in found if line.startswith(HONEST)]


@of_the_whole
def test_constructors_of_what_jobs_have_beside_algorithms_do_nothing_either():
    of_algorithms = {path for algorithm in BUILT_IN for path in (algorithm.executor, algorithm.aggregator)}
    others = {*of_sites(), *of_server()} - of_algorithms
    assert len(others) == 9
    assert effects_of(sorted(others)) == []


def test_the_check_of_purity_notices_what_is_remembered(monkeypatch):
    monkeypatch.syspath_prepend(TESTS)
    counting = Algorithm("faulty", "misbehaves", "faulty.CountingExecutor", "faulty.FaultyAggregator")
    with pytest.raises(ContractViolation, match="depends on more than its arguments"):
        check_local_is_pure(counting)


class Listening(LloydExecutor):
    def handle_event(self, event_type, fl_ctx):
        super().handle_event(event_type, fl_ctx)


class ListeningOtherwise(LloydExecutor):
    def __init__(self, k, seed=0, min_count=2, seeds="means"):
        super().__init__(k, seed, min_count=min_count, seeds=seeds)
        self.register_event_handler("_start_run", lambda event_type, fl_ctx: None)


class ListeningByAnAttribute(LloydExecutor):
    def __init__(self, k, seed=0, min_count=2, seeds="means"):
        super().__init__(k, seed, min_count=min_count, seeds=seeds)
        self.handle_event = lambda event_type, fl_ctx: None


class Executing(LloydExecutor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        return super().execute(task_name, shareable, fl_ctx, abort_signal)


class Answering(LloydExecutor):
    def answer(self, task, data, aborted, site=None):
        return super().answer(task, data, aborted)


class Ending(LloydExecutor):
    def __del__(self):
        pass


class SayingPrivate(LloydExecutor):
    private = True


class Mixed:
    def handle_event(self, event_type, fl_ctx):
        pass


class ListeningAggregator(Mixed, LloydAggregator):
    pass


class Accepting(LloydAggregator):
    def accept(self, shareable, fl_ctx):
        return True


@pytest.mark.parametrize(
    ("executor", "aggregator", "words"),
    [
        (Listening, LloydAggregator, "Listening has its own handle_event"),
        (ListeningOtherwise, LloydAggregator, "ListeningOtherwise listens to events"),
        (ListeningByAnAttribute, LloydAggregator, "has its own handle_event"),
        (Executing, LloydAggregator, "has its own execute"),
        (Answering, LloydAggregator, "has its own answer"),
        (Ending, LloydAggregator, "has its own __del__"),
        (SayingPrivate, LloydAggregator, "says that it is private"),
        (LloydExecutor, ListeningAggregator, "ListeningAggregator has its own handle_event"),
        (LloydExecutor, Accepting, "has its own accept"),
        (LloydAggregator, LloydAggregator, "is no ClusteringExecutor"),
    ],
)
def test_the_check_of_what_nvflare_calls_notices_a_side_that_takes_its_place(monkeypatch, executor, aggregator, words):
    line = Algorithm("faulty", "misbehaves", "executor", "aggregator")
    monkeypatch.setattr(Algorithm, "executor_class", lambda self: executor)
    monkeypatch.setattr(Algorithm, "aggregator_class", lambda self: aggregator)
    with pytest.raises(ContractViolation, match=words):
        check_nvflare_calls_ours(line)


def computes_from_the_rows(self, exchange):
    return exchange


def adds_a_statistic(self, exchange, reply, after=SchemaStage.after):
    """Sends a number of the rows themselves, of which no other check knows what it should be."""
    if exchange.task.step == StepName.ASSESS:
        reply["silhouette"] = np.array(1e-3 * np.abs(exchange.table.X).max())
    return after(self, exchange, reply)


def remembers(self, *arguments, asked=[], sums=Assessment.assess):  # noqa: B006 - which is the fault
    asked.append(arguments)
    return {name: value * (1 + (len(asked) > 20)) for name, value in sums(self, *arguments).items()}


def keeps_the_largest(self, task, rows, labels=ClusteringExecutor.labels, kept=KEPT):
    kept[:] = [float(rows.X.max())]
    return labels(self, task, rows)


def tells_what_was_kept(self, exchange, reply, after=SchemaStage.after, kept=KEPT):
    if kept and "inertia" in reply:
        reply["inertia"] = np.array(abs(kept[0]))
    return after(self, exchange, reply)


def refuses_large_rows(self, exchange, reply, after=SchemaStage.after):
    if exchange.table.X.max() > 500:
        raise Refusal("has large values")
    return after(self, exchange, reply)


def fails_for_large_rows(self, exchange, reply, after=SchemaStage.after):
    if exchange.table.X.max() > 5000:
        raise ZeroDivisionError
    return after(self, exchange, reply)


def refuses_rows_beyond_what_was_sent(self, exchange, reply, after=SchemaStage.after):
    """Answers honest servers only, whose centroids are not huge, and is refused by nothing but what it compares."""
    sent = np.abs(exchange.task.arrays.get("centroids", np.zeros(1))).max()
    if sent > 1e50 and np.abs(exchange.table.X).max() > sent:
        raise Refusal("has values beyond the centroids")
    return after(self, exchange, reply)


def labels_no_large_rows(self, task, rows, labels=ClusteringExecutor.labels):
    if np.abs(rows.X).max() > 500:
        raise Refusal("has large values")
    return labels(self, task, rows)


def labels_no_rows_far_away(self, task, rows, labels=ClusteringExecutor.labels):
    if rows.X.max() > 40 * task.arrays["centroids"].max():
        raise Refusal("is far from the centroids")
    return labels(self, task, rows)


@pytest.mark.parametrize(
    ("name", "words", "faults"),
    [
        ("mavg", "silhouette changes with the rows", [(SchemaStage, "after", adds_a_statistic)]),
        ("lloyd", "changes with the rows", [(GroupingStage, "before", computes_from_the_rows)]),
        ("lloyd", "changes with the rows", [(Assessment, "assess", remembers)]),
        (
            "lloyd",
            "inertia changes with the rows",
            [(ClusteringExecutor, "labels", keeps_the_largest), (SchemaStage, "after", tells_what_was_kept)],
        ),
        ("lloyd", "refused .*large values", [(SchemaStage, "after", refuses_large_rows)]),
        ("lloyd", "refused .*ZeroDivisionError", [(SchemaStage, "after", fails_for_large_rows)]),
        ("lloyd", "refused .*beyond the centroids", [(SchemaStage, "after", refuses_rows_beyond_what_was_sent)]),
        # Where an error of `labels` stays at the site, that rows have none is what there is to notice.
        (
            "mavg",
            "step assess: what is refused|step assess: whether rows get labels",
            [(ClusteringExecutor, "labels", labels_no_large_rows)],
        ),
        (
            "mavg",
            "what is refused|whether rows get labels",
            [(ClusteringExecutor, "labels", labels_no_rows_far_away)],
        ),
    ],
)
def test_the_check_of_groups_notices_what_follows_from_rows(monkeypatch, name, words, faults):
    for owner, attribute, fault in faults:
        monkeypatch.setattr(owner, attribute, fault)
    with pytest.raises(ContractViolation, match=words):
        check_answers_follow_the_groups(get(name))


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed"])
def test_the_check_of_groups_notices_scales_that_overflow_for_the_largest_row_alone(monkeypatch, name):
    monkeypatch.setattr(different, "_SCALING", Schema(mean="D", deviation="D"))
    with pytest.raises(ContractViolation, match=r"what is refused|whether rows get labels"):
        check_answers_follow_the_groups(get(name))


def tells_what_the_shell_has_read(self, *arguments, update=LloydExecutor.update):
    found = update(*arguments)
    if getattr(self, "_rows", None) is not None:
        found["inertia"] = np.array(self._rows[1].X.max())
    return found


def test_an_algorithm_at_a_site_with_a_policy_does_not_see_the_rows_that_the_shell_has_read(monkeypatch):
    monkeypatch.setattr(LloydExecutor, "update", tells_what_the_shell_has_read)
    check_answers_follow_the_groups(get("lloyd"))
    monkeypatch.setattr(ClusteringExecutor, "without_rows", lambda self: self)
    with pytest.raises(ContractViolation, match="inertia changes with the rows"):
        check_answers_follow_the_groups(get("lloyd"))
