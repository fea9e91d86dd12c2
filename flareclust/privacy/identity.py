"""Whose key it is: a site signs the public key of its secure sums with the certificate of its kit.

The server carries the keys from site to site. Without a signature it could hand out keys of its own instead and read what
the sites send. In simulations there are no kits, and one machine knows everything anyway: there keys are not signed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from flareclust.errors import BadMessage, Refusal

_PURPOSE = b"flareclust secure sums key 1|"
_PADDING = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class SignedKey:
    """A site's public key; certificate (PEM) and signature (base64) are empty where the site has no kit."""

    key: bytes
    certificate: str = ""
    signature: str = ""


@dataclass(frozen=True)
class Identity:
    """Certificate and key of a site's kit, the root certificate of its federation, and who in it is no site."""

    private: RSAPrivateKey
    certificate: str
    root: x509.Certificate
    no_sites: frozenset[str]

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

    def signed(self, site: str, key: bytes) -> SignedKey:
        """Return a public key with the site's signature."""
        signature = self.private.sign(_signed_text(site, key), _PADDING, SHA256())
        return SignedKey(key, self.certificate, base64.b64encode(signature).decode())

    def check(self, site: str, signed: SignedKey) -> None:
        """Raise BadMessage unless the site called `site`, and no user or server, has signed this key."""
        try:
            certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
            certificate.verify_directly_issued_by(self.root)
            public = certificate.public_key()
            names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            roles = certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
            if names != [site] or roles or site in self.no_sites or not isinstance(public, RSAPublicKey):
                raise ValueError
            public.verify(
                base64.b64decode(signed.signature, validate=True), _signed_text(site, signed.key), _PADDING, SHA256()
            )
        except (ValueError, TypeError, InvalidSignature):
            raise BadMessage(
                f"was sent a key for secure sums under the name {site!r} that this site of the federation has not signed"
            ) from None


def _signed_text(site: str, key: bytes) -> bytes:
    return _PURPOSE + json.dumps(site).encode() + b"|" + key
