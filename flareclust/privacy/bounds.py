"""The bounds of a site's rows, as its policy states them: of each column, or a ball around whole rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean


@dataclass(frozen=True)
class Ball:
    """Bounds of whole rows: a maximum distance from a public point.

    Attributes:
        norm: the radius, in L2 norm.
        center: the point: one value for all columns, one for each in their order, or one for each by its name.
    """

    norm: float
    center: float | tuple[float, ...] | Mapping[str, float] = 0.0


#: Lower and upper bound of all columns, of each in their order, or of each by its name; or a ball.
Bounds = tuple[float, float] | tuple[tuple[float, float], ...] | Mapping[str, tuple[float, float]] | Ball


def checked_bounds(bounds: object) -> Bounds:
    """Return bounds as a policy states them, or raise UserError."""
    if isinstance(bounds, Ball):
        return bounds
    if isinstance(bounds, Mapping) and isinstance(bounds.get("norm"), int | float | str):
        return _ball(bounds)
    if isinstance(bounds, Mapping):
        if len(names := set(map(str, bounds))) < len(bounds) or not names:
            raise UserError("bounds by column need names, each once")
        return {str(name): _pair(pair, f"bounds of {_short(str(name))}") for name, pair in bounds.items()}
    if not isinstance(bounds, list | tuple) or not len(bounds):
        raise UserError(
            f"bounds are a pair [low, high], a list of pairs, pairs by column, or a ball with norm and center; got {_short(bounds)}"
        )
    if all(isinstance(value, Real) for value in bounds):
        return _pair(bounds, "bounds")
    return tuple(_pair(pair, f"bounds of column {j + 1}") for j, pair in enumerate(bounds))


def _ball(settings: Mapping[Any, Any]) -> Ball:
    for key in settings:
        if key not in ("norm", "center"):
            raise UserError(
                f"bounds with a norm have no {_short(key)}{did_you_mean(str(key), ('norm', 'center'))}; they have norm, center"
            )
    norm, center = number(settings["norm"]), settings.get("center", 0.0)
    check_positive("bounds: norm", norm)
    values = list(center.values()) if isinstance(center, Mapping) else center
    values = values if isinstance(values, list | tuple) else [values]
    if not values or not all(_is_number(value) for value in values):
        raise UserError(f"bounds: center must be a finite number, or one for each column; got {_short(center)}")
    if isinstance(center, Mapping):
        return Ball(float(norm), {str(name): float(value) for name, value in center.items()})
    return Ball(float(norm), tuple(map(float, center)) if isinstance(center, list | tuple) else float(center))


def _pair(pair: Any, what: str) -> tuple[float, float]:
    good = isinstance(pair, list | tuple) and len(pair) == 2 and all(_is_number(value) for value in pair)
    if not good:
        raise UserError(f"{what}: expected a pair of finite numbers [low, high], got {_short(pair)}")
    low, high = float(pair[0]), float(pair[1])
    if low >= high:
        raise UserError(f"{what}: expected low below high, got {_short(pair)}")
    return low, high


def number(value: Any) -> Any:
    """Return the number in a text such as "1e-6", which YAML reads as text because it has no decimal point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def check_positive(name: str, value: object) -> None:
    """Raise UserError unless `value` is a finite number above 0."""
    if not _is_number(value) or value <= 0:  # type: ignore[operator]
        raise UserError(f"{name} must be a finite number above 0, got {_short(value)}")


def _is_number(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer beyond all floats
        return False


def _short(value: object) -> str:
    """Return a value for a message, not longer than a line."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else f"{str(value)[:30]}..."
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain_bounds(bounds: Bounds) -> Any:
    """Return bounds as `checked_bounds` takes them, as plain JSON."""
    if isinstance(bounds, Ball):
        center = bounds.center
        return {"norm": bounds.norm, "center": list(center) if isinstance(center, tuple) else center}
    if isinstance(bounds, Mapping):
        return {name: list(pair) for name, pair in bounds.items()}
    return [list(pair) if isinstance(pair, tuple) else pair for pair in bounds]
