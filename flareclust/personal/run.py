"""One run of personalised models, from settings to a result."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from flareclust._foundation.extras import require
from flareclust.core.scaling import Spread, divisors_of, pooled_spread, rounded_spread
from flareclust.features.columns import decides_distances, outweighing
from flareclust.features.scaling import Scaling
from flareclust.personal.methods import Course, OnRound, train_models
from flareclust.personal.models import NEEDED_BY
from flareclust.personal.prepare import Pair, prepare_devices
from flareclust.personal.result import PersonalResult, usual_warnings
from flareclust.personal.rows import Labelled, Split
from flareclust.personal.settings import PersonalSettings


def run_personal(
    settings: PersonalSettings,
    given: Pair | Mapping[str, Pair] | None = None,
    on_round: OnRound = lambda index, accuracy, up, down: None,
) -> PersonalResult:
    """Train the models of the settings' method.

    Args:
        settings: what to train.
        given: rows in memory in the place of `settings.data`.
        on_round: called after each round.

    Raises:
        UserError: the data or the settings do not fit, or the model mlp lacks its extra.
        JobFailed: the loss diverged, or the clustering failed.
    """
    if settings.model == "mlp":
        require("deep", NEEDED_BY)
    started = time.perf_counter()
    split, classes = prepare_devices(settings, given)
    spread, scaling = _spread_of(split), None
    if settings.scale == "standard":
        scaling = _scaling_by(spread)
        split = _scaled(split, scaling)
    course = _trained(settings, split, on_round)
    sent = {
        "up": int(course.bytes_up.sum()) + course.clustering_up,
        "down": int(course.bytes_down.sum()) + course.clustering_down,
        "clustering_up": course.clustering_up,
        "clustering_down": course.clustering_down,
    }
    return PersonalResult(
        settings=settings.model_dump(mode="json"),
        names=split.names,
        classes=classes,
        models=course.models,
        models_of=_models_of(split, course),
        accuracy=course.accuracy,
        selected=course.selected,
        bytes=sent,
        seconds=time.perf_counter() - started,
        scaling={} if scaling is None else scaling._asdict(),
        warnings=[*(_outweighing_column(spread) if scaling is None else []), *_warnings(settings, course)],
    )


def _trained(settings: PersonalSettings, split: Split, on_round: OnRound) -> Course:
    if settings.engine == "simulator":
        from flareclust.engines.scratch import scratch_folder
        from flareclust.engines.simulator import run_simulator
        from flareclust.personal.jobs import train_in_jobs

        with scratch_folder() as scratch:
            return train_in_jobs(settings, split, partial(run_simulator, folder=Path(scratch)), on_round)
    return train_models(
        settings.method,
        settings.learner(split),
        split,
        k=settings.k or 1,
        rounds=settings.rounds,
        seed=settings.seed,
        k_local=settings.k_local,
        averaging=settings.averaging,
        selecting=settings,
        on_round=on_round,
    )


def _models_of(split: Split, course: Course) -> dict[str, dict[int, int]]:
    used: dict[str, dict[int, int]] = {name: {} for name in split.names}
    for device, model, rows in zip(course.parts.device, course.group, course.parts.rows, strict=True):
        used[split.names[device]][int(model)] = int(rows)
    return used


def _warnings(settings: PersonalSettings, course: Course) -> list[str]:
    found = [*(f"{text} (clustering)" for text in course.parts.left_out), *course.lost]
    models = settings.k or 1 if settings.method in ("kfed", "ifca") else 1
    return found + usual_warnings(len(np.unique(course.group)), models, course.accuracy)


def _spread_of(split: Split) -> Spread:
    """Return mean and deviation of the columns over the rows that all devices train with.

    Each device's are rounded as those that the sites of a job with `scale=standard` send (`flareclust.core.scaling`).
    """
    own = [rounded_spread(rows.X) for rows in split.train.values()]
    rows = np.array([one.rows for one in own], dtype=np.float64)
    m2 = np.stack([one.rows * np.square(one.deviation) for one in own])
    return pooled_spread(rows, np.stack([one.mean for one in own]), m2)


def _scaling_by(spread: Spread) -> Scaling:
    """Return what brings columns of this spread to mean 0 and variance 1; constant ones keep their unit."""
    return Scaling(spread.mean, divisors_of(spread.deviation))


def _scaled(split: Split, scaling: Scaling) -> Split:
    """Return the devices' rows in _scaled units, those held out, too."""
    train, test = (
        {name: Labelled(scaling(rows.X), rows.y) for name, rows in half.items()} for half in (split.train, split.test)
    )
    return replace(split, train=train, test=test)


def _outweighing_column(spread: Spread) -> list[str]:
    """Return a warning about a column that varies far more than most others, by its number; else nothing."""
    d = len(spread.deviation)
    widest = outweighing([f"column {j + 1} of {d}" for j in range(d)], spread.deviation)
    return [] if widest is None else [decides_distances(widest, "scale=standard")]
