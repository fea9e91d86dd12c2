"""Settings as frozen pydantic models whose errors are plain `UserError`s, and their values as text on a command line."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS
from flareclust._foundation.validation import did_you_mean

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", list: "a list", dict: "a table"}


class OneOf:
    """Marks text that is one of some names: `Annotated[str, OneOf(NAMES)]`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return a schema that takes the names only."""
        return core_schema.literal_schema(list(self.names))


def setting(name: str, default: Any = ..., **limits: Any) -> Any:
    """Declare a field with the meaning of a setting of `flareclust run`, and its default unless another is given.

    `limits` are those of `pydantic.Field`.
    """
    option = COMMANDS["run"][name]
    return Field(option.default if default is ... else default, description=option.help, **limits)


class Settings(BaseModel):
    """Frozen settings. A wrong value, an unknown or a missing name raises UserError, in one line for all of them.

    NumPy's scalars count as Python's; nothing else is converted: `"5"`, `5.0` and `True` are no integers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    #: What settings are called in files, where that differs from the fields' names.
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(explain(error, type(self))) from None

    @model_validator(mode="before")
    @classmethod
    def _python_scalars(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        # Another name beside that of the field is left, and refused as unknown.
        fields = {name: field for name, field in cls.renamed.items() if field not in values}
        return {fields.get(name, name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, which JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what is wrong in one line: each setting with what it must be and what it is."""
    texts = [_explain(problem, model) for problem in error.errors()]
    return "; ".join(dict.fromkeys(texts))


def _explain(problem: Mapping[str, Any], model: type[BaseModel]) -> str:
    reason = problem.get("ctx", {}).get("error")
    name = str(problem["loc"][0]) if problem["loc"] else ""
    fields = {field.alias or own: field for own, field in model.model_fields.items()}
    if isinstance(reason, ValueError):  # raised by a validator of ours
        text = str(reason)
        return text if not name or name in text else f"{name}: {text}"
    if problem["type"] == "extra_forbidden":
        return f"unknown setting {shown(name)}{did_you_mean(name, fields)}; known: {', '.join(fields)}"
    if problem["type"] == "missing":
        return f"the setting {name!r} is missing"
    if name in fields and (needed := expected(fields[name])):
        value, field = problem["input"], fields[name]
        choices = [choice for choice in _choices(field.annotation, field.metadata) if isinstance(choice, str)]
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        return f"{name} must be {needed}{';' if 'one of' in needed else ','} got {shown(value)}{hint}"
    return f"{name or 'settings'}: {problem['msg'][0].lower()}{problem['msg'][1:]}, got {shown(problem['input'])}"


def expected(field: FieldInfo) -> str:
    """Return what values a field takes: `an integer of at least 1, or None`; empty where its type has no short name."""
    return _expected(field.annotation, field.metadata)


def _expected(annotation: Any, metadata: list[Any]) -> str:
    if get_origin(annotation) in (Union, UnionType):
        parts = [_expected(part, metadata) for part in get_args(annotation) if part is not type(None)]
        if not all(parts):
            return ""
        return " or ".join(parts) + (", or None" if type(None) in get_args(annotation) else "")
    if hasattr(annotation, "__metadata__"):
        inner = [data for part in annotation.__metadata__ for data in getattr(part, "metadata", [part])]
        return _expected(annotation.__origin__, [*metadata, *inner])
    if values := [str(value) for value in get_args(annotation) if get_origin(annotation) is Literal]:
        return f"one of {', '.join(values)}" if len(values) > 1 else values[0]
    for names in (part.names for part in metadata if isinstance(part, OneOf)):
        return f"one of {', '.join(names)}"
    kind = _KINDS.get(get_origin(annotation) or annotation)
    return "" if kind is None else f"{kind}{_range(metadata) if annotation in (int, float) else ''}"


def _choices(annotation: Any, metadata: Sequence[Any] = ()) -> list[Any]:
    names = [name for part in metadata if isinstance(part, OneOf) for name in part.names]
    if get_origin(annotation) is Literal:
        return [*names, *get_args(annotation)]
    parts = [(part, getattr(part, "__metadata__", ())) for part in get_args(annotation)]
    return [*names, *(choice for part, inner in parts for choice in _choices(part, inner))]


def _range(metadata: list[Any]) -> str:
    """Return the bounds in words: ` of at least 1 and less than 10`, ` from 0 to 1`."""
    bounds = {
        type(bound): format(getattr(bound, name), "" if isinstance(getattr(bound, name), int) else "g")
        for bound in metadata
        for kind, name in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt"))
        if isinstance(bound, kind)
    }
    if {Ge, Le} <= bounds.keys():
        return f" from {bounds[Ge]} to {bounds[Le]}"
    words = {Ge: "of at least", Gt: "greater than", Le: "of at most", Lt: "less than"}
    return "".join(f" {'and ' if n else ''}{words[kind]} {bound}" for n, (kind, bound) in enumerate(bounds.items()))


#: Values that Python spells otherwise than JSON.
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def from_text(text: str) -> Any:
    """Return the value that a text of `--set NAME=VALUE` is read as: JSON where it can be, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also numbers and brackets without an end
        return _PYTHON_WORDS.get(text, text)


def as_text(value: object) -> str:
    """Return the text that is read as a value: JSON, except that text needs no quotes where it is not read as something else."""
    return value if isinstance(value, str) and from_text(value) == value else json.dumps(value, ensure_ascii=False)
