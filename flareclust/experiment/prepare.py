"""From an experiment to a federation that can run: data loaded, rows assigned to sites."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Agreement, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean, site_name
from flareclust.data.datasets import Dataset, load
from flareclust.data.devices import Devices
from flareclust.data.feature_partition import split_features
from flareclust.data.frames import table_of
from flareclust.data.ids import Ids
from flareclust.data.partition import partition, rows_by_site, site_of_rows
from flareclust.data.partition_specs import SPECS, parse
from flareclust.data.tables import File, Numbers, Rows, Table
from flareclust.engines.poc.kits import file_of
from flareclust.engines.poc.state import Poc
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, known_k, names_of
from flareclust.experiment.tables.site_rows import as_rows, common_columns, ids_of_images, image_settings, site_files
from flareclust.experiment.tables.typed_rows import (
    agreed_columns,
    compared,
    one_table,
    own_sites,
    required_schema,
    schema_facts,
    settled_settings,
)
from flareclust.protocol import registry
from flareclust.schema.reading import check_read_by


def prepare(experiment: Experiment, dataset: Dataset | None = None) -> Prepared:
    """Load the data and assign the rows to sites.

    Args:
        experiment: names the data, unless `dataset` is given.
        dataset: the data in memory.

    Raises:
        UserError: the data cannot be loaded or split as asked, or k is not known.
    """
    if experiment.engine == "production":
        return agreed_columns(experiment)
    if experiment.engine == "poc":
        from flareclust.engines.poc import federation as poc

        return prepare_poc(poc.find(Path(experiment.kit or poc.DEFAULT)), experiment)
    if dataset is None and parse(experiment.partition).name == "none":
        return own_sites(experiment) if experiment.typed else _own_files(experiment)
    return _one_table(experiment, dataset)


def _own_files(experiment: Experiment) -> Prepared:
    """Return the sites whose files of numbers, or folders of images, are in one folder."""
    sites = site_files(Path(experiment.data))
    if experiment.engine == "devices":
        raise UserError(
            "the engine devices needs the rows of all sites in memory, or in one file; use the engine inprocess"
        )
    prepared = replace(_by_name(experiment, sites), ids=ids_of_images(sites))
    named = prepared.columns is not None and prepared.agreement != "may-lack"
    return replace(prepared, params={**compared(experiment), **prepared.params}) if named else prepared


def _one_table(experiment: Experiment, dataset: Dataset | None) -> Prepared:
    """Return the sites that the rows of one table, or of a data set in memory, are assigned to."""
    ids: Sequence[str] | None = None
    if dataset is None:
        if Path(experiment.data).is_dir():
            raise UserError(
                f"{experiment.data} is a folder; for one file, or one folder of images, per site say --partition none (partition=)"
            )
        if experiment.typed:
            dataset, ids = one_table(experiment)
        else:
            dataset = load(experiment.data, gaps=experiment.gaps)
    prepared = _split(experiment, _chosen(dataset, experiment.columns))
    if experiment.typed:
        params = {**prepared.params, **settled_settings(experiment)}
        prepared = replace(prepared, params=params, **schema_facts(experiment))
    if ids is None or prepared.index is None:
        return prepared
    own = {site: [ids[row] for row in rows] for site, rows in prepared.index.items()}
    if experiment.protects_ids:
        prepared = replace(prepared, sites={site: _with_ids(prepared, site, own[site]) for site in prepared.sites})
    return replace(prepared, ids=own)


def _with_ids(prepared: Prepared, site: str, own: Sequence[str]) -> Table:
    """Return a site's rows with their ids."""
    rows, ids = prepared.sites[site], Ids()
    ids.extend(own)
    if isinstance(rows, Table):
        return replace(rows, ids=ids)
    assert not isinstance(rows, Path)
    return Table(rows, prepared.columns, ids=ids)


def _split(experiment: Experiment, dataset: Dataset) -> Prepared:
    """Assign the rows of a data set to sites."""
    rng = stream(experiment.seed, 0, "partition")
    spec, algorithm = parse(experiment.partition), registry.get(experiment.algorithm)
    parted = not SPECS[spec.name].needs_owners  # owners may have units of their own
    if spec.splits_columns:
        split = split_features(spec, dataset.X, dataset.y, experiment.n_sites, rng, dataset.owners)
        k = split.k if experiment.k is None and split.k is not None else known_k(experiment, dataset)
        return Prepared(
            k,
            _assigned(dataset, split.rows, split.columns, algorithm),
            split.rows,
            dataset,
            dataset.columns,
            parted=parted,
        )
    k = known_k(experiment, dataset)
    if experiment.engine == "devices":
        site, m = site_of_rows(spec, dataset.X, dataset.y, experiment.n_sites, rng, dataset.owners)
        rows, starts = rows_by_site(site, m)
        devices = Devices(dataset.X[rows], starts, [f"site-{i + 1}" for i in range(m)])
        about = replace(dataset, X=np.empty((0, dataset.X.shape[1])), y=None, owners=None)
        return Prepared(k, {}, dataset=about, columns=dataset.columns, devices=devices)
    index = partition(spec, dataset.X, dataset.y, experiment.n_sites, rng, dataset.owners)
    every = dict.fromkeys(index, np.arange(dataset.X.shape[1]))
    sites = _assigned(dataset, index, every, algorithm)
    if (column := experiment.params.get("class_column")) is not None:
        sites = _with_classes(dataset, index, str(column))
    return Prepared(k, sites, index, dataset, dataset.columns, parted=parted)


def prepare_poc(there: Poc, experiment: Experiment) -> Prepared:
    """Return the federation of a POC for an experiment: the sites' own files, and which rows of the data set they have.

    Args:
        there: decides data, partition, number of sites and the partition's seed, whatever the experiment says of them.
        experiment: decides the algorithm and k.

    Raises:
        UserError: the experiment chooses columns, which is the sites' business here, or its k is not known.
    """
    if experiment.columns is not None:
        raise UserError("the sites of a POC say which columns they use, in local/flareclust.yaml; leave out --columns")
    like = {
        "engine": "inprocess",
        "data": there.data,
        "partition": there.partition,
        "n_sites": there.n_sites,
        "seed": there.seed,
        "table_schema": there.schema,
    }
    prepared = prepare(experiment.model_copy(update=like))
    if there.own_tables:
        return replace(prepared, params={**prepared.params, **required_schema(there.schema)})
    files = {site: file_of(kit) for site, kit in there.kits.items()}
    if prepared.dataset is None:
        return replace(prepared, sites=files)
    agreement: Agreement = "may-lack" if parse(there.partition).splits_columns else "has"
    return replace(prepared, sites=files, columns=names_of(prepared.dataset), agreement=agreement)


def _assigned(
    dataset: Dataset, index: Mapping[str, IntArray], columns: Mapping[str, IntArray], algorithm: registry.Algorithm
) -> dict[str, Rows]:
    """Return each site's rows: of its columns and with their names where the algorithm goes by them, else of all columns."""
    if not algorithm.partial:
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


def prepare_sites(experiment: Experiment, sites: Mapping[str, object]) -> Prepared:
    """Take rows by site as they are: arrays (n_i, d), data frames or paths of files.

    Data frames are read by the names of their columns: those of the first site in all of them, unless the algorithm is
    one for sites with different columns.

    Raises:
        UserError: an array is not a numeric table, or a name cannot be a site's; NaN is left to the site to refuse.
    """
    if isinstance(sites, Devices):
        return Prepared(known_k(experiment, None), {}, devices=sites)
    rows = {site_name(name): as_rows(name, value) for name, value in sites.items()}
    if not rows:
        raise UserError("no sites: expected a mapping of site names to rows")
    rows = dict(sorted(rows.items()))
    schema = _read_by(rows, one=not registry.get(experiment.algorithm).partial)
    prepared = replace(_by_name(experiment, rows), schema=schema)
    return _one_array(prepared) if experiment.engine == "devices" else prepared


def _read_by(sites: Mapping[str, Rows], *, one: bool) -> str:
    """Return the fingerprint of the schema by which all sites' rows were read, "" for none.

    Several are for sites with different columns, whose tables no single schema fits; `one` is for others.

    Raises:
        UserError: there are several where there should be one.
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


def _by_name(experiment: Experiment, sites: Mapping[str, Rows]) -> Prepared:
    k = known_k(experiment, None)
    params = image_settings(experiment.algorithm, sites)
    if registry.get(experiment.algorithm).partial:
        chosen = {site: _those_of(site, rows, experiment.columns) for site, rows in sites.items()}
        _check_somewhere(chosen, experiment.columns or ())
        return Prepared(k, chosen, columns=experiment.columns, agreement="may-lack")
    tables = {site: rows for site, rows in sites.items() if isinstance(rows, Table)}
    if tables and len(tables) < len(sites):
        other = next(site for site in sites if site not in tables)
        raise UserError(
            f"{other}: expected a data frame, as other sites have, whose columns have names; got other rows"
        )
    if tables:
        columns = experiment.columns or next(iter(tables.values())).columns or ()
        exact = experiment.columns is None
        read = {
            site: replace(rows, X=_only(site, rows, columns, exact=exact), columns=columns)
            for site, rows in tables.items()
        }
        by_name = "class_column" in experiment.params
        named: dict[str, Rows] = {site: one if by_name or one.says_more else one.X for site, one in read.items()}
        ids = {site: tuple(one.ids) for site, one in tables.items() if one.ids is not None}
        return Prepared(k, named, columns=columns, ids=ids)
    if experiment.columns is not None:
        return Prepared(k, sites, columns=experiment.columns, params=params)
    return Prepared(k, sites, columns=common_columns(sites), agreement="exact", params=params)


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
