"""The query that a site's configuration names in the place of files."""

from pathlib import Path

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.extras import require
from flareclust.data.sql_tables import Query
from flareclust.sites.config import SiteConfig, odd


def query_of(config: SiteConfig, address: str, local: Path) -> Query:
    """Return the query of a configuration in the folder `local`, to which files are relative.

    Raises:
        Refusal: the address or the query cannot be used, or SQLAlchemy is missing.
    """
    try:
        require("sql", "a database (path: sql+...)")
    except UserError as error:
        raise Refusal(f"cannot use its rows: {error}") from None
    try:
        return Query.of(address, config.query or "", local, config.password)
    except UserError as error:
        raise odd(str(error)) from None
