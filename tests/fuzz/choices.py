"""Decisions read from bytes, so that hypothesis, atheris and a generator of random bytes drive the same mutations."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads decisions from the front of `data`; once it is used up every decision is the first option."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def less_than(self, n: int) -> int:
        """Return a number 0 ... n - 1."""
        if n <= 1:
            return 0
        return int.from_bytes(self.take((n.bit_length() + 14) // 8), "little") % n

    def one_of(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.less_than(len(options))]

    def take(self, n: int) -> bytes:
        """Return n bytes at the most."""
        taken = self._data[self._at : self._at + n]
        self._at += n
        return taken

    def rest(self) -> bytes:
        """Return what has not been read."""
        return self._data[self._at :]


#: What often decides whether a parser takes a wrong turn.
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def spoiled(data: bytes, choices: Choices, other: bytes = b"") -> bytes:
    """Return data with one to four mutations: flips, cuts, repeats, splices with `other`, numbers, digits."""
    out = bytearray(data)
    for _ in range(1 + choices.less_than(4)):
        at = choices.less_than(len(out) + 1)
        match choices.less_than(9):
            case 0 if out:
                out[at % len(out)] ^= 1 << choices.less_than(8)
            case 1 if out:
                out[at % len(out)] = choices.less_than(256)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + 1 + choices.less_than(16)]
            case 4:
                out[at:at] = choices.take(1 + choices.less_than(8))
            case 5:
                out[at:at] = out[at : at + 1 + choices.less_than(64)]
            case 6 if other:
                start = choices.less_than(len(other))
                out[at : at + choices.less_than(64)] = other[start : start + 1 + choices.less_than(64)]
            case 7:
                number, size = choices.one_of(NUMBERS), choices.one_of((1, 2, 4, 8))
                out[at : at + size] = (number % 256**size).to_bytes(size, choices.one_of(("big", "little")))
            case _:  # numbers in text, such as those of an npy header
                digits = [j for j, byte in enumerate(out) if 48 <= byte <= 57]
                if digits:
                    where = choices.one_of(digits)
                    out[where : where + 1] = choices.one_of(
                        (b"9", b"0", b"-1", b"99999999", b"99999999999", b"9" * 40, b"1e18")
                    )
    return bytes(out)
