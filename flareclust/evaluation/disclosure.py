"""Which outputs may be released, by the rules that output checkers apply: a threshold for cells, class disclosure, dominance of a site.

The record of an output has the fields of ACRO (Smith, Albashir, et al.: ACRO, a tool for semi-automated statistical disclosure control).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, IntArray
from flareclust._foundation.version import __version__
from flareclust.evaluation.dominance import Dominance, K, N, P

#: The file of a record, beside what it is about.
DISCLOSURE = "disclosure.json"

#: Why the rule is the default one: simulated sites have no policy; real ones may have, and outcomes show that they have.
_NO_POLICY, NOT_KNOWN = "the sites have no policy", "the thresholds of the sites' policies are not known here"

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
        why_default: why it is not that of a policy, where it is not.
        noise: the terms of differential privacy, such as `epsilon` and `delta`; None without.
        row_name: what rows are called.
    """

    threshold: int = _USUAL_THRESHOLD
    known: bool = False
    noise: Mapping[str, Any] | None = None
    row_name: str = "rows"
    why_default: str = _NO_POLICY

    @property
    def source(self) -> str:
        """Return whose rule it is."""
        return "the sites' policy" if self.known else f"the default, since {self.why_default}"


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

    def named(self, flagged: Mapping[str, BoolArray | None]) -> dict[str, dict[str, str]]:
        """Return the words by which each cell (r, c) is flagged, by column and line, of each word the first `_MOST_NAMED`."""
        found: dict[str, dict[str, str]] = {}
        for word, cells in flagged.items():
            for r, c in [] if cells is None else np.argwhere(cells)[:_MOST_NAMED].tolist():
                line = found.setdefault(self.columns[c], {})
                line[self.rows[r]] = f"{line[self.rows[r]]}; {word}" if self.rows[r] in line else word
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
        magnitudes: whether it has sums or means, to which the rules of dominance apply.
        dominance: what these find; None where nobody here knows.
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
    magnitudes: bool = False
    dominance: Dominance | None = None


def worst(statuses: Sequence[str]) -> str:
    """Return the worst status; that of nothing is pass."""
    return max(statuses, key=_STATUSES.index, default=PASS)


def record_of_all(
    outputs: Iterable[Output], rule: Rule, command: str, timestamp: str, secure_sums: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the disclosure record of all outputs of a folder, plain JSON.

    Args:
        outputs: the tables, pictures and files.
        rule: that they are held to.
        command: that makes them again.
        timestamp: when the last numbers of them came.
        secure_sums: of how many sites masked sums are; None without.
    """
    records = {one.uid: record_of(one, rule, command, timestamp) for one in outputs}
    by_file: dict[str, list[str]] = {}
    for one in records.values():
        for file in one["files"]:
            by_file.setdefault(file["name"], []).append(one["status"])
    return {
        "version": __version__,
        "rule": {
            "threshold": rule.threshold,
            "source": rule.source,
            "differential_privacy": rule.noise,
            "secure_sums": secure_sums,
            "dominance": {"p": P, "n": N, "k": K},
        },
        "status": worst([one["status"] for one in records.values()]),
        "files": {name: worst(statuses) for name, statuses in by_file.items()},
        "results": records,
    }


def record_of(output: Output, rule: Rule, command: str, timestamp: str) -> dict[str, Any]:
    """Return the record of an output, plain JSON under the names of ACRO's fields."""
    covered = rule.noise is not None and output.noisy
    cells = None if covered else output.cells
    findings = [*output.findings, *_findings(output, rule, covered=covered)]
    status, below = worst([one.status for one in findings]), _below(cells, rule.threshold)
    dominating: dict[str, BoolArray | None] = dict.fromkeys(("negative", "p-ratio", "nk-rule"))  # under ACRO's names
    if (dominance := output.dominance) is not None and not covered:
        dominating = {"negative": dominance.negative, "p-ratio": dominance.p_ratio, "nk-rule": dominance.nk}
    known = np.zeros(0, dtype=np.int64) if cells is None else cells.counts[cells.counts > 0]
    reasons = [one.reason for one in sorted(findings, key=lambda one: -_STATUSES.index(one.status))]
    sdc = {
        "summary": {
            "suppressed": bool(output.suppressed),
            "threshold": int(below.sum()),
            "all-values-are-same": output.same,
            "missing": None,  # which is not checked
            **{name: None if flagged is None else int(flagged.sum()) for name, flagged in dominating.items()},
        },
        "cells": {
            name: np.argwhere(flagged)[:_MOST_NAMED].tolist()
            for name, flagged in {"threshold": below, **dominating}.items()
            if flagged is not None
        },
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
        "outcome": {} if cells is None else cells.named({"threshold": below, **dominating}),
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


def _of_dominance(found: Dominance | None, rule: Rule) -> Iterator[Finding]:
    """Give what the rules of dominance find in a table of sums or means."""
    rows, rules = rule.row_name, f"{P} % rule, ({N}, {K}) rule"
    policy = "; the sites' policy applies the p % rule in each of its groups" if rule.known else ""
    if found is None:
        yield Finding(REVIEW, f"dominance ({rules}) needs the {rows}, which are not here{policy}")
        return
    flagged, negative, unknown = (int(one.sum()) for one in (found.p_ratio | found.nk, found.negative, found.unknown))
    if flagged:
        which = f"p % rule {int(found.p_ratio.sum()):,}, (n, k) rule {int(found.nk.sum()):,}"
        yield Finding(FAIL, f"dominance: one or two {rows} are most of {_many(flagged, 'cell')} ({which})")
    if negative:
        many = _many(negative, "cell")
        yield Finding(REVIEW, f"dominance was not checked of {many} with negative values, which the rules are not for")
    if unknown:
        known = "number, mean and deviation do not exclude it"
        yield Finding(
            REVIEW, f"dominance in {_many(unknown, 'cell')} needs the {rows}, which are not here: {known}{policy}"
        )
    if not (flagged or negative or unknown):
        how = "" if found.exact else ", by number, mean and deviation, if no value is negative"
        yield Finding(PASS, f"no dominance ({rules}){how}")


def _findings(output: Output, rule: Rule, *, covered: bool) -> Iterator[Finding]:
    if output.kind == "microdata":
        yield Finding(FAIL, f"it shows single {rule.row_name}")
        return
    if covered:
        yield from _of_noise(rule)
        return
    if rule.noise is not None:
        yield Finding(REVIEW, f"it has exact numbers of {rule.row_name} on this machine, which no noise covers")
    if output.cells is None:
        yield Finding(REVIEW, output.unknown or f"how many {rule.row_name} are behind its numbers is not known")
    else:
        yield from _of_cells(output.cells, rule)
    if output.magnitudes:
        yield from _of_dominance(output.dominance, rule)
    if output.same:
        yield Finding(
            REVIEW,
            f"class disclosure: in {_many(output.same, 'cell')} all {rule.row_name} have the same value, which the mean is",
        )
    if not rule.known:
        yield Finding(REVIEW, rule.why_default)


def _of_noise(rule: Rule) -> Iterator[Finding]:
    terms = rule.noise or {}
    said = ", ".join(f"{name} {value}" for name, value in terms.items() if value is not None)
    if not isinstance(epsilon := terms.get("epsilon"), int | float):
        yield Finding(REVIEW, "differentially private, but the budget is not known here")
    elif epsilon >= _WEAK_EPSILON:
        yield Finding(REVIEW, f"differentially private, but such a guarantee says little: {said}")
    elif not rule.known:
        yield Finding(REVIEW, f"differentially private ({said}), by policies of sites whose terms are not known here")
    else:
        yield Finding(PASS, f"differentially private in the place of a threshold: {said}")


def _of_cells(cells: Cells, rule: Rule) -> Iterator[Finding]:
    counts, below = cells.counts, _below(cells, rule.threshold)
    if below.any():
        smallest = int(counts[below].min())
        yield Finding(
            FAIL,
            f"{_many(int(below.sum()), 'cell')} of fewer than {rule.threshold} {rule.row_name}; the smallest has {smallest}",
        )
    usual = _below(cells, _USUAL_THRESHOLD) & ~below
    if usual.any():
        yield Finding(
            REVIEW,
            f"{_many(int(usual.sum()), 'cell')} of fewer than {_USUAL_THRESHOLD} {rule.row_name}, the usual threshold; the sites' policy allows "
            f"them from {rule.threshold} on",
        )
    if cells.divided and counts.shape[1] > 1:
        total = counts.sum(axis=1, keepdims=True)
        zeros, full = int(((counts == 0) & (total > 0)).sum()), int(((counts == total) & (total > 0)).sum())
        if zeros or full:
            yield Finding(
                REVIEW,
                f"class disclosure: {_many(zeros, 'cell')} of 0 {rule.row_name}, and {_many(full, 'cell')} with all {rule.row_name} of a line",
            )
    if not below.any() and not usual.any() and rule.known:
        yield Finding(PASS, f"no cell of fewer than {rule.threshold} {rule.row_name}")


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
