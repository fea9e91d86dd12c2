"""Keys of secure sums are signed by the sites that have kits: the server cannot put its own in their place."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from nvflare.lighter.utils import Identity as Subject
from nvflare.lighter.utils import generate_cert, generate_keys, serialize_cert, serialize_pri_key

from flareclust.errors import BadMessage, Refusal
from flareclust.privacy import fixed_point
from flareclust.privacy.identity import Identity
from flareclust.privacy.masking import KeyTable, SiteMasks

Kit = Callable[..., Path]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """Make the startup/ of a kit, with NVFlare's own functions; `root` names the federation."""
    folder, roots = tmp_path_factory.mktemp("kits"), {}

    def make(name: str, role: str | None = None, root: str = "ours") -> Path:
        if root not in roots:
            private, public = generate_keys()
            roots[root] = private, generate_cert(Subject(root), Subject(root), private, public, ca=True)
        private, public = generate_keys()
        certificate = generate_cert(Subject(name, "an org", role), Subject(root), roots[root][0], public)
        startup = folder / root / name / "startup"
        startup.mkdir(parents=True)
        (startup / "client.key").write_bytes(serialize_pri_key(private))
        (startup / "client.crt").write_bytes(serialize_cert(certificate))
        (startup / "rootCA.pem").write_bytes(serialize_cert(roots[root][1]))
        (startup / "fed_client.json").write_text(json.dumps({"servers": [{"name": "project", "identity": "server"}]}))
        return startup

    return make


@pytest.fixture(scope="module")
def identities(kit: Kit) -> dict[str, Identity]:
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


def test_an_incomplete_kit_is_said_to_be_one(kit: Kit, tmp_path: Path) -> None:
    startup = kit("incomplete")
    (startup / "rootCA.pem").unlink()
    with pytest.raises(Refusal, match="cannot sign a key for secure sums: its kit's startup/ is incomplete"):
        Identity.of(startup)


def test_a_kit_with_another_kind_of_key_is_refused(kit: Kit) -> None:
    startup = kit("unusual")
    (startup / "client.key").write_bytes(serialize_pri_key(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(Refusal, match="its kit has no RSA key"):
        Identity.of(startup)
