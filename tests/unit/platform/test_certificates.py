"""Certificates of kits: what NVFlare does not say about them."""

from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flareclust._foundation.certificates import certificate_problem, ends_soon

BEGINS = datetime(2026, 1, 10, tzinfo=timezone.utc)
ENDS = BEGINS + timedelta(days=360)


@pytest.fixture
def kit(tmp_path):
    """A kit whose root certificate holds for ten years and whose own for 360 days."""
    (tmp_path / "startup").mkdir()
    for name, ends in (("rootCA.pem", BEGINS + timedelta(days=3600)), ("client.crt", ENDS)):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site-1")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(BEGINS)
            .not_valid_after(ends)
            .sign(key, hashes.SHA256())
        )
        (tmp_path / "startup" / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return tmp_path


def test_within_its_time_a_kit_has_no_problem(kit):
    assert certificate_problem(kit, BEGINS + timedelta(minutes=1)) is None
    assert certificate_problem(kit, ENDS - timedelta(minutes=1)) is None
    assert ends_soon(kit, BEGINS + timedelta(minutes=1)) is None


def test_a_clock_that_is_behind_is_reported(kit):
    reported = certificate_problem(kit, BEGINS - timedelta(hours=1))
    assert "begins 2026-01-10 00:00 UTC, and the clock here says 2026-01-09 23:00 UTC" in reported


def test_a_certificate_that_ended_is_named(kit):
    reported = certificate_problem(kit, ENDS + timedelta(hours=1))
    assert "client.crt" in reported
    assert "ended 2027-01-05 00:00 UTC" in reported


def test_an_end_that_is_near_is_a_hint(kit):
    assert "client.crt ends 2027-01-05" in str(ends_soon(kit, ENDS - timedelta(days=5)))


def test_a_folder_without_certificates_has_nothing_to_tell(tmp_path):
    assert certificate_problem(tmp_path) is None
    assert ends_soon(tmp_path) is None
