"""Labelled rows by device for client selection: digits with two classes per device, speakers of Shakespeare's plays.

m devices, n rows of all of them; every random choice comes from the generator given.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.data.datasets import load
from flareclust.data.published import data_folder

#: Where the text lies in the data folder, and where it is published.
TEXT = "tinyshakespeare/input.txt.gz"
ADDRESS = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"

CLASSES = 10
#: Characters before the one to be told, and every how many positions of a text make a row.
CONTEXT, STRIDE = 10, 8
#: Characters of the pieces of a text that k-FED clusters by their frequencies of characters.
PIECE = 400
#: A speaker with fewer characters has hardly any rows to hold out.
CHARACTERS = 1_000
#: The share of a device's rows that is held out.
HELD_OUT = 0.2


@dataclass(frozen=True, eq=False)
class Population:
    """Labelled rows that are spread over m devices.

    Attributes:
        rows: (n_i, ...) to train with, by device; float32, or int64 for characters.
        classes: (n_i,) int64 classes of these.
        held_out: (t, ...) rows of all devices that none trains with.
        held_out_classes: (t,) int64 classes of these.
        owners: (t,) whose they are.
        n_classes: how many classes there are.
        described: (r_i, d) what k-FED clusters, by the device's name, which gives its position.
    """

    rows: Sequence[Array]
    classes: Sequence[IntArray]
    held_out: Array
    held_out_classes: IntArray
    owners: IntArray
    n_classes: int
    described: Mapping[str, FloatArray]

    @property
    def counts(self) -> IntArray:
        """Return the number of rows (m,) that devices train with."""
        return np.array([len(own) for own in self.rows])


def name_of(device: int) -> str:
    """Return the name of a device, such that names are in the order of positions."""
    return f"device-{device:03}"


# ---- digits ----


def two_classes(m: int, n: int, rng: np.random.Generator, exponent: float = 2.0, minimum: int = 10) -> Population:
    """Deal MNIST so that each device has two classes, and both sizes and shares of the classes follow a power law.

    Every pair of classes is as frequent as any other, up to one device. A device and each of its two classes get a
    weight of the Pareto distribution; a class's rows are shared out in proportion to the products, beyond a minimum.

    Args:
        m: devices.
        n: rows in all, n / 10 of each class.
        rng: draws rows, pairs and weights.
        exponent: of the distribution of weights; the smaller, the more a few devices have.
        minimum: rows of a class that each of its devices has.

    Raises:
        UserError: there are too few rows for that.
    """
    X, y = _digits()
    pairs = rng.permutation(np.resize(list(combinations(range(CLASSES), 2)), (m, 2)))
    weights = (1 + rng.pareto(exponent, size=(m, 1))) * (1 + rng.pareto(exponent, size=(m, 2)))
    parts: list[list[IntArray]] = [[] for _ in range(m)]
    for digit in range(CLASSES):
        device, place = np.nonzero(pairs == digit)
        rows = rng.permutation(np.flatnonzero(y == digit))[: n // CLASSES]
        spare = len(rows) - minimum * len(device)
        if spare < 0:
            raise UserError(f"{len(device)} devices have the class {digit}, too many for its {len(rows)} rows")
        share = weights[device, place] / weights[device, place].sum()
        ends = np.cumsum(minimum + np.floor(spare * share).astype(np.int64))
        for one, own in zip(device, np.split(rows, ends)[:-1], strict=True):
            parts[one].append(own)
    kept = [np.concatenate([own[_held_out(own) :] for own in device]) for device in parts]
    out = [np.concatenate([own[: _held_out(own)] for own in device]) for device in parts]
    return Population(
        rows=[X[rows] for rows in kept],
        classes=[y[rows] for rows in kept],
        held_out=X[np.concatenate(out)],
        held_out_classes=y[np.concatenate(out)],
        owners=np.repeat(np.arange(m), [len(rows) for rows in out]),
        n_classes=CLASSES,
        described={name_of(device): X[rows].astype(np.float64) for device, rows in enumerate(kept)},
    )


def _held_out(rows: IntArray) -> int:
    return max(round(HELD_OUT * len(rows)), 1)


@cache
def _digits() -> tuple[Array, IntArray]:
    found = load("mnist")
    assert found.y is not None
    return (found.X / 255).astype(np.float32), found.y


# ---- Shakespeare ----


def speakers(m: int, rng: np.random.Generator) -> Population:
    """Take m speakers of the plays, a device each; its rows are the ten characters before each eighth one.

    The end of a speaker's text is held out. k-FED gets pieces of the rest, each as the frequencies of its characters.

    Args:
        m: devices, drawn among the speakers with at least `CHARACTERS` characters.
        rng: draws them.

    Raises:
        UserError: the text is not there, or has not as many speakers.
    """
    texts, letters = speeches()
    names = sorted(name for name, text in texts.items() if len(text) >= CHARACTERS)
    if m > len(names):
        raise UserError(
            f"{len(names)} speakers have {CHARACTERS} characters and more; ask for at most as many, not {m}"
        )
    number = {letter: place for place, letter in enumerate(letters)}
    chosen = [texts[names[place]] for place in np.sort(rng.permutation(len(names))[:m])]
    ends = [round((1 - HELD_OUT) * len(text)) for text in chosen]
    kept = [_rows(text[:end], number) for text, end in zip(chosen, ends, strict=True)]
    out = [_rows(text[end:], number) for text, end in zip(chosen, ends, strict=True)]
    return Population(
        rows=[rows for rows, _ in kept],
        classes=[classes for _, classes in kept],
        held_out=np.concatenate([rows for rows, _ in out]),
        held_out_classes=np.concatenate([classes for _, classes in out]),
        owners=np.repeat(np.arange(m), [len(rows) for rows, _ in out]),
        n_classes=len(letters),
        described={
            name_of(device): _frequencies(text[:end], number)
            for device, (text, end) in enumerate(zip(chosen, ends, strict=True))
        },
    )


@cache
def speeches() -> tuple[Mapping[str, str], str]:
    """Return what each speaker says in all, by name, and the characters that occur.

    Raises:
        UserError: the text is not in the data folder.
    """
    file = data_folder() / TEXT
    try:
        with gzip.open(file, "rt", encoding="ascii") as opened:
            text = opened.read()
    except OSError as error:
        raise UserError(
            f"there is no text {file} ({type(error).__name__}); get {ADDRESS}, compress it with gzip and put it there, or "
            "set FLARECLUST_DATA to a folder that has it"
        ) from None
    found: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        name, _, speech = block.strip("\n").partition("\n")
        if name.endswith(":") and speech:
            found.setdefault(name[:-1], []).append(speech)
    return {name: "\n".join(own) + "\n" for name, own in found.items()}, "".join(sorted(set(text)))


def _rows(text: str, number: Mapping[str, int]) -> tuple[IntArray, IntArray]:
    """Return the characters before each of the chosen positions (n, CONTEXT), and those at them (n,)."""
    coded = np.array([number[letter] for letter in text], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(coded, CONTEXT + 1)[::STRIDE]
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, -1])


def _frequencies(text: str, number: Mapping[str, int]) -> FloatArray:
    """Return the share of each character in each whole piece of a text, (pieces, letters)."""
    coded = np.array([number[letter] for letter in text], dtype=np.int64)
    pieces = coded[: len(coded) // PIECE * PIECE].reshape(-1, PIECE)
    return np.array([np.bincount(piece, minlength=len(number)) / PIECE for piece in pieces])
