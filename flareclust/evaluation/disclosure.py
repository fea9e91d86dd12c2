"""Which outputs may be released, by the rules that output checkers apply: a threshold for cells, class disclosure, dominance of a site.

The record of an output has the fields of ACRO (Smith, Albashir, et al.: ACRO, a tool for semi-automated statistical disclosure control).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, IntArray

#: From best to worst.
_STATUSES = (PASS, REVIEW, FAIL) = ("pass", "review", "fail")

#: The fewest rows of a cell where no rule of the sites is known: the usual threshold of output checkers.
_USUAL_THRESHOLD = 10

#: From so many numbers for each row on, numbers can determine the rows (DataSHIELD's nfilter.glm and nfilter.levels.density).
SATURATED = 0.33

#: From this epsilon on, a guarantee of differential privacy says little.
_WEAK_EPSILON = 10.0

#: So many cells are named.
_MOST_NAMED = 500


class Finding(NamedTuple):
    """What a check came to: a status, and the reason in a sentence."""

    status: str
    reason: str


@dataclass(frozen=True)
class Rule:
    """The rule that outputs are held to.

    Attributes:
        threshold: a cell of fewer rows fails.
        known: whether it is that of the sites' policy; else it is the default, and no output passes.
        noise: the terms of differential privacy, such as `epsilon` and `delta`; None without.
    """

    threshold: int = _USUAL_THRESHOLD
    known: bool = False
    noise: Mapping[str, Any] | None = None

    @property
    def source(self) -> str:
        """Return whose rule it is."""
        return "the sites' policy" if self.known else "the default, since the sites' policy is not known here"


@dataclass(frozen=True)
class Cells:
    """Numbers of rows behind an output.

    Attributes:
        counts: of each cell (r, c).
        rows: names (r,).
        columns: names (c,).
        divided: whether the rows of each line are divided among its cells, so that a 0, and a cell that has all, say something
            of each row that the line is about.
    """

    counts: IntArray
    rows: Sequence[str]
    columns: Sequence[str]
    divided: bool = False

    def named(self, flagged: BoolArray, word: str) -> dict[str, dict[str, str]]:
        """Return a word for each flagged cell (r, c) by column and line, the first `_MOST_NAMED`."""
        found: dict[str, dict[str, str]] = {}
        for r, c in np.argwhere(flagged)[:_MOST_NAMED].tolist():
            found.setdefault(self.columns[c], {})[self.rows[r]] = word
        return found


@dataclass(frozen=True)
class Output:
    """A table, a picture or a file that can be released or not.

    Attributes:
        uid: its name in the record.
        kind: table, plot, model, microdata or custom.
        title: what it is.
        files: that show it, in the folder of the result.
        cells: how many rows are behind its numbers; None where that is not known.
        unknown: why it is not.
        noisy: whether noise of differential privacy, where there is any, covers all of its numbers.
        findings: of checks that only this output needs.
        properties: that only this output has.
        suppressed: cells that the sites' rules have left out; None where nobody knows.
        same: cells in which all values are the same.
    """

    uid: str
    kind: str
    title: str
    files: tuple[str, ...]
    cells: Cells | None = None
    unknown: str = ""
    noisy: bool = True
    findings: tuple[Finding, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    suppressed: int | None = None
    same: int = 0


def worst(statuses: Sequence[str]) -> str:
    """Return the worst status; that of nothing is pass."""
    return max(statuses, key=_STATUSES.index, default=PASS)


def record_of(output: Output, rule: Rule, command: str, timestamp: str) -> dict[str, Any]:
    """Return the record of an output, plain JSON under the names of ACRO's fields."""
    covered = rule.noise is not None and output.noisy
    cells = None if covered else output.cells
    findings = [*output.findings, *_findings(output, rule, covered=covered)]
    status, below = worst([one.status for one in findings]), _below(cells, rule.threshold)
    known = np.zeros(0, dtype=np.int64) if cells is None else cells.counts[cells.counts > 0]
    reasons = [one.reason for one in sorted(findings, key=lambda one: -_STATUSES.index(one.status))]
    sdc = {
        "summary": {
            "suppressed": bool(output.suppressed),
            "threshold": int(below.sum()),
            "all-values-are-same": output.same,
            **dict.fromkeys(("negative", "missing", "p-ratio", "nk-rule")),  # which are not checked
        },
        "cells": {"threshold": np.argwhere(below)[:_MOST_NAMED].tolist()},
    }
    return {
        "uid": output.uid,
        "status": status,
        "type": output.kind,
        "properties": {
            "method": output.title,
            "rule": rule.source,
            "threshold": None if covered else rule.threshold,
            "cells": len(known) or None,
            "smallest_cell": int(known.min()) if len(known) else None,
            "suppressed_cells": output.suppressed,
            **output.properties,
        },
        "files": [{"name": name, "sdc": sdc} for name in output.files],
        "outcome": {} if cells is None else cells.named(below, "threshold"),
        "command": command,
        "summary": "; ".join([status, *reasons]),
        "timestamp": timestamp,
        "comments": reasons,
        "exception": "",
    }


def _below(cells: Cells | None, threshold: int) -> BoolArray:
    if cells is None:
        return np.zeros((0, 0), dtype=np.bool_)
    found: BoolArray = (cells.counts > 0) & (cells.counts < threshold)
    return found


def _findings(output: Output, rule: Rule, *, covered: bool) -> Iterator[Finding]:
    if output.kind == "microdata":
        yield Finding(FAIL, "it shows single rows")
        return
    if covered:
        yield from _of_noise(rule)
        return
    if rule.noise is not None:
        yield Finding(REVIEW, "it has exact numbers of rows that are on this machine, which no noise covers")
    if output.cells is None:
        yield Finding(REVIEW, output.unknown or "how many rows are behind its numbers is not known")
    else:
        yield from _of_cells(output.cells, rule)
    if output.same:
        yield Finding(
            REVIEW, f"class disclosure: in {_many(output.same, 'cell')} all rows have the same value, which the mean is"
        )
    if not rule.known:
        yield Finding(REVIEW, "the sites' policy is not known here")


def _of_noise(rule: Rule) -> Iterator[Finding]:
    terms = rule.noise or {}
    said = ", ".join(f"{name} {value}" for name, value in terms.items() if value is not None)
    if not isinstance(epsilon := terms.get("epsilon"), int | float):
        yield Finding(REVIEW, "differentially private, but the budget is not known here")
    elif epsilon >= _WEAK_EPSILON:
        yield Finding(REVIEW, f"differentially private, but such a guarantee says little: {said}")
    elif not rule.known:
        yield Finding(REVIEW, f"differentially private ({said}), by a policy of the sites that is not known here")
    else:
        yield Finding(PASS, f"differentially private in the place of a threshold: {said}")


def _of_cells(cells: Cells, rule: Rule) -> Iterator[Finding]:
    counts, below = cells.counts, _below(cells, rule.threshold)
    if below.any():
        smallest = int(counts[below].min())
        yield Finding(
            FAIL, f"{_many(int(below.sum()), 'cell')} of fewer than {rule.threshold} rows; the smallest has {smallest}"
        )
    usual = _below(cells, _USUAL_THRESHOLD) & ~below
    if usual.any():
        yield Finding(
            REVIEW,
            f"{_many(int(usual.sum()), 'cell')} of fewer than {_USUAL_THRESHOLD} rows, the usual threshold; the sites' policy allows "
            f"them from {rule.threshold} on",
        )
    if cells.divided and counts.shape[1] > 1:
        total = counts.sum(axis=1, keepdims=True)
        zeros, full = int(((counts == 0) & (total > 0)).sum()), int(((counts == total) & (total > 0)).sum())
        if zeros or full:
            yield Finding(
                REVIEW,
                f"class disclosure: {_many(zeros, 'cell')} of 0 rows, and {_many(full, 'cell')} with all rows of a line",
            )
    if not below.any() and not usual.any() and rule.known:
        yield Finding(PASS, f"no cell of fewer than {rule.threshold} rows")


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
