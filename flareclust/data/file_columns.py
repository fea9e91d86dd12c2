"""Which columns of a file make a table: those asked for by name, or all; and the same of every file of a table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean
from flareclust.data.file_formats import Names, listed

#: So many missing columns are named in a message.
_MOST_HINTS = 12


@dataclass(frozen=True)
class Columns:
    """The columns of the first file of a table, which the others must have, too.

    Attributes:
        place: what messages call the file.
        every: their names, None where there are none.
        positions: which of them were chosen, None for all.
    """

    place: str
    every: Names | None
    positions: list[int] | None

    @property
    def chosen(self) -> Names | None:
        """Return the names of the columns of the table."""
        if self.every is None or self.positions is None:
            return self.every
        return tuple(self.every[j] for j in self.positions)

    def places_in(self, names: Names | None, positions: list[int] | None, place: str) -> list[int] | None:
        """Return where a further file has the table's columns.

        Args:
            names: its own.
            positions: which of them were chosen by name, None for all.
            place: what messages call it.

        Raises:
            UserError: its columns are others.
        """
        own = names if names is None or positions is None else tuple(names[j] for j in positions)
        chosen = self.chosen
        if (own is None) != (chosen is None):
            raise UserError(f"{place} and {self.place} must both have names of columns, or neither")
        if own is None or chosen is None or own == chosen:
            return positions
        if odd := sorted(set(own) ^ set(chosen)):
            raise UserError(f"{place} has other columns than {self.place}; on one side only: {listed(odd)}")
        at = {name: j for j, name in enumerate(own)}
        return [at[name] for name in chosen]


def asked_for(columns: Sequence[str] | None, place: str) -> Names | None:
    """Return the names of the columns asked for, None for all; raise UserError for none, or the same one twice."""
    if columns is None:
        return None
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    if not wanted:
        raise UserError(f"{place}: an empty list of columns was asked for; name at least one, or leave it out for all")
    _refuse_repeats(wanted, f"{place}: the columns asked for")
    return wanted


def positions_of(names: Names | None, wanted: Names | None, may_lack: bool, place: str) -> list[int] | None:
    """Return where the wanted columns are among `names`; None stands for all."""
    if names is None:
        if wanted is not None:
            raise UserError(f"{place} has no column names to choose by; an array `columns` (.npz) can name them")
        return None
    if wanted is None:
        _refuse_repeats(names, f"{place}: the column names")
        return None
    at = {name: j for j, name in enumerate(names)}
    missing = [name for name in wanted if name not in at]
    if may_lack and len(missing) < len(wanted):
        wanted = tuple(name for name in wanted if name in at)
    elif missing:
        hints = ", ".join(f"{shown(name)}{did_you_mean(name, names)}" for name in missing[:_MOST_HINTS])
        more = f" and {len(missing) - _MOST_HINTS} more" if len(missing) > _MOST_HINTS else ""
        raise UserError(f"{place} has no column {hints}{more}; it has {listed(names)}")
    asked = set(wanted)
    _refuse_repeats([name for name in names if name in asked], f"{place}: the column names")
    return [at[name] for name in wanted]


def _refuse_repeats(names: Sequence[str], subject: str) -> None:
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"{subject} hold {listed(repeated)} more than once; every name must differ")
