"""An experiment on a user's own tables, read by a schema: all of them are read, and found faulty or not, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.typing import Agreement, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data.datasets import Dataset
from flareclust.data.file_names import unmarked
from flareclust.data.memory import site_limit
from flareclust.data.tables import File, Table
from flareclust.experiment.config import Experiment, make_experiment
from flareclust.experiment.prepared import Prepared, known_k
from flareclust.experiment.site_rows import site_files
from flareclust.protocol import registry
from flareclust.schema.columns import ColumnSchema, TableSchema, read_schema
from flareclust.schema.mapping import TableMapping, read_mapping
from flareclust.schema.reading import TypedTable, read_typed, without
from flareclust.schema.text_files import FORMATS, names_of

#: The ending of a mapping's file, which lies beside the table: north.csv, north.mapping.yaml.
MAPPING = ".mapping.yaml"

#: Columns of a table without a schema.
_NUMBER, _ID = ColumnSchema(type="number"), ColumnSchema(type="id")


def own_sites(experiment: Experiment) -> Prepared:
    """Return the federation of the tables in the folder that an experiment names, a site for each."""
    params = settled_settings(experiment)
    tables = typed_sites(Path(experiment.data), schema_of(experiment), experiment.truth)
    sites = {site: typed.table for site, typed in tables.items()}
    partial = registry.get(experiment.algorithm).partial
    columns = _columns_of_any(sites, schema_of(experiment), experiment, exact=not partial)
    agreement: Agreement = "may-lack" if partial else "has"
    ids = {site: tuple(table.ids) for site, table in sites.items() if table.ids is not None}
    index, dataset = None, None
    if experiment.truth is not None:
        dataset, index = _joined(experiment.data, tables, columns)
    k = known_k(experiment, dataset)
    return Prepared(k, sites, index, dataset, columns, agreement, params, ids, **schema_facts(experiment))


def _columns_of_any(
    sites: Mapping[str, Table], schema: TableSchema, experiment: Experiment, *, exact: bool
) -> tuple[str, ...]:
    """Return the features that any site has, in the schema's order; with `exact` refuse that a site lacks some."""
    present = {name for table in sites.values() for name in table.columns or ()}
    columns = tuple(name for name in without(schema, experiment.truth).features if name in present)
    for site, table in sites.items():
        if exact and (lacking := [name for name in columns if name not in (table.columns or ())]):
            raise UserError(
                f"{site} lacks {', '.join(lacking[:12])} (lacks in its mapping), and {experiment.algorithm} needs the same columns at "
                "every site; take an algorithm for sites with different columns, such as masked"
            )
    return columns


def agreed_columns(experiment: Experiment) -> Prepared:
    """Return the federation of provisioned sites, which read their rows themselves: by the experiment's schema, if it has one."""
    k = known_k(experiment, None)
    if experiment.table_schema is None:
        return Prepared(k, {}, params=settled_settings(experiment))
    features, params = read_schema(experiment.table_schema).features, settled_settings(experiment)
    return Prepared(k, {}, columns=features, params=params, **schema_facts(experiment))


def settled_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an algorithm that a run of tables settles by itself; those of the experiment come first.

    Beside those that follow from the schema: how sites' own columns are compared, and by which schema provisioned sites must
    have read their rows. Empty for data that are no such tables.

    Raises:
        UserError: the schema cannot be read, or the algorithm cannot do what it says.
    """
    provisioned = experiment.engine == "production"
    found = compared(experiment) if provisioned or (experiment.typed and experiment.partition == "none") else {}
    found |= agreed_settings(experiment)
    return found | (required_schema(experiment.table_schema) if provisioned else {})


def exported_settings(algorithm: str, params: Mapping[str, Any], schema: Path, *, secure_sums: bool) -> dict[str, Any]:
    """Return the settings that a schema settles in an exported job: those of a job that `run` submits to provisioned sites."""
    about = {
        "engine": "production",
        "kit": "that of who submits it",
        "table_schema": str(schema),
        "params": dict(params),
    }
    return settled_settings(make_experiment(algorithm=algorithm, secure_sums=secure_sums, **about))


def required_schema(file: str | None) -> dict[str, Any]:
    """Return the setting with which sites refuse that have read their rows by another schema than that of a file, if there is one."""
    return {} if file is None else {"table_schema": read_schema(file).fingerprint}


def agreed_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an algorithm that follow from the experiment's schema, if it has one; those of the experiment come first.

    Which columns are one category, scaling where units differ, and what missing cells mean.

    Raises:
        UserError: the algorithm cannot do what the schema says of missing cells, or the run says otherwise without effect.
    """
    if experiment.table_schema is None:
        return {}
    schema = without(read_schema(experiment.table_schema), experiment.truth)
    _check_weights(experiment, schema)
    algorithm, found = registry.get(experiment.algorithm), dict[str, Any]()
    known, partial = algorithm.parameters(), algorithm.partial
    if "categories" in known and schema.categories:
        found["categories"] = _named(schema, schema.categories) if partial else schema.categories
    if schema.units_differ and experiment.params.get("metric") != "cosine":
        found |= {"scale": "standard"} if "scale" in known else {}
    if gaps := schema.left_to_jobs:
        how = next(iter(gaps.values()))
        if "missing" not in known:
            raise UserError(
                f"{experiment.algorithm} cannot do with missing cells what the schema says of {', '.join(gaps)} (missing: {how}); "
                "take another algorithm, such as portfolio, or missing: drop-rows"
            )
        found["missing"] = how
    elif dropping := [name for name in schema.used if schema.missing_of(name) == "drop-rows"]:
        _check_missing(experiment.params.get("missing", "refuse"), dropping)
    if "table_ranges" in known and experiment.params.get("scale") == "range":
        ranges = dict(zip(schema.features, schema.ranges, strict=True))
        known_ranges = {name: own for name, own in ranges.items() if own is not None}
        found["table_ranges"] = known_ranges if partial else schema.ranges
    return found


def _named(schema: TableSchema, groups: Sequence[Sequence[int]]) -> list[list[str]]:
    """Return groups of features by their names, by which sites with different columns know them."""
    return [[schema.features[j] for j in group] for group in groups]


def _check_missing(asked: str, dropping: Sequence[str]) -> None:
    """Raise UserError where a run would fill missing cells of columns whose schema drops the rows that have some."""
    if asked != "refuse":
        raise UserError(
            f"missing={asked} is without effect: the schema says missing: drop-rows of {', '.join(dropping)}, so no cell is "
            f"missing in the rows that are left; leave it out, or say missing: {asked} in the schema"
        )


def _check_weights(experiment: Experiment, schema: TableSchema) -> None:
    """Raise UserError where the schema has weights and the run cannot take them."""
    if schema.weight is None:
        return
    private = "differentially-private" in registry.get(experiment.algorithm).promises
    what = "policy" if experiment.policy else "secure_sums" if experiment.secure_sums else None
    what = f"{experiment.algorithm} (differential privacy)" if private else what
    if what is None and experiment.partition != "none":
        what = f"partition {experiment.partition}, which would put one row at several sites"
    if what is not None:
        raise UserError(
            f"the weights of the column {schema.weight!r} do not go with {what}; leave that out, or make the column type ignore"
        )


def schema_facts(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of `Prepared` that follow from the experiment's schema: units, fingerprint, words; none without one."""
    if experiment.table_schema is None:
        return {}
    schema = without(read_schema(experiment.table_schema), experiment.truth)
    units = schema.feature_units
    return {"units": units if any(units) else (), "schema": fingerprint_of(experiment), "words": schema.words}


def fingerprint_of(experiment: Experiment) -> str:
    """Return the fingerprint of the experiment's schema, as `read_table` gives it to tables; "" where it has none."""
    return "" if experiment.table_schema is None else read_schema(experiment.table_schema).fingerprint


def compared(experiment: Experiment) -> dict[str, Any]:
    """Return the setting with which sites' own columns are compared before the first round, where the algorithm has it."""
    algorithm = registry.get(experiment.algorithm)
    if "compare" not in algorithm.parameters():
        return {}
    return {"compare": "spread" if "scale" in algorithm.parameters() else "names"}


def one_table(experiment: Experiment) -> tuple[Dataset, Sequence[str] | None]:
    """Return the rows of the file that an experiment names, to be assigned to sites, and their ids if they have any."""
    path = Path(experiment.data)
    typed = typed_file(path, schema_of(experiment), experiment.truth)
    ids = None if typed.table.ids is None else tuple(typed.table.ids)
    return replace(_joined(path.name, {"": typed})[0], dropped=typed.table.dropped), ids


def typed_sites(folder: Path, schema: TableSchema, truth: str | None) -> dict[str, TypedTable]:
    """Return the tables in a folder by site, each read with the mapping beside it.

    Raises:
        UserError: there are no tables.
        TableFaults: tables do not fit the schema, or cannot be read at all; all faults of all tables are in it.
    """
    files = site_files(folder)
    tables: dict[str, TypedTable] = {}
    faults: dict[str, Sequence[str]] = {}
    for site, path in files.items():
        assert isinstance(path, Path)
        try:
            tables[site] = typed_file(path, schema, truth, site_limit(len(files)))
        except TableFaults as error:
            faults |= error.faults
        except UserError as error:
            faults[str(path)] = [str(error).removeprefix(str(path)).lstrip(": ")]
    if faults:
        raise TableFaults(faults)
    return tables


def typed_file(
    path: Path,
    schema: TableSchema,
    truth: str | None,
    memory: int | None = None,
    mapping: TableMapping | None = None,
) -> TypedTable:
    """Return the table of a file; without a `mapping`, it is read with the one beside it, where there is one."""
    own = mapping or mapping_of(path)
    try:
        return read_typed([File(path, str(path))], schema, own, truth=truth, memory=memory, bounded=True)
    except TableFaults:
        raise
    except UserError as error:
        raise UserError(unmarked(str(error))) from None


def mapping_file(path: Path) -> Path:
    """Return the file beside a table that says how it differs from the schema; there may be none."""
    return path.with_name(path.stem + MAPPING)


def mapping_of(path: Path) -> TableMapping | None:
    """Return the mapping in the file beside a table; None where there is none."""
    beside = mapping_file(path)
    return read_mapping(beside) if beside.is_file() else None


def schema_of(experiment: Experiment) -> TableSchema:
    """Return the schema that an experiment names; without one, all columns are numbers but those of ids and of classes."""
    if experiment.table_schema is not None:
        return read_schema(experiment.table_schema)
    path = Path(experiment.data)
    if path.is_dir():
        path = next(file for file in site_files(path).values() if isinstance(file, Path))
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS or not path.is_file():
        raise UserError(f"{path}: --id and --truth (id_column=, truth=) are for {', '.join(FORMATS)} files")
    given = mapping_of(path) or TableMapping()
    names = names_of(path, form, given.encoding, str(path))
    columns = {name: _ID if name == experiment.id_column else _NUMBER for name in names if name != experiment.truth}
    for name in (experiment.id_column, experiment.truth):
        if name is not None and name not in names:
            raise UserError(f"{path} has no column {name!r}{did_you_mean(name, names)}")
    return TableSchema(columns=columns)


def _joined(
    name: str, tables: Mapping[str, TypedTable], columns: tuple[str, ...] | None = None
) -> tuple[Dataset, dict[str, IntArray]]:
    """Return the rows of all tables as one data set, with their known classes, and the places of each table's rows in it.

    Of `columns` (the tables' by default) NaN where a table lacks one.
    """
    columns = columns or next(iter(tables.values())).table.columns or ()
    index, at = {}, 0
    for site, typed in tables.items():
        index[site] = np.arange(at, at + len(typed.table))
        at += len(typed.table)
    X = np.full((at, len(columns)), np.nan)
    for site, typed in tables.items():
        has = np.array([columns.index(own) for own in typed.table.columns or ()])
        X[np.ix_(index[site], has)] = typed.table.X
    classes = [typed.truth for typed in tables.values()]
    y = None
    if None not in classes:
        texts = np.array([text for own in classes for text in own or ()], dtype=str)
        y = np.unique(texts, return_inverse=True)[1].astype(np.int64)
    return Dataset(name, X, y, columns=columns), index
