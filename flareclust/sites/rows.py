"""Where a site's rows come from: the site says so in its own `local/flareclust.yaml`, never the job.

The simulator and real deployments use the same file; the simulator's copy has a path for each site. Example:

    path: /secure/data/{site}.parquet   # npy, npz, csv, parquet or arrow; a pattern; a folder of images; or a path for each site by name
    format: csv                         # optional: where the files' names do not show it
    root: /secure/data                  # optional: where every file must lie; by default the folder that `path` names
    columns: [age, crp, lactate]        # optional: these, in this order
    id: patient                         # optional: no feature; it goes into the labels file, which stays
    min_rows: 100                       # optional: with fewer rows the site refuses; max_rows: with more
    memory: 4GB                         # optional: most bytes of rows in memory; by default a quarter of the machine's
    scratch: /secure/scratch            # optional: folder for rows that do not fit; by default the job's
    labels: /secure/labels              # optional: folder for the labels, <job id>.csv; by default labels.csv in the job's
    account: cohort-2                   # optional: name or folder of the account of privacy; by default that of the place
    compute: dask://10.0.0.5:8786       # optional: the site's Dask cluster, which then reads the rows and computes
    agreement: may-lack                 # optional: "exact" refuses a file with other columns, "may-lack" takes those it has
    salt: a secret of several sites     # optional: names of columns are compared by hashes with this salt
    hide: [lactate]                     # optional: names that do not leave the site, or true for all; needs the salt
    schema: /consortium/schema.yaml     # optional: the federation's schema; in the place of columns, id and agreement
    path: sql+postgresql://reader@db/omop  # instead: a database, with the query, or the file NAME.sql that has it
    query: cohort.sql
    password: env:OMOP_PASSWORD         # optional: where the password is; or file:PATH
    mapping:                            # optional: how the files map to it (flareclust.data.schema.mapping)
      columns: {age: Alter}
"""

import fnmatch
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeVar

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import AbortCheck, Agreement, never_abort
from flareclust.data import file_formats
from flareclust.data.digest import digest_of
from flareclust.data.ids import Withdrawn
from flareclust.data.labels import LABELS_FILE
from flareclust.data.memory import RowStore
from flareclust.data.schema.cells import OddCell
from flareclust.data.schema.columns import ColumnSchema, TableSchema, read_schema
from flareclust.data.schema.mapping import TableMapping
from flareclust.data.schema.reading import Typed, odd_cells
from flareclust.data.sql_tables import DatabaseUnusable, Query
from flareclust.data.tables import FORMATS, File, Numbers, Reader, Table, open_columns
from flareclust.sites.cluster import ClusterTable, ClusterUnusable, parts_on
from flareclust.sites.config import SiteConfig, odd, read_config
from flareclust.sites.database import query_of
from flareclust.sites.files import find, folder_of, takes_labels
from flareclust.sites.withdrawn import withdrawn_ids

_log = logging.getLogger(__name__)

#: What a site says that may not name its columns.
_HIDES = "cannot use its rows; why is in the site's own log, as it hides names of columns"

#: The same where its cluster cannot be used: addresses stay at the site.
_NO_CLUSTER = "cannot use its Dask cluster; why is in the site's own log, and flareclust site check says it"

#: The same where its database gives no rows: addresses, accounts and queries stay at the site.
_NO_DATABASE = "cannot use its database; why is in the site's own log, and flareclust site check says it"

_Read = TypeVar("_Read", Table, ClusterTable, list[OddCell])

#: Numbers in a sentence, such as how many rows there are; "2-D" and "UTF-8" say nothing about the data.
_NUMBER = re.compile(r"(?<!UTF-)(?<!utf-)(?<!latin-)\b\d+\b(?!-D)")

#: The name of a file in a sentence, which may hold numbers.
_FILE = re.compile(rf"(\S+\.(?:{'|'.join(FORMATS)})\b)")


@dataclass(frozen=True)
class SiteData:
    """One site's statement of where its rows are.

    The attributes are the keys of `SiteConfig`, with the site's own path, folders as paths, and the schema and its mapping as read.
    None is for all columns, no ids, files anywhere once links are followed, no limit of rows or bytes, and tables of numbers. `withdrawn`
    are the ids that the site has withdrawn (`flareclust.sites.withdrawn`).
    """

    path: Path
    columns: tuple[str, ...] | None = None
    agreement: Agreement = "has"
    salt: str = field(default="", repr=False)
    hide: frozenset[str] | Literal[True] = frozenset()
    format: str | None = None
    root: Path | None = None
    id: str | None = None
    min_rows: int = 1
    max_rows: int | None = None
    memory: int | None = None
    scratch: Path | None = None
    labels: Path | None = None
    account: str | None = None
    schema: TableSchema | None = None
    mapping: TableMapping | None = None
    compute: str | None = None
    query: Query | None = None
    withdrawn: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, local: str | Path, site: str, *, reader_owns_them: bool = False) -> "SiteData":
        """Read `flareclust.yaml` in the site's folder `local`, to which relative folders are relative.

        A relative `path` is relative to `root` where that is given. `reader_owns_them` as for `table`.

        Raises:
            Refusal: the file is missing, does not say where the rows are, or says something that cannot be.
            UserError: the list of withdrawn ids cannot be read, to those who own the rows.
        """
        local = Path(local)
        config = read_config(local)
        path = config.path_of(site)
        root, scratch, labels = (
            None if folder is None else local / folder for folder in (config.root, config.scratch, config.labels)
        )
        query = None if config.query is None else query_of(config, path, local)
        whole = (root or local) / path if query is None else query.place
        if labels is not None and takes_labels(whole, labels):
            raise odd(
                "path is a pattern that matches the files in its labels folder, so the next job would read labels as rows; "
                "name another folder for the labels"
            )
        schema, mapping = _schema_of(config, local, reader_owns_them)
        as_it_says = ("columns", "agreement", "salt", "hide", "format", "max_rows", "memory", "compute")
        return cls(
            whole,
            root=root or folder_of(whole),
            id=config.id if schema is None else schema.id,
            min_rows=config.min_rows or 1,
            scratch=scratch,
            labels=labels,
            account=config.account_of(site),
            schema=schema,
            mapping=mapping,
            query=query,
            withdrawn=withdrawn_ids(local, reader_owns_them=reader_owns_them),
            **{name: getattr(config, name) for name in as_it_says},
        )

    def files(self) -> list[File]:
        """Return the files with the rows, or the query, in the order in which they are joined; UserError as `flareclust.sites.files.find`."""
        return find(self.path, self.root, self.format) if self.query is None else [self.query.file()]

    def table(
        self, *, reader_owns_them: bool = False, scratch: Path | None = None, gaps: bool = False, marked: bool = False
    ) -> Table:
        """Read the rows (n, d) with the names of their columns, without those whose ids are withdrawn.

        Args:
            reader_owns_them: whether the text of a refusal stays with those who own the rows, and may say more.
            scratch: folder for rows that do not fit in memory, where the site has not named one.
            gaps: whether cells may be missing where there is no schema, which is NaN.
            marked: whether withdrawn rows are marked in the table instead, for groups that a policy makes (`Table.withdrawn`).

        Raises:
            Refusal: they cannot be used; the text may name the file that the site's configuration names, or its pattern,
                and columns, but no folder, no file that a pattern matches and no number, such as how many rows there
                are. The site's own log has them.
        """
        withdrawn = Withdrawn(self.withdrawn, marked=marked)
        logged = not reader_owns_them  # to whom the command says it
        return self._stated(lambda: self._read(self.scratch or scratch, gaps, withdrawn, logged), reader_owns_them)

    def odd_cells(self) -> list[OddCell]:
        """Return cells that do not fit the schema, or are no numbers where there is none, with their values: for the site's own eyes.

        Raises:
            Refusal: the files cannot be found or opened, or their columns have no names.
        """
        return self._stated(self._odd_cells, True)

    def _odd_cells(self) -> list[OddCell]:
        files, schema = self.files(), self.schema
        if schema is None:
            with open_columns(files[0], "utf-8") as source:
                names = source.names or ()
            number, ids = ColumnSchema(type="number"), ColumnSchema(type="id")
            own = [name for name in names if self.columns is None or name in (*self.columns, self.id)]
            schema = TableSchema(columns={name: ids if name == self.id else number for name in own})
        return odd_cells(files, schema, self.mapping)

    def _stated(self, read: Callable[[], _Read], reader_owns_them: bool) -> _Read:
        """Return what is read, or raise Refusal in words for its reader."""
        try:
            return read()
        except Refusal as reason:
            if self.hide and not reader_owns_them:
                _log.warning("the rows cannot be used: it %s", reason)
                raise Refusal(_HIDES) from None
            raise
        except ClusterUnusable as error:
            if reader_owns_them:
                raise Refusal(f"cannot compute: {error}") from None
            _log.warning("cannot compute: %s", error)
            raise Refusal(_NO_CLUSTER) from None
        except DatabaseUnusable as error:
            if reader_owns_them:
                raise Refusal(f"cannot use its rows: {error}") from None
            _log.warning("the rows cannot be used: %s", error)
            raise Refusal(_NO_DATABASE) from None
        except UserError as error:
            text = file_formats.unmarked(str(error))
            if reader_owns_them:
                raise Refusal(f"cannot use its rows: {file_formats.unmarked(getattr(error, 'lines', text))}") from None
            _log.warning("the rows cannot be used: %s", text)
            parts = _FILE.split(file_formats.unmarked(str(error), self.path.name))
            # Without its numbers, except in names of files.
            text = "".join(part if j % 2 else _NUMBER.sub("#", part) for j, part in enumerate(parts))
            raise Refusal(_HIDES if self.hide else f"cannot use its rows: {text}") from None

    def on_cluster(self, *, reader_owns_them: bool = False, aborted: AbortCheck = never_abort) -> ClusterTable:
        """Let the site's cluster read the rows; Refusal as for `table`, and where the cluster cannot be used."""
        return self._stated(lambda: self._read_on_cluster(aborted), reader_owns_them)

    def _read_on_cluster(self, aborted: AbortCheck) -> ClusterTable:
        files = self.files()
        if any((file.format or file.path.suffix.lower().removeprefix(".")) != "parquet" for file in files):
            raise UserError(
                f"{self.path.name}: a cluster (compute) reads parquet files only; name a folder or a pattern of them, or leave "
                "out compute"
            )
        self._refuse_others(files, None)
        columns, rows = self._numbers().headers(files)
        self._check_number(sum(rows))
        hidden, files = self._hidden(frozenset(columns)), [file for file, n in zip(files, rows, strict=True) if n]
        parts = parts_on(self.compute or "", files, columns, self.id, aborted, self.withdrawn)
        return ClusterTable(parts, columns, self.salt, hidden, sum(rows) - len(parts))

    def _read(self, scratch: Path | None, gaps: bool, withdrawn: Withdrawn, logged: bool) -> Table:
        files = self.files()
        self._refuse_others(files, scratch)
        reader: Reader = self._numbers(gaps) if self.schema is None else Typed(self.schema, self.mapping)
        reader.withdrawn = withdrawn
        found = reader.read(files, RowStore(self.memory, scratch))
        for name, note in found.rows_read.notes().items() if logged else ():
            _log.log(logging.INFO if name == "withdrawn" else logging.WARNING, "%s", note)
        self._check_number(found.rows_kept)
        RowStore.check_job_fits(found.rows_kept)
        if self.query is not None and logged:
            _log.info("the query gave %d rows with the fingerprint %s", found.rows_kept, digest_of("", [found]))
        return replace(found, salt=self.salt, hidden=self._hidden(frozenset(found.columns or ())))

    def _numbers(self, gaps: bool = False) -> Numbers:
        return Numbers(self.columns, may_lack=self.agreement == "may-lack", id_name=self.id, gaps=gaps)

    def _hidden(self, names: frozenset[str]) -> frozenset[str]:
        """Return which of the names do not leave the site."""
        if self.hide is not True and (missing := sorted(self.hide - names)):
            raise UserError(f"{self.path.name}: hide names columns that are not there: {', '.join(missing)}")
        return names if self.hide is True else self.hide

    def _check_number(self, rows: int) -> None:
        if rows < self.min_rows:
            raise UserError(f"there are {rows} rows, fewer than the min_rows of {self.min_rows} in its configuration")
        if self.max_rows is not None and rows > self.max_rows:
            raise UserError(f"there are {rows} rows, more than the max_rows of {self.max_rows} in its configuration")

    def _refuse_others(self, files: Sequence[File], scratch: Path | None) -> None:
        """Raise Refusal where the files must have the columns asked for and no others, and do not."""
        if self.agreement != "exact" or self.columns is None:
            return
        for file in files:
            names = Numbers(id_name=self.id).columns_of(file)
            if names is not None and set(names) != set(self.columns):
                Numbers(id_name=self.id).read([file], RowStore(self.memory, scratch))  # its own faults come first
                odd = ", ".join(sorted(set(names) ^ set(self.columns)))
                number = f"{len(names)} columns where most sites have {len(self.columns)}"
                has = "other columns than most sites" if len(names) == len(self.columns) else number
                raise Refusal(f"has {has}; on one side only: {odd}. masked and proxy take sites with different columns")


def _schema_of(
    config: SiteConfig, local: Path, reader_owns_them: bool
) -> tuple[TableSchema | None, TableMapping | None]:
    """Return the schema that a configuration names, and the mapping in it.

    Raises:
        Refusal: the schema cannot be read, or the mapping does not go with it; why is in the site's log, as it may hold values.
    """
    if config.schema_ is None:
        return None, None
    try:
        schema, given = read_schema(local / config.schema_), config.mapping or {}
        if not all(isinstance(key, str) for key in given):
            raise UserError("mapping: expected keys such as encoding, decimal and columns")
        mapping = TableMapping(**given)
        mapping.check(schema)
    except UserError as error:
        if reader_owns_them:
            raise odd(f"schema or mapping cannot be used: {error}") from None
        _log.warning("the schema or the mapping cannot be used: %s", error)
        raise odd("schema or mapping cannot be used; flareclust site check says why") from None
    return schema, mapping


#: Files and folders under the one that a pattern begins in, beyond which every job takes long to find its rows.
_MANY = 100_000


def check_places(data: SiteData, kit: Path) -> list[str]:
    """Return what is odd about where rows and labels are, a sentence each; look at this before the files are looked for.

    Raises:
        UserError: the pattern looks through the whole disk.
    """
    begin = folder_of(data.path).resolve()
    return [*_labels(data, begin, kit), *(_walk(begin) if "**" in data.path.parts else [])]


def _labels(data: SiteData, begin: Path, kit: Path) -> Iterator[str]:
    if data.labels is not None:
        if data.labels.resolve() == begin:
            yield f"labels are written into the folder of the rows, {begin}: name another folder as `labels`, or a later pattern reads labels as rows"
        return
    last = data.path.name
    if "**" in data.path.parts and kit.resolve().is_relative_to(begin) and fnmatch.fnmatch(LABELS_FILE, last):
        yield f"the pattern also looks through this kit, where the {LABELS_FILE} of each job would be read as rows: name the folder with the rows"


def _walk(begin: Path) -> Iterator[str]:
    if begin == Path(begin.anchor):
        raise UserError(
            f"the pattern looks through the whole disk ({begin}): begin it with the folder that has the rows"
        )
    home = None
    with suppress(RuntimeError, OSError):
        home = Path.home().resolve()
    if home is not None and home.is_relative_to(begin):
        yield f"the pattern looks through a home folder ({begin}): begin it with the folder that has the rows"
        return
    found = accumulate(len(folders) + len(files) for _, folders, files in os.walk(begin))
    if any(seen > _MANY for seen in found):
        yield f"the pattern looks through more than {_MANY:,} files and folders of {begin}: begin it further down, or every job takes long to find its rows"
