"""Whose key it is: a site signs the public key of its secure sums with the certificate of its kit.

The server carries the keys from site to site. Without a signature it could hand out keys of its own instead and read what
the sites send. What is signed names the site, the job and the time, so that a key of another job, or of long ago, counts
for nothing. In simulations there are no kits, and one machine knows everything anyway: there keys are not signed.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from flareclust._foundation.certificates import outside_dates
from flareclust._foundation.errors import BadMessage, Refusal

#: How long after its signature a key may be used first.
_LONGEST_AGE = timedelta(hours=24)

#: How far the clocks of two sites may be apart.
_CLOCKS_APART = timedelta(minutes=10)

_PURPOSE = b"flareclust secure sums key 2|"
_PADDING = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class SignedKey:
    """A site's public key; certificate (PEM) and signature (base64) are empty where the site has no kit.

    `signed_at` is the time of the signature, in seconds since 1970 UTC.
    """

    key: bytes
    certificate: str = ""
    signature: str = ""
    signed_at: int = 0


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Identity:
    """Certificate and key of a site's kit, the root certificate of its federation, who in it is no site, and the clock."""

    private: RSAPrivateKey
    certificate: str
    root: x509.Certificate
    no_sites: frozenset[str]
    now: Callable[[], datetime] = _now

    @classmethod
    def of(cls, startup: Path) -> "Identity | None":
        """Return what the folder `startup` of a site's kit holds; None where it is none, as in NVFlare's simulator.

        Raises:
            Refusal: it has a certificate, but not all that belongs to it.
        """
        if not (startup / "client.crt").exists():
            return None
        try:
            private = load_pem_private_key((startup / "client.key").read_bytes(), password=None)
            root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
            certificate = (startup / "client.crt").read_text(encoding="ascii")
            servers = json.loads((startup / "fed_client.json").read_text(encoding="utf-8"))["servers"]
            no_sites = frozenset(str(server["identity"]) for server in servers)
        except (OSError, ValueError, KeyError, TypeError):
            raise Refusal("cannot sign a key for secure sums: its kit's startup/ is incomplete") from None
        if not isinstance(private, RSAPrivateKey):
            raise Refusal(
                "cannot sign a key for secure sums: its kit has no RSA key, as NVFlare's provisioning makes it"
            )
        return cls(private, certificate, root, no_sites)

    def signed(self, site: str, job: str, key: bytes) -> SignedKey:
        """Return a public key with the site's signature, for one job and from now on; Refusal where a certificate is outside its dates."""
        now = self.now()
        for name, certificate in (
            ("client.crt", x509.load_pem_x509_certificate(self.certificate.encode())),
            ("rootCA.pem", self.root),
        ):
            if (problem := outside_dates(certificate, now, _CLOCKS_APART)) is not None:
                raise Refusal(f"cannot sign a key for secure sums: its kit's certificate ({name}) {problem}")
        at = int(now.timestamp())
        signature = self.private.sign(_signed_text(site, job, at, key), _PADDING, SHA256())
        return SignedKey(key, self.certificate, base64.b64encode(signature).decode(), at)

    def check(self, site: str, job: str, signed: SignedKey) -> None:
        """Raise BadMessage unless the site called `site`, and no user or server, has signed this key for this job, lately.

        The texts name the site and hold dates; they disclose nothing about anybody's rows.
        """
        certificate = self._certificate(site, job, signed)
        now, at = self.now(), datetime.fromtimestamp(signed.signed_at, timezone.utc)
        if (problem := outside_dates(certificate, now, _CLOCKS_APART)) is not None:
            raise BadMessage(f"was sent a key for secure sums of {site!r}, whose certificate {problem}")
        if not -_CLOCKS_APART <= now - at <= _LONGEST_AGE:
            raise BadMessage(
                f"was sent a key for secure sums of {site!r} that was signed {at:%Y-%m-%d %H:%M} UTC, and the clock here says "
                f"{now.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC; submit the job again, and set the clocks (NTP) if they differ"
            )

    def _certificate(self, site: str, job: str, signed: SignedKey) -> x509.Certificate:
        """Return the certificate with which the site has signed the key; its dates are not looked at."""
        try:
            certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
            certificate.verify_directly_issued_by(self.root)
            public = certificate.public_key()
            names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            roles = certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
            if names != [site] or roles or site in self.no_sites or not isinstance(public, RSAPublicKey):
                raise ValueError
            text = _signed_text(site, job, signed.signed_at, signed.key)
            public.verify(base64.b64decode(signed.signature, validate=True), text, _PADDING, SHA256())
        except (ValueError, TypeError, InvalidSignature):
            raise BadMessage(
                f"was sent a key for secure sums under the name {site!r} that this site of the federation has not signed for this "
                "job"
            ) from None
        return certificate


def _signed_text(site: str, job: str, at: int, key: bytes) -> bytes:
    return _PURPOSE + json.dumps([site, job, at]).encode() + b"|" + key
