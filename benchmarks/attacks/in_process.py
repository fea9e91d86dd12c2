"""Attacks on a site in this process: executors, policy and gate are those of a job, the network is missing."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.attacks import server, unmixing
from benchmarks.attacks.case import CURIOUS, IN_PROCESS, MALICIOUS, Attack, Case, Found, Run, against, number, recovered
from benchmarks.attacks.lying_site import lies
from benchmarks.attacks.questions import Ask
from benchmarks.attacks.victim import Victim, rows_of
from flareclust._foundation.typing import FloatArray
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import BUILT_IN

SITE = "site, malicious"

GROUPS = "jobs see groups of rows"
SAME_GROUPS = "the same groups in all rounds and jobs"

_GIVEN = "all groups given"

#: Algorithms whose steps are a case of their own.
_NEWER = ("gmm", "tree")

Claimed = tuple[Sequence[FloatArray], str]

RequestLog = Callable[[Ask, int, int], Sequence[FloatArray]]


def _sets(quick: bool, *data: str) -> list[tuple[str, FloatArray]]:
    names = (
        list(dict.fromkeys("clouds" if name == "s1" else name for name in data if name != "digits")) if quick else data
    )
    found = [(name, rows_of(name)) for name in names]
    return [(f"{name}, {len(rows):,}", rows) for name, rows in found]


def _on(*data: str, attack: Callable[[bool], Attack]) -> Run:
    """Return a case's function: an attack, quick or in full, on each of these data sets."""
    return lambda fast: [against(title, rows, attack(fast)) for title, rows in _sets(fast, *data)]


def _asking(
    attack: RequestLog,
    *names: str,
    data: Sequence[str],
    exchanges: int,
    quick: int,
    per_job: int = 120,
    k: int = 2,
    **params: float,
) -> Run:
    """Return a case's function: a server asks one site, in jobs with this k, or where it is negative, of so many rows each."""

    def of(fast: bool) -> Attack:
        def attacked(policy: Policy | None, rows: FloatArray) -> Claimed:
            own_k = k if k > 0 else len(rows) // -k
            victim = Victim(rows, policy, *names, k=own_k, per_job=per_job, **params)
            claims = attack(victim.ask, rows.shape[1], quick if fast else exchanges)
            return claims, f"{number(victim.exchanges, 'exchange')}, {number(victim.jobs, 'job')}"

        return attacked

    return _on(*data, attack=of)


def _curious(name: str, k: int, data: Sequence[str], **params: float) -> Run:
    def of(fast: bool) -> Attack:
        def attacked(policy: Policy | None, rows: FloatArray) -> Claimed:
            claims, rounds = server.curious(name, rows, policy, k, {"rounds": 15 if fast else 60, **params})
            return claims, number(rounds, "round")

        return attacked

    return _on(*data, attack=of)


def _other_k(fast: bool) -> Attack:
    def attacked(policy: Policy | None, rows: FloatArray) -> Claimed:
        ks = [k for _ in range(1 if fast else 3) for k in range(2, min(60, len(rows) // 10))]
        return server.clusters_of_other_k(Victim(rows, policy, "pooled"), ks), number(len(ks), "job")

    return attacked


def _every_step(*, newer: bool) -> Callable[[bool], Attack]:
    def of(fast: bool) -> Attack:
        def attacked(policy: Policy | None, rows: FloatArray) -> Claimed:
            asked = [algorithm for algorithm in BUILT_IN if (algorithm.name in _NEWER) == newer]
            claims, answers, refusals = server.every_step(rows, policy, 12 if fast else 60, asked)
            return claims, f"{number(answers, 'answer')}, {number(refusals, 'refusal')}"

        return attacked

    return of


def _own_mixtures(fast: bool) -> list[Found]:
    """Ask for a site's own mixtures of up to half as many components as it has rows, with a policy and without one."""
    found = []
    for title, rows in _sets(fast, "iris", "s1")[: 1 if fast else 2]:
        ks = range(66, 75, 4) if fast else range(2, 75)
        for policy, held in ((Policy(), ""), (None, ", no policy")):
            claims, answers, refusals = server.own_mixtures(rows, policy, ks)
            asked = f"{number(answers, 'answer')}, {number(refusals, 'refusal')}"
            found.append(Found(title + held, recovered(claims, rows), len(rows), asked))
    return found


def _largest(policy: Policy | None, rows: FloatArray) -> Claimed:
    victim = Victim(rows, policy, "lloyd")
    return server.largest_value(victim.ask, 1, 60), number(victim.exchanges, "exchange")


def _of_one_column(fast: bool) -> list[Found]:
    columns = [(title, np.ascontiguousarray(rows[:, :1])) for title, rows in _sets(fast, "iris", "s1")]
    return [against(f"{title}, one column", column, _largest) for title, column in columns]


def _known(policy: Policy | None, rows: FloatArray) -> Claimed:
    return server.groups_known(rows, policy), _GIVEN


def _liar(fast: bool) -> Attack:
    def attacked(policy: Policy | None, rows: FloatArray) -> Claimed:
        claims, rounds = lies(Victim(rows, policy, "lloyd"), rows.shape[1], 25 if fast else 100)
        return claims, number(rounds, "round")

    return attacked


def _one_row_more(fast: bool) -> list[Found]:
    """Subtract the results about a table and about the same table with one row more."""
    rows = rows_of("iris")
    replies = [
        Victim(own, Policy(), "lloyd", k=1).ask(UPDATE, {"centroids": np.zeros((1, 4))}) for own in (rows[1:], rows)
    ]
    sums = [one["counts"][0] * one["centroids"][0] for one in replies if one is not None]
    claims = [sums[1] - sums[0]]
    return [Found("iris, 149 and 150", recovered(claims, rows), 150, "2 jobs")]


def _sparse(fast: bool) -> list[Found]:
    """Take the sum of a group in one column for the value of a single row, where all others of the group have 0.

    In full a server has to find the groups out by questions; if it is to be quick, they are given to it.
    """
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((1000, 50)) < 0.01, rng.lognormal(size=(1000, 50)), 0.0)
    other = rows[(rows != 0).any(axis=1)]  # that rows are all zeros is no news
    victim = Victim(rows, Policy(), "lloyd")
    claims = (
        server.alone(server.group_sums(rows, Policy().min_count)[0])
        if fast
        else unmixing.rows_alone(victim.ask, 50, 4000)
    )
    asked = _GIVEN if fast else f"{number(victim.exchanges, 'exchange')}, {number(victim.jobs, 'job')}"
    title = f"generated, 50 columns of which 99 % are zeros, {len(other)} rows that are not all zeros"
    found = Found(title, recovered(claims, other), len(other), asked)

    rare = np.where(rng.random(1000) < 0.05, rng.lognormal(size=1000), 0.0)
    sums, _ = server.group_sums(np.column_stack([rng.normal(size=(1000, 2)), rare]), Policy().min_count)
    values = rare[rare != 0][:, None]
    right = recovered(list(sums[:, 2:]), values)
    title = f"generated, two full columns and one with {len(values)} values that are not 0"
    return [found, Found(title, right, len(values), _GIVEN, unit="values")]


CASES = [
    Case("borders", "a border between two centroids of its choice moves across the rows; the answers are subtracted",
         MALICIOUS, IN_PROCESS, "not measured", SAME_GROUPS,
         _asking(server.borders, "lloyd", data=("s1", "digits", "iris"), exchanges=100, quick=40)),
    Case("borders-1000", "the same, 1,000 exchanges", MALICIOUS, IN_PROCESS, "not measured", SAME_GROUPS,
         _asking(server.borders, "lloyd", data=("s1", "digits", "iris"), exchanges=1000, quick=150)),
    Case("borders-jobs", "the same, an exchange of 100 jobs each", "lead", IN_PROCESS, "90 of 150 (iris, 95 jobs)", SAME_GROUPS,
         _asking(server.borders, "lloyd", data=("s1", "iris"), exchanges=100, quick=40, per_job=1)),
    Case("places", "`score` of `pooled`: sums of distances from up to 1,000 chosen places, least squares per group",
         MALICIOUS, IN_PROCESS, "274 of 1,500 (3 exchanges)", GROUPS,
         _asking(server.places, "pooled", data=("s1",), exchanges=20, quick=4, k=-12)),
    Case("ffcm", "`ffcm`, fuzzifier 1.0000001, one iteration, 60 rounds", CURIOUS, IN_PROCESS, "236 of 1,797 (digits)", SAME_GROUPS,
         _curious("ffcm", 10, ("digits", "iris"), fuzzifier=1.0000001, max_iter=1, tol=1e-3)),
    Case("ffcm-borders", "the same with centroids of its choice, whose border moves", MALICIOUS, IN_PROCESS, "30 of 50 (iris)", SAME_GROUPS,
         _asking(server.fuzzy_borders, "ffcm", data=("iris", "s1"), exchanges=100, quick=50, fuzzifier=1.0000001, max_iter=1)),
    Case("lloyd", "`lloyd`, 60 rounds", CURIOUS, IN_PROCESS, "not measured", SAME_GROUPS,
         _curious("lloyd", 15, ("s1", "digits", "iris"), tol=0)),
    Case("two-executors", "two executors in a job: `fkm` for `cluster`, `lloyd` for `update`", "lead", IN_PROCESS,
         "20 of 1,500", "nothing is remembered, and both see the same groups",
         _asking(server.two_executors, "fkm", "lloyd", data=("s1", "iris"), exchanges=120, quick=40, k=15)),
    Case("other-k", "own clusters of a site, again and again with other k", "lead", IN_PROCESS, "not measured", SAME_GROUPS, _on("iris", "s1", "digits", attack=_other_k)),
    Case("every-step", "every step of every algorithm without differential privacy but `gmm` and `tree`, with centroids of its choice", MALICIOUS, IN_PROCESS,
         "not measured", GROUPS, _on("iris", "s1", attack=_every_step(newer=False))),
    Case("every-step-newer", "every step of `gmm` and `tree`, as their usual jobs have them, with centroids of its choice", MALICIOUS, IN_PROCESS,
         "not measured", GROUPS, _on("iris", "s1", attack=_every_step(newer=True))),
    Case("own-mixtures", "`fit` and `fit_diagonal` of `gmm`: mixtures of a site's own rows, in jobs with any k and covariances; pairs of rows that have a mean and variances",
         MALICIOUS, IN_PROCESS, "40 of 150 (iris, no policy, 0.3.0.dev7)", "a component of as many rows as the numbers that are sent of it take", _own_mixtures),
    Case("largest", "the largest value of a column, by which clusters come back (60 exchanges)", MALICIOUS, IN_PROCESS,
         "exact, by refusals (44 exchanges)", "the setting `small: refuse` is gone; clusters are of groups", _of_one_column),
    Case("groups", "all groups are known: claims are the rows that jobs see, sums of groups", MALICIOUS, IN_PROCESS, "not measured", GROUPS, _on("iris", "s1", "digits", attack=lambda fast: _known)),
    Case("lying-site", "a site that moves the centroids by lies, and subtracts what is broadcast", SITE, IN_PROCESS, "not measured", SAME_GROUPS, _on("iris", "s1", attack=_liar)),
    Case("one-row-more", "results about a table and about one with a row more are subtracted", "lead", IN_PROCESS, "not measured",
         "differential privacy only", _one_row_more, remains=True),
    Case("sparse", "the sum of a group in one column is taken for the value of its only row that has one, all others having 0", MALICIOUS, IN_PROCESS,
         "26 of 395 rows, 6 of 42 values, of groups alone", "the p % rule in each group and column", _sparse),
]  # fmt: skip
