"""Keys of secure sums are signed by the sites that have kits: the server cannot put its own in their place."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from nvflare.lighter.utils import Identity as Subject
from nvflare.lighter.utils import (
    generate_cert,
    generate_keys,
    load_private_key_file,
    serialize_pri_key,
    sign_folders,
    verify_folder_signature,
)

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.identity import Identity
from flareclust.privacy.secure_aggregation.masking import KeyTable, SiteMasks
from tests.kits import Kits


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    """Make the startup/ of kits."""
    return Kits(tmp_path_factory.mktemp("kits"))


@pytest.fixture(scope="module")
def identities(kit: Kits) -> dict[str, Identity]:
    """Of three sites, a user and the server of a federation, and of a site of the same name in another one."""
    found = {name: Identity.of(kit(name)) for name in ("north", "south", "west", "server")}
    found["lead@hub.org"] = Identity.of(kit("lead@hub.org", role="lead"))
    found["other"] = Identity.of(kit("south", root="theirs"))
    return {name: one for name, one in found.items() if one is not None}


def table(masks: list[SiteMasks]) -> KeyTable:
    return KeyTable({one.site: one.public for one in sorted(masks, key=lambda one: one.site)})


def test_signed_keys_are_accepted_and_their_masks_cancel(identities: dict[str, Identity]) -> None:
    masks = [SiteMasks(site, identities[site]) for site in ("north", "south", "west")]
    everybody = KeyTable.of(table(masks).sent())
    assert everybody is not None
    words = fixed_point.encode(np.arange(4.0))
    summed = np.zeros_like(words)
    for one in masks:
        fixed_point.add(summed, one.hide(words, "update", 0, {}, everybody))
    assert fixed_point.as_floats(fixed_point.decode(summed)).tolist() == [0.0, 3.0, 6.0, 9.0]


def test_a_key_of_the_server_in_a_sites_place_is_refused(identities: dict[str, Identity]) -> None:
    north, south, west = (SiteMasks(site, identities[site]) for site in ("north", "south", "west"))
    mine = SiteMasks("south")
    signed = south.public
    cases = [
        mine.public,  # without a signature
        replace(signed, key=mine.public.key),  # with the signature of another key
        SiteMasks("south", identities["server"]).public,  # signed by the server's own certificate
        SiteMasks("south", identities["lead@hub.org"]).public,  # or a user's
        SiteMasks("south", identities["west"]).public,  # or another site's
        SiteMasks("south", identities["other"]).public,  # by a site of this name in another federation
        replace(signed, certificate="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        replace(signed, signature="not base64"),
        replace(signed, signature=signed.signature[:-8] + "AAAAAAA="),
    ]
    for forged in cases:
        fresh = SiteMasks("north", identities["north"])
        keys = KeyTable({"north": fresh.public, "south": forged, "west": west.public})
        with pytest.raises(BadMessage, match="under the name 'south' that this site of the federation has not signed"):
            fresh.hide(fixed_point.encode(np.ones(2)), "update", 0, {}, keys)
    north.hide(fixed_point.encode(np.ones(2)), "update", 0, {}, table([north, south, west]))


@pytest.mark.parametrize("stranger", ["server", "lead@hub.org"])
def test_nobody_takes_part_as_a_site_who_is_none(identities: dict[str, Identity], stranger: str) -> None:
    masks = [SiteMasks(site, identities[site]) for site in ("north", "south", stranger)]
    with pytest.raises(
        BadMessage, match=f"under the name '{stranger}' that this site of the federation has not signed"
    ):
        masks[0].hide(fixed_point.encode(np.ones(2)), "update", 0, {}, table(masks))


def test_a_signature_is_of_one_sites_name(identities: dict[str, Identity]) -> None:
    key = SiteMasks("south", identities["south"]).public
    identities["north"].check("south", "", key)
    with pytest.raises(BadMessage, match="under the name 'west' that this site of the federation has not signed"):
        identities["north"].check("west", "", key)


def test_without_a_kit_keys_are_not_signed(tmp_path: Path) -> None:
    assert Identity.of(tmp_path) is None
    assert SiteMasks("a").public.signature == ""


def test_an_incomplete_kit_is_said_to_be_one(kit: Kits, tmp_path: Path) -> None:
    startup = kit("incomplete")
    (startup / "rootCA.pem").unlink()
    with pytest.raises(Refusal, match="cannot sign a key for secure sums: its kit's startup/ is incomplete"):
        Identity.of(startup)


def test_a_kit_with_another_kind_of_key_is_refused(kit: Kits) -> None:
    startup = kit("unusual")
    (startup / "client.key").write_bytes(serialize_pri_key(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(Refusal, match="its kit has no RSA key"):
        Identity.of(startup)


def later(identity: Identity, by: timedelta) -> Identity:
    """Return what a site has whose clock is so much ahead, or whose kit is used so much later."""
    return replace(identity, now=lambda: datetime.now(timezone.utc) + by)


def test_a_key_is_signed_for_one_job(identities: dict[str, Identity]) -> None:
    key = SiteMasks("south", identities["south"], job="a job").public
    identities["north"].check("south", "a job", key)
    with pytest.raises(BadMessage, match=r"under the name 'south' that this site .* has not signed for this job"):
        identities["north"].check("south", "another job", key)
    masks = [SiteMasks(site, identities[site], job="a job") for site in ("north", "west")]
    old = SiteMasks("south", identities["south"], job="another job")
    with pytest.raises(BadMessage, match=r"under the name 'south' that this site .* has not signed for this job"):
        masks[0].hide(fixed_point.encode(np.ones(2)), "update", 0, {}, table([*masks, old]))


def test_a_key_is_used_on_the_day_that_it_is_signed(identities: dict[str, Identity]) -> None:
    key = SiteMasks("south", identities["south"], job="a job").public
    for ahead in (timedelta(minutes=-9), timedelta(0), timedelta(hours=23)):
        later(identities["north"], ahead).check("south", "a job", key)
    for ahead in (timedelta(minutes=-11), timedelta(hours=25)):  # of the future, and of yesterday
        with pytest.raises(BadMessage, match=r"of 'south' that was signed .* UTC, and the clock here says .* UTC"):
            later(identities["north"], ahead).check("south", "a job", key)


def test_the_time_of_a_signature_cannot_be_changed(identities: dict[str, Identity]) -> None:
    old = SiteMasks("south", later(identities["south"], timedelta(days=-2)), job="a job").public
    with pytest.raises(BadMessage, match="that was signed"):
        identities["north"].check("south", "a job", old)
    fresh = replace(old, signed_at=int(datetime.now(timezone.utc).timestamp()))
    with pytest.raises(BadMessage, match="has not signed"):
        identities["north"].check("south", "a job", fresh)


def test_certificates_outside_their_dates_count_as_none(kit: Kits, identities: dict[str, Identity]) -> None:
    now = datetime.now(timezone.utc)
    for name, begins, ends, message in (
        ("expired", now - timedelta(days=9), now - timedelta(days=1), "ended .* UTC: provision anew"),
        ("unborn", now + timedelta(days=1), now + timedelta(days=9), "begins .* UTC, and the clock here says"),
    ):
        own = Identity.of(kit(name, begins=begins, ends=ends))
        assert own is not None
        with pytest.raises(Refusal, match=rf"cannot sign a key .* its kit's certificate \(client.crt\) {message}"):
            SiteMasks(name, own).public  # noqa: B018 - the key is signed when it is asked for
        key = later(own, begins + timedelta(hours=1) - now).signed(name, "a job", bytes(32))
        with pytest.raises(BadMessage, match=f"of '{name}', whose certificate {message}"):
            identities["north"].check(name, "a job", key)
    own = Identity.of(kit("nearly", begins=now + timedelta(minutes=5), ends=now + timedelta(days=9)))
    assert own is not None, "clocks may be ten minutes apart"
    identities["north"].check("nearly", "", SiteMasks("nearly", own).public)


def test_a_site_whose_root_certificate_has_ended_signs_nothing(identities: dict[str, Identity]) -> None:
    private, public = generate_keys()
    ended = datetime.now(timezone.utc) - timedelta(days=1)
    root = generate_cert(
        Subject("ours"),
        Subject("ours"),
        private,
        public,
        ca=True,
        not_valid_before=ended - timedelta(days=9),
        not_valid_after=ended,
    )
    with pytest.raises(Refusal, match=r"its kit's certificate \(rootCA.pem\) ended"):
        replace(identities["south"], root=root).signed("south", "a job", bytes(32))


@pytest.mark.parametrize(("name", "role"), [("the server", None), ("a site", None), ("a lead", "lead")])
def test_nvflare_lets_anybody_with_a_certificate_sign_a_job(
    kit: Kits, tmp_path: Path, name: str, role: str | None
) -> None:
    """Why a job's settings bind an honest server only, and a site's policy any: docs/secure-sums.md."""
    startup = kit(name, role=role, root="signers")
    (tmp_path / "app" / "config").mkdir(parents=True)
    (tmp_path / "app" / "config" / "config_fed_client.json").write_text("{}")
    sign_folders(str(tmp_path / "app"), load_private_key_file(startup / "client.key"), str(startup / "client.crt"))
    assert verify_folder_signature(str(tmp_path / "app"), str(startup / "rootCA.pem"))
    (tmp_path / "app" / "config" / "config_fed_client.json").write_text("{ }")
    assert not verify_folder_signature(str(tmp_path / "app"), str(startup / "rootCA.pem"))
