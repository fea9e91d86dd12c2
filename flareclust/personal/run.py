"""One run of personalised models, from settings to a result: devices from a data set with classes, a file with a column of classes,
or arrays; the training; what came of it.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.core.scaling import Spread, divisors_of, pooled_spread, rounded_spread
from flareclust.data import file_formats
from flareclust.data.cells import check_rows
from flareclust.data.csv_files import COMMA_ADVICE, UTF8_ADVICE
from flareclust.data.datasets import describe, load
from flareclust.data.partition import partition
from flareclust.data.partition_specs import SPECS, parse
from flareclust.data.tables import read_table
from flareclust.personal.methods import Course, OnRound, train_models
from flareclust.personal.models import NEEDED_BY
from flareclust.personal.result import PersonalResult, usual_warnings
from flareclust.personal.rows import CLASS_COLUMN, Labelled, Split, hold_out, numbered
from flareclust.personal.settings import PersonalSettings
from flareclust.preparation.columns import decides_distances, outweighing
from flareclust.preparation.scaling import Scaling

#: Rows with their classes: (X (n, d), y (n,)).
_Pair = tuple[Any, Any]

#: What the readers of tables advise that personalised models have no setting for, and what to do instead; pairs first.
_ADVICE = (
    (
        f"{file_formats.CHOOSE_ADVICE}, or {file_formats.TEXT_ADVICE}",
        "write it as numbers (classes from 0), or leave the column out of the file",
    ),
    (file_formats.TEXT_ADVICE, "write it as numbers (classes from 0)"),
    (file_formats.CHOOSE_ADVICE, "write only numbers below it"),
    (file_formats.GAPS_ADVICE, "drop these rows or fill them in"),
    (file_formats.EMPTY_ADVICE, "leave these columns out"),
    (COMMA_ADVICE, "write decimal points"),
)


def run_personal(
    settings: PersonalSettings,
    given: _Pair | Mapping[str, _Pair] | None = None,
    on_round: OnRound = lambda index, accuracy, up, down: None,
) -> PersonalResult:
    """Train the models of the settings' method, with rows in memory in the place of `settings.data` where they are given.

    Raises:
        UserError: the data or the settings do not fit, or the model mlp lacks its extra.
        JobFailed: the loss diverged, or the clustering failed.
    """
    if settings.model == "mlp":
        require("deep", NEEDED_BY)
    started = time.perf_counter()
    split, classes = _prepare_devices(settings, given)
    spread, scaling, warnings = _spread_of(split), None, list[str]()
    if settings.scale == "standard":  # to mean 0 and variance 1; constant columns keep their unit
        scaling = Scaling(spread.mean, divisors_of(spread.deviation))
        train, test = [
            {name: Labelled(scaling(rows.X), rows.y) for name, rows in half.items()}
            for half in (split.train, split.test)
        ]
        split = replace(split, train=train, test=test)
    else:
        d = len(spread.deviation)
        widest = outweighing([f"column {j + 1} of {d}" for j in range(d)], spread.deviation)
        warnings += [] if widest is None else [decides_distances(widest, "scale=standard")]
    course = _trained(settings, split, on_round)
    warnings += [*(f"{text} (clustering)" for text in course.parts.left_out), *course.lost]
    models = settings.k or 1 if settings.method in ("kfed", "ifca") else 1
    used: dict[str, dict[int, int]] = {name: {} for name in split.names}
    for device, model, rows in zip(course.parts.device, course.group, course.parts.rows, strict=True):
        used[split.names[device]][int(model)] = int(rows)
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
        models_of=used,
        accuracy=course.accuracy,
        selected=course.selected,
        bytes=sent,
        seconds=time.perf_counter() - started,
        scaling={} if scaling is None else scaling._asdict(),
        warnings=warnings + usual_warnings(len(np.unique(course.group)), models, course.accuracy),
    )


def _trained(settings: PersonalSettings, split: Split, on_round: OnRound) -> Course:
    if settings.engine == "simulator":
        from flareclust.personal.jobs import train_in_jobs
        from flareclust.platform.scratch import scratch_folder
        from flareclust.platform.simulator import run_simulator

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


# ---- the devices ----


def _prepare_devices(
    settings: PersonalSettings, given: _Pair | Mapping[str, _Pair] | None = None
) -> tuple[Split, list[object]]:
    """Return the devices' rows, some of them held out, and the classes in the order of their numbers.

    Rows in memory that are given by device name are not partitioned.

    Raises:
        UserError: there are no classes, only one of them, or too few rows.
    """
    if given is not None and settings.label is not None:
        raise UserError("label names a column of a file, and rows in memory come as (X, y); leave label out")
    if isinstance(given, Mapping):
        fields = PersonalSettings.model_fields
        if settings.partition != fields["partition"].default:
            raise UserError("partition is without effect: the rows come by device; leave it out, or pass (X, y)")
        if settings.devices not in (fields["devices"].default, len(given)):
            raise UserError(
                f"devices is {settings.devices} without effect: the rows are of {len(given)} devices; leave it out, or pass (X, y)"
            )
        devices = {str(name): _pair(str(name), pair) for name, pair in given.items()}
        if not devices:
            raise UserError("no devices: expected a mapping of device names to (X, y)")
        every, classes = numbered(np.concatenate([y for _, y in devices.values()]).tolist())
        numbers = iter(np.split(every, np.cumsum([len(y) for _, y in devices.values()])[:-1]))
        rows = {name: Labelled(X, next(numbers)) for name, (X, _) in devices.items()}
        return hold_out(rows, settings.test_share, settings.seed), classes
    X, labels, owners = _labelled(settings) if given is None else (*_pair("data", given), None)
    y, classes = numbered(labels.tolist())
    if 2 * settings.devices > len(X) and not SPECS[parse(settings.partition).name].fixes_sites:
        raise UserError(
            f"devices is {settings.devices}, too many for {len(X)} rows: a device needs two, one to train and one to test "
            f"with; use at most {len(X) // 2} devices"
        )
    rng = stream(settings.seed, 0, "partition")
    shares = partition(settings.partition, X, y, settings.devices, rng, owners)
    rows = {name: Labelled(X[at], y[at]) for name, at in shares.items() if len(at)}
    return hold_out(rows, settings.test_share, settings.seed), classes


@contextmanager
def _own_advice() -> Iterator[None]:
    """Have the errors of readers name only what personalised models have."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for other, own in _ADVICE:
            text = text.replace(other, own)
        fault, advice, _ = text.partition(UTF8_ADVICE)  # what follows names mappings and schemas
        raise UserError(fault + advice) from None


def _labelled(settings: PersonalSettings) -> tuple[FloatArray, Any, IntArray | None]:
    """Return rows, their classes, and who each comes from where that is known."""
    place: str | Path = settings.data
    if settings.label is None:
        label = CLASS_COLUMN
        with _own_advice():
            data = load(settings.data)
        if data.y is not None:
            return data.X, data.y, data.owners
        rows, names = data.X, list(data.columns or ())
        if label not in names:
            raise UserError(
                f"{place} has no classes to learn; name the column of a file that holds them (label), or give an npz file the array y"
            )
    else:
        label, place = settings.label, Path(settings.data)
        if settings.data.partition(":")[0] in describe():
            raise UserError(
                f"label is for files, and {settings.data} is a data set with classes of its own; leave label out, or name a file"
            )
        with _own_advice():
            table = read_table(place)
        rows, names = table.X, list(table.columns or ())
        if not names:
            raise UserError(f"{place} has no names of columns to find {label!r} by; add a header row")
        if label not in names:
            raise UserError(f"{place} has no column {label!r}{did_you_mean(label, names)} to take the classes from")
    at = names.index(label)
    X, y = np.delete(rows, at, axis=1), rows[:, at]
    if not X.shape[1]:
        raise UserError(f"{place} has no column beside {label!r}")
    if not np.equal(y, np.round(y)).all():
        raise UserError(f"the column {label!r} of {place} has values that are no integers; classes are integers")
    return np.ascontiguousarray(X), y.astype(np.int64), None


def _pair(where: str, pair: Any) -> tuple[FloatArray, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise UserError(f"{where}: expected (X, y), rows and their classes; got {type(pair).__name__}")
    with _own_advice():
        X = check_rows(pair[0], where=where)
    y = np.asarray(pair[1])
    if y.shape != (len(X),) or y.dtype.kind not in "iubUS":
        raise UserError(f"{where}: y must hold one class per row, ({len(X)},), got {y.dtype} of shape {y.shape}")
    return X, y


# ---- columns in comparable units ----


def _spread_of(split: Split) -> Spread:
    """Return mean and deviation of the columns over the rows that all devices train with.

    Each device's are rounded as those that the sites of a job with `scale=standard` send (`flareclust.core.scaling`).
    """
    own = [rounded_spread(rows.X) for rows in split.train.values()]
    rows = np.array([one.rows for one in own], dtype=np.float64)
    m2 = np.stack([one.rows * np.square(one.deviation) for one in own])
    return pooled_spread(rows, np.stack([one.mean for one in own]), m2)
