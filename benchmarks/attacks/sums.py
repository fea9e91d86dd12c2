"""Attacks on masked sums in this process: ten sites with kits that provisioning could have made."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.attacks.accomplices import Coalition, SecureSite, border_of_answers, masks_of, tables
from benchmarks.attacks.case import IN_PROCESS, Case, Found, number, recovered
from benchmarks.attacks.federation import ROOT
from benchmarks.attacks.victim import Victim, rows_of
from flareclust._foundation.typing import FloatArray
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.policy import Policy

SITES = tuple(f"clinic-{letter}" for letter in "abcdefghij")
M = len(SITES)
VICTIM = "clinic-e"
OTHERS = [site for site in SITES if site != VICTIM]

POLICY = Policy(secure_sums=True, secure_min_sites=M)


class TenSites:
    """Ten sites with keys; a new job at the victim for every attack."""

    def __init__(self, folder: Path) -> None:
        sys.path[:0] = [path for path in (str(ROOT),) if path not in sys.path]
        from tests.kits import Kits

        kits = Kits(folder / "kits")
        self.startups = {site: kits(site) for site in SITES}
        self._folder, self._jobs = folder, 0

    def coalition(self, rows: FloatArray, policy: Policy | None, job: SecureSums | None) -> Coalition:
        """Return a server in a new job."""
        self._jobs += 1
        folder = self._folder / str(self._jobs)
        folder.mkdir()
        site = SecureSite(VICTIM, rows, policy, job, self.startups[VICTIM], folder)
        return Coalition(VICTIM, site.answer, masks_of(self.startups, VICTIM), rows.shape[1])


def _seen(rows: FloatArray, policy: Policy | None) -> FloatArray:
    """Return the rows that jobs see at a site."""
    victim = Victim(rows, policy, "lloyd")
    held = victim.held
    return rows if held is None else np.array(held.session.microaggregated(victim.table).X)


def _with_accomplices(fast: bool) -> list[Found]:
    rows = rows_of("clouds") if fast else rows_of("s1")
    every = (
        np.array_split(rows_of("clouds", 300) + 0.37, M - 1)
        if fast
        else np.array_split(rows_of("s1", 5000)[1500:], M - 1)
    )
    found, exchanges = [], 30 if fast else 40
    with ExitStack() as stack:
        sites = TenSites(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for accomplices in (M - 2,) if fast else (0, 1, 2, M - 2):
            friends, strangers = OTHERS[:accomplices], OTHERS[accomplices:]
            honest = {site: _seen(own, Policy()) for site, own in zip(OTHERS, every, strict=True) if site in strangers}
            claims: list[FloatArray] = []
            answered = refused = 0
            for table in [*tables(friends, strangers), OTHERS]:
                server = sites.coalition(rows, POLICY, None)
                own = {site: honest[site] for site in table if site in honest}
                claims += server.rows(table, exchanges, own)
                answered, refused = (
                    answered + server.exchanges - len(server.refusals) - 1,
                    refused + len(server.refusals),
                )
            free = sites.coalition(rows, None, SecureSums(3)).rows(OTHERS[:2], exchanges)
            honest = np.concatenate(
                [rows, *(own for site, own in zip(OTHERS, every, strict=True) if site in strangers)]
            )
            asked = f"{number(accomplices, 'accomplice')}, {number(answered, 'total')}, {number(refused, 'refusal')}"
            title = f"{M} sites, {len(honest):,} rows of the honest ones"
            found.append(Found(title, recovered(claims, honest), len(honest), asked, recovered(free, rows)))
    return found


def _beyond_range(fast: bool) -> list[Found]:
    """Look for the size of centroids at which sums leave their range, at two sites: where it differs it depends on the rows."""
    rows = rows_of("clouds" if fast else "s1")
    with tempfile.TemporaryDirectory() as folder:
        sites = TenSites(Path(folder))
        ends = [
            border_of_answers(sites.coalition(own, POLICY, None), OTHERS, 50) for own in (rows, rows[: len(rows) // 2])
        ]
    asked = f"50 questions beyond 1e12, {ends[0][1]} answered"
    return [Found(f"{len(rows):,} and {len(rows) // 2:,} rows", int(ends[0] != ends[1]), 1, asked, unit="number")]


CASES = [
    Case("sums", "masked sums: tables of two to nine other sites, then of all of them, while a border moves", "server, with accomplices",
         IN_PROCESS, "one accomplice and three keys were enough", "every site checks how many sites a sum is of; sums are of groups",
         _with_accomplices),
    Case("sums-beyond", "centroids beyond 1e12, up to 1e16 and more: masked sums that leave their range disclose rows", "server, malicious",
         IN_PROCESS, "number of rows in 12 questions, mean in 50", "values beyond 1e12 end the job's sums", _beyond_range),
]  # fmt: skip
