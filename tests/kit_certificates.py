"""Certificates of a kit, made in a test, with the dates that it needs."""

from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


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
