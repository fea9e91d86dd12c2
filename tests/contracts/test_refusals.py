"""What each rule of a site's policy blocks in each step, with the sentence that the server gets, as recorded.

A job of each algorithm runs without a policy; then each of its questions goes, as the first of a job, to a site with one rule.
tests/contracts/refusals.json has by step and rule each answer, and the algorithms that get it; "" is no refusal. A changed
sentence or a rule that blocks something else is a change that users see: `python -m tests.contracts.test_refusals` writes
the file anew.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust.core.outcomes import OutcomeForm
from flareclust.data.tables import RowsRead, Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import Algorithm, algorithms, executors, get
from flareclust.protocol.task import StepName, Task
from flareclust.testing.promised import overlapping_sites
from flareclust.testing.tools import GRANTED, exchanges, iid_sites

RECORDS = Path(__file__).with_name("refusals.json")
K, SITE = 4, "site-1"

#: By what it is about, a policy with one rule that is stricter than the recommended one.
RULES: Mapping[str, Policy] = {
    "recommended": Policy(),
    "min_rows": Policy(min_rows=10**6),
    "min_count": Policy(min_count=10**6),
    "round_counts": Policy(round_counts=7),
    "max_centroids": Policy(max_centroids=1),
    "max_rounds": Policy(max_rounds=1),
    "arrays": Policy(arrays=("support",)),
    "secure_sums": Policy(secure_sums=True),
    "differential_privacy": GRANTED,
    "max_numbers_per_row": Policy(max_numbers_per_row=1e-6),
    "max_levels_per_row": Policy(max_levels_per_row=1e-6),
}
#: Rules that block nothing by themselves: they say who may be in masked sums, and whether the lead sees the policy.
WITHOUT = {"secure_min_sites", "secure_sites", "secure_identities", "share_rules"}
#: Settings with which jobs have more steps.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"scale": "standard"},
    {"scale": "robust"},
    {"missing": "mean", "scale": "robust"},
    {"start": "mixtures", "covariance": "full"},
    {"start": "mixtures", "covariance": "diag"},
    {"table_schema": "agreed"},
)
#: Forms of the outcomes that tables have in jobs without settings; each is asked for in a step of its own.
OUTCOMES = (OutcomeForm("category", values=2), OutcomeForm("number"))
#: Steps of jobs with secure sums, for several numbers of clusters, with late sites, and of images.
NOT_ASKED = {
    *("keys", "place", "own_clusters", "odd_columns", "profile_totals", "profile_totals_counts"),
    *("score_inertia", "score_silhouette", "names", "moments", "known_moments", "outline"),
    *("shape", "train", "linear_moments", "linear_gradient"),
}


class Asked(NamedTuple):
    """A question of a job, with the settings of the job and the rows of the site."""

    algorithm: Algorithm
    params: dict[str, Any]
    task: Task
    table: Table


def tables(algorithm: Algorithm, gaps: bool, form: OutcomeForm | None) -> dict[str, Table]:
    if algorithm.partial:
        found = overlapping_sites()[0]
    else:
        sites = {site: rows.copy() for site, rows in iid_sites(m=3, k=K)[0].items()}
        for rows in sites.values():
            rows[::9, 0] = np.nan if gaps else rows[::9, 0]
        read = RowsRead(of=len(rows) + 40, gaps=40)
        found = {
            site: Table(rows, ("age", "ward=1", "ward=2"), schema="agreed", rows_read=read)
            for site, rows in sites.items()
        }
    if form is None:
        return found
    about = tuple(form.numbers.tolist())
    return {
        site: replace(one, outcomes=np.arange(float(len(one)))[:, None] % 2, outcome_form=about)
        for site, one in found.items()
    }


def asked_in(algorithm: Algorithm) -> Iterator[Asked]:
    """Give the first question of each step of the algorithm's jobs."""
    seen: set[str] = set()
    jobs = [*((VARIANTS[0], form) for form in OUTCOMES), *((params, None) for params in VARIANTS[1:])]
    for params, form in jobs:
        if not _takes(algorithm, params) or (params and algorithm.partial):
            continue
        sites = tables(algorithm, "missing" in params, form)
        for one in exchanges(algorithm, sites, K, assess=True, **params):
            step, counts = one.task.step, f"{one.task.step}_counts"
            steps = [step, *([counts] if counts in algorithm.executor_class().job_steps() else [])]
            for name in steps:
                if one.task.site == min(sites) and name not in seen:
                    seen.add(name)
                    yield Asked(algorithm, params, replace(one.task, step=name), sites[one.task.site])


def _takes(algorithm: Algorithm, params: Mapping[str, Any]) -> bool:
    """Return whether an algorithm has these settings, and these values of them."""
    try:
        algorithm.check(K, 0, params)
    except UserError:
        return False
    return True


@cache
def questions() -> tuple[Asked, ...]:
    every = algorithms().values()
    return tuple(one for a in every if a.federated and "embeds" not in a.promises for one in asked_in(a))


def answer_under(rule: str, asked: Asked) -> str:
    """Return the refusal of a site with one rule, "" where it answers."""
    executor, policy = asked.algorithm.build(K, 0, asked.params)[0], RULES[rule]
    if executor.private:
        policy = replace(policy, dp=GRANTED.dp)
    site = SimulatedSite.of(policy, asked.algorithm)
    if asked.task.step in StepName.PROFILING:
        site.enforcer.asked.add(StepName.ASSESS, asked.task.round)  # nothing else may come before
    elif rule == "max_rounds":
        site.enforcer.asked.add(StepName.NAMES, 0)  # one exchange before
    try:
        answered(executor, asked.task, asked.table, site)
    except (Refusal, BadMessage) as reason:
        return str(reason).replace(type(executor).__name__, "EXECUTOR")
    return ""


def found_in(step: str) -> dict[str, dict[str, list[str]]]:
    """Return by rule the answers in a step, and the algorithms that get them."""
    found: dict[str, dict[str, list[str]]] = {rule: {} for rule in RULES}
    for rule in RULES:
        for asked in questions():
            noisy = (
                asked.algorithm.executor_class().private and rule == "max_centroids"
            )  # whose number follows from noise
            if asked.task.step == step and not noisy:
                found[rule].setdefault(answer_under(rule, asked), []).append(asked.algorithm.name)
    return found


def steps() -> list[str]:
    """Return the steps of all algorithms that are asked here."""
    every = {step for one in executors().values() for step in one.job_steps()}
    return sorted(every - NOT_ASKED)


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    return json.loads(RECORDS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("step", steps())
def test_each_rule_blocks_what_is_recorded_with_its_sentence(step, records):
    pytest.importorskip("opendp", reason="needs the extra dp")
    assert found_in(step) == records[step]


def test_every_step_is_asked_or_listed_with_the_reason(records):
    assert {asked.task.step for asked in questions()} == set(steps()) == set(records)


def test_every_rule_is_here_and_blocks_something(records):
    """A new setting of a policy needs a line in `RULES`, or in `WITHOUT`."""
    names = {"differential_privacy" if field.name == "dp" else field.name for field in fields(Policy)}
    assert names == {*RULES, *WITHOUT} - {"recommended"}
    blocks = {rule for by_rule in records.values() for rule in by_rule if by_rule[rule] != by_rule["recommended"]}
    assert blocks == set(RULES) - {"recommended", "round_counts"}  # numbers of rows are rounded, and not refused


def test_a_refusal_names_the_setting_and_holds_no_value(records):
    for step, by_rule in records.items():
        for rule, answers in by_rule.items():
            for sentence in set(answers) - {""}:
                assert len(sentence) < 400, (step, rule)
                advised = "submit with secure_sums" in sentence or "algorithms that do" in sentence
                assert advised or "its policy: " in sentence, (step, rule, sentence)


def test_a_rule_that_is_taken_away_is_noticed(monkeypatch, records):
    monkeypatch.setitem(RULES, "max_centroids", Policy())
    assert found_in("update") != records["update"]
    (refused,) = records["update"]["max_centroids"].values()
    assert get("lloyd").name in refused


def main() -> None:
    """Write the record anew."""
    made = {step: found_in(step) for step in steps()}
    RECORDS.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
