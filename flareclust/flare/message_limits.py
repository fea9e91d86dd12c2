"""What a message is made of, seen before it is decoded: a small one can be made of many million objects.

NVFlare's messages are a main section in msgpack and further ones of bytes that stand for large values. Sixty-four million
empty tables are 64 MiB on the wire, and 5 GiB and more than a minute of computing where they are decoded. Source of the
codes: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from nvflare.fuel.utils.fobs import lobs

from flareclust._foundation.errors import BadMessage

#: More objects than NVFlare's headers, its context and any number of our arrays are.
MOST_OBJECTS = 10_000

#: By code: bytes of the value that follows, for values of one size; an extension has one more for its type.
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}

#: By code: bytes of the number that says how long what follows is, and what it counts besides: bytes or objects.
_BYTES = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_BYTES |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_OBJECTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def check_message(message: bytes) -> None:
    """Raise BadMessage unless the bytes are sections of a message with at most `MOST_OBJECTS` objects and no files."""
    view, at = memoryview(message), 0
    while at < len(view) or not at:
        if at + lobs.HEADER_LEN > len(view):
            raise BadMessage("the message ends too early")
        marker, _, size = lobs.HEADER_STRUCT.unpack(view[at : at + lobs.HEADER_LEN])
        first, at = not at, at + lobs.HEADER_LEN
        if at + size > len(view) or first != (marker == lobs.MARKER_MAIN) or marker == lobs.MARKER_DATUM_FILE:
            raise BadMessage("the sections of the message are not those of a reply")
        if first:
            _count(view[at : at + size])
        at += size


def _count(body: memoryview) -> None:
    """Raise BadMessage if what is packed in these bytes is more than `MOST_OBJECTS` objects, or ends too early."""
    at, seen, coming = 0, 0, 1
    while coming and at < len(body):
        code = body[at]
        at, seen, coming = at + 1, seen + 1, coming - 1
        if 0x80 <= code <= 0x8F:
            coming += 2 * (code & 0x0F)
        elif 0x90 <= code <= 0x9F:
            coming += code & 0x0F
        elif 0xA0 <= code <= 0xBF:
            at += code & 0x1F
        elif code in _BYTES:
            width, more = _BYTES[code]
            at += width + more + int.from_bytes(body[at : at + width], "big")
        elif code in _OBJECTS:
            width, each = _OBJECTS[code]
            coming += each * int.from_bytes(body[at : at + width], "big")
            at += width
        elif 0x80 <= code < 0xE0:
            at += _FIXED.get(code, 0)
        if seen + coming > MOST_OBJECTS:
            raise BadMessage(f"the message is made of more than {MOST_OBJECTS} objects")
    if coming or at > len(body):
        raise BadMessage("the message ends too early")
