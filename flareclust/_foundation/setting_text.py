"""Values of settings as text on a command line: `--set NAME=VALUE`, in JSON where it is no plain text."""

import json
from typing import Any

#: Values that Python spells otherwise than JSON.
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def from_text(text: str) -> Any:
    """Return the value that a text is read as: JSON where it can be, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also numbers and brackets without an end
        return _PYTHON_WORDS.get(text, text)


def as_text(value: object) -> str:
    """Return the text that is read as a value: JSON, except that text needs no quotes where it is not read as something else."""
    if isinstance(value, str) and from_text(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
