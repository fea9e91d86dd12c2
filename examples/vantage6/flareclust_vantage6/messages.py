"""What the two functions send each other: arrays as npz, in base64 since vantage6 sends JSON; no pickle."""

import base64
import io
import zipfile

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import Message


def pack(arrays: Message) -> str:
    """Return arrays as a text."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return base64.b64encode(file.getvalue()).decode("ascii")


def unpack(text: object) -> Message:
    """Return the arrays in a text; BadMessage where it holds none."""
    try:
        content = io.BytesIO(base64.b64decode(str(text), validate=True))
        with zipfile.ZipFile(content), np.load(content, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise BadMessage("is no message of this algorithm") from None
