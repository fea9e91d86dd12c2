"""What must be true after a schedule, whatever happened, each with the words for where it is not.

A result must equal, bit for bit, the one that a single process finds with sites that are silent in the same exchanges.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.chaos.schedule import JOBS, SERVER, SITES, Schedule
from flareclust._foundation.errors import FlareclustError, JobFailed
from flareclust._foundation.typing import Message
from flareclust.engines.inprocess import _Asking
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, run_federation
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply

#: Seconds that a site has for a task, and how many sites a round needs.
TASK_TIMEOUT, MIN_SITES = 30, 2

#: Seconds after task_timeout by which a job has ended, from the end of the last fault on, and those of a job without faults.
_MORE, USUAL = 60.0, 30.0


def options_of(job: str) -> JobOptions:
    """Return the settings of a job of a schedule."""
    secure = JOBS[job][2]
    least = len(SITES) if secure else MIN_SITES
    return JobOptions(
        k=5, seed=3, min_sites=least, secure_sums=secure, task_timeout=TASK_TIMEOUT, deadline=10 * TASK_TIMEOUT
    )


def silent_twin(job: str, outcome: Outcome, files: Mapping[str, Path]) -> Outcome:
    """Return what one process finds if in each exchange those sites answer that answered in the job.

    A site that answers again later, in the assessment, has refused before; it was not silent.
    """
    name, params, _ = JOBS[job]
    algorithm, options = get(name), options_of(job)
    executor, aggregator = algorithm.build(options.k, options.seed, params)
    first = outcome.rounds[0]
    there = sorted({*first["sites"], *first["refused"]})  # type: ignore[misc]
    options = options.among(there)
    executor.hold_to(options.sums())
    answering = [set(record["sites"]) for record in outcome.rounds]  # type: ignore[call-overload]
    asking = _Asking(executor, {site: files[site] for site in there}, None, {}, 1)

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        sites = answering.pop(0) if answering else set()
        replies = asking.ask(step, round_, arrays, [site for site in asked if site in sites])
        refusing = set().union(*answering).intersection(asked) - sites
        return replies | {site: SiteReply(problem=outcome.refused.get(site, "refused")) for site in refusing}

    return run_federation(aggregator, ask, there, FederationOptions.of(options))


def wrong_in_result(schedule: Schedule, job: str, outcome: Outcome, files: Mapping[str, Path]) -> list[str]:
    """Return what is wrong with a result."""
    twin = silent_twin(job, outcome, files)
    differing = [name for name, value in twin.arrays.items() if not _same(outcome.arrays.get(name), value)]
    wrong = (
        [f"{job}: {', '.join(differing)} differ from those of the federation with silent sites"] if differing else []
    )
    if outcome.metrics != twin.metrics:
        wrong.append(f"{job}: metrics {outcome.metrics}, and {twin.metrics} with silent sites")
    missing = {site for site in SITES if any(site not in record["sites"] for record in outcome.rounds)}  # type: ignore[operator]
    if unnamed := missing - set(outcome.refused):
        wrong.append(f"{job}: took no part in every exchange, and are not named: {', '.join(sorted(unnamed))}")
    if SERVER not in schedule.hosts and (innocent := set(outcome.refused) - schedule.hosts):
        reasons = {site: outcome.refused[site] for site in sorted(innocent)}
        wrong.append(f"{job}: sites that nothing happened to are left out: {reasons}")
    return wrong


def wrong_in_failure(schedule: Schedule, job: str, error: Exception) -> list[str]:
    """Return what is wrong with a failure: only the server or too many sites may be to blame, in words that say so."""
    if not isinstance(error, FlareclustError):
        return [f"{job}: {type(error).__name__}: {error}"]
    lost, least = schedule.hosts - {SERVER}, options_of(job).min_sites or 0
    if SERVER in schedule.hosts or len(SITES) - len(lost) < least:
        if isinstance(error, JobFailed) and "no reason that this kit may read" not in str(error):
            return []
        if any(fault.kind == "clock" and fault.host == SERVER for fault in schedule.faults) and "clock" in str(error):
            return []  # the certificates of a federation that was just made are of no day that the server knows
        return [f"{job}: the failure has no reason: {error}"]
    return [f"{job}: failed although enough sites were well: {error}"]


def wrong_in_time(schedule: Schedule, job: str, attempts: int, seconds: float) -> list[str]:
    """Return what is wrong with the seconds that a job took from its submission to its end."""
    over = max((fault.start + fault.seconds for fault in schedule.faults), default=0.0)
    bound = over + TASK_TIMEOUT + _MORE + attempts * USUAL
    return [f"{job}: ended after {seconds:.0f} s, at most {bound:.0f} s expected"] if seconds > bound else []


def _same(one: np.ndarray | None, other: np.ndarray) -> bool:
    """Return whether two arrays have the same bits."""
    return (
        one is not None and one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )
