"""The numbers of rows in a reply, as multiples of what a site's policy says."""

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.core.rounding import rounded
from flareclust.protocol.schema import Schema


def rounded_reply(arrays: Message, schema: Schema, multiple: int, floor: int) -> Message:
    """Return a reply with all its numbers of rows rounded; weights that are no integers know no floor."""
    if multiple == 1:
        return arrays
    fields = schema.fields
    return {
        name: rounded(value, multiple, floor if value.dtype == np.int64 else 1) if fields[name].rows else value
        for name, value in arrays.items()
    }
