"""A site's own identity signs its keys of secure sums, and the policies of others pin it: what no issuer of certificates can stand for."""

import base64
import json
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nvflare.lighter.utils import Identity as Subject
from nvflare.lighter.utils import generate_cert, generate_keys, serialize_cert

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.identity import _OF_IDENTITY, _PURPOSE, Identity, SignedKey, _signed_text
from flareclust.privacy.secure_aggregation.masking import KeyTable, SiteMasks, _packed, _unpacked, key_of, key_reply
from flareclust.privacy.secure_aggregation.own_identity import (
    FINGERPRINT,
    IDENTITY,
    fingerprint,
    make_identity,
    read_identity,
    renew_identity,
    retire_identity,
)
from flareclust.privacy.secure_aggregation.totals import Layout
from flareclust.privacy.session import SiteSession
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.task import StepName, Task
from tests.computed import replied
from tests.kits import MADE, Kits

SITES = ("north", "south", "west")
JOB = "a job"
NOT_PINNED = r"of 'south' that no identity has signed for this job which its policy pins .* by phone or on paper"


@pytest.fixture
def startups(tmp_path: Path) -> dict[str, Path]:
    """The startup/ of three kits of one federation, each with an identity."""
    kits = Kits(tmp_path)
    found = {site: kits(site) for site in SITES}
    for startup in found.values():
        (startup.parent / "local").mkdir()
        make_identity(startup.parent / "local")
    return found


def prints(startup: Path) -> list[str]:
    return [fingerprint(key.public_key()) for key in read_identity(startup.parent / "local")]


def identity(startup: Path, pins: Mapping[str, Sequence[str]] | None = None) -> Identity:
    found = Identity.of(startup, pins)
    assert found is not None
    return found


def without_key(startup: Path) -> Path:
    """Keep the kit's key away, as NVFlare does from jobs in containers."""
    (startup / "client.key").unlink()
    return startup


# ---- who is believed ----


def test_a_federation_of_pinned_sites_adds_up_where_no_job_can_read_a_kits_key(startups: dict[str, Path]) -> None:
    pins = {site: tuple(prints(without_key(startup))) for site, startup in startups.items()}
    policy = Policy(min_count=2, secure_sums=True, secure_sites=SITES, secure_identities=pins)
    rows = {site: np.random.default_rng(i).normal(size=(40, 2)) for i, site in enumerate(SITES)}
    asked = {"centroids": np.array([[0.0, 0.0], [1.0, 1.0]])}
    executors = {site: LloydExecutor(k=2) for site in SITES}
    keys, sent, plain = {}, [], []
    for site, executor in executors.items():
        executor.hold_to(SecureSums(3))
        executor.sums.is_at(startups[site], JOB, startups[site].parent, SiteSession(policy, JOB))
        task = Task(StepName.KEYS, 0, {}, site)
        keys[site] = key_of(executor.answer(task, rows[site], never_abort, SiteSession(policy, JOB)).arrays["key"])
    assert not any(key.certificate or key.signature for key in keys.values())
    for site, executor in executors.items():
        task = Task(UPDATE, 1, asked | KeyTable(keys).sent(), site)
        session = SiteSession(policy, JOB)
        sent.append(executor.answer(task, rows[site], never_abort, session).arrays["masked"].view(np.uint64))
        table = session.microaggregated(Table(rows[site]))
        schema = executor.step(UPDATE).schema
        reply = replied(LloydExecutor(k=2), Task(UPDATE, 1, asked, site), table)
        plain.append(Layout(schema, total_sizes(asked, 2)).words(schema.pack(reply)))
    assert all((masked != words).all() for masked, words in zip(sent, plain, strict=True))
    assert _added(sent) == _added(plain)


def _added(words: list[np.ndarray]) -> list[int]:
    found = np.zeros_like(words[0])
    for one in words:
        fixed_point.add(found, one)
    return fixed_point.decode(found)


def _own_of_the_server(honest: Identity) -> SignedKey:
    return replace(honest, own=[Ed25519PrivateKey.generate()]).signed("south", JOB, bytes(32))


def _pinned_name_with_another_signature(honest: Identity) -> SignedKey:
    forged, signed = _own_of_the_server(honest), honest.signed("south", JOB, bytes(32))
    return replace(forged, identities=((signed.identities[0][0], forged.identities[0][1]),))


def _signed_for_the_kit(honest: Identity) -> SignedKey:
    """The identity's signature of what the kit's key signs: of another purpose."""
    signed = honest.signed("south", JOB, bytes(32))
    signature = honest.own[0].sign(_PURPOSE + _signed_text("south", JOB, signed.signed_at, signed.key))
    return replace(signed, identities=((signed.identities[0][0], base64.b64encode(signature).decode()),))


@pytest.mark.parametrize(
    "forge",
    [
        _own_of_the_server,
        _pinned_name_with_another_signature,
        _signed_for_the_kit,
        lambda honest: replace(honest, own=()).signed("south", JOB, bytes(32)),  # the kit's signature alone
        lambda honest: replace(honest, own=()).signed("south", "another job", bytes(32)),
        lambda honest: replace(honest.signed("south", JOB, bytes(32)), identities=()),  # the identity's taken away
        lambda honest: honest.signed("south", "another job", bytes(32)),
        lambda honest: honest.signed("west", JOB, bytes(32)),
        lambda honest: replace(honest.signed("south", JOB, bytes(32)), key=bytes(31) + b"\1"),
        lambda honest: replace(honest.signed("south", JOB, bytes(32)), identities=(("no base64", "?"), ("AAAA", ""))),
        lambda honest: SignedKey(bytes(32), signed_at=int(honest.now().timestamp())),
    ],
)
def test_of_a_pinned_site_nothing_counts_but_its_identity(
    startups: dict[str, Path], forge: Callable[[Identity], SignedKey]
) -> None:
    """What a server can put into a pinned site's place, also with a valid signature of the kit's certificate."""
    honest = identity(startups["south"])
    north = identity(startups["north"], {"south": prints(startups["south"])})
    north.check("south", JOB, honest.signed("south", JOB, bytes(32)))
    with pytest.raises(BadMessage, match=NOT_PINNED):
        north.check("south", JOB, forge(honest))


def test_an_old_signature_of_a_pinned_identity_counts_for_nothing(startups: dict[str, Path]) -> None:
    honest = identity(startups["south"])
    north = identity(startups["north"], {"south": prints(startups["south"])})
    old = replace(honest, now=lambda: datetime.now(timezone.utc) - timedelta(days=2)).signed("south", JOB, bytes(32))
    with pytest.raises(BadMessage, match=r"of 'south' that was signed .* UTC, and the clock here says"):
        north.check("south", JOB, old)
    with pytest.raises(BadMessage, match=NOT_PINNED):
        north.check("south", JOB, replace(old, signed_at=int(datetime.now(timezone.utc).timestamp())))


def test_a_key_that_the_server_exchanges_under_a_pinned_name_masks_nothing(startups: dict[str, Path]) -> None:
    """Through the masks: the table names the site, and its key is one that the server has signed with an identity of its own."""
    pins = {site: prints(startups[site]) for site in SITES}
    masks = {site: SiteMasks(site, identity(startups[site], pins), JOB) for site in SITES}
    servers = SiteMasks("south", replace(identity(startups["south"]), own=[Ed25519PrivateKey.generate()]), JOB)
    words = fixed_point.encode(np.ones(2))
    with pytest.raises(BadMessage, match=NOT_PINNED):
        masks["north"].hide(
            words, UPDATE, 0, {}, KeyTable({s: m.public for s, m in (masks | {"south": servers}).items()})
        )
    masks["north"].hide(words, UPDATE, 0, {}, KeyTable({site: one.public for site, one in masks.items()}))


def test_a_site_that_is_not_pinned_counts_with_its_certificate(startups: dict[str, Path]) -> None:
    signed = identity(startups["south"]).signed("south", JOB, bytes(32))
    for pins in ({}, {"west": prints(startups["west"])}):
        identity(startups["north"], pins).check("south", JOB, signed)
    alone = identity(without_key(startups["south"])).signed("south", JOB, bytes(32))
    assert (alone.certificate, alone.signature, len(alone.identities)) == ("", "", 1)
    with pytest.raises(BadMessage, match=r"of 'south' that an identity alone has signed, and its policy pins none"):
        identity(startups["north"]).check("south", JOB, alone)
    identity(startups["north"], {"south": prints(startups["south"])}).check("south", JOB, alone)


@pytest.mark.parametrize("issuer", ["job ca", "ours"])
def test_a_certificate_that_the_server_issues_for_a_job_stands_for_no_site(tmp_path: Path, issuer: str) -> None:
    """Newer servers have a certificate authority of the root for this, which a malicious one uses as it likes."""
    kits = Kits(tmp_path)
    north = identity(kits("north"))
    (authority, its_public), (private, public) = generate_keys(), generate_keys()
    certificate = generate_cert(
        Subject(issuer), Subject("ours"), kits._roots["ours"][0], its_public, ca=True, not_valid_before=MADE
    )
    certificate.verify_directly_issued_by(north.root)
    leaf = generate_cert(Subject("south", "an org"), Subject(issuer), authority, public, not_valid_before=MADE)
    of_the_job = replace(north, private=private, certificate=serialize_cert(leaf).decode())
    with pytest.raises(BadMessage, match="under the name 'south' that this site of the federation has not signed"):
        north.check("south", JOB, of_the_job.signed("south", JOB, bytes(32)))


def test_a_kit_without_what_a_signature_needs_is_no_simulation(startups: dict[str, Path]) -> None:
    startup = without_key(startups["south"])
    (startup.parent / "local" / IDENTITY).write_text("no key\n")
    with pytest.raises(Refusal, match=f"its local/{IDENTITY} cannot be used; see flareclust site check"):
        Identity.of(startup)
    (startup.parent / "local" / IDENTITY).unlink()
    for file in ("client.crt", "fed_client.json"):
        with pytest.raises(
            Refusal,
            match=r"its kit's startup/ is incomplete; .* needs an identity of its own \(flareclust site allow\)",
        ):
            Identity.of(startup)
        (startup / file).unlink()


# ---- what is sent ----


def test_a_site_without_an_identity_sends_what_it_sent_before(startups: dict[str, Path]) -> None:
    (startups["south"].parent / "local" / IDENTITY).unlink()
    signed = identity(startups["south"]).signed("south", JOB, bytes(32))
    assert _unpacked(key_reply(signed)) == [signed.key.hex(), signed.certificate, signed.signature, signed.signed_at]
    assert key_of(key_reply(signed)) == signed


def test_identities_are_sent_behind_the_rest_and_others_are_no_key(startups: dict[str, Path]) -> None:
    signed = identity(startups["south"]).signed("south", JOB, bytes(32))
    assert key_of(key_reply(signed)) == signed
    assert KeyTable.of(KeyTable({"south": signed}).sent()) == KeyTable({"south": signed})
    parts = _unpacked(key_reply(signed))
    assert isinstance(parts, list)
    assert len(parts) == 5
    pair = parts[4][0]
    for wrong in ([], [pair] * 3, [pair[:1]], "ab", 3, [3], None):
        with pytest.raises(BadMessage, match="key: expected 32 bytes"):
            key_of(_packed([*parts[:4], wrong]))
    with pytest.raises(BadMessage, match="key: expected 32 bytes"):
        key_of(_packed([*parts, []]))


def test_the_two_signatures_are_of_different_texts() -> None:
    assert _PURPOSE != _OF_IDENTITY
    assert not _PURPOSE.startswith(_OF_IDENTITY)
    assert not _OF_IDENTITY.startswith(_PURPOSE)


# ---- the file ----


def test_a_fingerprint_is_that_of_ssh() -> None:
    """The expected one is of `ssh-keygen -lf` with the public key of the first test of RFC 8032, section 7.1."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    found = fingerprint(Ed25519PrivateKey.from_private_bytes(seed).public_key())
    assert FINGERPRINT.fullmatch(found)
    assert found == "SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8"


def test_an_identity_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    assert read_identity(tmp_path) == ()
    make_identity(tmp_path)
    file = tmp_path / IDENTITY
    before = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    make_identity(tmp_path)
    assert file.read_bytes() == before
    file.write_bytes(before[:-30])
    for change in (make_identity, renew_identity, retire_identity):
        with pytest.raises(UserError, match=f"{IDENTITY} holds no identity of a site; put back a copy"):
            change(tmp_path)
    assert file.read_bytes() == before[:-30], "what cannot be read is not overwritten"


def test_a_renewal_leaves_no_day_without_a_pinned_identity(startups: dict[str, Path]) -> None:
    """The site signs with both keys until the old one is retired, so peers add the new pin, and drop the old one, when they like."""
    startup = startups["south"]
    local, old = startup.parent / "local", prints(startup)

    def accepted() -> list[bool]:
        """Whether peers accept the site that pin the old key, both, and the next one."""
        signed, found = identity(startup).signed("south", JOB, bytes(32)), []
        for pins in (old, [*old, *next_], next_):
            try:
                identity(startups["north"], {"south": pins}).check("south", JOB, signed)
                found.append(True)
            except BadMessage:
                found.append(False)
        return found

    with pytest.raises(UserError, match="has no next identity"):
        retire_identity(local)
    next_ = [fingerprint(renew_identity(local)[1].public_key())]
    assert prints(startup) == [*old, *next_]
    assert accepted() == [True, True, True]
    with pytest.raises(UserError, match="is being renewed already"):
        renew_identity(local)
    retire_identity(local)
    assert prints(startup) == next_
    assert accepted() == [False, True, True]
    assert stat.S_IMODE((local / IDENTITY).stat().st_mode) == 0o600


# ---- the policy ----


A, B = (f"SHA256:{letter * 43}" for letter in "ab")


def test_a_policy_keeps_its_pins_as_they_are_written() -> None:
    policy = Policy.of({"secure_identities": {"north": [A, B]}})
    assert policy.secure_identities == {"north": (A, B)}
    assert json.loads(json.dumps(policy.to_json()))["secure_identities"] == {"north": [A, B]}
    assert Policy.of(policy.stated) == policy


def test_spaces_around_names_and_pins_that_were_copied_by_hand_do_not_count() -> None:
    policy = Policy.of({"secure_sites": [" north", "south", "west "], "secure_identities": {"north ": [f" {A}\n", B]}})
    assert policy.secure_sites == SITES
    assert policy.secure_identities == {"north": (A, B)}


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({}, "must have a list of fingerprints for each site"),
        ([A], "must have a list of fingerprints for each site"),
        ({"north": A}, "must have a list of fingerprints for each site"),
        ({"north": []}, "must have a list of fingerprints for each site"),
        ({"north": [A[:-1]]}, "must have a list of fingerprints for each site"),
        ({"north": [f"{A}="]}, "must have a list of fingerprints for each site"),
        ({"": [A]}, "must have a list of fingerprints for each site"),
        ({" ": [A]}, "must have a list of fingerprints for each site"),
        ({"north": [f"{A[:30]} {A[30:]}"]}, "must have a list of fingerprints for each site"),
        ({"north": [A], "north ": [B]}, "must have a list of fingerprints for each site"),
        ({"north": [A], "south": [A]}, "has a fingerprint twice; each site has its own"),
        ({"east": [A]}, "has east, which secure_sites does not name: north, south, west"),
    ],
)
def test_pins_that_pin_nothing_are_refused(pins: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Policy(secure_sites=SITES, secure_identities=pins)  # type: ignore[arg-type]
