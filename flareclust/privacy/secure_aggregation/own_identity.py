"""A site's own identity: an Ed25519 key in its kit's `local/`, which signs the site's keys of secure sums.

The site makes it, and nobody vouches for it: other sites pin its fingerprint, which their operators get by phone
or on paper. So it does not depend on who issues the certificates of kits or jobs. During a renewal the file holds two keys.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import write_atomically

#: In a kit's folder `local`; the older key comes first.
IDENTITY = "secure_identity.pem"

#: The old key, and the next one.
MOST_KEYS = 2

#: What `fingerprint` returns.
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)

_END = b"-----END PRIVATE KEY-----\n"


def fingerprint(public: Ed25519PublicKey) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` prints it."""
    blob = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]
    return f"SHA256:{base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest()).decode().rstrip('=')}"


def described(keys: Sequence[Ed25519PrivateKey]) -> str:
    """Return the fingerprints of a site's keys in a line."""
    prints = [fingerprint(key.public_key()) for key in keys]
    return f"{prints[0]} (old), {prints[1]} (next)" if len(prints) == MOST_KEYS else prints[0] if prints else "none"


def read_identity(local: Path) -> tuple[Ed25519PrivateKey, ...]:
    """Return the keys in a kit's folder `local`, the older one first; none where there is no file.

    Raises:
        UserError: the file cannot be read, or holds something else.
    """
    try:
        parts = (local / IDENTITY).read_bytes().split(_END)
        keys = [load_pem_private_key(part + _END, password=None) for part in parts[:-1]]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(
            f"{local / IDENTITY} cannot be read ({error.strerror}); it has to belong to the account that runs the site"
        ) from None
    except (ValueError, TypeError):
        keys = []
    own = tuple(key for key in keys if isinstance(key, Ed25519PrivateKey))
    if not 0 < len(own) == len(keys) <= MOST_KEYS:
        raise UserError(
            f"{local / IDENTITY} holds no identity of a site; put back a copy, or remove it, run `flareclust site allow KIT` and "
            "have the other sites pin the new fingerprint"
        )
    return own


def make_identity(local: Path) -> tuple[Ed25519PrivateKey, ...]:
    """Return the keys in a kit's folder `local`, made now where it has none; UserError as for `read_identity`."""
    return read_identity(local) or _write(local, [Ed25519PrivateKey.generate()])


def renew_identity(local: Path) -> tuple[Ed25519PrivateKey, ...]:
    """Make a site's next key, which signs beside the old one until that is retired; UserError where there is none, or a next one."""
    keys = read_identity(local)
    if not keys:
        raise UserError("the site has no identity to renew; `flareclust site allow KIT` makes one")
    if len(keys) == MOST_KEYS:
        raise UserError(
            f"the identity is being renewed already: {described(keys)}; when all other sites pin the next one, --retire the old one"
        )
    return _write(local, [*keys, Ed25519PrivateKey.generate()])


def retire_identity(local: Path) -> tuple[Ed25519PrivateKey, ...]:
    """Remove a site's old key, and go on with the next one; UserError where there is no next one."""
    keys = read_identity(local)
    if len(keys) < MOST_KEYS:
        raise UserError(f"the site has no next identity ({described(keys)}), so the old one stays; --renew makes one")
    return _write(local, keys[1:])


def _write(local: Path, keys: Sequence[Ed25519PrivateKey]) -> tuple[Ed25519PrivateKey, ...]:
    with write_atomically(local / IDENTITY, "bytes") as file:
        for key in keys:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return tuple(keys)
