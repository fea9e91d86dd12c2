"""What a site lets out, whatever a job asks: the settings, checked, and where they are read from.

At a real site a policy stands in `local/privacy.json`, as the arguments of our two filters; in a simulation it is a file or a
mapping that holds at every site. Both have the same keys. Bounds of the rows are of each column, or a ball around whole rows.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.settings_file import NotPlain, parse_yaml, read_text
from flareclust._foundation.validation import check_bool, check_int, did_you_mean
from flareclust.privacy.dp.accounting import check_delta, check_epsilon
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.privacy.secure_aggregation.own_identity import FINGERPRINT
from flareclust.protocol.registry import executors


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


def _checked_bounds(bounds: object) -> Bounds:
    """Return bounds as a policy states them, or raise UserError."""
    if isinstance(bounds, Ball):
        return bounds
    if isinstance(bounds, Mapping) and isinstance(bounds.get("norm"), int | float | str):
        return _ball(bounds)
    if isinstance(bounds, Mapping):
        if len(names := set(map(str, bounds))) < len(bounds) or not names:
            raise UserError("bounds by column need names, each once")
        return {str(name): _pair(pair, f"bounds of {shown(str(name))}") for name, pair in bounds.items()}
    if not isinstance(bounds, list | tuple) or not len(bounds):
        raise UserError(
            f"bounds are a pair [low, high], a list of pairs, pairs by column, or a ball with norm and center; got {shown(bounds)}"
        )
    if all(isinstance(value, Real) for value in bounds):
        return _pair(bounds, "bounds")
    return tuple(_pair(pair, f"bounds of column {j + 1}") for j, pair in enumerate(bounds))


def _ball(settings: Mapping[Any, Any]) -> Ball:
    _check_keys(settings, ("norm", "center"), "bounds with a norm have", "they have")
    norm, center = _number(settings["norm"]), settings.get("center", 0.0)
    _check_positive("bounds: norm", norm)
    values = list(center.values()) if isinstance(center, Mapping) else center
    values = values if isinstance(values, list | tuple) else [values]
    if not values or not all(_is_number(value) for value in values):
        raise UserError(f"bounds: center must be a finite number, or one for each column; got {shown(center)}")
    if isinstance(center, Mapping):
        return Ball(float(norm), {str(name): float(value) for name, value in center.items()})
    return Ball(float(norm), tuple(map(float, center)) if isinstance(center, list | tuple) else float(center))


def _pair(pair: Any, what: str) -> tuple[float, float]:
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(_is_number(value) for value in pair)):
        raise UserError(f"{what}: expected a pair of finite numbers [low, high], got {shown(pair)}")
    low, high = float(pair[0]), float(pair[1])
    if low >= high:
        raise UserError(f"{what}: expected low below high, got {shown(pair)}")
    return low, high


def _number(value: Any) -> Any:
    """Return the number in a text such as "1e-6", which YAML reads as text because it has no decimal point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check_positive(name: str, value: object) -> None:
    """Raise UserError unless `value` is a finite number above 0."""
    if not _is_number(value) or value <= 0:  # type: ignore[operator]
        raise UserError(f"{name} must be a finite number above 0, got {shown(value)}")


def _is_number(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer beyond all floats
        return False


def _check_keys(settings: Mapping[Any, Any], known: Sequence[str], what: str, they: str = "it has") -> None:
    """Raise UserError where a key is none of those known, with the nearest of these."""
    for key in settings:
        if key not in known:
            raise UserError(f"{what} no {shown(key)}{did_you_mean(key, known)}; {they} {', '.join(known)}")


def _plain_bounds(bounds: Bounds) -> Any:
    """Return bounds as `_checked_bounds` takes them, as plain JSON."""
    if isinstance(bounds, Ball):
        center = bounds.center
        return {"norm": bounds.norm, "center": list(center) if isinstance(center, tuple) else center}
    if isinstance(bounds, Mapping):
        return {name: list(pair) for name, pair in bounds.items()}
    return [list(pair) if isinstance(pair, tuple) else pair for pair in bounds]


#: More than any table has rows, and no number that takes long to write.
_MOST = 10**9

#: The key of a policy's differential privacy in files.
DP = "differential_privacy"

#: Whose presence differential privacy protects: that of a row, or that of an id with all of its rows.
UNITS = (_PER_ROW, PER_ID) = ("row", "id")


@dataclass(frozen=True)
class DifferentialPrivacy:
    """What a site spends on jobs, in which every number that leaves it is differentially private.

    Attributes:
        bounds: between which the site's values are clipped, known without a look at the rows.
        epsilon: the most that one job may spend, at `delta`.
        delta: of all statements here, below 1 / number of rows.
        budget: the most that all jobs together may spend, as an epsilon at the same `delta`.
        colluding: how many sites of a masked sum may tell the server their shares of its noise, at least, for this site to add
            only a share; None for a third of the policy's `secure_sites`.
        unit: what all of this is about: a row, or an id with all of its rows at this site.
    """

    bounds: Bounds
    epsilon: float
    delta: float
    budget: float
    colluding: int | None = None
    unit: str = _PER_ROW

    def __post_init__(self) -> None:
        """Check the values."""
        for name in _NUMBERS:
            _check_positive(name, getattr(self, name))
        if self.colluding is not None:
            check_int("colluding", self.colluding, minimum=1)
        if self.unit not in UNITS:
            raise UserError(
                f"unit must be one of {', '.join(UNITS)}, got {self.unit!r}{did_you_mean(str(self.unit), UNITS)}"
            )
        check_epsilon("epsilon", self.epsilon)
        check_epsilon("budget", self.budget)
        check_delta("delta", self.delta)
        if self.epsilon > self.budget:
            raise UserError(
                f"epsilon={self.epsilon:g} for one job is more than the budget of {self.budget:g} for all jobs together; lower "
                "the one or raise the other"
            )
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
        secure_identities: the fingerprints of sites' own identities, by site. Of these sites only a key counts that one of them has
            signed; of the others the certificate of the kit.
        max_numbers_per_row: most numbers in one message for each row, numbers of rows not counted; None for no limit.
        max_levels_per_row: most categories of a column for each row; None for no limit.
        share_rules: whether the lead of the federation may see what this policy says.
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
    secure_identities: Mapping[str, tuple[str, ...]] | None = None
    max_numbers_per_row: float | None = None
    max_levels_per_row: float | None = None
    share_rules: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("min_rows", "min_count", "round_counts", "max_centroids", "max_rounds"):
            if check_int(name, getattr(self, name), minimum=1) > _MOST:
                raise UserError(f"{name} must be at most {_MOST:,}, which is more than any table has rows")
        check_bool("secure_sums", self.secure_sums)
        check_bool("share_rules", self.share_rules)
        for name in ("max_numbers_per_row", "max_levels_per_row"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        sums = ("secure_min_sites", self.secure_min_sites, "secure_sites", self.secure_sites)
        object.__setattr__(self, "secure_sites", check_sites_of_sums(*sums)[1])
        object.__setattr__(self, "secure_identities", _checked_pins(self.secure_identities, self.secure_sites))
        if self.arrays is not None:
            if not (names := _names(self.arrays)):
                raise UserError(f"arrays must be a list of names, got {self.arrays!r}")
            object.__setattr__(self, "arrays", tuple(names))

    def least_rows(self, *, private: bool) -> int:
        """Return with how many rows a site takes part: fewer than a cluster must have cannot make one.

        Args:
            private: whether what leaves is differentially private, which needs no floor.
        """
        return self.min_rows if private else max(self.min_rows, self.min_count)

    def among(self, sites: Sequence[str]) -> "Policy":
        """Return the policy at the sites of a simulation: with one noise for all of them they name each other, unless it names some."""
        if self.dp is None or self.secure_sites is not None or len(sites) < self.secure_min_sites:
            return self
        return replace(self, secure_sites=tuple(sites))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Policy":
        """Return the policy that a mapping with keys of a file states.

        Raises:
            UserError: a key is unknown, with the nearest known one, or a value is none that it can have.
        """
        if not isinstance(settings, Mapping):
            raise UserError(f"a policy is a mapping of settings, got {type(settings).__name__}")
        known = [DP if field.name == "dp" else field.name for field in fields(cls)]
        _check_keys(settings, known, "a policy has")
        values = {key: value for key, value in settings.items() if key != DP and value is not None}
        return cls(**values, dp=None if settings.get(DP) is None else _private(settings[DP]))

    @cached_property
    def stated(self) -> dict[str, Any]:
        """Return `to_json` as JSON gives it back."""
        return json.loads(json.dumps(self.to_json()))  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        """Return the mapping that `of` takes; what has its default is there, too, so that a reader sees it."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "dp"}
        settings = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        if self.secure_identities is not None:
            settings["secure_identities"] = {site: list(pins) for site, pins in self.secure_identities.items()}
        if self.dp is not None:
            numbers = {name: getattr(self.dp, name) for name in _NUMBERS}
            colluding = {} if self.dp.colluding is None else {"colluding": self.dp.colluding}
            unit = {} if self.dp.unit == _PER_ROW else {"unit": self.dp.unit}
            settings[DP] = {"bounds": _plain_bounds(self.dp.bounds), **numbers, **colluding, **unit}
        return settings


_NUMBERS = ("epsilon", "delta", "budget")


def read_policy(source: str | Path | Mapping[str, Any]) -> Policy:
    """Return the policy in a YAML or JSON file, or in a mapping.

    Raises:
        UserError: the file cannot be read, `Policy.of` refuses what it says, or it names arrays that no algorithm sends.
    """
    if not isinstance(source, str | Path):
        return _with_known_arrays(source)
    try:
        settings = parse_yaml(read_text(Path(source)))  # JSON is a part of YAML
    except OSError as error:
        raise UserError(f"the policy {source} cannot be read: {error.strerror}") from None
    except NotPlain as reason:
        raise UserError(f"the policy {source} {reason}") from None
    if not settings and not isinstance(settings, list):
        raise UserError(f"the policy {source} has no settings; without a file you get the recommended ones")
    try:
        return _with_known_arrays(settings)
    except UserError as error:
        raise UserError(f"the policy {source}: {error}") from None


def _with_known_arrays(settings: Mapping[str, Any]) -> Policy:
    policy = Policy.of(settings)
    if unknown := unknown_arrays(policy):
        raise UserError(f"arrays has what no registered algorithm sends: {', '.join(unknown)}")
    return policy


def summary(policy: Policy) -> dict[str, str]:
    """Return what a policy holds jobs to, a line for each subject."""
    dp, counts = policy.dp, policy.round_counts
    return {
        "rows": f"takes part with {policy.least_rows(private=dp is not None)} or more",
        "small clusters": f"of fewer than {policy.min_count} rows are left out",
        "numbers of rows": "exact" if counts == 1 else f"multiples of {counts}",
        "one message": f"at most {policy.max_centroids} centroids",
        "one job": f"at most {policy.max_rounds} exchanges",
        "saturation": _limits(policy),
        "arrays": "those of registered algorithms" if policy.arrays is None else ", ".join(policy.arrays),
        "sums": "masked only" if policy.secure_sums else "as they are",
        "masked sums": f"of at least {policy.secure_min_sites} sites"
        + ("" if policy.secure_sites is None else f", of {', '.join(policy.secure_sites)} only")
        + "".join(f"; {site} is {' or '.join(pins)}" for site, pins in (policy.secure_identities or {}).items()),
        "differential privacy": f"none; with fewer than {policy.min_count} rows of a cluster at each of many sites, noise costs less than groups"
        if dp is None
        else f"at most epsilon {dp.epsilon:g} for a job and {dp.budget:g} for all, at delta {dp.delta:g}, for each {dp.unit}"
        + ("" if dp.colluding is None else f"; at least {dp.colluding} sites may collude"),
        "its rules": "the lead may see them" if policy.share_rules else "nobody else sees them",
    }


def _limits(policy: Policy) -> str:
    limits = {"numbers of a message": policy.max_numbers_per_row, "categories of a column": policy.max_levels_per_row}
    given = [f"{limit:g} {what}" for what, limit in limits.items() if limit is not None]
    return f"for each row at most {' and '.join(given)}" if given else "no limit"


def unknown_arrays(policy: Policy) -> list[str]:
    """Return which names of arrays in a policy no algorithm sends that is registered here, each with the nearest known one."""
    if policy.arrays is None:
        return []
    steps = (step for executor in executors().values() for step in executor.job_steps().values())
    known = sorted({name for step in steps for name in step.schema.fields})
    return [f"{name!r}{did_you_mean(name, known)}" for name in policy.arrays if name not in known]


def check_sites_of_sums(number: str, minimum: object, names: str, sites: object) -> tuple[int, tuple[str, ...] | None]:
    """Return the least number of sites of a masked sum, and the names of those that may be among them, if they can be.

    Args:
        number: what the setting with the number is called.
        minimum: the number.
        names: what the setting with the names is called.
        sites: the names, None for any.

    Raises:
        UserError: they cannot be.
    """
    found = check_int(number, minimum, minimum=LEAST_SITES)
    if sites is None:
        return found, None
    named = _names(sites)
    if not named or len(set(named)) < len(named):
        raise UserError(f"{names} must be a list of different names of sites, got {sites!r}")
    if len(named) < found:
        raise UserError(f"{names} has {len(named)} names where {number} asks for {found} sites")
    return found, tuple(named)


def _checked_pins(pins: object, sites: Sequence[str] | None) -> dict[str, tuple[str, ...]] | None:
    """Return the fingerprints by site as a policy states them; UserError where they are none, or of a site outside of `sites`."""
    if pins is None:
        return None
    stated = pins if isinstance(pins, Mapping) else {}
    named = _names(list(stated))
    found = {site: tuple(_names(own)) for site, own in zip(named, stated.values(), strict=False)}
    every = [pin for own in found.values() for pin in own]
    if len(found) < max(len(named), 1) or not all(found.values()) or not all(map(FINGERPRINT.fullmatch, every)):
        raise UserError(
            "secure_identities must have a list of fingerprints for each site, as `flareclust site identity KIT` prints them there "
            f"(SHA256: and 43 letters, digits, + or /), got {shown(pins)}"
        )
    if len(set(every)) < len(every):
        raise UserError("secure_identities has a fingerprint twice; each site has its own, which its operator says")
    if sites is not None and (others := [site for site in found if site not in sites]):
        raise UserError(
            f"secure_identities has {', '.join(others)}, which secure_sites does not name: {', '.join(sites)}; name the site in both, "
            "or in neither"
        )
    return found


def _names(value: object) -> list[str]:
    """Return the names in a list, without spaces around them; none where it is no list of texts that are not empty."""
    names = list(value) if isinstance(value, list | tuple) else []
    return [name.strip() for name in names] if all(isinstance(name, str) and name.strip() for name in names) else []


def _private(settings: Any) -> DifferentialPrivacy:
    if not isinstance(settings, Mapping):
        raise UserError(f"{DP} is a mapping with bounds, {', '.join(_NUMBERS)}; got {type(settings).__name__}")
    needed = ("bounds", *_NUMBERS)
    _check_keys(settings, (*needed, "colluding", "unit"), f"{DP} has")
    if missing := [key for key in needed if settings.get(key) is None]:
        advice = "; bounds are never computed from the rows" if "bounds" in missing else ""
        raise UserError(f"{DP} needs {', '.join(missing)}{advice}")
    return DifferentialPrivacy(**{key: _number(value) if key in _NUMBERS else value for key, value in settings.items()})
