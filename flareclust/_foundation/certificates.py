"""How long the certificates of a kit hold. NVFlare does not say why a participant with an expired one, or with a clock
before its beginning, cannot connect: it waits without a word.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509

#: A kit that ends within so many days is worth a hint.
_SOON = timedelta(days=30)


def certificate_problem(kit: Path, now: datetime | None = None) -> str | None:
    """Return why a kit's certificates cannot be used `now`, in words that follow the kit's name; None if they can."""
    now = now or datetime.now(timezone.utc)
    for name, begins, ends in _certificates(kit):
        if now < begins:
            return (
                f"has a certificate ({name}) that begins {_said(begins)}, and the clock here says {_said(now)}: set the "
                "clock (NTP); until then it connects to nobody, and NVFlare does not say why"
            )
        if now > ends:
            return f"has a certificate ({name}) that ended {_said(ends)}; provision anew and hand out the new kits"
    return None


def outside_dates(certificate: x509.Certificate, now: datetime, tolerance: timedelta) -> str | None:
    """Return why a certificate does not hold now, give or take the clocks' tolerance, in words that follow it; else None."""
    if now < certificate.not_valid_before_utc - tolerance:
        return f"begins {_said(certificate.not_valid_before_utc)}, and the clock here says {_said(now)}: set the clocks (NTP)"
    if now > certificate.not_valid_after_utc + tolerance:
        return f"ended {_said(certificate.not_valid_after_utc)}: provision anew and hand out the new kits"
    return None


def ends_soon(kit: Path, now: datetime | None = None) -> str | None:
    """Return a hint where a certificate of the kit ends within `_SOON`."""
    when, name = min(((ends, name) for name, _, ends in _certificates(kit)), default=(None, ""))
    if when is None or when - (now or datetime.now(timezone.utc)) > _SOON:
        return None
    return f"the certificate {name} ends {_said(when)}; ask for a new kit before that"


def _certificates(kit: Path) -> Iterator[tuple[str, datetime, datetime]]:
    """Give name, beginning and end of each."""
    startup = kit / "startup"
    for file in sorted([*startup.glob("*.crt"), *startup.glob("rootCA.pem")]):
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        yield file.name, certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _said(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
