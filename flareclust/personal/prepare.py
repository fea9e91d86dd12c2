"""Devices from a data set with classes, from a file with a column of classes, or from arrays."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data.cells import check_rows
from flareclust.data.csv_files import COMMA_ADVICE, UTF8_ADVICE
from flareclust.data.datasets import Dataset, describe, load
from flareclust.data.file_formats import CHOOSE_ADVICE, EMPTY_ADVICE, GAPS_ADVICE, TEXT_ADVICE
from flareclust.data.partition import partition
from flareclust.data.partition_specs import SPECS, parse
from flareclust.data.tables import read_table
from flareclust.personal.rows import CLASS_COLUMN, Labelled, Split, hold_out, numbered
from flareclust.personal.settings import PersonalSettings

#: Rows with their classes: (X (n, d), y (n,)).
Pair = tuple[Any, Any]

#: What the readers of tables advise that personalised models have no setting for, and what to do instead; pairs first.
_ADVICE = (
    (f"{CHOOSE_ADVICE}, or {TEXT_ADVICE}", "write it as numbers (classes from 0), or leave the column out of the file"),
    (TEXT_ADVICE, "write it as numbers (classes from 0)"),
    (CHOOSE_ADVICE, "write only numbers below it"),
    (GAPS_ADVICE, "drop these rows or fill them in"),
    (EMPTY_ADVICE, "leave these columns out"),
    (COMMA_ADVICE, "write decimal points"),
)


def prepare_devices(
    settings: PersonalSettings, given: Pair | Mapping[str, Pair] | None = None
) -> tuple[Split, list[object]]:
    """Return the devices' rows, some of them held out, and the classes in the order of their numbers.

    Args:
        settings: where the rows are and how they are assigned to devices.
        given: rows in memory in their place; by device name they are not partitioned.

    Raises:
        UserError: there are no classes, only one of them, or too few rows.
    """
    if given is not None and settings.label is not None:
        raise UserError("label names a column of a file, and rows in memory come as (X, y); leave label out")
    if isinstance(given, Mapping):
        _check_given(settings, given)
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


def _check_given(settings: PersonalSettings, given: Mapping[str, Pair]) -> None:
    """Raise UserError where the rows of devices come with how to assign rows to devices."""
    fields = PersonalSettings.model_fields
    if settings.partition != fields["partition"].default:
        raise UserError("partition is without effect: the rows come by device; leave it out, or pass (X, y)")
    if settings.devices not in (fields["devices"].default, len(given)):
        raise UserError(
            f"devices is {settings.devices} without effect: the rows are of {len(given)} devices; leave it out, or pass (X, y)"
        )


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
        text = fault + advice
        raise UserError(text) from None


def _labelled(settings: PersonalSettings) -> tuple[FloatArray, Any, IntArray | None]:
    """Return rows, their classes, and who each comes from where that is known."""
    if settings.label is not None:
        if settings.data.partition(":")[0] in describe():
            raise UserError(
                f"label is for files, and {settings.data} is a data set with classes of its own; leave label out, or name a file"
            )
        return (*_with_column(Path(settings.data), settings.label), None)
    with _own_advice():
        data: Dataset = load(settings.data)
    if data.y is None and CLASS_COLUMN in (data.columns or ()):
        return (*_split_off(data.X, list(data.columns or ()), CLASS_COLUMN, settings.data), None)
    if data.y is None:
        raise UserError(
            f"{settings.data} has no classes to learn; name the column of a file that holds them (label), or give an npz file "
            "the array y"
        )
    return data.X, data.y, data.owners


def _with_column(path: Path, label: str) -> tuple[FloatArray, Any]:
    with _own_advice():
        table = read_table(path)
    names = list(table.columns or ())
    if not names:
        raise UserError(f"{path} has no names of columns to find {label!r} by; add a header row")
    if label not in names:
        raise UserError(f"{path} has no column {label!r}{did_you_mean(label, names)} to take the classes from")
    return _split_off(table.X, names, label, path)


def _split_off(rows: FloatArray, names: list[str], label: str, path: str | Path) -> tuple[FloatArray, Any]:
    """Return the rows without the column of classes, and that column."""
    at = names.index(label)
    X, y = np.delete(rows, at, axis=1), rows[:, at]
    if not X.shape[1]:
        raise UserError(f"{path} has no column beside {label!r}")
    if not np.equal(y, np.round(y)).all():
        raise UserError(f"the column {label!r} of {path} has values that are no integers; classes are integers")
    return np.ascontiguousarray(X), y.astype(np.int64)


def _pair(where: str, pair: Any) -> tuple[FloatArray, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise UserError(f"{where}: expected (X, y), rows and their classes; got {type(pair).__name__}")
    with _own_advice():
        X = check_rows(pair[0], where=where)
    y = np.asarray(pair[1])
    if y.shape != (len(X),) or y.dtype.kind not in "iubUS":
        raise UserError(f"{where}: y must hold one class per row, ({len(X)},), got {y.dtype} of shape {y.shape}")
    return X, y
