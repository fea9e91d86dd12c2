"""What `flareclust site init` makes of its options: places as the kit sees them, and the mapping that belongs to the rows."""

import re
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings_file import read_mapping_file
from flareclust.data.schema.columns import read_schema
from flareclust.data.schema.mapping import read_mapping
from flareclust.data.sql_tables import PREFIX
from flareclust.experiment.tables.typed_files import mapping_file

#: A SQLite database by a relative path.
_RELATIVE = re.compile(r"(sql\+sqlite(?:\+\w+)?:///)(?!/)([^?]+)(.*)")


def seen_from_kit(rows: str, query: str | None, password: str | None) -> dict[str, Any]:
    """Return rows, query and password of a site as its configuration has them: files by their full paths."""
    if query is not None and query.endswith(".sql"):
        if not Path(query).is_file():
            raise UserError(f"--query names {query}, and there is no such file")
        query = str(Path(query).absolute())
    if password is not None and password.startswith("file:"):
        password = f"file:{Path(password.removeprefix('file:')).absolute()}"
    if not rows.startswith(PREFIX):
        rows = str(Path(rows).absolute())
    elif relative := _RELATIVE.fullmatch(rows):
        rows = f"{relative[1]}{Path(relative[2]).absolute()}{relative[3]}"
    return {"rows": rows, "query": query, "password": password}


def mapping_of_rows(rows: str, schema: str | None, given: Path | None) -> tuple[dict[str, Any] | None, str]:
    """Return the mapping that the configuration gets, and a line that says where it is from, "" where there is none.

    UserError where it cannot be read, or does not go with the schema.
    """
    file = given or mapping_file(Path(rows))
    if given is None and (rows.startswith(PREFIX) or not file.is_file()):
        return None, ""
    if schema is None:
        if given is not None:
            raise UserError("--mapping says how files differ from a schema; name it, too: --schema")
        return None, f"not used: {file}, which maps to a schema (--schema)"
    read_mapping(file).check(read_schema(schema))
    return read_mapping_file(file), f"mapping: copied from {file}; edit it in the new file"
