"""The state of a federation between two exchanges, at its server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.protocol.columns import SAME, Columns
from flareclust.protocol.task import StepName


@dataclass(frozen=True, eq=False)
class State:
    """What a server knows between two exchanges beside what it sends; a class of its own for each algorithm and phase.

    Its fields are arrays, numbers, texts, tuples of texts, None, other such states, and named tuples of arrays.
    """

    def arrays(self) -> Message:
        """Return what goes into the result: all fields that are known, but for states of parts of a job that are over."""
        values = {name: getattr(self, name) for name in _fields_of(type(self))}
        return {
            name: np.asarray(value) for name, value in values.items() if not (value is None or _has_fields(type(value)))
        }


_S = TypeVar("_S", bound=State)


@dataclass(frozen=True)
class Round(Generic[_S]):
    """The state of a federation between two exchanges.

    Attributes:
        task: what is sent to the sites next, with the step below. When `done`, the result: `centroids` (k, d) and whatever the executor's
            `labels` needs beside them.
        done: no further clustering round is needed.
        diagnostics: plain numbers about this round, for logs and metrics.
        state: what stays on the server.
        step: what the sites are asked to do next: `CLUSTER`, or one of the algorithm's `steps`.
        index: number of rounds merged so far; what comes before the rounds is none.
        sites: who is asked, of the sites that take part; None for all of them.
        columns: how rows are prepared, which goes with every task.
        facts: what the phases before the rounds found, for the result.
    """

    task: Message = field(default_factory=dict)
    done: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    state: _S = State()  # type: ignore[assignment]  # a class with fields of its own begins with one of its own
    step: str = StepName.CLUSTER
    index: int = 0
    sites: tuple[str, ...] | None = None
    columns: Columns = SAME
    facts: State = State()

    @property
    def sent(self) -> Message:
        """Return all arrays that the sites are sent."""
        return {**self.task, **self.columns.sent()}


def packed(state: object, prefix: str = "") -> Message:
    """Return the fields of a state, or of other such data, as arrays by name behind the prefix; `unpacked` makes it again."""
    arrays: Message = {}
    for field_ in _fields_of(type(state)):
        name, value = prefix + field_, getattr(state, field_)
        if _has_fields(type(value)):
            arrays |= {f"{name}.": np.array(0), **packed(value, f"{name}.")}
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def unpacked(kind: type[Any], arrays: Message, prefix: str = "") -> Any:
    """Return what `packed` returned the arrays of; fields that are not there have their defaults."""
    hints, values = get_type_hints(kind), {}
    for field_ in _fields_of(kind):
        name, hint = prefix + field_, hints[field_]
        if f"{name}." in arrays:
            inner = next(one for one in (hint, *get_args(hint)) if _has_fields(one))
            values[field_] = unpacked(inner, arrays, f"{name}.")
        elif name in arrays:
            values[field_] = _plain(arrays[name], hint)
    return kind(**values)


def _fields_of(kind: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass or a named tuple."""
    return [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields")


def _plain(value: Any, hint: Any) -> Any:
    """Return an array as what a field has: a number, a text, a tuple of texts, or an array."""
    if get_origin(hint) is tuple:
        return tuple(value.tolist())
    return value.item() if {int, float, bool, str} & {hint, *get_args(hint)} else value
