"""What a site finds odd about its columns, where secure sums let nobody compare sites: it takes its own part out of the totals.

The rule is that of the server without secure sums (`flareclust.evaluation.agreement`). The server gets the number of sites by
column and oddity, masked as every sum; the site's own log names the columns.
"""

import logging

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import BoolArray, Message
from flareclust.core.disclosure import rounded
from flareclust.core.scaling import KnownSpread
from flareclust.data.tables import Table
from flareclust.evaluation import agreement
from flareclust.evaluation.units import ODDITIES, Odd
from flareclust.features import alignment
from flareclust.protocol.groups import MEAN, ROWS, SPREAD
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.schema import Schema, counts, real, whole
from flareclust.protocol.task import Task

_log = logging.getLogger(__name__)

#: What asks for it: known cells of each column at all sites, their mean and standard deviation. 0 cells: not compared.
_POOLED = Schema(pooled_counts=counts("d"), pooled_mean="d", pooled_deviation=real("d", minimum=0))

#: What a site answers: 1 for what is odd about a column, else 0.
ODD = Schema(odd=whole("d u"))


def pooled_message(total: Message, left_out: BoolArray) -> Message:
    """Return what sites are sent, from the total of what they sent of their columns as one group.

    Args:
        total: of the step about location and spread.
        left_out: columns that are not compared (d,), such as those of categories.
    """
    own = _spread(total)
    cells = own.counts.copy()
    cells[left_out] = 0
    return _POOLED.pack({"pooled_counts": cells, "pooled_mean": own.mean, "pooled_deviation": own.deviation})


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
    own = (
        _spread({**sent, ROWS: rounded(sent[ROWS], context.round_counts, context.min_count)})
        if len(sent[ROWS])
        else None
    )
    found: list[Odd | None] = [] if own is None else agreement.own_oddities(pooled, own, context.min_count)
    odd = np.zeros((d, len(ODDITIES)), dtype=np.int64)
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
