"""What a site lets out, whatever a job asks: the settings, checked, and where they are read from.

At a real site a policy stands in `local/privacy.json`, as the arguments of our two filters; in a simulation it is a file or a
mapping that holds at every site. Both have the same keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from flareclust.errors import UserError
from flareclust.validation import check_bool, check_int, did_you_mean

#: Lower and upper bound of all columns, of each in their order, or of each by its name.
Bounds = tuple[float, float] | tuple[tuple[float, float], ...] | Mapping[str, tuple[float, float]]

#: A sum is over so many sites at least. Of two, each would know what the other sent: the total less its own.
LEAST_SITES = 3

#: The key of a policy's differential privacy in files.
DP = "differential_privacy"


@dataclass(frozen=True)
class DifferentialPrivacy:
    """What a site spends on jobs, in which every number that leaves it is differentially private.

    Attributes:
        bounds: between which the site's values are clipped, known without a look at the rows.
        epsilon: the most that one job may spend, at `delta`.
        delta: of all statements here, below 1 / number of rows.
        budget: the most that all jobs together may spend, as an epsilon at the same `delta`.
    """

    bounds: Bounds
    epsilon: float
    delta: float
    budget: float

    def __post_init__(self) -> None:
        """Check the values."""
        _check_positive("epsilon", self.epsilon)
        _check_positive("budget", self.budget)
        _check_positive("delta", self.delta)
        if self.delta >= 1:
            raise UserError(f"delta must be below 1, and should be below 1 / number of rows; got {self.delta!r}")
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds))


@dataclass(frozen=True)
class Policy:
    """What a site lets out, whatever a job asks.

    Attributes:
        min_rows: with fewer rows the site takes no part.
        min_count: clusters, groups and cells of fewer rows never leave, even where a job's own min_count is lower.
        round_counts: numbers of rows leave as multiples of this.
        max_centroids: most centroids in one message, either way.
        max_rounds: most exchanges of one job with this site; by default what 100 rounds of `lloyd` need, and what is asked before and
            after them.
        arrays: names of the arrays that may leave; None for those that registered algorithms state.
        secure_sums: whether sums leave masked only, so that the server learns their total.
        dp: with it nothing leaves that is not differentially private.
        secure_min_sites: masked sums are of at least so many sites.
        secure_sites: names of the sites that may be among them; None for any of the federation.
    """

    min_rows: int = 1
    min_count: int = 10
    round_counts: int = 1
    max_centroids: int = 1000
    max_rounds: int = 120
    arrays: tuple[str, ...] | None = None
    secure_sums: bool = False
    dp: DifferentialPrivacy | None = None
    secure_min_sites: int = LEAST_SITES
    secure_sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("min_rows", "min_count", "round_counts", "max_centroids", "max_rounds"):
            check_int(name, getattr(self, name), least=1)
        check_bool("secure_sums", self.secure_sums)
        least, sites = self.secure_min_sites, self.secure_sites
        object.__setattr__(
            self, "secure_sites", check_sites_of_sums("secure_min_sites", least, "secure_sites", sites)[1]
        )
        if self.arrays is not None:
            names = list(self.arrays) if isinstance(self.arrays, list | tuple) else []
            if not names or not all(isinstance(name, str) and name for name in names):
                raise UserError(f"arrays must be a list of names, got {self.arrays!r}")
            object.__setattr__(self, "arrays", tuple(names))

    def least_rows(self, *, private: bool) -> int:
        """Return with how many rows a site takes part: fewer than a cluster must have cannot make one.

        Args:
            private: whether what leaves is differentially private, which needs no floor.
        """
        return self.min_rows if private else max(self.min_rows, self.min_count)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Policy":
        """Return the policy that a mapping with keys of a file states.

        Raises:
            UserError: a key is unknown, with the nearest known one, or a value is none that it can have.
        """
        if not isinstance(said, Mapping):
            raise UserError(f"a policy is a mapping of settings, got {type(said).__name__}")
        known = [DP if field.name == "dp" else field.name for field in fields(cls)]
        if said.get(_GONE) == "drop":  # in files of earlier releases, which wrote all settings
            said = {key: value for key, value in said.items() if key != _GONE}
        for key in said:
            if key not in known:
                raise UserError(f"a policy has no {key!r}{did_you_mean(key, known)}; it has {', '.join(known)}")
        values = {key: value for key, value in said.items() if key != DP and value is not None}
        return cls(**values, dp=None if said.get(DP) is None else _private(said[DP]))

    def to_json(self) -> dict[str, Any]:
        """Return the mapping that `of` takes; what has its default is there, too, so that a reader sees it."""
        said: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "dp"}
        said["arrays"] = None if self.arrays is None else list(self.arrays)
        said["secure_sites"] = None if self.secure_sites is None else list(self.secure_sites)
        if self.dp is not None:
            said[DP] = {"bounds": _plain(self.dp.bounds), **{name: getattr(self.dp, name) for name in _NUMBERS}}
        return said


_NUMBERS = ("epsilon", "delta", "budget")

#: A setting of 0.1. With "refuse" a server could find values by the refusals, so only what it has by default is read.
_GONE = "small"


def read_policy(source: str | Path | Mapping[str, Any]) -> Policy:
    """Return the policy in a YAML or JSON file, or in a mapping.

    Raises:
        UserError: the file cannot be read, or `Policy.of` refuses what it says.
    """
    if not isinstance(source, str | Path):
        return Policy.of(source)
    try:
        said = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the policy {source} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise UserError(f"the policy {source} is neither YAML nor JSON") from None
    return Policy.of({} if said is None else said)


def check_sites_of_sums(number: str, least: object, names: str, sites: object) -> tuple[int, tuple[str, ...] | None]:
    """Return the least number of sites of a masked sum, and the names of those that may be among them, if they can be.

    Args:
        number: what the setting with the number is called.
        least: the number.
        names: what the setting with the names is called.
        sites: the names, None for any.

    Raises:
        UserError: they cannot be.
    """
    found = check_int(number, least, least=LEAST_SITES)
    if sites is None:
        return found, None
    told = list(sites) if isinstance(sites, list | tuple) else []
    if not told or not all(isinstance(name, str) and name for name in told) or len(set(told)) < len(told):
        raise UserError(f"{names} must be a list of different names of sites, got {sites!r}")
    if len(told) < found:
        raise UserError(f"{names} has {len(told)} names where {number} asks for {found} sites")
    return found, tuple(told)


def _private(said: Any) -> DifferentialPrivacy:
    if not isinstance(said, Mapping):
        raise UserError(f"{DP} is a mapping with bounds, {', '.join(_NUMBERS)}; got {type(said).__name__}")
    known = ("bounds", *_NUMBERS)
    for key in said:
        if key not in known:
            raise UserError(f"{DP} has no {key!r}{did_you_mean(key, known)}; it has {', '.join(known)}")
    if missing := [key for key in known if said.get(key) is None]:
        raise UserError(f"{DP} must say {', '.join(missing)}: nothing is taken from the rows")
    return DifferentialPrivacy(**{key: _number(value) if key in _NUMBERS else value for key, value in said.items()})


def _number(value: Any) -> Any:
    """Return the number that a text such as "1e-6" is, which YAML takes for no number for want of a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check_positive(name: str, value: object) -> None:
    if not _is_number(value) or value <= 0:  # type: ignore[operator]
        raise UserError(f"{name} must be a number above 0, got {value!r}")


def _checked_bounds(bounds: object) -> Bounds:
    if isinstance(bounds, Mapping):
        return {str(name): _pair(pair, f"bounds of {name}") for name, pair in bounds.items()}
    if not isinstance(bounds, list | tuple) or not len(bounds):
        raise UserError(f"bounds are a pair [low, high], a list of pairs, or pairs by column; got {bounds!r}")
    if all(isinstance(value, Real) for value in bounds):
        return _pair(bounds, "bounds")
    return tuple(_pair(pair, f"bounds of column {j + 1}") for j, pair in enumerate(bounds))


def _pair(pair: Any, what: str) -> tuple[float, float]:
    good = isinstance(pair, list | tuple) and len(pair) == 2 and all(_is_number(value) for value in pair)
    if not good:
        raise UserError(f"{what}: expected a pair of numbers [low, high], got {pair!r}")
    low, high = float(pair[0]), float(pair[1])
    if low >= high:
        raise UserError(f"{what}: expected low below high, got {pair!r}")
    return low, high


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


def _plain(bounds: Bounds) -> Any:
    if isinstance(bounds, Mapping):
        return {name: list(pair) for name, pair in bounds.items()}
    return [list(pair) if isinstance(pair, tuple) else pair for pair in bounds]
