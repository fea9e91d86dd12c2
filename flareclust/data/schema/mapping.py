"""How one site's own file differs from the schema: names, units, spellings. The site states it, and nothing of it leaves.

In `local/flareclust.yaml` under `mapping`, or in a file of its own:

    encoding: latin-1
    decimal: ","
    missing: [k.A., "-9"]            # beside empty cells, NA, N/A, NaN and null
    columns:
      age:     {from: Alter, missing: 999}               # in this column, too
      tumour:  {from: Tumorgröße, factor: 10}            # the file has cm, the schema mm
      crea:    {from: Krea, units: {µmol/l: 1, mg/dl: 88.4}}   # cells such as "75 µmol/l"
      sex:     {from: Geschlecht, values: {w: f, m: m}}
      seen_on: {from: Aufnahme, date: "%d.%m.%Y"}
"""

import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings
from flareclust._foundation.validation import did_you_mean
from flareclust.data.schema.columns import TableSchema, as_number, as_word, by_name, read_settings

#: What is a missing cell at every site, beside an empty one.
MISSING = frozenset(("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"))

#: The date that a cell is, unless the mapping says so; a time of day may follow.
ISO_DATE = "%Y-%m-%d"


def _spelled(value: Any) -> Any:
    """Return how missing cells, or dates, are written, as texts; one spelling may stand alone."""
    several = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, str | int | float) for one in several):
        return value
    return tuple(as_word(one, "missing") for one in several)


class ColumnMapping(Settings):
    """Where a column's cells are, and what to make of them."""

    from_: str | None = Field(
        default=None, alias="from", description="The column's name in the file; that of the schema by default."
    )
    factor: float = Field(
        default=1.0, description="By what numbers are multiplied: 10 for a file in cm and a schema in mm."
    )
    offset: float = Field(default=0.0, description="What is added to numbers then.")
    units: Mapping[str, float] = Field(
        default_factory=dict, description="Units behind numbers, and the factor of each."
    )
    values: Mapping[str, str] = Field(
        default_factory=dict, description="The schema's value for each of the file's that differ."
    )
    date: tuple[str, ...] = Field(
        default=(ISO_DATE,), strict=False, description="Form of the dates, as Python's strptime: %d.%m.%Y; or several."
    )
    missing: tuple[str, ...] = Field(
        default=(), strict=False, description="Spellings of a missing cell in this column, beside those of all columns."
    )

    _as_spelled = field_validator("missing", "date", mode="before")(_spelled)

    @field_validator("values", "units", mode="before")
    @classmethod
    def _as_text(cls, values: Any, about: ValidationInfo) -> Any:
        if not isinstance(values, Mapping):
            return values
        agreed = as_number if about.field_name == "units" else as_word
        return {as_word(own): agreed(value) for own, value in values.items()}

    _as_number = field_validator("factor", "offset", mode="before")(as_number)

    @model_validator(mode="after")
    def _invertible(self) -> "ColumnMapping":
        if 0 in (self.factor, *self.units.values()):
            raise ValueError("factor must not be 0")
        return self


class TableMapping(Settings):
    """How a file is read, and its columns; as if nothing were said, all columns have the schema's names and units."""

    encoding: str = Field(default="utf-8", description="Encoding of a csv file: utf-8, latin-1, cp1252, ...")
    decimal: Literal[".", ","] = Field(
        default=".", description="What numbers in a csv file have before their fraction."
    )
    missing: tuple[str, ...] = Field(default=(), strict=False, description="Further spellings of a missing cell.")
    lacks: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Columns of the schema that the file does not have, for algorithms that take sites with different columns.",
    )
    columns: Mapping[str, ColumnMapping] = Field(
        default_factory=dict, description="The columns by their names in the schema."
    )

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"encoding {value!r} is unknown; utf-8, latin-1 and cp1252 are usual") from None

    _as_spelled = field_validator("missing", mode="before")(_spelled)

    @field_validator("lacks", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return tuple(str(one).strip() for one in value) if isinstance(value, list | tuple) else value

    @field_validator("columns", mode="before")
    @classmethod
    def _each(cls, columns: Any) -> Any:
        if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in columns):
            raise ValueError("columns must name columns of the schema: `age: {from: Alter}`")
        return by_name(columns, ColumnMapping, "from", "{from: Alter, factor: 10}")

    def of(self, name: str) -> ColumnMapping:
        """Return what is said of a column."""
        return self.columns.get(name) or ColumnMapping()

    def source(self, name: str) -> str:
        """Return what the file calls a column."""
        return self.of(name).from_ or name

    def spellings(self, name: str) -> frozenset[str]:
        """Return how a missing cell of a column is written in the file."""
        return MISSING | {*self.missing, *self.of(name).missing}

    def check(self, schema: TableSchema) -> None:
        """Raise UserError where this does not go with the schema."""
        outcome = () if schema.outcome is None else schema.outcome.columns
        for name in self.lacks:
            _check_known(name, schema)
            if name in self.columns or name not in (*schema.used, *outcome, *schema.ignored):
                raise UserError(
                    f"mapping: lacks names column {name!r}, which is no feature or is mapped; leave it out there"
                )
        if schema.used and set(schema.used) <= set(self.lacks):
            raise UserError("mapping: lacks names all features of the schema; a site needs one of them")
        for name, column in self.columns.items():
            _check_known(name, schema)
            if name in schema.ignored:
                continue  # mappings stay as they are where a schema leaves a column out
            known = schema.columns[name]
            of_type = f"mapping: column {name!r} is of type {known.type}"
            if (column.factor, column.offset, *column.units) != (1.0, 0.0) and known.type not in ("number", "weight"):
                raise UserError(f"{of_type}, which has no factor, no offset and no units")
            if column.date != (ISO_DATE,) and known.type != "date":
                raise UserError(f"{of_type} and has no form of dates")
            if column.values and known.values is None:
                raise UserError(f"{of_type} and has no values")
            if odd := sorted(set(column.values.values()) - set(known.values or ())):
                raise UserError(
                    f"mapping: column {name!r} maps to {odd[0]!r}, which is none of the schema's values"
                    f"{did_you_mean(odd[0], known.values or ())}"
                )


def _check_known(name: str, schema: TableSchema) -> None:
    if name not in schema.columns:
        raise UserError(f"mapping: the schema has no column {name!r}{did_you_mean(name, schema.columns)}")


def read_mapping(path: str | Path) -> TableMapping:
    """Return the mapping of a YAML file; raise UserError where it is none."""
    return read_settings(path, TableMapping)
