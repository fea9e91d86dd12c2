"""Messages hold no files: encoding a message reads none from the disk, and decoding one writes none.

NVFlare's messages consist of a main section and of further ones for large values. One kind of those is a file. flareclust sends
arrays only, so a process refuses such sections, and the objects that ask for them, from before its first message on
(docs/adr/0030-no-files-in-messages.md).
"""

import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from uuid import UUID

from flareclust.platform._private import (
    DataClassDecomposer,
    Datum,
    DatumManager,
    DatumType,
    Decomposer,
    fobs,
    get_class_name,
    lobs,
    unprotected,
)

_log = logging.getLogger(__name__)

_REFUSAL = "flareclust refuses files in messages"

#: What a section may be: the message's main body, a long text, or many bytes.
_MARKERS = frozenset({lobs.MARKER_MAIN, lobs.MARKER_DATUM_TEXT, lobs.MARKER_DATUM_BLOB})
_TYPES = frozenset({DatumType.TEXT, DatumType.BLOB})


class _FileInMessage(ValueError):
    """A message that would make this process read or write a file."""


def install() -> None:
    """Refuse files in all messages of this process from now on; may be called again.

    With an NVFlare whose messages are made otherwise, `problem` says that it could not be done.
    """
    try:
        if lobs._Header.__module__ != __name__:
            _guard_sections()
        if DatumManager.add_datum.__module__ != __name__:
            _guard_values()
        fobs._decomposers[get_class_name(Datum)] = _NoDatum()
    except AttributeError as error:
        _log.error("%s, but NVFlare %s has other messages: %s", _REFUSAL, version("nvflare"), error)


def problem() -> str | None:
    """Return why messages of this process could hold files, in words that follow its name; None where they cannot.

    It is tried each time: the message that it makes for this names no file of the kit.
    """
    tries: dict[str, Callable[[], object]] = {
        "read": lambda: lobs.dump_to_bytes({"file": Datum.file_datum(__file__)}),
        "written": _decode_a_file,
        "asked for": _decode_a_datum,
    }
    if open_ := [what for what, attempt in tries.items() if not _is_refused(attempt)]:
        return unprotected("keep files out of messages", ", ".join(open_))
    return None


class _NoDatum(Decomposer):
    """In the place of NVFlare's decomposer of `Datum`, the object that stands for a section. Honest messages hold references."""

    def supported_type(self) -> Any:
        return Datum

    def decompose(self, target: Datum, manager: DatumManager | None = None) -> Any:
        raise _FileInMessage(_REFUSAL)

    def recompose(self, data: Any, manager: DatumManager | None = None) -> Datum:
        raise _FileInMessage(_REFUSAL)


def _guard_sections() -> None:
    class Header(lobs._Header):
        """The header of a section, made before the section is read or written."""

        def __init__(self, marker: int, dot: int, size: int) -> None:
            if marker not in _MARKERS:
                raise _FileInMessage(_REFUSAL)
            super().__init__(marker, dot, size)

    lobs._Header = Header


def _guard_values() -> None:
    add = DatumManager.add_datum

    def add_datum(manager: DatumManager, datum: Datum) -> None:
        if datum.datum_type not in _TYPES:
            raise _FileInMessage(_REFUSAL)
        add(manager, datum)

    add_datum.__wrapped__ = add  # type: ignore[attr-defined]  # the signature is that of NVFlare
    DatumManager.add_datum = add_datum


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - NVFlare raises errors of its own around ours
        return _REFUSAL in str(error)
    return False


def _decode_a_file() -> object:
    """Decode a section that ends too early, so that nothing is written where it is not refused."""
    empty, missing = fobs.serialize(None, DatumManager()), 1
    sections = [
        lobs.HEADER_STRUCT.pack(lobs.MARKER_MAIN, 0, len(empty)) + empty,
        lobs.HEADER_STRUCT.pack(lobs.MARKER_DATUM_FILE, 0, lobs.DATUM_ID_LEN + missing) + UUID(int=0).bytes,
    ]
    return lobs.load_from_bytes(b"".join(sections))


def _decode_a_datum() -> object:
    packed = {fobs.FOBS_TYPE: get_class_name(Datum), fobs.FOBS_DATA: {}}
    packed[fobs.FOBS_DECOMPOSER] = get_class_name(DataClassDecomposer)
    return fobs.deserialize(fobs.serialize(packed, DatumManager()), DatumManager())
