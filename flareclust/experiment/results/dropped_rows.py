"""Warnings about rows of sites' tables that took no part, since a cell is missing, or whose id has come before."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.display import some
from flareclust.data.tables import RowsRead, Table
from flareclust.privacy.policy import Policy
from flareclust.protocol.cluster_arrays import ROWS_READ, ROWS_READ_SITES

if TYPE_CHECKING:
    from flareclust.experiment.results.ended import Ended

#: So many sites are named in a warning.
_MOST_NAMED = 5


def dropped_rows(run: "Ended", absent: Collection[str]) -> Iterator[str]:
    """Give where tables have rows that took no part, or whose id has come before: those read here, and what sites say of theirs.

    `absent` are the sites that took no part. With secure sums it is of all sites together; under differential privacy nothing is
    said, as of the rows assessed. Under a policy a site's ids are counted from its floor on, and rows that were left out where all
    sites' numbers of them are.
    """
    if "differentially-private" in run.algorithm.promises:
        return
    prepared = run.prepared
    tables = {site: rows for site, rows in prepared.sites.items() if isinstance(rows, Table) and site not in absent}
    read = {site: table.rows_read for site, table in tables.items()}
    read |= _left_out_by_the_job(run, read)
    read |= (by_sites := _said_by_sites(run, {*read, *absent}))
    floor = 0 if run.experiment.policy is None else Policy.of(run.experiment.policy).min_count
    read = {site: own if own.repeated >= floor else own._replace(repeated=0) for site, own in read.items()}
    whole_table = [] if prepared.dataset is None else [prepared.dataset.rows_read]
    if any(0 < own.gaps < floor for own in (*read.values(), *whole_table)):
        few = [site for site, own in read.items() if own.gaps < floor]  # also those without any: nobody says which
        yield _few(run, few, floor)
        read = {site: own._replace(of=own.of - own.gaps, gaps=0) for site, own in read.items()}
        whole_table = [own._replace(of=own.of - own.gaps, gaps=0) for own in whole_table]
    every = [*read.values(), *whole_table]
    of, gaps, repeated = np.sum([(0, 0, 0), *(own[:3] for own in every)], axis=0).tolist()
    whole = next((own for own in every if own.repeated), RowsRead())._replace(of=of, gaps=gaps, repeated=repeated)
    for kind, found in whole.notes(run.row_name).items():
        numbers = {site: getattr(own, kind) for site, own in read.items() if getattr(own, kind)}
        having = sorted(numbers, key=numbers.__getitem__, reverse=True)
        named = [f"{site} {numbers[site]:,} of {read[site].of:,}" for site in having]
        at = "" if run.experiment.secure_sums or not named else f": {some(named, _MOST_NAMED, 'more sites')}"
        yield f"{found}{at}{'; a site with a policy says multiples of the smallest number that it lets out' if by_sites else ''}"
    silent = [site for site, own in tables.items() if _hides_repeats(run, own, read[site].repeated)]
    if silent:
        of = "any site" if run.experiment.secure_sums else some(silent, _MOST_NAMED, "more sites")
        yield (
            f"whether {run.row_name} of {of} repeat an id is not said, since the sites' policy lets out no number below {floor}; at the "
            "site flareclust schema check FILE --schema SCHEMA counts them"
        )


def _left_out_by_the_job(run: "Ended", read: Mapping[str, RowsRead]) -> dict[str, RowsRead]:
    """Return what is known of tables of which the algorithm left out rows, and not the reading."""
    arrays, labels = run.outcome.arrays, run.outcome.labels
    if "rows_by_site" not in arrays or run.experiment.policy is not None:
        return {}
    numbers = zip(arrays["column_sites"].tolist(), arrays["rows_by_site"].tolist(), strict=True)
    kept = {site: (n, len(labels[site])) for site, n in numbers if site in labels}
    return {site: read.get(site, RowsRead())._replace(of=of, gaps=of - n) for site, (n, of) in kept.items() if n < of}


def _said_by_sites(run: "Ended", but: Collection[str]) -> dict[str, RowsRead]:
    """Return what sites whose tables are not here say about their rows; with secure sums all together, under no name."""
    arrays = run.outcome.arrays
    if ROWS_READ not in arrays or any(isinstance(rows, Table) for rows in run.prepared.sites.values()):
        return {}
    numbers = zip(arrays[ROWS_READ_SITES].tolist() or [""], arrays[ROWS_READ].tolist(), strict=True)
    return {site: RowsRead(kept + gaps, gaps) for site, (kept, gaps) in numbers if site not in but}


def _few(run: "Ended", sites: Sequence[str], floor: int) -> str:
    """Return a sentence about rows that were left out, of which a policy keeps back how many at these sites; of a table that was
    split, none."""
    of = some(sites, _MOST_NAMED, "more sites") if sites and not run.experiment.secure_sums else "the sites"
    return (
        f"{run.row_name} were left out, since a cell is missing (missing: drop-rows); how many is not said, since the policy lets out no "
        f"number below {floor}, which {of} may have; flareclust schema check FILE --schema SCHEMA counts them there"
    )


def _hides_repeats(run: "Ended", table: Table, said: int) -> bool:
    """Whether rows of a table may have one id, whose number a policy keeps back."""
    under_policy, read = run.experiment.policy is not None, table.rows_read
    return under_policy and not said and table.ids is not None and read.of > 0 and read.duplicates != "refuse"
