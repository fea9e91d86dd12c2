"""Certificates of a kit, made in a test, with the dates that it needs."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


def write_certificates(kit: Path, **dates: tuple[datetime, datetime]) -> None:
    """Write into a kit's startup/ a root certificate and those of `dates` (first and last moment), each with its key.

    Args:
        dates: by name: `root`, and others such as `client`, which `root` signs.
    """
    startup = kit / "startup"
    startup.mkdir(exist_ok=True)
    root_key = ec.generate_private_key(ec.SECP256R1())
    for name, (begins, ends) in dates.items():
        key = root_key if name == "root" else ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named("root"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=name == "root", path_length=None), critical=True)
            .sign(root_key, hashes.SHA256())
        )
        file = startup / ("rootCA.pem" if name == "root" else f"{name}.crt")
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        unencrypted = serialization.NoEncryption()
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
        (startup / f"{name}.key").write_bytes(secret)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def renew(state: Path, names: Iterable[str], lasts: timedelta) -> datetime:
    """Give participants new keys and certificates, which last so long from now, in the `cert.json` of NVFlare's provisioning.

    Its root signs them, and the next provisioning puts them into the kits. Returns when they end.
    """
    kept = json.loads(state.read_text())
    root_key = serialization.load_pem_private_key(kept["root_pri_key"].encode(), password=None)
    begins = datetime.now(timezone.utc)
    for name in names:
        old = x509.load_pem_x509_certificate(kept[name]["cert"].encode())
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        builder = (
            x509.CertificateBuilder(old.issuer, old.subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + lasts)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        for extension in old.extensions:
            if not isinstance(extension.value, x509.SubjectKeyIdentifier):
                builder = builder.add_extension(extension.value, extension.critical)
        certificate = builder.sign(root_key, hashes.SHA256())
        secret = key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        kept[name] = {"cert": certificate.public_bytes(_PEM).decode(), "pri_key": secret.decode()}
    state.write_text(json.dumps(kept))
    return begins + lasts
