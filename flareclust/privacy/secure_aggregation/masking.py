"""Masks that cancel in the sum over sites: what one site sends looks random, the total of all does not.

Every two sites share a secret that the server cannot know (X25519, Curve25519 of RFC 7748). From it follows a stream
of random words (HKDF-SHA256, ChaCha20) that the one site adds to its numbers and the other subtracts, modulo 2^256
(Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning, section 4, without the
secret sharing for dropouts: docs/adr/0011-secure-sums.md).

A stream belongs to one pair of sites and to one question to one set of sites: step, round, all keys and names, and what the
server sent along go into it. A site that was asked something else than the others makes the total unreadable, and no stream
is used twice. The names of the pair must be part of it: a key can be written in several ways that give the same secret, and a
site that passed off another one's key as its own would else have the same stream added and subtracted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import Array, IntArray, Message
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import WORDS, Words
from flareclust.privacy.secure_aggregation.identity import Identity, SignedKey
from flareclust.privacy.secure_aggregation.own_identity import MOST_KEYS
from flareclust.protocol.schema import Field, Schema, whole

#: A sum is over so many sites at least. Of two, each would know what the other sent: the total less its own.
LEAST_SITES = 3


def check_number_of_sites(sites: int) -> None:
    """Raise UserError where secure sums would cover too few sites."""
    if sites < LEAST_SITES:
        raise UserError(
            f"secure_sums needs at least {LEAST_SITES} sites, got {sites}: of two, each would know the other's sums"
        )


#: Name of the array with everybody's keys, in the tasks of masked sums.
KEYS_ARRAY = "secure_keys"

#: What a site sends first: its public key, with certificate and signatures where it has a kit, as text; and the number of
#: its columns.
KEY = Schema(key=Field(("b",), "int64"), columns=whole(""))

#: What a site sends in place of sums: for each of w numbers its 256 bits with masks, in words of 64.
MASKED = Schema(masked=Field(("b", "w"), "int64"))

#: The longest signed key, in numbers of eight bytes; with NVFlare's certificates it has about 250.
LONGEST_KEY = 2048

#: Seconds until the year in which Python's dates end.
_YEAR_9999 = 253370764800

_PROTOCOL = b"flareclust secure sums 2|"


@dataclass(frozen=True)
class KeyTable:
    """The public keys of the sites whose numbers are added up, by the sites' names, sorted."""

    keys: Mapping[str, SignedKey]

    @cached_property
    def digest(self) -> bytes:
        """Return a hash that identifies this table."""
        return hashlib.sha256(self.sent()[KEYS_ARRAY].tobytes()).digest()

    def only(self, sites: Sequence[str]) -> "KeyTable":
        """Return the keys of some of the sites."""
        return KeyTable({site: key for site, key in self.keys.items() if site in sites})

    def sent(self) -> Message:
        """Return the array that goes to the sites."""
        return {KEYS_ARRAY: _packed([[site, *_parts(key)] for site, key in self.keys.items()])}

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "KeyTable | None":
        """Return the table that came with a task, None where there is none.

        Raises:
            BadMessage: it is not a table of different keys of different sites, in the order of their names.
        """
        if KEYS_ARRAY not in arrays:
            return None
        rows = _unpacked(arrays[KEYS_ARRAY])
        if not isinstance(rows, list) or not all(
            isinstance(row, list) and row and isinstance(row[0], str) for row in rows
        ):
            raise BadMessage(f"{KEYS_ARRAY}: expected a list of sites with their keys")
        sites, keys = [row[0] for row in rows], [_signed_key(row[1:]) for row in rows]
        if sites != sorted(set(sites)):
            raise BadMessage(f"{KEYS_ARRAY}: expected the names of different sites, sorted")
        if len({key.key for key in keys}) < len(keys):
            raise BadMessage(f"{KEYS_ARRAY}: holds one key more than once")
        return cls(dict(zip(sites, keys, strict=True)))


def key_reply(key: SignedKey) -> IntArray:
    """Return a site's key as numbers (b,)."""
    return _packed(_parts(key))


def key_of(numbers: IntArray) -> SignedKey:
    """Return the key in what `key_reply` returned, or raise BadMessage."""
    return _signed_key(_unpacked(numbers))


def _parts(key: SignedKey) -> list[object]:
    own = [list(map(list, key.identities))] if key.identities else []
    return [key.key.hex(), key.certificate, key.signature, key.signed_at, *own]


def _signed_key(parts: object) -> SignedKey:
    """Return the key in a list of its three texts, its time, and the site's identities if it has some; or raise BadMessage."""
    try:
        assert isinstance(parts, list)
        key, certificate, signature, at, *own = parts
        identities = tuple((str(public), str(signed)) for public, signed in own[0]) if own else ()
        found = SignedKey(bytes.fromhex(key), str(certificate), str(signature), at, identities)
        assert len(own) <= 1
        assert bool(own) <= len(identities) <= MOST_KEYS
        assert len(found.key) == 32
        assert type(at) is int
        assert 0 <= at < _YEAR_9999
    except (AssertionError, ValueError, TypeError):
        raise BadMessage("key: expected 32 bytes in hexadecimal, a certificate, a signature and its time") from None
    return found


def _packed(value: object) -> IntArray:
    """Return a value as JSON text, eight bytes to a number."""
    text = json.dumps(value).encode()  # plain ASCII
    return np.frombuffer(text + b" " * (-len(text) % 8), dtype="<i8").astype(np.int64)


def _unpacked(numbers: object) -> object:
    """Return the value in what `_packed` returned, or raise BadMessage."""
    if not isinstance(numbers, np.ndarray) or numbers.dtype != np.int64 or numbers.ndim != 1:
        raise BadMessage("expected JSON text, eight bytes to a number")
    try:
        return json.loads(numbers.astype("<i8").tobytes())
    except (ValueError, RecursionError):
        raise BadMessage("expected JSON text, eight bytes to a number") from None


class SiteMasks:
    """What one site needs in one job: its key, and which questions it has answered.

    The key is made here and nowhere kept but in memory. All sums of a job are over one set of sites, and each question
    is answered once: from two sums over sets that differ by a site, the server would know that site's numbers.
    """

    def __init__(self, site: str, identity: Identity | None = None, job: str = "") -> None:
        self.site, self._identity, self._job = site, identity, job
        self._private = X25519PrivateKey.generate()
        self._table: KeyTable | None = None
        self._secrets: dict[str, bytes] = {}
        self._answered: set[tuple[str, int]] = set()

    @cached_property
    def public(self) -> SignedKey:
        """Return the public key, signed where the site has a kit."""
        key = self._private.public_key().public_bytes_raw()
        return SignedKey(key) if self._identity is None else self._identity.signed(self.site, self._job, key)

    def hide(self, words: Words, step: str, round_: int, asked: Message, table: KeyTable) -> Words:
        """Return the numbers (4, w) under the masks that this site shares with the others.

        Args:
            words: in fixed point.
            step: of the task.
            round_: of the task.
            asked: the arrays that the server sent with the task, without the keys.
            table: whose numbers are added up.

        Raises:
            Refusal: the sum would disclose a site's own numbers: it is of fewer than three sites, of others than the sums
                before, or asked for a second time.
            BadMessage: the table does not hold this site's key, or one that is none, or that its site has not signed.
        """
        self._agree(table)
        if (step, round_) in self._answered:
            raise Refusal(f"has answered the step {step} of round {round_} before, and masks no sum twice")
        self._answered.add((step, round_))
        question = b"|".join((table.digest, f"{step} {round_}".encode(), _digest(asked)))
        plus, minus = np.zeros_like(words), np.zeros_like(words)
        for other, secret in self._secrets.items():
            own = stream(secret, _pair(self.site, other) + question, words.shape[1])
            fixed_point.add(plus if self.site < other else minus, own)
        fixed_point.add(plus, words)
        fixed_point.add(plus, fixed_point.negated(minus))
        return plus

    def _agree(self, table: KeyTable) -> None:
        """Take the table of the job's first sum; refuse any other."""
        if self._table is not None:
            if self._table.digest != table.digest:
                raise Refusal("was asked for a sum over other sites than before; one job has one set of sites")
            return
        if table.keys.get(self.site) != self.public:
            raise BadMessage(
                f"{KEYS_ARRAY}: does not hold the key that this site's process has made; a process that was started anew has lost "
                "the old one"
            )
        if len(table.keys) < LEAST_SITES:
            raise Refusal(f"adds up its numbers with those of at least {LEAST_SITES - 1} other sites only")
        secrets = {}
        for other, key in table.keys.items():
            if other != self.site:
                if self._identity is not None:
                    self._identity.check(other, self._job, key)
                secrets[other] = self._shared(other, key.key)
        # Only now, for secrets of a table that is refused half-way would go into all masks that follow.
        self._table, self._secrets = table, secrets

    def _shared(self, other: str, key: bytes) -> bytes:
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:
            raise BadMessage(f"{KEYS_ARRAY}: that of {other} is no usable key") from None


def _pair(site: str, other: str) -> bytes:
    return json.dumps(sorted((site, other))).encode() + b"|"


def stream(secret: bytes, question: bytes, w: int) -> Words:
    """Return random words (4, w) that follow from a shared secret and what they are for."""
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PROTOCOL + question).derive(secret)
    # One key is used for one stream, so that the nonce may be the same for all.
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * WORDS * w)), dtype="<u8").reshape(WORDS, w).astype(np.uint64)


def total(masked: Sequence[IntArray]) -> list[int]:
    """Return the sum of what all sites sent, each (4, w), as w whole multiples of 2^-128."""
    summed = np.zeros(masked[0].shape, dtype=np.uint64)
    for words in masked:
        fixed_point.add(summed, words.view(np.uint64))
    return fixed_point.decode(summed)


def _digest(arrays: Message) -> bytes:
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        digest.update(json.dumps([name, value.dtype.str, value.shape]).encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.digest()
