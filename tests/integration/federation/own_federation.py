"""What a test needs that changes the members or the certificates of a federation, and so has one of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import Federation, wait_until
from twins import lost_in, twin

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.own_identity import fingerprint, make_identity
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import remove_policy, write_policy
from flareclust.testing import iid_sites

SITES, NEW = ("north", "south", "west"), "east"


def give_rows(federation: Federation, *sites: str) -> None:
    """Put each site's rows into its kit."""
    rows = dict(zip((*SITES, NEW), iid_sites(m=4, k=5)[0].values(), strict=True))
    for site in sites:
        np.save(rows_of(federation, site), rows[site])
        federation.configure(site, path=str(rows_of(federation, site)))


def rows_of(federation: Federation, site: str) -> Path:
    """Return the file with a site's rows."""
    return federation.kit(site) / "rows.npy"


def options(min_sites: int, *, secure_sums: bool = False) -> JobOptions:
    """Return the options of all jobs."""
    return JobOptions(k=5, seed=3, min_sites=min_sites, task_timeout=600, deadline=600, secure_sums=secure_sums)


@contextmanager
def stopped(federation: Federation, *sites: str) -> Iterator[None]:
    """Stop sites, and start them again after the block; in the end they are connected."""
    logs = [federation.kit(site) / "log.txt" for site in sites]

    def times() -> list[int]:
        return [log.read_text(errors="replace").count("Successfully registered client") for log in logs]

    federation.stop(*sites)
    before = times()
    yield
    federation.start(*sites)
    wait_until(lambda: all(new > old for new, old in zip(times(), before, strict=True)), f"{sites} are connected")


def pin_identities(federation: Federation) -> Policy:
    """Have the three sites let out masked sums only, over each other, by identities of their own that they pin; return their policy."""
    local = {site: federation.kit(site) / "local" for site in SITES}
    with stopped(federation, *SITES):
        pins = {site: tuple(fingerprint(key.public_key()) for key in make_identity(own)) for site, own in local.items()}
        policy = Policy(secure_sums=True, secure_min_sites=len(SITES), secure_sites=SITES, secure_identities=pins)
        for own in local.values():
            write_policy(own, policy)
    return policy


def unpin_identities(federation: Federation) -> None:
    """Take the three sites' policies away again."""
    with stopped(federation, *SITES):
        for site in SITES:
            remove_policy(federation.kit(site) / "local")


def check_undisturbed(
    outcome: Outcome, federation: Federation, sites: Sequence[str], params: Mapping[str, object], min_sites: int
) -> None:
    """Check a result of `fkm` against one process, in which those of the sites are silent that were missing, from the same rounds on."""
    files = {site: rows_of(federation, site) for site in sites}
    rounds = {site: lost_in(outcome, site) for site in sites if site in outcome.refused}
    check_same(outcome, twin(get("fkm"), params, files, options(min_sites), rounds))


def check_secure(outcome: Outcome, federation: Federation, policy: Policy) -> None:
    """Check a result of `lloyd` with secure sums of the three sites against one process."""
    files = {site: rows_of(federation, site) for site in SITES}
    asked = options(len(SITES), secure_sums=True)
    assert outcome.refused == {}
    check_same(outcome, run_inprocess(get("lloyd"), {}, files, asked, policy=policy))


def check_same(found: Outcome, expected: Outcome) -> None:
    """Check that two results have the same bits."""
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
    assert found.metrics == expected.metrics
