"""The wire: which arrays a site sends, and the check that both sides make of them.

A message is a dict of contiguous float64, int64 or bool arrays. A `Schema` names its arrays and their axes by symbols:
`Schema(centroids="k d", counts=counts("k"))` says that `counts` has as many entries as `centroids` has rows. The
symbol n (rows) does not exist here: nothing that leaves a site is as long as its data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import Array, Message
from flareclust._foundation.validation import LARGEST
from flareclust.core.arrays import extent

#: Added to every reply: wall seconds of the site's own computation, a float64 without axes.
SECONDS = "seconds"

#: More rows than any site has; sums over all sites stay exact.
MOST_ROWS = 2**46

#: More columns than any table has.
MOST_COLUMNS = 2**20

#: The longest text about a message that is kept and shown.
_LONGEST_TEXT = 400

_KINDS = {name: np.dtype(name) for name in ("float64", "int64", "bool")}


@dataclass(frozen=True)
class Field:
    """One array of a message.

    Attributes:
        axes: symbols of its axes, e.g. ("k", "d"); () for a single number.
        dtype: float64, int64 or bool.
        minimum: smallest allowed value, None for no bound.
        less_than: symbol of the size that all values must be below, checked where it is known; "" for no such bound.
        maximum: largest allowed value, and sum of all values, of an array that is nowhere negative; None for no bound.
        rows: whether the values are numbers of rows, or weights that such could be found from; sites with a policy round them.
    """

    axes: tuple[str, ...]
    dtype: str = "float64"
    minimum: float | None = None
    less_than: str = ""
    maximum: float | None = None
    rows: bool = False

    def __post_init__(self) -> None:
        """Refuse types that NVFlare cannot carry between processes, and the axis of the rows."""
        if self.dtype not in _KINDS:
            raise ValueError(f"a field's dtype must be one of {tuple(_KINDS)}, not {self.dtype!r}")
        if self.dtype == "bool" and (self.minimum, self.maximum, self.less_than) != (None, None, ""):
            raise ValueError("a field of bool has no minimum, maximum or less_than")
        if "n" in self.axes:
            raise ValueError("a field may not have the axis n: arrays as long as the data never leave a site")

    def __str__(self) -> str:
        """Return the form used in the documentation: `float64 (k, d)`."""
        return f"{self.dtype} ({', '.join(self.axes)})"


def real(axes: str, minimum: float | None = None) -> Field:
    """Return a float64 field with the axes named in `axes` ("k d"), at or above `minimum`."""
    return Field(tuple(axes.split()), "float64", minimum)


def counts(axes: str, minimum: int = 0) -> Field:
    """Return an int64 field of numbers of rows: at or above `minimum`, and never negative."""
    return Field(tuple(axes.split()), "int64", max(minimum, 0), maximum=MOST_ROWS, rows=True)


def weights(axes: str) -> Field:
    """Return a float64 field >= 0 of weights that are added up over rows."""
    return Field(tuple(axes.split()), "float64", 0, rows=True)


def whole(axes: str) -> Field:
    """Return an int64 field of numbers >= 0 that count nothing, such as codes."""
    return Field(tuple(axes.split()), "int64", 0)


def index(axes: str, less_than: str) -> Field:
    """Return an int64 field of numbers 0, 1, ... below the size called `less_than`: which of the things sent it is about."""
    return Field(tuple(axes.split()), "int64", 0, less_than)


class Schema:
    """The arrays of one kind of message, checked in the same way where it is sent and where it arrives.

    Args:
        may_be_empty: whether a site may answer with arrays without entries, which says that it has nothing to send in
            this round and goes on; it still knows its columns (d). Where not, an empty reply is refused.
        **fields: the arrays by name, as a `Field` or as the axes of a float64 array.
    """

    def __init__(self, *, may_be_empty: bool = False, **fields: str | Field) -> None:
        if SECONDS in fields:
            raise ValueError(f"{SECONDS!r} is part of every reply and cannot be a field of its own")
        self.may_be_empty = may_be_empty
        self.fields = {name: real(f) if isinstance(f, str) else f for name, f in fields.items()}

    def __repr__(self) -> str:
        """Return the schema as it is written."""
        flag = ["may_be_empty=True"] if self.may_be_empty else []
        return f"Schema({', '.join(flag + [f'{name}={field}' for name, field in self.fields.items()])})"

    def extended(self, **fields: Field) -> "Schema":
        """Return a schema of these arrays and more; fields given again replace those that are there."""
        return Schema(may_be_empty=self.may_be_empty, **{**self.fields, **fields})

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return the sites whose replies are inconsistent with those of most others, and why; none unless overridden."""
        return {}

    def pack(self, message: Mapping[str, Array]) -> Message:
        """Return `message` with the schema's dtypes and contiguous arrays, in the schema's order, and `check` it."""
        packed: Message = {}
        for name, field in self.fields.items():
            if name in message:
                value, kind = np.asarray(message[name]), _KINDS[field.dtype]
                if value.dtype != kind and not np.can_cast(value.dtype, kind, "same_kind"):
                    raise BadMessage(f"{name}: expected {field.dtype}, got {value.dtype}")
                packed[name] = np.array(value, dtype=kind, order="C", ndmin=len(field.axes))
        packed.update({name: message[name] for name in message if name not in self.fields})
        self.check(packed)
        return packed

    def check(
        self,
        message: Mapping[str, Array],
        sizes: Mapping[str, int] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Check keys, dtypes, axes, finiteness and bounds: the form of all arrays before the first value of any.

        Args:
            message: the arrays as they came.
            sizes: sizes of axis symbols that are already known, e.g. {"d": 2}.
            limits: the most entries that the others may have, e.g. {"k": 15}.

        Returns:
            The size of every axis symbol.

        Raises:
            BadMessage: in words that name the array, what was expected and what came, and hold no data value.
        """
        if message.keys() != self.fields.keys():
            expected, got = set(self.fields), set(message)
            missing, extra = sorted(expected - got), got - expected
            raise BadMessage(f"expected the arrays {sorted(expected)}; missing {missing}, not expected {_some(extra)}")
        known = dict(sizes or {})
        for name, field in self.fields.items():
            _check_form(name, field, message[name], known, limits or {})
        extents = {
            name: extent(message[name])
            for name, field in self.fields.items()
            if message[name].size and field.dtype != "bool"
        }
        for name, (least, largest) in extents.items():
            _check_values(name, self.fields[name], message[name], least, largest, known)
        self.compare(message, known)
        return known

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where arrays of the right form are inconsistent with one another; nothing unless overridden."""


def plain(text: object, instead: str = "?") -> str:
    """Return a text that others sent as one short line, in which a terminal finds nothing to obey: `instead` stands in its place."""
    cut = text[:_LONGEST_TEXT] if isinstance(text, str) else f"(a {type(text).__name__} instead of a text)"
    return "".join(letter if letter.isprintable() else instead for letter in cut)


def _some(names: set[str]) -> str:
    """Return three of the names that a message has too many, cut, so that many or long ones make no long text."""
    first = nsmallest(3, (plain(name)[:40] for name in names))
    more = f" and {len(names) - len(first)} more" if len(names) > len(first) else ""
    return f"{first}{more}"


def _check_form(name: str, field: Field, value: object, sizes: dict[str, int], limits: Mapping[str, int]) -> None:
    if not isinstance(value, np.ndarray):
        raise BadMessage(f"{name}: expected an array, got {type(value).__name__}")
    if value.dtype != _KINDS[field.dtype]:
        raise BadMessage(f"{name}: expected {field.dtype}, got {value.dtype}")
    if value.ndim != len(field.axes):
        raise BadMessage(f"{name}: expected the axes ({', '.join(field.axes)}), got shape {value.shape}")
    for axis, size in zip(field.axes, value.shape, strict=True):
        if sizes.get(axis, size) != size:
            raise BadMessage(f"{name}: axis {axis} has {size} entries where {sizes[axis]} were expected")
        if axis not in sizes and size > limits.get(axis, size):
            raise BadMessage(f"{name}: axis {axis} has {size} entries where there can be at most {limits[axis]}")
        sizes[axis] = size
    if not value.flags.c_contiguous:
        raise BadMessage(f"{name}: expected an array that is contiguous by rows")


def _check_values(
    name: str, field: Field, value: Array, minimum: float, largest: float, sizes: Mapping[str, int]
) -> None:
    """Check the values of an array that has some, by its least and largest: without a copy."""
    if math.isnan(minimum):
        raise BadMessage(f"{name}: holds NaN or infinite values")
    if largest > LARGEST or minimum < -LARGEST:
        raise BadMessage(f"{name}: holds values beyond {LARGEST:g}")
    if field.minimum is not None and minimum < field.minimum:
        raise BadMessage(f"{name}: holds values below {field.minimum:g}")
    if field.maximum is not None and largest * value.size > field.maximum < value.sum(dtype=np.float64):
        raise BadMessage(f"{name}: holds values above {field.maximum:g}, or adds up to more")
    if field.less_than in sizes and largest >= sizes[field.less_than]:
        raise BadMessage(f"{name}: holds values beyond the {sizes[field.less_than]} that were sent")


def nbytes(message: Mapping[str, Array]) -> int:
    """Return the size of a message's arrays in bytes; what is no array, and will be refused, counts nothing."""
    return sum(value.nbytes for value in message.values() if isinstance(value, np.ndarray))
