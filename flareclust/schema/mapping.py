"""How one site's own file maps to the federation's schema; the site states it, and nothing of it leaves.

In `local/flareclust.yaml` under `mapping`, or in a file of its own:

    encoding: latin-1
    decimal: ","
    missing: [k.A., "-9"]            # beside empty cells, NA, N/A, NaN and null
    columns:
      age:     {from: Alter}
      tumour:  {from: Tumorgröße, factor: 10}            # the file has cm, the schema mm
      sex:     {from: Geschlecht, values: {w: f, m: m}}
      seen_on: {from: Aufnahme, date: "%d.%m.%Y"}
"""

import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings
from flareclust._foundation.validation import did_you_mean
from flareclust.schema.columns import TableSchema, read_mapping_file

#: The date that a cell is, unless the mapping says so; a time of day may follow.
ISO_DATE = "%Y-%m-%d"


class ColumnMapping(Settings):
    """Where a column's cells are, and what to make of them."""

    from_: str | None = Field(
        default=None, alias="from", description="The column's name in the file; that of the schema by default."
    )
    factor: float = Field(
        default=1.0, description="By what numbers are multiplied: 10 for a file in cm and a schema in mm."
    )
    offset: float = Field(default=0.0, description="What is added to numbers then.")
    values: Mapping[str, str] = Field(
        default_factory=dict, description="The schema's value for each of the file's that differ."
    )
    date: str = Field(default=ISO_DATE, description="Form of the dates, as Python's strptime: %d.%m.%Y.")

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if any(isinstance(one, bool) for pair in values.items() for one in pair):
            raise ValueError("values: YAML reads yes, no, on and off as true and false; put them in quotes")
        return {str(own).strip(): str(agreed).strip() for own, agreed in values.items()}

    @field_validator("factor", "offset", mode="before")
    @classmethod
    def _as_number(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _invertible(self) -> "ColumnMapping":
        if self.factor == 0:
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

    @field_validator("missing", "lacks", mode="before")
    @classmethod
    def _spellings(cls, value: Any) -> Any:
        return tuple(str(one).strip() for one in value) if isinstance(value, list | tuple) else value

    @field_validator("columns", mode="before")
    @classmethod
    def _each(cls, columns: Any) -> Any:
        if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in columns):
            raise ValueError("columns must name columns of the schema: `age: {from: Alter}`")
        found = {}
        for name, column in columns.items():
            given = {"from": column} if isinstance(column, str) else column
            if isinstance(given, ColumnMapping):
                found[name] = given
                continue
            if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
                raise ValueError(f"column {name!r}: expected settings such as {{from: Alter, factor: 10}}")
            try:
                found[name] = ColumnMapping(**given)
            except UserError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return found

    def of(self, name: str) -> ColumnMapping:
        """Return what is said of a column."""
        return self.columns.get(name) or ColumnMapping()

    def source(self, name: str) -> str:
        """Return what the file calls a column."""
        return self.of(name).from_ or name

    def check(self, schema: TableSchema) -> None:
        """Raise UserError where this does not go with the schema."""
        for name in self.lacks:
            if name not in schema.columns:
                raise UserError(f"mapping: the schema has no column {name!r}{did_you_mean(name, schema.columns)}")
            if name not in schema.used or name in self.columns:
                raise UserError(
                    f"mapping: lacks names column {name!r}, which is no feature or is mapped; leave it out there"
                )
        if schema.used and set(schema.used) <= set(self.lacks):
            raise UserError("mapping: lacks names all features of the schema; a site needs one of them")
        for name, column in self.columns.items():
            if name not in schema.columns:
                raise UserError(f"mapping: the schema has no column {name!r}{did_you_mean(name, schema.columns)}")
            known = schema.columns[name]
            if (column.factor, column.offset) != (1.0, 0.0) and known.type not in ("number", "weight"):
                raise UserError(f"mapping: column {name!r} is of type {known.type}, which has no factor and no offset")
            if column.date != ISO_DATE and known.type != "date":
                raise UserError(f"mapping: column {name!r} is of type {known.type} and has no form of dates")
            if column.values and known.values is None:
                raise UserError(f"mapping: column {name!r} is of type {known.type} and has no values")
            if odd := sorted(set(column.values.values()) - set(known.values or ())):
                raise UserError(
                    f"mapping: column {name!r} maps to {odd[0]!r}, which is none of the schema's values"
                    f"{did_you_mean(odd[0], known.values or ())}"
                )


def read_mapping(path: str | Path) -> TableMapping:
    """Return the mapping of a YAML file; raise UserError where it is none."""
    values = read_mapping_file(Path(path))
    try:
        return TableMapping(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
