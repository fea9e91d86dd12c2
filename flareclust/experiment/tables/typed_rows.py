"""An experiment on a user's own tables, read by a schema: all of them are read, and found faulty or not, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Agreement, IntArray
from flareclust.data.datasets import Dataset
from flareclust.data.schema.columns import TableSchema, read_schema
from flareclust.data.schema.reading import without
from flareclust.data.tables import Table
from flareclust.experiment.config import Experiment, RowsAsked, make_experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.tables.site_rows import site_files
from flareclust.experiment.tables.typed_files import schema_of, typed_sites, typed_table
from flareclust.protocol import registry


def own_sites(asked: RowsAsked, given: Mapping[str, Any] | None = None) -> Prepared:
    """Return the federation of files and data frames by site; by default of the files in the folder that is asked for."""
    tables = site_files(Path(asked.data)) if given is None else given
    schema, agreed = schema_of(asked, tables), asked.table_schema is not None
    sites = typed_sites(tables, schema, asked.truth, agreed=agreed)
    columns = _columns_of_any(sites, schema, asked)
    agreement: Agreement = "may-lack" if asked.by_name else "has"
    ids = {site: tuple(table.ids) for site, table in sites.items() if table.ids is not None}
    dataset, index = (None, None) if asked.truth is None else _joined(asked.data, sites, columns)
    known = 0 if dataset is None else dataset.n_clusters or 0
    return Prepared(known, sites, index, dataset, columns, agreement, ids=ids)


def _columns_of_any(sites: Mapping[str, Table], schema: TableSchema, asked: RowsAsked) -> tuple[str, ...]:
    """Return the features that any site has, in the schema's order; refuse that a site lacks some where it may not."""
    present = {name for table in sites.values() for name in table.columns or ()}
    columns = tuple(name for name in without(schema, asked.truth).features if name in present)
    for site, table in sites.items():
        if not asked.by_name and (lacking := [name for name in columns if name not in (table.columns or ())]):
            why = "" if asked.table_schema is None else " (lacks in its mapping)"
            raise UserError(
                f"{site} lacks {', '.join(lacking[:12])}{why}, and {asked.algorithm} needs the same columns at "
                "every site; take an algorithm for sites with different columns, such as masked"
            )
    return columns


def settled_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an algorithm that a run of tables settles by itself; those of the experiment come first.

    Beside those that follow from the schema: how sites' own columns are compared, and by which schema provisioned sites must
    have read their rows. Empty for data that are no such tables.

    Raises:
        UserError: the schema cannot be read, or the algorithm cannot do what it says.
    """
    provisioned = experiment.engine == "production"
    found = compared(experiment) if provisioned or (experiment.rows.typed and experiment.partition == "none") else {}
    found |= _agreed_settings(experiment)
    return found | (required_schema(experiment.table_schema) if provisioned else {})


def exported_settings(algorithm: str, params: Mapping[str, Any], schema: Path, *, secure_sums: bool) -> dict[str, Any]:
    """Return the settings that a schema settles in an exported job: those of a job that `run` submits to provisioned sites."""
    about = {"algorithm": algorithm, "params": dict(params), "secure_sums": secure_sums, "table_schema": str(schema)}
    return settled_settings(make_experiment(engine="production", kit="that of who submits it", **about))


def required_schema(file: str | None) -> dict[str, Any]:
    """Return the setting that makes a site refuse if it used another schema than that of a file; none without a file."""
    return {} if file is None else {"table_schema": read_schema(file).fingerprint}


def _agreed_settings(experiment: Experiment) -> dict[str, Any]:
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
        groups = schema.categories  # sites with different columns know them by their names
        found["categories"] = [[schema.features[j] for j in group] for group in groups] if partial else groups
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
    elif (asked := experiment.params.get("missing", "refuse")) != "refuse" and (
        dropping := [name for name in schema.used if schema.missing_of(name) == "drop-rows"]
    ):
        raise UserError(
            f"missing={asked} is without effect: the schema says missing: drop-rows of {', '.join(dropping)}, so no cell is "
            f"missing in the rows that are left; leave it out, or say missing: {asked} in the schema"
        )
    if "table_ranges" in known and experiment.params.get("scale") == "range":
        ranges = dict(zip(schema.features, schema.ranges, strict=True))
        known_ranges = {name: own for name, own in ranges.items() if own is not None}
        found["table_ranges"] = known_ranges if partial else schema.ranges
    return found


def _check_weights(experiment: Experiment, schema: TableSchema) -> None:
    """Raise UserError where the schema has weights and the run cannot take them."""
    private = "differentially-private" in registry.get(experiment.algorithm).promises
    against = {
        f"{experiment.algorithm} (differential privacy)": private,
        "policy": experiment.policy,
        "secure_sums": experiment.secure_sums,
        f"partition {experiment.partition}, which would put one row at several sites": experiment.partition != "none",
    }
    what = next((words for words, holds in against.items() if holds), None)
    if schema.weight is not None and what is not None:
        raise UserError(
            f"the weights of the column {schema.weight!r} do not go with {what}; leave that out, or make the column type ignore"
        )


def schema_facts(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of `Prepared` that follow from the experiment's schema: units, fingerprint, words, outcomes; none without one."""
    if experiment.table_schema is None:
        return {}
    whole = read_schema(experiment.table_schema)
    schema = without(whole, experiment.truth)
    units = schema.feature_units
    own = {"units": units if any(units) else (), "schema": whole.fingerprint, "words": schema.words}
    return own | outcome_facts(experiment.table_schema, experiment.truth)


def outcome_facts(file: str | Path | None, truth: str | None = None) -> dict[str, Any]:
    """Return the fields of `Prepared` about the outcome that the schema in a file names; none without a file.

    The column of known classes, `truth`, is no feature.
    """
    if file is None:
        return {}
    schema = without(read_schema(file), truth)
    form = None if schema.outcome_form is None else tuple(schema.outcome_form.numbers.tolist())
    return {"outcomes": form, "outcome_names": schema.outcome_names, "outcome_hint": schema.outcome_hint}


def compared(experiment: Experiment) -> dict[str, Any]:
    """Return the setting with which sites' own columns are compared before the first round, where the algorithm has it."""
    known = registry.get(experiment.algorithm).parameters()
    return {"compare": "spread" if "scale" in known else "names"} if "compare" in known else {}


def one_table(asked: RowsAsked, frame: Any = None) -> tuple[Dataset, Sequence[str] | None]:
    """Return the rows of a data frame, or the file that is asked for, to be assigned to sites, and their ids if they have any."""
    rows, name = (frame, "data") if frame is not None else (asked.table, asked.data)
    table = typed_table("data", rows, schema_of(asked, {name: rows}), asked.truth)
    ids = None if table.ids is None else tuple(table.ids)
    about = {name: getattr(table, name) for name in ("rows_read", "outcomes", "outcome_form")}
    return replace(_joined(Path(asked.data).name, {"": table})[0], **about), ids


def _joined(
    name: str, tables: Mapping[str, Table], columns: tuple[str, ...] | None = None
) -> tuple[Dataset, dict[str, IntArray]]:
    """Return the rows of all tables as one data set, with their known classes, and the places of each table's rows in it.

    Of `columns` (the tables' by default) NaN where a table lacks one.
    """
    columns = columns or next(iter(tables.values())).columns or ()
    ends = np.cumsum([len(table) for table in tables.values()])
    index = dict(zip(tables, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    X = np.full((ends[-1], len(columns)), np.nan)
    for site, table in tables.items():
        has = np.array([columns.index(own) for own in table.columns or ()])
        X[np.ix_(index[site], has)] = table.X
    classes, y = [table.truth for table in tables.values()], None
    if None not in classes:
        texts = np.array([text for own in classes for text in own or ()], dtype=str)
        y = np.unique(texts, return_inverse=True)[1].astype(np.int64)
    return Dataset(name, X, y, columns=columns), index
