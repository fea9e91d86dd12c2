"""What every column of a federation's tables holds, agreed once and checked at every site.

A schema is a YAML file:

    missing: refuse                                  # of all columns that do not say otherwise
    duplicates: first                                # of several rows with one id, the first
    columns:
      patient: {type: id}
      age:     {type: number, unit: years, range: [0, 120]}
      crp:     {type: number, unit: mg/l, range: [0, 500], transform: log}
      sex:     {type: category, values: [f, m]}
      stage:   {type: ordered, values: [I, II, III, IV], missing: drop-rows}
      seen_on: {type: date, range: [2020-01-01, 2026-12-31]}
      born:    {type: date, as: age, reference: 2026-12-31, range: [0, 120]}
      days:    {type: number, unit: d, range: [0, 4000]}
      died:    {type: category, values: ["no", "yes"]}
      remark:  {type: ignore}
    outcome: {time: days, event: died=yes, every: 30, until: 1800}   # no feature; or {value: COLUMN}

How one site's own file maps to it is in `flareclust.data.schema.mapping`.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from pydantic import Field, field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings
from flareclust._foundation.settings_file import read_mapping_file
from flareclust.core.outcomes import OutcomeForm
from flareclust.data.cells import DAYS, YEARS, aged, logged, ordered
from flareclust.data.ids import Duplicates
from flareclust.data.schema.outcome import OutcomeSchema

_Type = Literal["number", "category", "ordered", "date", "id", "weight", "ignore"]
Missing = Literal["refuse", "drop-rows", "as-category", "mean", "partial"]

#: Missing cells that stay in the rows, as NaN, since a job fills them or leaves them open.
LEFT_TO_JOBS: tuple[Missing, ...] = ("mean", "partial")


#: Most values of a category, and most rows that a row counts as.
_MOST_VALUES = MOST_WEIGHT = 1000


_Column = TypeVar("_Column", bound=Settings)


def by_name(columns: Mapping[Any, Any], column: type[_Column], key: str, expected: str) -> dict[str, _Column]:
    """Return the settings of each column, where a text stands for that of one key; ValueError where they are wrong."""
    found = {}
    for name, value in columns.items():
        given = {key: value} if isinstance(value, str) else value
        if not isinstance(given, dict | column) or not all(isinstance(one, str) for one in dict(given)):
            raise ValueError(f"column {name!r}: expected settings such as {expected}")
        try:
            found[name] = column(**given) if isinstance(given, dict) else given
        except UserError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return found


def as_word(value: Any, key: str = "values") -> str:
    """Return a value of a column, or a spelling, as text; ValueError, with the key that has it, for what YAML made of yes and no."""
    if value is True or value is False:
        raise ValueError(
            f'{key}: YAML reads yes, no, on and off as true and false; put them in quotes, such as ["no", "yes"]'
        )
    return str(value).strip()


def _no_spelling(value: Any) -> Any:
    """Return what a missing cell means; ValueError for how it is written, which the sites say."""
    if isinstance(value, str | None):
        return value
    raise ValueError(
        f"missing: a schema says what a missing cell means ({', '.join(get_args(Missing))}); how it is written, such as 999, each site "
        "says under missing: in its mapping, of all columns or of one"
    )


def as_number(value: Any) -> Any:
    """Return an integer as a float, all else as it is."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class ColumnSchema(Settings):
    """One column.

    A number is a feature as it is, a date in days since 1970-01-01, an ordered value by its place 0, 1, ... in `values`. A
    category becomes one feature of 0 and 1 for each of its values, called `sex=f`. A number with transform: log is the natural
    logarithm of 1 + itself, called `log1p(crp)`. A date with as: age is the number of years before the reference, of 365.25 days,
    called `age(born, 2026-12-31)`; its range is of years.
    """

    type: _Type = Field(description="What the cells are: number, category, ordered, date, id, weight or ignore.")
    unit: str | None = Field(default=None, description="Unit of the numbers; sites with another one state a factor.")
    range: tuple[float | str, float | str] | None = Field(
        default=None, strict=False, description="The least and the largest plausible number, or date."
    )
    transform: Literal["log"] | None = Field(
        default=None,
        description="log: the feature is log(1 + number), for skewed numbers of 0 and more; None for the number itself.",
    )
    as_: Literal["age"] | None = Field(
        default=None,
        alias="as",
        description="age: the feature is the years from a date to the reference; None for the date.",
    )
    reference: str | None = Field(
        default=None, description="The date at which ages are, the same at all sites: 2026-12-31."
    )
    values: tuple[str, ...] | None = Field(
        default=None, strict=False, description="The values of a category; of an ordered column in their order."
    )
    missing: Missing | None = Field(
        default=None,
        description="What a missing cell means: refuse, drop-rows, as-category, mean or partial; None for what the schema says of all columns.",
    )

    _as_meant = field_validator("missing", mode="before")(_no_spelling)

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        if not isinstance(values, list | tuple):
            return values
        texts = tuple(map(as_word, values))
        if len(set(texts)) < len(texts) or "" in texts:
            raise ValueError("values must differ and not be empty")
        if not 1 <= len(texts) <= _MOST_VALUES:
            raise ValueError(f"values must be a list of 1 to {_MOST_VALUES} values")
        return texts

    @field_validator("range", mode="before")
    @classmethod
    def _as_dates(cls, bounds: Any) -> Any:
        if not isinstance(bounds, list | tuple):
            return bounds
        return tuple(one.isoformat()[:10] if isinstance(one, datetime.date) else as_number(one) for one in bounds)

    @field_validator("reference", mode="before")
    @classmethod
    def _as_iso_date(cls, reference: Any) -> Any:
        try:
            text = reference.isoformat()[:10] if isinstance(reference, datetime.date) else reference
            return datetime.date.fromisoformat(text).isoformat() if isinstance(text, str) else text
        except ValueError:
            raise ValueError("reference must be a date such as 2024-12-31") from None

    @model_validator(mode="after")
    def _fits_its_type(self) -> "ColumnSchema":
        of_type = f"a column of type {self.type}"
        if (self.values is None) == (self.type in ("category", "ordered")):
            raise ValueError(f"{of_type} {'needs a list of values' if self.values is None else 'has no values'}")
        if self.range is not None and self.type not in ("number", "date"):
            raise ValueError(f"{of_type} has no range")
        if self.unit is not None and self.type != "number":
            raise ValueError(f"{of_type} has no unit")
        if self.transform is not None and self.type != "number":
            raise ValueError(f"{of_type} has no transform")
        if self.as_ is not None and self.type != "date":
            raise ValueError(f"{of_type} has no as: {self.as_}, which is for dates")
        if (self.as_ is None) != (self.reference is None):
            raise ValueError(
                "as: age and reference go together: the date at which ages are, as reference: 2024-12-31, the same at all sites"
            )
        if self.missing == "as-category" and self.type != "category":
            raise ValueError("missing: as-category is for columns of type category")
        if self.range is not None:
            low, high = self.bounds
            if not low < high:
                raise ValueError("range: the first bound must be less than the second")
            if self.transform == "log" and low < 0:
                raise ValueError("transform: log is for numbers of 0 and more; begin the range at 0 or above")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the range in numbers, of a date in days, of an age in years; without one, all numbers."""
        if self.range is None:
            return -float("inf"), float("inf")
        days = self.type == "date" and self.as_ is None
        low, high = (days_of(bound) if days and isinstance(bound, str) else bound for bound in self.range)
        if not isinstance(low, str) and not isinstance(high, str):
            return float(low), float(high)
        raise ValueError(f"range must be two numbers{'' if self.as_ is None else ', of years'}")

    @property
    def feature_unit(self) -> str:
        """Return the unit of the feature, "" for none: `DAYS` of a date, years of an age, a `logged` one with transform: log, and the
        values of an `ordered` column."""
        if self.type == "ordered":
            return ordered(self.values or ())
        if self.type == "date":
            return DAYS if self.as_ is None else YEARS
        return logged(self.unit or "") if self.transform == "log" else self.unit or ""


class TableSchema(Settings):
    """All columns; the order of the features is that of the columns here, whatever a site's file has."""

    missing: Missing = Field(default="refuse", description="What a missing cell means where its column does not say.")
    duplicates: Duplicates = Field(
        default="keep",
        description="What becomes of several rows with one id: refuse, first or last (that one is kept), or keep, for all of them.",
    )
    columns: Mapping[str, ColumnSchema] = Field(description="The columns by name.")
    outcome: OutcomeSchema | None = Field(
        default=None, description="What happened to the rows, which is compared over clusters and enters none of them."
    )

    _as_meant = field_validator("missing", mode="before")(_no_spelling)

    @field_validator("columns", mode="before")
    @classmethod
    def _each(cls, columns: Any) -> Any:
        if not isinstance(columns, Mapping) or not columns:
            raise ValueError("columns must name each column with its type: `age: {type: number}`")
        for name in columns:
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"columns: the name {name!r} must be text; put it in quotes")
        return by_name(columns, ColumnSchema, "type", f"{{type: number}}, or one of {', '.join(get_args(_Type))}")

    @model_validator(mode="after")
    def _usable(self) -> "TableSchema":
        if self.missing == "as-category":
            raise ValueError("missing: as-category is for single columns of type category")
        for kind in ("id", "weight"):
            if len(names := self._of_type(kind)) > 1:
                raise ValueError(f"columns: {', '.join(names)} are all of type {kind}; one at most can be")
        if self.duplicates != "keep" and self.id is None:
            raise ValueError(f"duplicates: {self.duplicates} is of rows with one id; give the column with ids type: id")
        if len(set(self.left_to_jobs.values())) > 1:
            raise ValueError(f"missing: a job takes one of {' and '.join(LEFT_TO_JOBS)} for all columns; choose one")
        if self.outcome is not None:
            if self.weight is not None:
                raise ValueError("outcome: not with a column of type weight, whose rows stand for several")
            self.outcome.check(self.columns)
        features = self.features
        if not features:
            raise ValueError("columns: none of them is a feature (number, category, ordered or date)")
        if len(set(features)) < len(features):
            raise ValueError(
                "columns: two features have the same name, such as a column 'sex=f' beside a category 'sex'"
            )
        return self

    @property
    def outcome_form(self) -> OutcomeForm | None:
        """Return how rows are counted by their outcome; None where the schema names none."""
        return None if self.outcome is None else self.outcome.form(self.columns)

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Return what the outcome is called, see `OutcomeSchema.names`; empty without one."""
        return () if self.outcome is None else self.outcome.names(self.columns)

    @property
    def outcome_hint(self) -> str:
        """Return a sentence where features may tell the outcome, see `OutcomeSchema.hint`; "" for none."""
        return "" if self.outcome is None else self.outcome.hint(self.used)

    @property
    def id(self) -> str | None:
        """Return the name of the column with ids, None where there is none."""
        return next(iter(self._of_type("id")), None)

    @property
    def weight(self) -> str | None:
        """Return the name of the column that says how many rows a row counts as, None where there is none."""
        return next(iter(self._of_type("weight")), None)

    @property
    def ignored(self) -> list[str]:
        """Return the names of the columns that are not read."""
        return self._of_type("ignore")

    def _of_type(self, kind: _Type) -> list[str]:
        return [name for name, column in self.columns.items() if column.type == kind]

    @property
    def used(self) -> dict[str, ColumnSchema]:
        """Return the columns that are features."""
        others = () if self.outcome is None else self.outcome.columns
        no_feature = ("id", "weight", "ignore")
        return {name: one for name, one in self.columns.items() if one.type not in no_feature and name not in others}

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features (d), a category's values among them."""
        return tuple(feature for name, column in self.used.items() for feature in features_of(name, column))

    @property
    def categories(self) -> list[list[int]]:
        """Return the features of each category, as their places among all features."""
        places = count()
        groups = [(one, [next(places) for _ in features_of(name, one)]) for name, one in self.used.items()]
        return [group for column, group in groups if column.type == "category"]

    @property
    def units_differ(self) -> bool:
        """Return whether distances would add up unlike things: numbers of different units, or numbers beside other types."""
        kinds = {"number" if column.as_ == "age" else column.type for column in self.used.values()}
        transforms = {column.transform for column in self.used.values()}
        units = {YEARS if column.as_ == "age" else column.unit for column in self.used.values()} - {None}
        return max(len(units), len(transforms)) > 1 or ("number" in kinds and len(kinds) > 1)

    @property
    def feature_units(self) -> tuple[str, ...]:
        """Return the unit of each feature (d), see `ColumnSchema.feature_unit`."""
        return tuple(one.feature_unit for name, one in self.used.items() for _ in features_of(name, one))

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """Return the columns whose cells are words and features numbers: with the values of an ordered one, none for a date."""
        words = {name: one for name, one in self.used.items() if one.type in ("ordered", "date") and one.as_ is None}
        return {name: one.values or () for name, one in words.items()}

    @property
    def left_to_jobs(self) -> dict[str, Missing]:
        """Return the columns whose missing cells a job fills or leaves open, and which of the two."""
        return {name: how for name in self.used if (how := self.missing_of(name)) in LEFT_TO_JOBS}

    @property
    def ranges(self) -> list[list[float] | None]:
        """Return the least and largest value of each feature (d); None where the schema does not say."""
        found: list[list[float] | None] = []
        for name, column in self.used.items():
            if column.type == "category":
                found += [[0.0, 1.0]] * len(features_of(name, column))
            elif column.type == "ordered":
                last = len(column.values or ()) - 1
                found.append([0.0, float(last)] if last else None)
            elif column.range is None:
                found.append(None)
            else:
                bounds = np.log1p(column.bounds) if column.transform == "log" else column.bounds
                found.append([float(bound) for bound in bounds])
        return found

    def missing_of(self, name: str) -> Missing:
        """Return what a missing cell of a column means."""
        return self.columns[name].missing or self.missing

    @property
    def fingerprint(self) -> str:
        """Return a hash of all that decides what features mean: equal at sites with the same schema, in any layout."""
        # A schema without transforms and ages has the fingerprint that it had before there were any.
        later = ("transform", "as_", "reference")
        plain = {name: {key for key in later if getattr(one, key) is None} for name, one in self.used.items()}
        columns = [[name, one.model_dump(mode="json", exclude=plain[name])] for name, one in self.used.items()]
        described: dict[str, Any] = {"missing": self.missing, "columns": columns}
        described |= {} if self.weight is None else {"weight": self.weight}
        if self.outcome is not None:
            own = [[name, self.columns[name].model_dump(mode="json")] for name in self.outcome.columns]
            described["outcome"] = [self.outcome.model_dump(mode="json"), own]
        described |= {} if self.duplicates == "keep" else {"duplicates": [self.id, self.duplicates]}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def features_of(name: str, column: ColumnSchema) -> list[str]:
    """Return the names of a column's features: its own, that of its logarithm or age, or one for each value of a category."""
    if column.transform == "log":
        return [logged(name)]
    if column.reference is not None:
        return [aged(name, column.reference)]
    if column.type != "category":
        return [name]
    more = ["missing"] if column.missing == "as-category" else []
    return [f"{name}={value}" for value in (*(column.values or ()), *more)]


def days_of(text: str) -> float:
    """Return an ISO date in days since 1970-01-01; ValueError for another text."""
    try:
        return float((datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days)
    except ValueError:
        raise ValueError("range of a date must be two dates such as 2024-12-31") from None


def read_schema(path: str | Path) -> TableSchema:
    """Return the schema of a YAML file; UserError where it cannot be read, or is none, with the column that is wrong."""
    return read_settings(path, TableSchema)


def read_settings(path: str | Path, model: type[_Column]) -> _Column:
    """Return the settings of a YAML file; UserError where it cannot be read, or holds others."""
    values = read_mapping_file(Path(path))
    try:
        return model(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
