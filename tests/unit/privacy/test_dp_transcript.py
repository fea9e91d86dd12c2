"""An attacker who knows all rows but those of one row or id, and reads everything that a site sends in a whole job."""

import numpy as np
import pytest

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.dp.box import Box
from flareclust.data.ids import Ids
from flareclust.data.tables import Table
from flareclust.federation.server import ServerJob
from flareclust.privacy.dp import accounting, mechanism
from flareclust.privacy.dp.budget import DPSession
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.unit.algorithms.dp_cases import policy
from tests.unit.privacy.dp_attacks import DELTA, EPSILON, Free, proven_by

ROWS = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
FAR = [5.0, 5.0]  # beyond the bounds, and so as different from other rows as a row can be

JOBS = {
    "dp-lloyd": ("dp-lloyd", {"rounds": 1}),
    "dp-lloyd, along axes": ("dp-lloyd", {"rounds": 1, "start": "axes"}),
    "dp-lloyd, three updates": ("dp-lloyd", {"rounds": 3}),
    "dp-lloyd, ids with two rows": ("dp-lloyd", {"rounds": 1, "unit": "id", "rows_per_id": 2}),
    "dp-oneshot": ("dp-oneshot", {}),
    "dp-gmm": ("dp-gmm", {"rounds": 2}),
}


class Drawn:
    """The noise of a site, which keeps what it was added to."""

    def __init__(self, stated: float) -> None:
        self.gaussian, self.stated = mechanism.gaussian, stated
        self.exact = self.noisy = np.zeros(0, np.int64)
        self.deviation = 0.0

    def __call__(self, values: IntArray, sensitivity: float, rho: float) -> IntArray:
        """Add noise of a part of the sensitivity."""
        assert not self.deviation, "an exchange that draws twice needs an attack of its own"
        self.exact, self.deviation = values, mechanism.sigma(sensitivity, rho)
        self.noisy = self.gaussian(values, sensitivity * self.stated, rho)
        return self.noisy


def tables(settings: dict[str, object]) -> tuple[FloatArray, FloatArray]:
    """Return the rows that a site uses, without and with one more row, or one more id, which has five rows."""
    most = int(str(settings.get("rows_per_id", 1)))
    ids = Ids()
    ids.extend([*map(str, range(len(ROWS))), *["one more"] * 5])
    more = Table(np.concatenate([ROWS, [FAR] * 5]), ids=ids)
    return ROWS, np.asarray(SiteSession(Policy.of(policy()), "a", Free.in_memory()).bounded(more, most).X)


class Attack:
    """A job with one site, again and again."""

    def __init__(self, name: str, settings: dict[str, object], drawn: Drawn) -> None:
        self.executor, self.server = get(name).build(2, 0, {"epsilon": EPSILON, "delta": DELTA, **settings})
        assert self.executor.private
        self.drawn = drawn
        unit = str(settings.get("unit", "row"))
        dp = DifferentialPrivacy((-1.0, 1.0), EPSILON, DELTA, EPSILON, unit=unit)
        self.terms = DPSession(
            Box(np.full(2, -1.0), np.ones(2)), dp, "job", Free.in_memory(), accounting.rho_of(EPSILON, DELTA)
        )
        self.tables = tables(settings)

    def evidence(self, present: bool, run: int) -> float:
        """Return the log likelihood ratio of "present" to "absent", given all that the site has sent in a job."""
        self.server.params, found = self.server.params.model_copy(update={"seed": run}), 0.0
        job = ServerJob(self.server)
        round_ = job.first()
        while True:
            step = StepName.ASSESS if round_.done else round_.step
            reply, gained = self._read(Task(step, round_.index, round_.task, "site-1"), present)
            found += gained
            if step == StepName.ASSESS:
                return found
            round_ = job.advance(round_, {"site-1": reply})

    def _read(self, task: Task, present: bool) -> tuple[Message, float]:
        context, drawn = SiteContext(dp=self.terms), self.drawn
        drawn.deviation = 0.0
        computed(self.executor, task, self.tables[not present], stream(0, 0, "site-1"), context=context)
        other, drawn.deviation = drawn.exact, 0.0
        reply = computed(self.executor, task, self.tables[present], stream(0, 0, "site-1"), context=context)
        if not drawn.deviation:  # the bounds
            return reply, 0.0
        change = np.ravel(drawn.exact - other) * (1.0 if present else -1.0)
        absent = np.ravel(other if present else drawn.exact)
        away = change @ (np.ravel(drawn.noisy) - absent) - change @ change / 2
        return reply, float(away / drawn.deviation**2)


def proven(job: str, runs: int, stated: float, monkeypatch: pytest.MonkeyPatch) -> float:
    drawn = Drawn(stated)
    monkeypatch.setattr(mechanism, "gaussian", drawn)
    attack = Attack(*JOBS[job], drawn)
    without, added = (np.array([attack.evidence(present, run) for run in range(runs)]) for present in (False, True))
    return proven_by(without, added)


def _case(job: str) -> object:
    """Return a job as a case; the step that `start=axes` adds to those of dp-lloyd is attacked alone in test_dp_attack.py."""
    return pytest.param(job, marks=[pytest.mark.nightly] if JOBS[job][1].get("start") else [])


@pytest.mark.slow  # thousands of jobs
@pytest.mark.parametrize("job", [_case(job) for job in JOBS])
def test_the_transcript_of_a_job_proves_no_more_than_is_claimed(job, monkeypatch):
    assert proven(job, 600, 1.0, monkeypatch) < EPSILON


@pytest.mark.nightly  # thousands of jobs
@pytest.mark.parametrize("job", JOBS)
def test_the_attack_on_the_transcript_would_notice_half_the_noise(job, monkeypatch):
    assert proven(job, 4000, 0.5, monkeypatch) > EPSILON
