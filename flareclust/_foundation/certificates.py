"""How long the certificates of a kit hold. NVFlare does not say why a participant with an expired one, or with a clock
before its beginning, cannot connect: it waits without a word.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509

from flareclust._foundation.errors import UserError

#: A kit that ends within so many days is worth a hint.
_SOON = timedelta(days=30)

#: What is needed beyond now is at most this share of a certificate's life, for some are made for hours or minutes.
_MOST_OF_LIFE = 0.1

#: What is done about a certificate that ends.
_REMEDY = "provision anew and hand out the new kits"

#: OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED.
_ENDED = 10


def certificate_problem(kit: Path, now: datetime | None = None, needed: timedelta = timedelta()) -> str | None:
    """Return why a kit's certificates cannot be used `now` and for as long as `needed`, in words that follow the kit's name; else None."""
    now = now or datetime.now(timezone.utc)
    for name, begins, ends in _certificates(kit):
        if now < begins:
            return (
                f"has a certificate ({name}) that begins {_said(begins)}, and the clock here says {_said(now)}: set the "
                "clock (NTP); until then it connects to nobody, and NVFlare does not say why"
            )
        if now + min(needed, _MOST_OF_LIFE * (ends - begins)) > ends:
            when = f"ended {_said(ends)}" if now > ends else f"ends {_said(ends)}, too soon for a job"
            return f"has a certificate ({name}) that {when}; {_REMEDY}"
    return None


def outside_dates(certificate: x509.Certificate, now: datetime, tolerance: timedelta) -> str | None:
    """Return why a certificate does not hold now, give or take the clocks' tolerance, in words that follow it; else None."""
    if now < certificate.not_valid_before_utc - tolerance:
        return f"begins {_said(certificate.not_valid_before_utc)}, and the clock here says {_said(now)}: set the clocks (NTP)"
    if now > certificate.not_valid_after_utc + tolerance:
        return f"ended {_said(certificate.not_valid_after_utc)}: {_REMEDY}"
    return None


def first_end(kit: Path) -> tuple[datetime, str] | None:
    """Return when the first certificate of a kit ends, and its name; None where there is none."""
    return min(((ends, name) for name, _, ends in _certificates(kit)), default=None)


def near_end(
    what: str, ends: datetime | float | None, remedy: str = _REMEDY, now: datetime | None = None
) -> str | None:
    """Return a hint with the remedy where `what` ends within `_SOON`; a number is of seconds since 1970."""
    ends = datetime.fromtimestamp(ends, timezone.utc) if isinstance(ends, int | float) else ends
    if ends is None or ends - (now or datetime.now(timezone.utc)) > _SOON:
        return None
    return f"{what} ends {_said(ends)}; {remedy} before that"


def ends_soon(kit: Path, now: datetime | None = None) -> str | None:
    """Return a hint where a certificate of the kit ends within `_SOON`."""
    ends, name = first_end(kit) or (None, "")
    return near_end(f"the certificate {name}", ends, "ask for a new kit", now)


def server_ends_soon(kit: Path, host: str, port: int) -> str | None:
    """Return the same of the certificate that a server shows to this kit, also where it has ended; None where it shows none that fits."""
    server = f"the certificate of the server {host}"
    try:
        return near_end(server, _shown_by(kit, host, port))
    except ssl.SSLCertVerificationError as error:
        return f"{server} has ended; {_REMEDY}" if error.verify_code == _ENDED else None
    except OSError:  # as in `server_end`
        return None


def server_end(kit: Path, host: str, port: int) -> datetime | None:
    """Return when the certificate ends that a server shows to this kit; None where it has ended, or it shows none that fits."""
    with suppress(OSError):  # the files are not there, or nobody answers, or not in this way
        return _shown_by(kit, host, port)
    return None


def is_foreign(kit: Path, host: str, port: int) -> bool:
    """Return whether a server shows a certificate that the kit's root has not signed; False where it shows none."""
    try:
        _shown_by(kit, host, port)
    except ssl.SSLCertVerificationError as error:
        return error.verify_code != _ENDED
    except OSError:
        return False
    return False


def _shown_by(kit: Path, host: str, port: int, timeout: float = 2.0) -> datetime:
    startup, context = kit / "startup", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # NVFlare's servers have further names
    context.load_verify_locations(startup / "rootCA.pem")
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    with socket.create_connection((host, port), timeout) as raw, context.wrap_socket(raw) as connection:
        shown = connection.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), timezone.utc)


def speaks_tls(host: str, port: int, timeout: float) -> bool:
    """Return whether somebody at a port answers the beginning of a TLS connection within so many seconds, in whatever way.

    A port that takes connections need not have a server behind it: it may be stopped, or out of reach of a forwarder.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout) as raw, context.wrap_socket(raw):
            return True
    except OSError as error:  # a refusal is an answer, a connection that ends is none
        return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


def _certificates(kit: Path) -> Iterator[tuple[str, datetime, datetime]]:
    """Give name, beginning and end of each; UserError where one cannot be read."""
    startup = kit / "startup"
    for file in sorted([*startup.glob("*.crt"), *startup.glob("rootCA.pem")]):
        try:
            certificate = x509.load_pem_x509_certificate(file.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(
                f"startup/{file.name} of the kit cannot be read as a certificate ({type(error).__name__})"
            ) from error
        yield file.name, certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _said(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
