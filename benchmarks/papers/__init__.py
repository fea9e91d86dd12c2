"""The tables and figures of the papers, run again: one entry per group that comes from the same runs."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from benchmarks.papers.base import Entry
from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean

#: Papers in the order of the page; each module `benchmarks.papers.<paper>` has `ENTRIES`.
PAPERS = ("feca", "kfed", "fkm", "dkmpp", "masked")


def _collect() -> tuple[Entry, ...]:
    modules = (f"{__name__}.{paper}" for paper in PAPERS)
    return tuple(entry for module in modules if find_spec(module) for entry in import_module(module).ENTRIES)


ENTRIES: tuple[Entry, ...] = _collect()


def find(name: str, entries: Sequence[Entry] = ENTRIES) -> list[Entry]:
    """Return the entries that a name means: "all", a paper ("feca"), an entry, or a table or figure that one covers.

    Raises:
        UserError: nothing has that name; the nearest one is suggested.
    """
    found = [entry for entry in entries if name in ("all", entry.paper, entry.name, *entry.covers)]
    if not found:
        known = ["all", *dict.fromkeys(entry.paper for entry in entries)]
        for entry in entries:
            known += [entry.name, *entry.covers]
        raise UserError(f"no table or figure is called {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}")
    return found
