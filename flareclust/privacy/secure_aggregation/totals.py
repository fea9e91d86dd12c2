"""Which numbers of a reply add up over sites, and the one reply that their totals make.

Counts, sums of squares and the like add up as they are. What a site sends about a group of rows, its mean and its squared
deviations, adds up as sum and sum of squares; groups that a site does not describe count nothing. All of it is exact, so
that the total is that of the sites' numbers, rounded once at the end.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import Array, FloatArray, Message
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import FRACTION, RANGE, Words
from flareclust.protocol.schema import MOST_ROWS, Schema
from flareclust.protocol.task import GROUP, MEAN, ROWS, SPREAD

#: Below this the squares of a site's largest value would lose digits.
_SMALLEST = 2.0**-38

#: The most sites whose numbers are added up, and the most addends that a number of a site has.
MOST_SITES, _ADDENDS = 1024, 8

#: The largest value that a server may send with a question about masked sums, and that rows may have.
LARGEST_SENT = 1e12

#: Whatever the others send, the total stays in range if every addend stays below this.
_MOST = RANGE / (_ADDENDS * MOST_SITES)
_LARGEST_SUM = np.nextafter(_MOST, 0)


class Layout:
    """Where in a row of numbers (w,) each of a reply's totals stands.

    Args:
        schema: of the reply; it is about groups where it has an array `cluster`.
        sizes: of its axes, for groups K and d, as `flareclust.protocol.sizes.total_sizes` returns them.
    """

    def __init__(self, schema: Schema, sizes: Mapping[str, int]) -> None:
        self.schema, self.sizes = schema, dict(sizes)
        self.grouped = GROUP in schema.fields
        k, d = sizes.get("K", 0), sizes.get("d", 0)
        self._shapes = {
            name: ((k, d) if len(field.axes) == 2 else (k,))
            if self.grouped and field.axes
            else tuple(sizes[axis] for axis in field.axes)
            for name, field in schema.fields.items()
            if name != GROUP
        }
        self.width = sum(prod(shape) for shape in self._shapes.values())

    def words(self, reply: Message) -> Words:
        """Return a checked reply in fixed point (4, w).

        Numbers that are too large count as the largest that are not. A refusal would show the server that they are, and
        of rows and questions within `LARGEST_SENT` there are none.
        """
        rows: list[list[FloatArray]] = [self._addends(name, reply) for name in self._shapes]
        depth, added = max(map(len, rows)), np.zeros((fixed_point.WORDS, self.width), dtype=np.uint64)
        for i in range(depth):
            parts = [
                own[i].ravel() if i < len(own) else np.zeros(prod(shape))
                for own, shape in zip(rows, self._shapes.values(), strict=True)
            ]
            values = np.concatenate(parts).astype(np.float64)
            fixed_point.add(added, fixed_point.encode(np.clip(values, -_LARGEST_SUM, _LARGEST_SUM)))
        return added

    def reply(self, numbers: Sequence[int]) -> Message:
        """Return what one site with all the rows would send, from the totals (w,) in multiples of 2^-128.

        BadMessage where these are no totals: masks did not cancel, or a site sent something that is not from rows.
        """
        totals, at = {}, 0
        for name, shape in self._shapes.items():
            own = numbers[at : at + prod(shape)]
            totals[name] = [_whole(number) for number in own] if self._counts(name) else list(own)
            at += prod(shape)
        if self.grouped:
            reply = self._groups(totals)
        else:
            reply = {name: self._array(name, total).reshape(self._shapes[name]) for name, total in totals.items()}
        self.schema.check(reply, {"K": self.sizes.get("K", 0)} if self.grouped else self.sizes)
        return reply

    def _counts(self, name: str) -> bool:
        return self.schema.fields[name].dtype == "int64"

    def _array(self, name: str, total: list[int]) -> Array:
        """Return integers, or multiples of 2^-128, in the type that the schema has for them."""
        return np.array(total, dtype=np.int64) if self._counts(name) else fixed_point.as_floats(total)

    def _addends(self, name: str, reply: Message) -> list[FloatArray]:
        """Return arrays whose sum is exactly what a site adds to the totals called `name`."""
        if not self.grouped or not self.schema.fields[name].axes:
            return [reply[name]]
        rows = reply[ROWS].astype(np.float64)
        cells = rows if rows.ndim == 2 else rows[:, None]
        if name == ROWS:
            parts: Sequence[FloatArray] = [rows]
        elif name == MEAN:
            parts = fixed_point.product(reply[MEAN], cells)
        elif name != SPREAD:
            parts = [reply[name].astype(np.float64)]
        else:
            squares = fixed_point.product(reply[MEAN], reply[MEAN])
            parts = [reply[SPREAD], *(part for square in squares for part in fixed_point.product(square, cells))]
        placed = [np.zeros(self._shapes[name]) for _ in parts]
        for place, part in zip(placed, parts, strict=True):
            np.add.at(place, reply[GROUP], part)
        return placed

    def _groups(self, totals: Mapping[str, list[int]]) -> Message:
        """Return the means, and squared deviations from them, of the groups that have rows."""
        d, rows = self.sizes.get("d", 0), totals[ROWS]
        by_cell = len(self._shapes[ROWS]) == 2  # each column of a group has a number of its own
        numbers = rows if by_cell else [n for n in rows for _ in range(d)]
        present = [r for r in range(self._shapes[ROWS][0]) if (any(rows[r * d : (r + 1) * d]) if by_cell else rows[r])]
        cells = [r * d + j for r in present for j in range(d)]
        sums, one = totals.get(MEAN, []), 1 << FRACTION
        message: Message = {GROUP: np.array(present, dtype=np.int64)}
        for name, own in totals.items():
            shape = self._shapes[name]
            if name == MEAN:
                means = [own[i] / (numbers[i] << FRACTION) if numbers[i] else 0.0 for i in cells]
                found: Array = np.array(means, dtype=np.float64)
            elif name == SPREAD:
                spread = [
                    max(own[i] * numbers[i] * one - sums[i] ** 2, 0) / (numbers[i] * one * one) if numbers[i] else 0.0
                    for i in cells
                ]
                found = np.array(spread, dtype=np.float64)
            else:
                places = {0: [0], 1: present, 2: cells}[len(shape)]
                found = self._array(name, [own[i] for i in places])
            message[name] = found.reshape((len(present), *shape[1:]) if shape else ())
        return {name: message[name] for name in self.schema.fields}


def sizes_in(schema: Schema, reply: Message) -> dict[str, int]:
    """Return the sizes of a checked reply that is not about groups; none of others."""
    if GROUP in schema.fields:
        return {}
    return {axis: n for name, one in schema.fields.items() for axis, n in zip(one.axes, reply[name].shape, strict=True)}


def check_range(data: FloatArray, cells: int | None = None) -> None:
    """Raise Refusal where sums of squares of these rows (n, d) would not fit, or would lose digits.

    `cells` is how many values there are, where the rows are only the extremes of more. Said before a site gives its key, for
    afterwards it would end the job.
    """
    largest = float(max(-np.fmin.reduce(data, axis=None), np.fmax.reduce(data, axis=None)))  # whatever is missing
    if largest > LARGEST_SENT or (4 * LARGEST_SENT) ** 2 * (cells or data.size) >= _MOST:
        raise Refusal(
            f"has values beyond {LARGEST_SENT:g}, or too many, for their squares to be added up with secure sums; give the "
            "columns in a larger unit"
        )
    if 0 < largest < _SMALLEST:
        raise Refusal(
            f"has no value beyond {_SMALLEST:.1g}, too small for secure sums; give the columns in a smaller unit"
        )


def _whole(number: int) -> int:
    whole, rest = divmod(number, 1 << FRACTION)
    if rest or not 0 <= whole <= MOST_ROWS:
        raise BadMessage("the numbers of rows are none")
    return whole
