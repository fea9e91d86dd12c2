"""What a server keeps between two exchanges: data classes of arrays, and how checkpoints and results have them."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from flareclust._foundation.typing import Message


@dataclass(frozen=True, eq=False)
class State:
    """What a server knows between two exchanges beside what it sends; a class of its own for each algorithm and phase.

    Its fields are arrays, numbers, texts, tuples of texts, None, other such states, and named tuples of arrays.
    """

    def arrays(self) -> Message:
        """Return what goes into the result: all fields that are known, but for states of parts of a job that are over."""
        return {name: value for name, value in packed(self).items() if "." not in name}


#: Nothing is kept.
NO_STATE = State()


def packed(state: object, prefix: str = "") -> Message:
    """Return the fields of a state, or of other such data, as arrays by name behind the prefix; `unpacked` makes it again."""
    arrays: Message = {}
    for field_ in _fields_of(type(state)):
        name, value = prefix + field_, getattr(state, field_)
        if is_dataclass(value) or hasattr(value, "_fields"):
            arrays |= {f"{name}.": np.array(type(value).__name__), **packed(value, f"{name}.")}
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def unpacked(kind: type[Any], arrays: Message, prefix: str = "") -> Any:
    """Return what `packed` returned the arrays of; fields that are not there have their defaults."""
    hints, values = get_type_hints(kind), {}
    for field_ in _fields_of(kind):
        name, hint = prefix + field_, hints[field_]
        if f"{name}." in arrays:
            named = str(arrays[f"{name}."])
            kinds = [one for one in (hint, *get_args(hint)) if getattr(one, "__name__", "") == named]
            if not kinds:
                raise ValueError(f"{name} is of a class that the state does not have")
            values[field_] = unpacked(kinds[0], arrays, f"{name}.")
        elif name in arrays:
            values[field_] = _plain(arrays[name], hint)
    return kind(**values)


def _fields_of(kind: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass or a named tuple."""
    return [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind._fields)


def _plain(value: Any, hint: Any) -> Any:
    """Return an array as what a field has: a number, a text, a tuple of texts, or an array."""
    if get_origin(hint) is tuple:
        return tuple(value.tolist())
    return value.item() if {int, float, bool, str} & {hint, *get_args(hint)} else value
