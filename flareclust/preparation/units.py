"""Columns that are odd at a site beside those of the others, as in another unit: what the server keeps to say so, and what sites do.

The server compares the sites' means and deviations where it knows these of each. With secure sums nobody can compare sites, but
each takes its own part out of the totals: the server gets the number of sites by column and oddity, masked as every sum, and the
site's own log names the columns. The rule is the same (`flareclust.evaluation.agreement`).
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import BoolArray, Message
from flareclust.core.disclosure import rounded
from flareclust.core.scaling import KnownSpread, Spread
from flareclust.core.scaling import rounded as rounded_spread
from flareclust.data.tables import Table
from flareclust.evaluation import agreement
from flareclust.evaluation.units import ODDITIES, Odd
from flareclust.preparation import alignment
from flareclust.preparation.columns import by_column
from flareclust.protocol.columns import ColumnFacts, Columns
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.schema import Schema, counts, real, whole
from flareclust.protocol.task import MEAN, ROWS, SPREAD, Task

_log = logging.getLogger(__name__)

#: A column that is called by its place, since its name is not known yet.
_BY_PLACE = re.compile(r"column 'column (\d+ of \d+)'")

#: What asks for it: known cells of each column at all sites, their mean and standard deviation. 0 cells: not compared.
_POOLED = Schema(pooled_counts=counts("d"), pooled_mean="d", pooled_deviation=real("d", minimum=0))

#: What a site answers: 1 for what is odd about a column, else 0.
ODD = Schema(odd=whole("d u"))


def pooled_message(total: Message, left_out: BoolArray) -> Message:
    """Return what sites are sent, from the total of what they sent of their columns as one group.

    Columns that are `left_out` (d,), such as those of categories, are not compared.
    """
    cells, mean, deviation = _spread(total)
    return _POOLED.pack(dict(zip(_POOLED.fields, (np.where(left_out, 0, cells), mean, deviation), strict=True)))


def odd_columns(task: Task, table: Table, sent: Message, context: SiteContext) -> Message:
    """Return what is odd about the site's columns, and name them in its log.

    Args:
        task: carries the totals.
        table: the columns, by their names.
        sent: what the site has sent of their location and spread.
        context: the site's conditions; numbers of rows were rounded as its policy says.

    Raises:
        BadMessage: the totals do not fit, or this is asked for a second time, as a server would that changes the totals to
            find out about single sites.
    """
    if task.round:
        raise BadMessage("was asked again what is odd about its columns; a job asks for it once, before the rounds")
    d = table.X.shape[1]
    _POOLED.check(task.arrays, {"d": d})
    pooled = KnownSpread(*(task.arrays[name] for name in _POOLED.fields))
    odd, found = np.zeros((d, len(ODDITIES)), dtype=np.int64), list[Odd | None]()
    if len(sent[ROWS]):  # numbers of rows leave rounded
        own = _spread({**sent, ROWS: rounded(sent[ROWS], context.round_counts, context.min_count)})
        found = agreement.own_oddities(pooled, own, context.min_count)
    names = alignment.names_of(table)
    for j, one in enumerate(found):
        if one is not None:
            odd[j, one.code] = 1
            _log.warning("%s: column %r %s", task.site, names[j], one.said)
    return {"odd": odd}


def _spread(group: Message) -> KnownSpread:
    """Return the columns of one group of rows, whose number may be that of each column's known cells."""
    mean, m2 = group[MEAN][0], group[SPREAD][0]
    cells = np.broadcast_to(group[ROWS][0], mean.shape).astype(np.int64)
    return KnownSpread(cells, mean, np.sqrt(m2 / np.maximum(cells, 1)))


# The server's side.


def of_described(columns: Columns, replies: Mapping[str, Message]) -> ColumnFacts:
    """Return what is kept of the sites' own columns, D in all, rounded, from their replies to the step `describe`."""
    cells = np.zeros(columns.masks.shape, dtype=np.int64)
    means, deviations = np.full((2, *cells.shape), np.nan)
    for i, reply in enumerate(replies[site] for site in columns.sites):
        if len(reply["m2"]):
            has, own = alignment.places(columns.codes, reply["codes"])
            n = cells[i, has] = int(reply["rows"])
            exact = Spread(n, reply["mean"][own], np.sqrt(reply["m2"][own] / n))
            _, means[i, has], deviations[i, has] = rounded_spread(exact)
    return ColumnFacts(np.array(columns.sites), cells, means, deviations)


def of_known(columns: Columns, replies: Mapping[str, Message]) -> ColumnFacts:
    """Return the same from what they sent of the known cells of their columns, D in all."""
    cells, means, m2 = by_column(replies, len(columns.codes))
    found = np.full((2, *cells.shape), np.nan)
    for i, j in np.argwhere(cells > 0).tolist():
        n = int(cells[i, j])
        _, *found[:, i, [j]] = rounded_spread(Spread(n, means[i, [j]], np.sqrt(m2[i, [j]] / n)))
    return ColumnFacts(np.array(list(replies)), cells, *found)


def odd_between_sites(
    arrays: Message,
    names: Sequence[str],
    left_out: BoolArray,
    absent: Collection[str] = (),
    column_units: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return a sentence for each column that is odd at a site, or with secure sums at a number of sites.

    Args:
        arrays: of a result, or `ColumnFacts.arrays`.
        names: of the columns (d,).
        left_out: columns that are not compared (d,), as those of categories: they have no units.
        absent: sites that are not compared.
        column_units: by name, where the schema has them.
    """
    if "odd_sites" in arrays:
        return agreement.counted_oddities(arrays["odd_sites"], names)
    if "site_cells" not in arrays:
        return []
    sites = arrays["scaled_sites"].tolist()
    present = np.array([site not in absent for site in sites])
    cells, means, deviations = (
        arrays[name][np.ix_(present, ~left_out)] for name in ("site_cells", "site_means", "site_deviations")
    )
    compared = [name for name, leave in zip(names, left_out.tolist(), strict=True) if not leave]
    return agreement.unit_warnings(
        [site for site in sites if site not in absent], cells, means, deviations, compared, column_units
    )


def log_before_rounds(sentences: Sequence[str]) -> None:
    """Log warnings about columns before the first round; the result has them, too, with the columns' names."""
    for sentence in sentences:
        _log.warning("%s", _BY_PLACE.sub(r"column \1, whose name the sites know,", sentence))
