"""Where the rows of an experiment come from, and the federation that can run with them: sources, and the choice among them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Agreement, BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean, site_name
from flareclust.data import datasets
from flareclust.data.cells import check_rows
from flareclust.data.datasets import Dataset
from flareclust.data.devices import Devices
from flareclust.data.feature_partition import split_features
from flareclust.data.frames import is_frame, table_of
from flareclust.data.ids import Ids
from flareclust.data.memory import RowStore
from flareclust.data.partition import partition, rows_by_site, site_of_rows
from flareclust.data.partition_specs import SPECS, parse
from flareclust.data.schema.columns import read_schema
from flareclust.data.schema.reading import check_read_by
from flareclust.data.tables import File, Numbers, Rows, Table
from flareclust.experiment.config import Experiment, RowsAsked
from flareclust.experiment.prepared import Prepared, known_rows, names_of
from flareclust.experiment.tables.site_rows import as_rows, common_columns, ids_of_images, image_settings, site_files
from flareclust.experiment.tables.typed_rows import (
    compared,
    one_table,
    outcome_facts,
    own_sites,
    required_schema,
    schema_facts,
    settled_settings,
)
from flareclust.platform.poc import state as poc_state
from flareclust.platform.poc.kits import file_of
from flareclust.protocol import registry
from flareclust.sites.rows import SiteData
from flareclust.sites.withdrawn import withdrawn_ids

#: Where rows come from: gives the sites with the rows asked for, and the data's k, 0 if unknown; UserError if they cannot be read.
Source = Callable[[RowsAsked], Prepared]


def prepare(experiment: Experiment, source: Source | None = None) -> Prepared:
    """Return the federation that an experiment runs on: the rows of a source, by default of the one that it names, and the
    settings that follow from them.

    Raises:
        UserError: as `Source`; k is not known, or the algorithm cannot do what a schema says.
    """
    asked = experiment.rows
    by_schema = asked.typed or experiment.engine == "production"
    source, settled = source or source_of(asked, experiment.kit), settled_settings(experiment) if by_schema else {}
    found = source(asked)
    params = {**found.params, **image_settings(experiment.algorithm, found.sites), **settled}
    own_files = (source is _file_folder or isinstance(source, PocSites)) and found.dataset is None
    if own_files and found.columns is not None and found.agreement != "may-lack":
        params = {**compared(experiment), **params}
    k = (experiment.k or found.k) if experiment.k_range is None else experiment.k_range[1]
    instead = dict(registry.get(experiment.algorithm).params_class().without_k)
    if not k and not instead.keys() & experiment.params.keys():
        n = known_rows(found.sites, found.dataset, found.devices)
        k, params = int(min(instead.pop("k", 0), n)), {**params, **instead}
    if not k:
        raise UserError("k is not known for these data; say how many clusters to look for (--k, or k=)")
    return replace(found, k=k, params=params, **(schema_facts(experiment) if by_schema else {}))


def source_of(asked: RowsAsked, kit: str | None = None) -> Source:
    """Return where rows come from that settings name: sites with their own, a POC, a folder, one table or data set."""
    if asked.engine == "production":
        return _provisioned
    if asked.engine == "poc":
        from flareclust.platform.poc import federation as poc

        return PocSites(poc.find(Path(kit or poc.DEFAULT)))
    if parse(asked.partition).name == "none":
        return own_sites if asked.typed else _file_folder
    return OneTable()


def in_memory(asked: RowsAsked, data: Any) -> Source:
    """Return where rows come from that a caller has: an array or data frame to be split, or the tables of sites by name."""
    if asked.engine in ("poc", "production"):
        raise UserError(f"the sites of the engine {asked.engine} have rows of their own; leave out data")
    if asked.typed and (source := _by_schema(asked, data)) is not None:
        return source
    if isinstance(data, Mapping):
        return _NamedSites(data)
    table = table_of("data", data) if is_frame(data) else None
    if table is not None and table.repeats > 1:
        raise UserError("a table with weights is one site's; give it as such: data={name: table, ...}")
    X = check_rows(data if table is None else table.X, where="data", gaps=asked.gaps)
    if table is None:
        return OneTable(Dataset(name="own data", X=X))
    return OneTable(
        Dataset(name="own data", X=X, columns=table.columns, rows_read=table.rows_read), schema=table.schema
    )


def _by_schema(asked: RowsAsked, data: Any) -> Source | None:
    """Return what reads data frames and files by the schema that is asked for, or by the names of ids and classes.

    None for tables that `read_table` has read by this schema; UserError for others, and for arrays.
    """
    if is_frame(data) and not isinstance(data, Table):
        return OneTable(*one_table(asked, data))
    given = _as_tables(data) if isinstance(data, Mapping) else {}
    read, agreed = [rows for rows in given.values() if isinstance(rows, Table)], asked.table_schema
    if not given or (read and agreed is None):
        raise UserError(
            "schema, id_column and truth need columns with names: a data frame or the path of a file for each site, or of one "
            "table that is split; or give a schema and a table of flareclust.read_table for each site"
        )
    if read and (asked.truth or asked.id_column):
        raise UserError(
            "tables of flareclust.read_table hold features, and ids where the schema names them; leave out truth and "
            "id_column, or give the folder with the files, or data frames"
        )
    if len(read) < len(given) or agreed is None:
        return partial(own_sites, given=given)
    check_read_by({site: table.schema for site, table in given.items()}, read_schema(agreed).fingerprint)
    return None


def _as_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return files, data frames and tables by site, in the order of the sites' names; nothing where there are other rows."""
    sites = {site_name(name): Path(rows) if isinstance(rows, str) else rows for name, rows in data.items()}
    fit = all(isinstance(rows, Path | Table) or is_frame(rows) for rows in sites.values())
    return dict(sorted(sites.items())) if fit else {}


def _provisioned(asked: RowsAsked) -> Prepared:
    """Return no rows: the sites read theirs themselves, by the schema that is asked for, if there is one."""
    return Prepared(0, {}, columns=None if asked.table_schema is None else read_schema(asked.table_schema).features)


@dataclass(frozen=True)
class PocSites:
    """The sites of a POC, with their own files; it decides data, partition, number of sites and seed, whatever is asked."""

    there: poc_state.Poc

    def __call__(self, asked: RowsAsked) -> Prepared:
        """Return the sites, and which rows of the data set they have; UserError also where columns are asked for."""
        if asked.columns is not None:
            raise UserError("sites of a POC say which columns they use, in local/flareclust.yaml; leave out --columns")
        there = self.there
        like = replace(asked, engine="inprocess", data=there.data, partition=there.partition, n_sites=there.n_sites)
        like = replace(like, seed=there.seed, table_schema=there.schema)
        prepared = self._without_withdrawn(source_of(like)(like))
        if there.own_tables:
            return replace(prepared, params=required_schema(there.schema), **outcome_facts(there.schema))
        files = {site: file_of(kit) for site, kit in there.kits.items()}
        if prepared.dataset is None:
            return replace(prepared, sites=files)
        agreement: Agreement = "may-lack" if parse(there.partition).splits_columns else "has"
        about = outcome_facts(there.schema)
        return replace(prepared, sites=files, columns=names_of(prepared.dataset), agreement=agreement, **about)

    def _without_withdrawn(self, prepared: Prepared) -> Prepared:
        """Return the sites without the rows that these have withdrawn since: they get no labels."""
        sites, index, ids = dict(prepared.sites), dict(prepared.index or {}), dict(prepared.ids)
        for site, kit in self.there.kits.items():
            gone, own = frozenset[str](), sites.get(site)
            with suppress(Refusal):  # a list that cannot be read, for which the site itself refuses the job
                gone = withdrawn_ids(kit / "local")
            table = own if isinstance(own, Table) and self.there.own_tables else None
            placed = map(str, index.get(site, ()))  # rows that were placed have their numbers in the data set as ids
            names = placed if table is None else table.ids or ()
            stay = np.array([name not in gone for name in names], dtype=np.bool_)
            if table is not None and gone:
                sites[site] = _as_if_never_there(table, stay, _withdrawn_gaps(table, kit, site))
            if stay.all():
                continue
            if site in index:
                index[site] = index[site][stay]
            if site in ids:
                ids[site] = list(compress(ids[site], stay))
        return replace(prepared, sites=sites, index=index or None, ids=ids)


def _as_if_never_there(table: Table, stay: BoolArray, gaps: int) -> Table:
    """Return the rows of a table with ids (n,) that stay; the others are not counted among those of its files either.

    Nor are `gaps` rows with a missing cell, which are not in the table anyway.
    """
    gone = list(compress(table.ids or (), ~stay))
    number = len(gone) if table.repeats == 1 else len(set(gone))  # a row is there as often as it counts
    read = table.rows_read
    read = read._replace(of=max(read.of - number - gaps, 0), gaps=read.gaps - gaps)
    return replace(table if stay.all() else table.only(stay), rows_read=read)


def _withdrawn_gaps(table: Table, kit: Path, site: str) -> int:
    """Return how many rows with a missing cell a site of a POC has withdrawn, as it reads them itself: the table has no ids of these."""
    if table.rows_read.gaps:
        with suppress(Refusal, UserError):  # which the site's own commands say
            own = SiteData.of(kit / "local", site, reader_owns_them=True).table(reader_owns_them=True)
            return min(own.rows_read.withdrawn_gaps, table.rows_read.gaps)
    return 0


def _file_folder(asked: RowsAsked) -> Prepared:
    """Return the sites of a folder with a file of numbers, or a folder of images, for each; they are read later."""
    sites = site_files(Path(asked.data))
    if asked.engine == "devices":
        raise UserError(
            "the engine devices needs the rows of all sites in memory, or in one file; use the engine inprocess"
        )
    return replace(_by_name(asked, sites), ids=ids_of_images(sites))


@dataclass(frozen=True)
class _NamedSites:
    """Rows by site as they are: arrays (n_i, d), data frames or paths of files; or many devices.

    Data frames are read by the names of the first site's columns, unless sites may have different ones.
    """

    given: Mapping[str, object]

    def __call__(self, asked: RowsAsked) -> Prepared:
        """Return the sites; UserError for an array that is no numeric table, and a name that cannot be a site's; sites refuse NaN."""
        if isinstance(self.given, Devices):
            return Prepared(0, {}, devices=self.given)
        rows = {site_name(name): as_rows(name, value) for name, value in self.given.items()}
        if not rows:
            raise UserError("no sites: expected a mapping of site names to rows")
        rows = dict(sorted(rows.items()))
        prepared = replace(_by_name(asked, rows), schema=_read_by(rows, one=not asked.by_name))
        return _one_array(prepared) if asked.engine == "devices" else prepared


@dataclass(frozen=True)
class OneTable:
    """One table or data set, whose rows are assigned to sites.

    Attributes:
        dataset: None where it is not loaded yet.
        ids: of its rows, where they have any.
        schema: fingerprint of the schema by which it was read, "" for none.
    """

    dataset: Dataset | None = None
    ids: Sequence[str] | None = None
    schema: str = ""

    def loaded(self, asked: RowsAsked) -> "OneTable":
        """Return the table with its rows; raise UserError where they cannot be loaded."""
        if self.dataset is not None:
            return self
        if Path(asked.data).is_dir():
            raise UserError(
                f"{asked.data} is a folder; for one file, or one folder of images, per site say --partition none (partition=)"
            )
        if asked.typed:
            return OneTable(*one_table(asked))
        table = asked.table
        if isinstance(table, Path):
            return OneTable(datasets.load(asked.data, gaps=asked.gaps, columns=asked.columns))
        read = Numbers(asked.columns, gaps=asked.gaps).read([table], RowStore(bounded=True))
        return OneTable(Dataset(table.path.name, read.X, columns=read.columns, rows_read=read.rows_read))

    def __call__(self, asked: RowsAsked) -> Prepared:
        """Return the sites with their rows."""
        own = self.loaded(asked)
        assert own.dataset is not None
        prepared = _with_outcomes(replace(_split(asked, _chosen(own.dataset, asked.columns)), schema=own.schema))
        if own.ids is None or prepared.index is None:
            return prepared
        ids = {site: [own.ids[row] for row in rows] for site, rows in prepared.index.items()}
        if asked.with_ids:
            prepared = replace(prepared, sites={site: _with_ids(prepared, site, ids[site]) for site in prepared.sites})
        return replace(prepared, ids=ids)


def _with_outcomes(prepared: Prepared) -> Prepared:
    """Return the sites with the outcomes of their rows, where the data set has some."""
    dataset, index = prepared.dataset, prepared.index
    if dataset is None or dataset.outcomes is None or index is None:
        return prepared
    sites: dict[str, Rows] = {}
    for site, rows in prepared.sites.items():
        assert not isinstance(rows, Path)
        table = rows if isinstance(rows, Table) else Table(rows)
        sites[site] = replace(table, outcomes=dataset.outcomes[index[site]], outcome_form=dataset.outcome_form)
    return replace(prepared, sites=sites)


def _with_ids(prepared: Prepared, site: str, own: Sequence[str]) -> Table:
    """Return a site's rows with their ids."""
    rows, ids = prepared.sites[site], Ids()
    ids.extend(own)
    if isinstance(rows, Table):
        return replace(rows, ids=ids)
    assert not isinstance(rows, Path)
    return Table(rows, prepared.columns, ids=ids)


def _split(asked: RowsAsked, dataset: Dataset) -> Prepared:
    """Assign the rows of a data set to sites."""
    rng, spec, k = stream(asked.seed, 0, "partition"), parse(asked.partition), dataset.n_clusters or 0
    parted = not SPECS[spec.name].needs_owners  # owners may have units of their own
    if spec.splits_columns:
        split = split_features(spec, dataset.X, dataset.y, asked.n_sites, rng, dataset.owners)
        sites = _assigned(dataset, split.rows, split.columns, by_name=asked.by_name)
        return Prepared(split.k or k, sites, split.rows, dataset, dataset.columns, parted=parted)
    if asked.engine == "devices":
        site, m = site_of_rows(spec, dataset.X, dataset.y, asked.n_sites, rng, dataset.owners)
        rows, starts = rows_by_site(site, m)
        devices = Devices(dataset.X[rows], starts, [f"site-{i + 1}" for i in range(m)])
        about = replace(dataset, X=np.empty((0, dataset.X.shape[1])), y=None, owners=None, outcomes=None)
        return Prepared(k, {}, dataset=about, columns=dataset.columns, devices=devices)
    index = partition(spec, dataset.X, dataset.y, asked.n_sites, rng, dataset.owners)
    if asked.class_column is not None:
        sites = _with_classes(dataset, index, asked.class_column)
    else:
        sites = _assigned(dataset, index, dict.fromkeys(index, np.arange(dataset.X.shape[1])), by_name=asked.by_name)
    return Prepared(k, sites, index, dataset, dataset.columns, parted=parted)


def _assigned(
    dataset: Dataset, index: Mapping[str, IntArray], columns: Mapping[str, IntArray], *, by_name: bool
) -> dict[str, Rows]:
    """Return each site's rows: of its columns and with their names, or of all columns."""
    if not by_name:
        return {site: dataset.X[rows] for site, rows in index.items()}
    names = np.array(names_of(dataset))
    return {
        site: Table(np.ascontiguousarray(dataset.X[np.ix_(rows, columns[site])]), tuple(names[columns[site]].tolist()))
        for site, rows in index.items()
    }


def _with_classes(dataset: Dataset, index: Mapping[str, IntArray], column: str) -> dict[str, Rows]:
    """Return each site's rows with their classes in a further column, for algorithms that evaluate with them."""
    names = names_of(dataset)
    if column in names:
        return {site: Table(dataset.X[rows], names) for site, rows in index.items()}
    if dataset.y is None:
        raise UserError(f"{dataset.name} has no classes, so class_column={column!r} must name a column of it")
    X = np.column_stack([dataset.X, np.unique(dataset.y, return_inverse=True)[1]])
    return {site: Table(X[rows], (*names, column)) for site, rows in index.items()}


def _read_by(sites: Mapping[str, Rows], *, one: bool) -> str:
    """Return the fingerprint of the schema by which all sites' rows were read, "" for none.

    Several are for sites with different columns, whose tables no single schema fits; UserError for them where `one` should be.
    """
    schemas = {site: rows.schema for site, rows in sites.items() if isinstance(rows, Table) and rows.schema}
    first = next(iter(schemas.values()), "")
    if one:
        check_read_by(schemas, first)
    return first if len(schemas) == len(sites) and set(schemas.values()) == {first} else ""


def _one_array(prepared: Prepared) -> Prepared:
    """Return a federation of the engine devices, whose rows are in one array."""
    sites = [rows.X if isinstance(rows, Table) and rows.repeats == 1 else rows for rows in prepared.sites.values()]
    arrays = [rows for rows in sites if isinstance(rows, np.ndarray)]
    if len(arrays) < len(prepared.sites) or len({rows.shape[1] for rows in arrays}) > 1:
        raise UserError(
            "the engine devices needs rows of the same columns in memory at every site; use the engine inprocess"
        )
    starts = np.cumsum([0, *map(len, arrays)])
    devices = Devices(np.concatenate(arrays), starts, list(prepared.sites))
    return replace(prepared, sites={}, devices=devices)


def _only(site: str, rows: Table, wanted: tuple[str, ...], *, exact: bool) -> FloatArray:
    """Return the rows of a named table with the wanted columns in this order; `exact` refuses others."""
    names = rows.columns or ()
    odd = sorted(set(wanted) ^ set(names) if exact else set(wanted) - set(names))
    if odd:
        raise UserError(
            f"{site}: not all sites have the column {', '.join(odd[:12])}; name the columns to use (columns=), or take an "
            "algorithm for sites with different columns, such as masked"
        )
    return np.ascontiguousarray(rows.X[:, [names.index(name) for name in wanted]])


def _by_name(asked: RowsAsked, sites: Mapping[str, Rows]) -> Prepared:
    """Return sites whose columns are found by their names, where they have names."""
    if asked.by_name:
        chosen = {site: _those_of(site, rows, asked.columns) for site, rows in sites.items()}
        _check_somewhere(chosen, asked.columns or ())
        return Prepared(0, chosen, columns=asked.columns, agreement="may-lack")
    tables = {site: rows for site, rows in sites.items() if isinstance(rows, Table)}
    if tables and len(tables) < len(sites):
        other = next(site for site in sites if site not in tables)
        raise UserError(
            f"{other}: expected a data frame, as other sites have, whose columns have names; got other rows"
        )
    if tables:
        columns, exact = asked.columns or next(iter(tables.values())).columns or (), asked.columns is None
        cells = {site: _only(site, rows, columns, exact=exact) for site, rows in tables.items()}
        read = {site: replace(rows, X=cells[site], columns=columns) for site, rows in tables.items()}
        whole = asked.class_column is not None
        named: dict[str, Rows] = {site: one if whole or one.says_more else one.X for site, one in read.items()}
        ids = {site: tuple(one.ids) for site, one in tables.items() if one.ids is not None}
        return Prepared(0, named, columns=columns, ids=ids)
    if asked.columns is not None:
        return Prepared(0, sites, columns=asked.columns)
    return Prepared(0, sites, columns=common_columns(sites), agreement="exact")


def _check_somewhere(sites: Mapping[str, Rows], wanted: tuple[str, ...]) -> None:
    """Raise UserError where no site has a column that was asked for; sites that cannot be read say so themselves."""
    found: set[str] = set()
    for rows in sites.values() if wanted else ():
        with suppress(UserError):
            if isinstance(rows, Path):
                found |= set(Numbers(wanted).columns_of(File(rows, str(rows))) or ())
            elif isinstance(rows, Table):
                found |= set(rows.columns or ())
    if found and (missing := [name for name in wanted if name not in found]):
        raise UserError(f"no site has a column {missing[0]!r}{did_you_mean(missing[0], found)}")


def _those_of(site: str, rows: Rows, wanted: tuple[str, ...] | None) -> Rows:
    """Return a table's columns that are among those wanted; files are left to their reader."""
    if not isinstance(rows, Table) or wanted is None:
        return rows
    kept = tuple(name for name in wanted if name in (rows.columns or ()))
    if not kept:
        raise UserError(f"{site} has none of the columns {', '.join(wanted)}")
    return table_of(site, rows, kept)


def _chosen(dataset: Dataset, columns: Sequence[str] | None) -> Dataset:
    """Return the data set with only these columns, in this order; all of them for None."""
    if columns is None:
        return dataset
    known = dataset.columns or ()
    for name in columns:
        if name not in known:
            raise UserError(f"{dataset.name} has no column {name!r}{did_you_mean(name, known)}")
    where = [known.index(name) for name in columns]
    centroids = None if dataset.centroids is None else dataset.centroids[:, where]
    X = np.ascontiguousarray(dataset.X[:, where])
    return replace(dataset, X=X, columns=tuple(columns), centroids=centroids)
