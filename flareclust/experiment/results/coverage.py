"""How many rows the assessment covers, of how many, and the warnings when rows are missing.

The sites of a provisioned federation do not say how many rows they have. Of runs on them there are three sources:

1. What they reported before the assessment: the rows of their clusters and of their columns. None of these is above the
   number of rows, so where the assessment is of fewer, it left some out.
2. A policy of the run's own. Provisioned sites have theirs, which nobody else knows.
3. Nothing. The assessment can then be of all rows, as it is at sites without a policy; the tables of the result say that the
   number of rows is not known here, and there is no warning.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np

from flareclust._foundation.typing import IntArray, Message
from flareclust.aggregators.described import ROWS_BY_SITE
from flareclust.aggregators.scaled import ROWS_IN_ALL
from flareclust.data.tables import Table
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.federation import ASSESSED, IN_ASSESSMENT
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

#: Share of the rows below which the assessment says little about all of them: where a policy leaves out small cells, inertia
#: falls with every row; elsewhere.
_COVERED_UNDER_POLICY, _COVERED = 0.99, 0.9

#: So many sites are named in a warning.
MOST_NAMED = 5

#: Arrays of a result whose entries add up to rows that the sites reported.
_REPORTED = ("received_counts", "counts", ROWS_IN_ALL)


def left_out(outcome: Outcome) -> dict[str, str]:
    """Return why sites took no part; those that failed in the assessment only took part."""
    return {site: why for site, why in outcome.refused.items() if not why.endswith(IN_ASSESSMENT)}


def assessed_rows(
    experiment: Experiment, prepared: Prepared, outcome: Outcome, places: Mapping[str, IntArray]
) -> dict[str, int | None] | None:
    """Return over how many `rows` the metrics are, `of` how many of the sites that took part, None where that is not known.

    None where there was no assessment, and under differential privacy, where it is not disclosed.

    Args:
        experiment: what was asked.
        prepared: what it ran on.
        outcome: what the engine returned.
        places: of each site's rows in the data.
    """
    assessed = [record for record in outcome.rounds if ASSESSED in cast("dict[str, float]", record["diagnostics"])]
    if not assessed or "differentially-private" in registry.get(experiment.algorithm).promises:
        return None
    absent = left_out(outcome)
    sites = assessed[-1][
        "sites"
    ]  # among them a site that an earlier exchange was too much for; of devices their number
    answered = set(sites) if isinstance(sites, list) else set()
    own = {site for site in outcome.sites if site not in absent or site in answered}
    unknown = {site for site in own if site not in places or isinstance(prepared.sites.get(site), Path)}
    known = not unknown - set(outcome.labels)
    rows = int(cast("dict[str, float]", assessed[-1]["diagnostics"])[ASSESSED])
    return {"rows": rows, "of": sum(len(places[site]) for site in own) if known else None}


def coverage_text(assessed: Mapping[str, int | None]) -> str:
    """Return over how many rows the assessment is, for a table; also where nobody here knows of how many."""
    of = "; how many the sites have is not known here" if assessed["of"] is None else f" of {assessed['of']:,}"
    return f"{assessed['rows'] or 0:,}{of}"


def coverage_warnings(experiment: Experiment, outcome: Outcome, assessed: Mapping[str, int | None] | None) -> list[str]:
    """Return a warning where so many rows were left out of the assessment that its metrics say little."""
    if assessed is None:
        return []
    rows, of = assessed["rows"] or 0, assessed["of"]
    if not rows:
        why = "" if experiment.policy is None else ": every cell has fewer rows than the sites' policy lets out"
        return [f"the assessment is of no rows, so there are no inertia, silhouette and Davies-Bouldin index{why}"]
    if of is None:
        return _of_unknown(experiment, rows, 0 if left_out(outcome) else _reported(outcome.arrays))
    if experiment.policy is None:
        few = rows < _COVERED * of
        return [f"the assessment is of {rows} of {of} rows; its metrics say nothing about the others"] if few else []
    if rows > _COVERED_UNDER_POLICY * of:
        return []
    why = (
        f"the assessment is of {rows} of {of} rows: the sites' policy leaves out small cells, so inertia is "
        "of these rows alone, and cannot be compared with that of another run"
    )
    return [why]


def dropped_warnings(experiment: Experiment, prepared: Prepared, outcome: Outcome) -> list[str]:
    """Return a warning where tables that were read here have rows that took no part, since a cell is missing (drop-rows).

    With secure sums it is of all sites together; under differential privacy nothing is said, as of the rows assessed.
    """
    if "differentially-private" in registry.get(experiment.algorithm).promises:
        return []
    absent = left_out(outcome)
    by_site = {site: rows.dropped for site, rows in prepared.sites.items() if isinstance(rows, Table)}
    by_site = {site: own for site, own in by_site.items() if site not in absent}
    if ROWS_BY_SITE in outcome.arrays and experiment.policy is None:  # left out by the job, not in reading
        described = zip(outcome.arrays["column_sites"].tolist(), outcome.arrays[ROWS_BY_SITE].tolist(), strict=True)
        rows = {site: (n, len(outcome.labels[site])) for site, n in described if site in outcome.labels}
        by_site |= {site: (of - n, of) for site, (n, of) in rows.items() if n < of}
    whole = [] if prepared.dataset is None else [prepared.dataset.dropped]
    gone, of = np.sum([*by_site.values(), *whole, (0, 0)], axis=0).tolist()
    if not gone:
        return []
    found = f"{gone:,} of {of:,} rows {'was' if gone == 1 else 'were'} left out, since a cell is missing (missing: drop-rows)"
    sites = sorted((site for site, own in by_site.items() if own[0]), key=lambda site: -by_site[site][0])
    if experiment.secure_sums or not sites:
        return [found]
    more = f" and {len(sites) - MOST_NAMED} more sites" if len(sites) > MOST_NAMED else ""
    named = ", ".join(f"{site} {by_site[site][0]:,} of {by_site[site][1]:,}" for site in sites[:MOST_NAMED])
    return [f"{found}: {named}{more}"]


def _of_unknown(experiment: Experiment, rows: int, reported: int) -> list[str]:
    """Return a warning where rows are known to be missing, or a policy is known, though not how many rows there are."""
    found = f"the assessment is of {rows} rows"
    small = (
        "policies leave out small cells, so inertia is of these rows alone, and cannot be compared with that of "
        "another run"
    )
    if rows <= _COVERED_UNDER_POLICY * reported:
        return [
            f"{found}, where the sites reported {reported} before; how many they have is not known here. Sites' {small}"
        ]
    if experiment.policy is not None:
        return [f"{found}; how many the sites have is not known here, and their {small}"]
    return []


def _reported(arrays: Message) -> int:
    """Return how many rows the sites have at least, by what they reported; 0 where they reported none."""
    return max((int(arrays[name].sum()) for name in _REPORTED if name in arrays), default=0)
