"""Sites with tables of classes, and engines that lose a site."""

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.personal.jobs import FEDAVG, IFCA
from flareclust.personal.rows import Split
from flareclust.personal.settings import PersonalSettings
from flareclust.protocol.registry import Algorithm
from tests.unit.personal.planted import planted

ONE = JobOptions(k=1, seed=5, assess=False)


def sites(*rows: int, classes: int = 2) -> dict[str, Table]:
    """Tables of three columns and a class that follows from the first."""
    made = {}
    for i, n in enumerate(rows):
        X = np.random.default_rng(i).normal(size=(n, 3))
        y = np.digitize(X[:, 0], np.linspace(-1, 1, classes + 1)[1:-1])
        y[:classes] = np.arange(classes)
        made[f"site-{i + 1}"] = Table(np.column_stack([y, X]), ("class", "a", "b", "c"))
    return made


def with_executor(algorithm: Algorithm, executor: type) -> Algorithm:
    """Return an algorithm whose sites are of another class."""

    class Other(Algorithm):
        def executor_class(self):
            return executor

    return Other(*(getattr(algorithm, name) for name in ("name", "title", "executor", "aggregator")))


def losing(lost: str, since: int = 99, step: str = "", of: tuple[Algorithm, ...] = (FEDAVG, IFCA)):
    """Return this process as an engine whose jobs lose a site, from an exchange on or in a step."""

    class Losing:
        def answer(self, task, *rest):
            if task.site == lost and (task.round >= since or task.step == step):
                raise Refusal("was lost")
            return super().answer(task, *rest)

    def run(algorithm, params, sites, options):
        if algorithm in of:
            base = algorithm.executor_class()
            algorithm = with_executor(algorithm, type("LosingExecutor", (Losing, base), {}))
        return run_inprocess(algorithm, params, sites, options)

    return run


def three_and_three() -> tuple[PersonalSettings, Split]:
    """Six devices in two clusters of three."""
    settings = PersonalSettings(data="own", k=2, model="linear", rounds=3, engine="simulator")
    return settings, planted(devices=6)[0]
