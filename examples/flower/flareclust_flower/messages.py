"""What the app sends: arrays as Flower's records of arrays, everything else as words and numbers beside them; no pickle."""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flareclust._foundation.typing import Message

#: The two records of a message.
ARRAYS, ABOUT = "arrays", "about"

#: In the place of the arrays of a reply: why the site sends none, in words that follow its name.
PROBLEM = "problem"


def pack(arrays: Message, **about: str | int) -> RecordDict:
    """Return a message's content."""
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return RecordDict({ARRAYS: record, ABOUT: ConfigRecord({**about})})


def unpack(content: RecordDict) -> tuple[Message, ConfigRecord]:
    """Return the arrays of a message, and what is said about them; KeyError or ValueError where it is no message of `pack`."""
    arrays = content.array_records[ARRAYS]
    return {name: value.numpy() for name, value in arrays.items()}, content.config_records[ABOUT]
