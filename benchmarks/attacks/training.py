"""A server of federated averaging sends models of its own making, and computes rows from what a site makes of them."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.attacks.case import IN_PROCESS, Case, Found, number, recovered
from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.datasets import load
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.personal.jobs import FEDAVG
from flareclust.privacy.policy import Policy
from flareclust.protocol.task import StepName, Task

#: The step size that the job names, and the length of the models' weights: beyond a plane a row is trained with in full or not at all.
STEP, LENGTH = 1e-6, 1e5

#: Two claims are of one row if no value differs by more than so many standard deviations of its column.
_ALIKE = 0.05

#: Trains a model with one plane for each class, `coef` (c, d) and `intercept` (c,); returns what was added to both, a step each.
Train = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


class Trained:
    """A site with 200 rows of the digits, and what it answers to a server of federated averaging.

    Attributes:
        X: the site's rows (n, d).
        y: their classes (n,).
        rounds: models that it was sent.
        trains: the rows that it trains with.
    """

    def __init__(self, policy: Policy | None) -> None:
        digits = load("digits")
        assert digits.y is not None
        chosen = stream(0, 0, "site").permutation(len(digits.X))[:200]
        self.X: FloatArray = digits.X[chosen]
        self.y: IntArray = digits.y[chosen]
        self.rounds = self.trains = self.refused = 0
        self._executor, _ = FEDAVG.build(1, 0, {"min_count": 1, "lr": STEP, "updates": 1})
        names = (*(f"x{j}" for j in range(self.X.shape[1])), "class")
        self._table = Table(np.column_stack([self.X, self.y]), names)
        self._policy = None if policy is None else SimulatedSite.of(policy, FEDAVG)

    def train(self, coef: FloatArray, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Have the site train a model; nothing is added where it refuses."""
        self.rounds += 1
        arrays = {"weights": np.concatenate([coef.ravel(), intercept]), "model": np.array(coef.shape[::-1])}
        try:
            reply = answered(
                self._executor, Task(StepName.TRAIN, self.rounds, arrays, "victim"), self._table, self._policy
            ).arrays
        except Refusal:
            self.refused += 1
            return np.zeros_like(coef), np.zeros_like(intercept)
        self.trains = int(reply["counts"])
        after = reply["weights"] / self.trains
        return (after[: coef.size].reshape(coef.shape) - coef) / STEP, (after[coef.size :] - intercept) / STEP


def of_planes(train: Train, columns: IntArray, X: FloatArray, classes: int, planes: int, rounds: int) -> FloatArray:
    """Claim rows (c, d) that lie alone between two of the parallel planes of a model, whose direction is in some columns.

    What is added to a plane's weights is the sum of the rows beyond it. The classes of the planes are none that rows have. In
    the columns of the direction a claim is imprecise, as the weights there are large.

    Args:
        train: sends a model to the site.
        columns: numbers of the columns of the direction.
        X: the site's rows, of which the attack uses the range in the direction.
        classes: how many classes the rows have.
        planes: how many of a model are the server's.
        rounds: models to send.
    """
    rng, d = np.random.default_rng(columns[0]), X.shape[1]
    length, claims = LENGTH / X.std(axis=0).mean(), []
    for _ in range(rounds):
        along = np.zeros(d)
        along[columns] = rng.normal(size=len(columns))
        along /= np.linalg.norm(along)
        at = np.linspace((X @ along).min(), (X @ along).max(), planes)
        coef, intercept = np.zeros((classes + planes, d)), np.zeros(classes + planes)
        coef[classes:], intercept[classes:] = length * along, -length * at
        sums, counts = train(coef, intercept)
        between = np.diff(counts[classes:])
        claims.append(np.diff(sums[classes:], axis=0)[np.abs(between - 1) < 0.01])
    return np.concatenate(claims)


def rows_trained_with(site: Trained, rounds: int, planes: int) -> Sequence[FloatArray]:
    """Claim rows of a site: directions in one half of the columns, then in the other, and the precise half of each."""
    d, unit = site.X.shape[1], np.maximum(site.X.std(axis=0), 1e-9)
    first, second = np.split(np.arange(d), [d // 2])
    classes = int(site.y.max()) + 1
    one, other = (of_planes(site.train, half, site.X, classes, planes, rounds // 2) for half in (first, second))
    if not (len(one) and len(other)):
        return []
    alike = cKDTree(other / unit).query_ball_point(one / unit, _ALIKE, p=np.inf)
    return [np.concatenate([other[j][first], one[i][second]]) for i, found in enumerate(alike) for j in found]


def _attacked(rounds: int, planes: int) -> Found:
    site, free = Trained(Policy()), Trained(None)
    claims, without = (rows_trained_with(one, rounds, planes) for one in (site, free))
    title = f"digits, {len(site.X)}, of which {free.trains} are trained with"
    asked = f"{number(site.rounds, 'model')}, {number(site.refused, 'refusal')}"
    return Found(title, recovered(claims, site.X), len(site.X), asked, recovered(without, site.X))


def _training(fast: bool) -> list[Found]:
    return [_attacked(*size) for size in ([(4, 100)] if fast else [(20, 200), (100, 200)])]


CASES = [
    Case("training", "personalised models: a server has a linear model of its own making trained, whose planes part the rows", "server, malicious",
         IN_PROCESS, "not measured", "sites with a policy train no models of classes", _training),
]  # fmt: skip
