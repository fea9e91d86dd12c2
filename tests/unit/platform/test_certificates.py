"""Certificates of kits: what NVFlare does not say about them."""

import ssl
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest

from flareclust._foundation.certificates import (
    certificate_problem,
    ends_soon,
    is_foreign,
    server_end,
    server_ends_soon,
)
from flareclust._foundation.errors import UserError
from tests.kit_certificates import write_certificates

BEGINS = datetime(2026, 1, 10, tzinfo=timezone.utc)
ENDS = BEGINS + timedelta(days=360)


@pytest.fixture
def kit(tmp_path):
    """A kit whose root certificate holds for ten years and whose own for 360 days."""
    write_certificates(tmp_path, root=(BEGINS, BEGINS + timedelta(days=3600)), client=(BEGINS, ENDS))
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


def test_one_that_ends_before_a_job_can_connect_is_a_problem_with_the_time_that_it_needs(kit):
    before = ENDS - timedelta(minutes=1)
    assert certificate_problem(kit, before) is None
    reported = certificate_problem(kit, before, needed=timedelta(minutes=5))
    assert reported == (
        "has a certificate (client.crt) that ends 2027-01-05 00:00 UTC, too soon for a job; provision anew and hand out the new kits"
    )


def test_of_a_certificate_for_minutes_a_tenth_is_needed_at_most(tmp_path):
    ends = BEGINS + timedelta(minutes=4)
    write_certificates(tmp_path, root=(BEGINS, ENDS), client=(BEGINS, ends))
    assert certificate_problem(tmp_path, ends - timedelta(seconds=25), needed=timedelta(minutes=5)) is None
    reported = certificate_problem(tmp_path, ends - timedelta(seconds=23), needed=timedelta(minutes=5))
    assert "ends 2026-01-10 00:04 UTC, too soon for a job" in str(reported)


def test_a_file_that_is_no_certificate_is_named(kit):
    (kit / "startup" / "other.crt").write_text("text")
    with pytest.raises(UserError, match=r"startup/other.crt of the kit cannot be read as a certificate \(ValueError\)"):
        certificate_problem(kit)


@pytest.fixture
def serving(tmp_path):
    """Serve, to a lead's kit, with a certificate that ends in so many days; returns kit and port."""
    with closing(create_server(("127.0.0.1", 0))) as listening:

        def serve(context: ssl.SSLContext) -> None:
            with suppress(OSError), listening.accept()[0] as raw, context.wrap_socket(raw, server_side=True) as one:
                one.recv(1)

        def start(days: float) -> tuple[Path, int]:
            now = datetime.now(timezone.utc)
            begins, long = now - timedelta(days=400), now + timedelta(days=900)
            dates = {"root": (begins, long), "client": (begins, long), "server": (begins, now + timedelta(days=days))}
            write_certificates(tmp_path, **dates)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "startup" / "server.crt", tmp_path / "startup" / "server.key")
            context.load_verify_locations(tmp_path / "startup" / "rootCA.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            Thread(target=serve, args=(context,), daemon=True).start()
            return tmp_path, listening.getsockname()[1]

        yield start


@pytest.mark.parametrize(
    ("days", "said"), [(100, None), (29, "ends 20"), (-1, "has ended; provision anew and hand out the new kits")]
)
def test_a_lead_is_told_of_the_servers_certificate(serving, days, said):
    kit, port = serving(days)
    found = server_ends_soon(kit, "127.0.0.1", port)
    assert found is None if said is None else f"the certificate of the server 127.0.0.1 {said}" in str(found)


@pytest.mark.parametrize("days", [100, -1])
def test_the_end_of_the_servers_certificate_is_known_until_it_has_ended(serving, days):
    kit, port = serving(days)
    ends = server_end(kit, "127.0.0.1", port)
    assert ends is None if days < 0 else abs(ends - datetime.now(timezone.utc) - timedelta(days)) < timedelta(hours=1)


def test_a_server_with_a_certificate_of_another_root_is_foreign(serving, tmp_path):
    kit, port = serving(100)
    assert not is_foreign(kit, "127.0.0.1", port)
    _, port = serving(100)
    write_certificates(tmp_path, **dict.fromkeys(("root", "client"), (BEGINS, BEGINS + timedelta(days=3600))))
    assert is_foreign(tmp_path, "127.0.0.1", port)


def test_a_server_whose_certificate_has_ended_is_not_foreign(serving):
    kit, port = serving(-1)
    assert not is_foreign(kit, "127.0.0.1", port)


def test_of_a_server_that_does_not_answer_or_a_kit_without_a_certificate_nothing_is_said(kit, tmp_path):
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    assert server_ends_soon(kit, "127.0.0.1", port) is None
    assert server_ends_soon(tmp_path / "none", "127.0.0.1", port) is None
    assert server_end(tmp_path / "none", "127.0.0.1", port) is None
    assert not is_foreign(kit, "127.0.0.1", port)
    assert not is_foreign(tmp_path / "none", "127.0.0.1", port)
