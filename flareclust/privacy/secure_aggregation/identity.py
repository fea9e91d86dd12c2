"""Whose key it is: a site signs the public key of its secure sums with its own identity and with the certificate of its kit.

The server carries the keys from site to site. Without a signature it could hand out keys of its own instead and read what
the sites send. What is signed names the site, the job and the time, so that a key of another job, or of long ago, counts
for nothing. In simulations there are no kits, and one machine knows everything anyway: there keys are not signed.

Of a site whose identity a policy pins, only the signature of that identity counts. If the certificate counted in its place, an
issuer of certificates could stand for the site, and a server that takes the identity's signature out of the message.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from flareclust._foundation.certificates import outside_dates
from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust.privacy.secure_aggregation.own_identity import IDENTITY, fingerprint, read_identity

#: How long after its signature a key may be used first.
_LONGEST_AGE = timedelta(hours=24)

#: How far the clocks of two sites may be apart.
_CLOCKS_APART = timedelta(minutes=10)

#: Before what is signed, so that no signature stands for another one: of a kit's key, of a site's identity.
_PURPOSE, _OF_IDENTITY = b"flareclust secure sums key 2|", b"flareclust secure sums identity 1|"

#: Names no fingerprint that came: an operator who pins what the server delivers trusts the server again.
_ADVICE = (
    "have that site's operator say by phone or on paper what `flareclust site identity KIT` prints there, and pin it: flareclust "
    "site policy KIT --secure-identities SITE=FINGERPRINT"
)

_PADDING = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class SignedKey:
    """A site's public key; certificate (PEM) and signature (base64) are empty where the site has no kit, or cannot read its key.

    `signed_at` is the time of the signatures, in seconds since 1970 UTC. `identities` has public key and signature (base64) of
    each of the site's own identities.
    """

    key: bytes
    certificate: str = ""
    signature: str = ""
    signed_at: int = 0
    identities: tuple[tuple[str, str], ...] = ()


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Identity:
    """What a site signs and checks keys with.

    Attributes:
        private: the key of its kit; None where the process cannot read it.
        certificate: of that key; empty without it.
        root: the root certificate of its federation.
        no_sites: who in the federation is no site.
        now: the clock.
        own: the keys of its own identity, the older one first.
        pins: the fingerprints of other sites' identities, by site; of these sites only the identity counts.
    """

    private: RSAPrivateKey | None
    certificate: str
    root: x509.Certificate
    no_sites: frozenset[str]
    now: Callable[[], datetime] = _now
    own: Sequence[Ed25519PrivateKey] = ()
    pins: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, startup: Path, pins: Mapping[str, Sequence[str]] | None = None) -> "Identity | None":
        """Return what a site's kit with the folder `startup` holds; None where it is none, as in NVFlare's simulator.

        Raises:
            Refusal: it is a kit, but not all is there that a signature needs: an identity of the site, or the kit's key.
        """
        try:
            own = read_identity(startup.parent / "local")
        except UserError:
            raise Refusal(
                f"cannot sign a key for secure sums: its local/{IDENTITY} cannot be used; see flareclust site check there"
            ) from None
        # A process from which the kit's certificate is kept away must not pass for a simulation, where nothing is checked.
        if not own and not any((startup / name).exists() for name in ("client.crt", "rootCA.pem")):
            return None
        try:
            root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
            servers = json.loads((startup / "fed_client.json").read_text(encoding="utf-8"))["servers"]
            no_sites = frozenset(str(server["identity"]) for server in servers)
            kits = _key_of_kit(startup, needed=not own)
        except (OSError, ValueError, KeyError, TypeError):
            raise Refusal(
                "cannot sign a key for secure sums: its kit's startup/ is incomplete; where jobs get no key of the kit, the site needs an "
                "identity of its own (flareclust site allow), which the others pin"
            ) from None
        return cls(*kits, root, no_sites, own=own, pins=pins or {})

    def signed(self, site: str, job: str, key: bytes) -> SignedKey:
        """Return a public key with the site's signatures, for one job and from now on; Refusal where a certificate is outside its dates."""
        now = self.now()
        at = int(now.timestamp())
        text = _OF_IDENTITY + _signed_text(site, job, at, key)
        identities = tuple((_base64(one.public_key().public_bytes_raw()), _base64(one.sign(text))) for one in self.own)
        if self.private is None:
            return SignedKey(key, signed_at=at, identities=identities)
        for name, certificate in (
            ("client.crt", x509.load_pem_x509_certificate(self.certificate.encode())),
            ("rootCA.pem", self.root),
        ):
            if (problem := outside_dates(certificate, now, _CLOCKS_APART)) is not None:
                raise Refusal(f"cannot sign a key for secure sums: its kit's certificate ({name}) {problem}")
        signature = self.private.sign(_PURPOSE + _signed_text(site, job, at, key), _PADDING, SHA256())
        return SignedKey(key, self.certificate, _base64(signature), at, identities)

    def check(self, site: str, job: str, signed: SignedKey) -> None:
        """Raise BadMessage unless the site called `site`, and no user or server, has signed this key for this job, lately.

        The texts name the site and hold dates; they disclose nothing about anybody's rows.
        """
        now, at = self.now(), datetime.fromtimestamp(signed.signed_at, timezone.utc)
        if site in self.pins:
            self._check_identity(site, job, signed)
        elif (problem := outside_dates(self._certificate(site, job, signed), now, _CLOCKS_APART)) is not None:
            raise BadMessage(f"was sent a key for secure sums of {site!r}, whose certificate {problem}")
        if not -_CLOCKS_APART <= now - at <= _LONGEST_AGE:
            raise BadMessage(
                f"was sent a key for secure sums of {site!r} that was signed {at:%Y-%m-%d %H:%M} UTC, and the clock here says "
                f"{now.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC; submit the job again, and set the clocks (NTP) if they differ"
            )

    def _check_identity(self, site: str, job: str, signed: SignedKey) -> None:
        """Raise BadMessage unless an identity has signed the key that is pinned for the site; its certificate is not looked at."""
        text = _OF_IDENTITY + _signed_text(site, job, signed.signed_at, signed.key)
        for key, signature in signed.identities:
            try:
                public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
                if fingerprint(public) in self.pins[site]:
                    public.verify(base64.b64decode(signature, validate=True), text)
                    return
            except (ValueError, InvalidSignature):
                continue
        raise BadMessage(
            f"was sent a key for secure sums of {site!r} that no identity has signed for this job which its policy pins "
            f"(secure_identities); {_ADVICE}"
        )

    def _certificate(self, site: str, job: str, signed: SignedKey) -> x509.Certificate:
        """Return the certificate with which the site has signed the key; its dates are not looked at."""
        if signed.identities and not signed.certificate:
            raise BadMessage(
                f"was sent a key for secure sums of {site!r} that an identity alone has signed, and its policy pins none of that "
                f"site; {_ADVICE}"
            )
        try:
            certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
            certificate.verify_directly_issued_by(self.root)
            public = certificate.public_key()
            names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            roles = certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
            if names != [site] or roles or site in self.no_sites or not isinstance(public, RSAPublicKey):
                raise ValueError
            text = _PURPOSE + _signed_text(site, job, signed.signed_at, signed.key)
            public.verify(base64.b64decode(signed.signature, validate=True), text, _PADDING, SHA256())
        except (ValueError, TypeError, InvalidSignature):
            raise BadMessage(
                f"was sent a key for secure sums under the name {site!r} that this site of the federation has not signed for this "
                "job"
            ) from None
        return certificate


def _key_of_kit(startup: Path, *, needed: bool) -> tuple[RSAPrivateKey | None, str]:
    """Return the kit's key and certificate (PEM); none where the process cannot read them, which is an error if they are needed."""
    try:
        file, certificate = (startup / "client.key").read_bytes(), (startup / "client.crt").read_text(encoding="ascii")
    except OSError:
        if needed:
            raise
        return None, ""
    private = load_pem_private_key(file, password=None)
    if not isinstance(private, RSAPrivateKey):
        raise Refusal("cannot sign a key for secure sums: its kit has no RSA key, as NVFlare's provisioning makes it")
    return private, certificate


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _signed_text(site: str, job: str, at: int, key: bytes) -> bytes:
    return json.dumps([site, job, at]).encode() + b"|" + key
