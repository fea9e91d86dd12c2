"""The replies of many small sites, each field in one array: a mapping of site names to messages that holds no messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import Array, IntArray, Message
from flareclust.core.devices.ragged import entries_of
from flareclust.protocol.schema import Schema


class Batch(Mapping[str, Message]):
    """Replies by site name, in the order of the names.

    Attributes:
        names: of the sites (m,), sorted.
        fields, totals, starts: as in `Part`.
    """

    def __init__(self, names: Sequence[str], fields: Message, totals: Message, starts: IntArray) -> None:
        self.names, self.fields, self.totals, self.starts = names, fields, totals, starts

    def __getitem__(self, site: str) -> Message:
        return self.message(self._places[site])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, site: object) -> bool:
        return site in self._places

    def values(self) -> "Messages":  # type: ignore[override]
        """Return the messages, for `gathered` and `stacked` to look into."""
        return Messages(self)

    def message(self, i: int) -> Message:
        """Return the reply of the site with this number."""
        first, last = self.starts[i], self.starts[i + 1]
        entries = {name: value[first:last] for name, value in self.fields.items()}
        return entries | {name: np.array(value[i]) for name, value in self.totals.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}


class Messages(Sequence[Message]):
    """The messages of a batch, in the order of the sites' names."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __getitem__(self, i: Any) -> Any:
        return [self.batch.message(j) for j in range(len(self))[i]] if isinstance(i, slice) else self.batch.message(i)

    def __len__(self) -> int:
        return len(self.batch)


class Part(NamedTuple):
    """The replies of some of the sites that were asked, to be joined with those of the others.

    Attributes:
        places: numbers of the sites (m,), rising.
        fields: by name, the entries of all sites, one after the other (c, ...).
        totals: by name, one value of each site (m,).
        sizes: entries of each site (m,).
        seconds: the longest time that one of them computed.
    """

    places: IntArray
    fields: Message
    totals: Message
    sizes: IntArray
    seconds: float = 0.0

    def each(self, name: str) -> Array:
        """Return one array of every reply, which has the same shape in all of them (m, ...)."""
        return self.totals[name] if name in self.totals else self.fields[name].reshape(len(self.places), -1)

    @property
    def starts(self) -> IntArray:
        """Return where each site's entries begin, and where the last one's end (m + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def nbytes(self) -> int:
        """Return the size of all replies in bytes, their computing times among them."""
        arrays = [*self.fields.values(), *self.totals.values()]
        return sum(value.nbytes for value in arrays) + np.dtype(np.float64).itemsize * len(self.places)


def part_of(schema: Schema, places: Sequence[int], messages: Sequence[Message], seconds: float = 0.0) -> Part:
    """Return replies that came one by one, at least one, as a part; they fit the schema."""
    axes = {name: field.axes for name, field in schema.fields.items()}
    fields = {name: np.concatenate([message[name] for message in messages]) for name in axes if axes[name]}
    totals = {name: np.array([message[name] for message in messages]) for name in axes if not axes[name]}
    sizes = [len(message[next(iter(fields))]) if fields else 0 for message in messages]
    return Part(np.array(places, np.int64), fields, totals, np.array(sizes, np.int64), seconds)


def check_part(schema: Schema, part: Part, sizes: Mapping[str, int], limits: Mapping[str, int]) -> None:
    """Check the replies of several sites at once, as `accept` does with one at a time; BadMessage where one does not fit."""
    ragged = {name: field for name, field in schema.fields.items() if field.axes}
    symbols = {field.axes[0] for field in ragged.values()}
    if set(ragged) != set(part.fields) or set(schema.fields) - set(ragged) != set(part.totals) or len(symbols) != 1:
        raise BadMessage(f"expected the arrays {sorted(schema.fields)} with one axis in common")
    (symbol,) = symbols
    least, most = int(part.sizes.min(initial=1)), int(part.sizes.max(initial=0))
    if symbol in sizes and (part.sizes != sizes[symbol]).any():
        raise BadMessage(f"axis {symbol} has other than the {sizes[symbol]} entries that were expected")
    if most > limits.get(symbol, most) or least < 0 or (least == 0 and not schema.may_be_empty):
        raise BadMessage(f"axis {symbol} has from {least} to {most} entries")
    known = {name: size for name, size in sizes.items() if name != symbol}
    others = {name: limit for name, limit in limits.items() if name != symbol}
    Schema(may_be_empty=True, **ragged).check(part.fields, {**known, symbol: int(part.sizes.sum())}, others)
    for name, value in part.totals.items():
        Schema(value=replace(schema.fields[name], axes=("m",))).check({"value": value}, {"m": len(part.places)})


def merged(parts: Sequence[Part]) -> Part:
    """Return one part of several, at least one, in the order of the sites' numbers.

    The arrays are taken out of the parts one after the other, so that they are never there twice.
    """
    if len(parts) == 1:
        return parts[0]
    part = Part(
        np.concatenate([part.places for part in parts]),
        {name: np.concatenate([part.fields.pop(name) for part in parts]) for name in list(parts[0].fields)},
        {name: np.concatenate([part.totals.pop(name) for part in parts]) for name in list(parts[0].totals)},
        np.concatenate([part.sizes for part in parts]),
        max(part.seconds for part in parts),
    )
    if (np.diff(part.places) > 0).all():
        return part
    order = np.argsort(part.places, kind="stable")
    entries = entries_of(order, part.starts)
    fields = {name: value[entries] for name, value in part.fields.items()}
    totals = {name: value[order] for name, value in part.totals.items()}
    return Part(part.places[order], fields, totals, part.sizes[order], part.seconds)


def joined(names: Sequence[str], parts: Sequence[Part]) -> Batch:
    """Return the replies of all parts, at least one; `names` are those of all sites asked, in the order of their numbers."""
    part = merged(parts)
    own = names if len(part.places) == len(names) else [names[i] for i in part.places.tolist()]
    return Batch(own, part.fields, part.totals, part.starts)
