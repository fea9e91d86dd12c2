"""Parameters of algorithms: one frozen class for each, which everything reads that names a parameter or its default.

An algorithm's executor and aggregator declare the same class, `params: FeCAParams`; the constructor that they get with it is in
`flareclust.protocol.parametrized`.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings
from flareclust._foundation.validation import did_you_mean

_Side = Literal["site", "both", "server"]
_SIDES: tuple[_Side, ...] = get_args(_Side)

#: Upper bounds of settings that multiply the time of a job: beyond these, results no longer change, but the job never ends.
MOST_STARTS, MOST_ROUNDS, MOST_ITERATIONS = 10_000, 10_000, 100_000

#: The parameters of every algorithm, which are arguments of their own wherever an algorithm runs.
GENERAL = ("k", "seed")

#: The parameters that a run sets by itself, from what sites have agreed on; they come last in tables.
_AGREED = ("compare", "table_ranges", "table_schema")


class Params(Settings):
    """What every algorithm has: the number of clusters and the seed of the job."""

    k: int = Field(ge=1, description="Number of clusters of the federation.")
    seed: int = Field(default=0, ge=0, description="Seed of the job; all random choices follow from it.")

    #: Parameters that come after an algorithm's own in tables.
    last: ClassVar[tuple[str, ...]] = ()

    #: What to do in the place of parameters that other algorithms have, by their names.
    instead: ClassVar[Mapping[str, str]] = MappingProxyType({})

    #: Settings in the place of a k that is left out, `k` among them; none where it has to be given.
    without_k: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def own(cls, side: _Side | None = None) -> dict[str, FieldInfo]:
        """Return the algorithm's own parameters, sites' first; with `side`, "site" or "server", those that this side reads."""
        tail = [*cls.last, *(name for name in _AGREED if name in cls.model_fields)]
        names = [name for name in cls.model_fields if name not in (*GENERAL, *tail)] + tail
        fields = {name: cls.model_fields[name] for name in names}
        in_order = sorted(fields.items(), key=lambda item: (item[0] in _AGREED, _SIDES.index(side_of(item[1]))))
        return {name: field for name, field in in_order if side is None or side_of(field) in (side, "both")}

    @classmethod
    def check_names(cls, algorithm: str, names: Iterable[str], others: Collection[str] = ()) -> None:
        """Raise UserError for a name that is none of the algorithm's own parameters, with the nearest of them and of `others`."""
        own = cls.own()
        for name in names:
            if name in others and name not in own:
                option = name.replace("_", "-")
                raise UserError(
                    f"{algorithm} has no parameter {name!r}: it is an option of its own, --{option} or {name}="
                )
            if name not in own and name in cls.instead:
                raise UserError(f"{algorithm} has no parameter {name!r}: {cls.instead[name]}")
            if name not in own and name not in cls.renamed:
                hint = did_you_mean(name, [*own, *others])
                raise UserError(f"{algorithm} has no parameter {name!r}{hint}; it has {', '.join(own) or 'none'}")


def _declared(
    side: _Side,
    default: Any,
    description: str,
    *,
    imports: bool = False,
    in_parts: tuple[Any, ...] | None = None,
    **limits: Any,
) -> Any:
    """Declare a parameter.

    Args:
        side: who reads it.
        default: its value unless it is given.
        description: a line for tables.
        imports: whether the value may be the import path of a user's own class.
        in_parts: the values that it may have at a site whose rows lie in parts on a cluster; None for any.
        limits: those of `pydantic.Field`.
    """
    extra: dict[str, Any] = {"side": side, "imports": imports, "in_parts": in_parts}
    return Field(default, description=description, json_schema_extra=extra, **limits)


#: Declare a parameter that sites read, the server, or both; the further arguments are those of `_declared`.
site = partial(_declared, "site")
server = partial(_declared, "server")
both = partial(_declared, "both")


def side_of(field: FieldInfo) -> _Side:
    """Return who reads a parameter."""
    extra = field.json_schema_extra
    return extra["side"] if isinstance(extra, dict) else "both"  # type: ignore[return-value]


def values_in_parts(field: FieldInfo) -> tuple[Any, ...] | None:
    """Return the values that a parameter may have at a site whose rows lie in parts; None for any."""
    extra = field.json_schema_extra
    return extra.get("in_parts") if isinstance(extra, dict) else None  # type: ignore[return-value]
