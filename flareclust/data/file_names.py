"""Names of files that may not leave a site, such as those of patients: marked in messages until it is known who reads them."""

import re

#: Stands before and after such a name; no name of a file can hold it.
_MARK = "\0"


def marked(name: str) -> str:
    """Return a file's name, without marks inside it, between marks."""
    return f"{_MARK}{name.replace(_MARK, '')}{_MARK}"


def unmarked(text: str, instead: str | None = None) -> str:
    """Return a text without marks: with the marked names, or with other words in the place of each."""
    return re.sub(f"{_MARK}(.*?){_MARK}", lambda name: name[1] if instead is None else instead, text, flags=re.DOTALL)
