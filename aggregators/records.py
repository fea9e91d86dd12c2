"""Conversion of a named tuple to entries of the server's record, which keep it between two steps, and back."""

from typing import Any, NamedTuple, TypeVar

import numpy as np

from flareclust._foundation.typing import Message

_State = TypeVar("_State", bound=NamedTuple)


def entries(prefix: str, state: NamedTuple) -> Message:
    """Return the fields of a state as entries of a record, each under its name behind the prefix."""
    return {prefix + name: np.asarray(value) for name, value in state._asdict().items()}


def state_in(prefix: str, kind: type[_State], record: Message) -> _State:
    """Return the state whose fields are in a record; fields without a dimension come back as plain numbers."""
    arrays = [record[prefix + name] for name in kind._fields]
    plain: list[Any] = [value if value.ndim else value.item() for value in arrays]
    return kind(*plain)
