"""Whether sites that should have the same columns do: compared by hashes of their names, in their order."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.data.tables import Table
from flareclust.features.alignment import codes_of, salt_code
from flareclust.protocol.schema import Schema, whole

#: So many columns are named in a sentence.
_SHOWN = 8


class _Names(Schema):
    """A schema that finds the sites whose columns are not those of most others."""

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return what is different about the sites that do not have the columns of most others, in their order.

        Sites whose columns have no names, or that hash with another salt than most, cannot be compared.
        """
        salts = Counter(int(reply["salt"]) for reply in replies.values() if reply["codes"].any())
        if not salts:
            return {}
        usual_salt = salts.most_common(1)[0][0]
        own = {
            site: tuple(reply["codes"].tolist())
            for site, reply in replies.items()
            if int(reply["salt"]) == usual_salt and reply["codes"].any()
        }
        usual, sharing = Counter(own.values()).most_common(1)[0]
        if 2 * sharing <= len(own) and len(set(own.values())) > 1:
            why = "has other columns than other sites, or another order, and no list of columns is that of most sites"
            return dict.fromkeys(own, f"{why}; set columns or a schema in local/flareclust.yaml")
        return {site: _difference(codes, usual, sharing) for site, codes in own.items() if codes != usual}


#: What a site answers to the step `names`: a hash of each column's name in their order, 0 for columns without names, and which
#: salt it hashes with.
NAMES_OF_COLUMNS = _Names(codes=whole("d"), salt=whole(""))


def hashed_names(table: Table) -> Message:
    """Return what a site sends of the names of its columns."""
    codes = np.zeros(table.X.shape[1], dtype=np.int64) if table.columns is None else codes_of(table)
    return {"codes": codes, "salt": np.array(salt_code(table.salt))}


def _difference(own: tuple[int, ...], usual: tuple[int, ...], sharing: int) -> str:
    others = f"{sharing} other sites" if sharing > 1 else "1 other site"
    if sorted(own) == sorted(usual):
        moved = [j for j, code in enumerate(own) if code != usual[j]]
        pairs = ", ".join(f"{j + 1} is their {usual.index(own[j]) + 1}" for j in moved[:_SHOWN])
        more = " and more" if len(moved) > _SHOWN else ""
        what = f"has the columns of {others} in another order: its column {pairs}{more}"
    else:
        odd = [str(j + 1) for j, code in enumerate(own) if code not in usual][:_SHOWN]
        which = f": none of theirs has the name of its column {', '.join(odd)}" if odd else ""
        what = f"has other columns than {others}{which}"
    return f"{what}; set columns or a schema in local/flareclust.yaml"
