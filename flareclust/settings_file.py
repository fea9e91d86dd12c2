"""Reading files with settings strictly: a key that is there twice is refused, as is what nobody writes by hand.

YAML and JSON both keep the last of two equal keys and say nothing, so that a `min_count` further down would undo the one
that the reader has seen. Aliases, nesting beyond any need and files of megabytes take much time or memory to read.
"""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

#: Bytes of the longest YAML file with settings, which takes about ten seconds to read; that is bounds for ten thousand columns.
LONGEST = 1 << 18

#: Bytes of the longest JSON file of a kit, which has the same bounds three times and is read fast.
LONGEST_JSON = 1 << 24

#: No settings are nested as deep; the time that yaml takes grows with the square of the depth.
DEEPEST = 20

#: What yaml raises for a text that cannot be what its tag or its form promises, such as a 13th month or endless brackets.
_NO_YAML = (
    yaml.YAMLError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class NotPlain(ValueError):
    """The text is no settings; the message says why in words that follow the file's name, and holds no value."""


class Twice(NotPlain):
    """A key is there twice in one mapping.

    Attributes:
        key: the key.
        line: where it is for the second time, from 1; 0 where that is not known.
    """

    def __init__(self, key: str, line: int = 0) -> None:
        where = f", again in line {line}" if line else ""
        super().__init__(f"has the key {key!r} twice{where}; leave one of them")
        self.key, self.line = key, line


def read_text(file: Path, longest: int = LONGEST) -> str:
    """Return the text of a file with settings; OSError where it cannot be read, NotPlain where it is too long or no text."""
    with file.open("rb") as stream:
        found = stream.read(longest + 1)
    if len(found) > longest:
        raise NotPlain(f"is longer than {longest >> 10} KiB, which no settings are")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotPlain("is not text in UTF-8") from None


def parse_yaml(text: str) -> Any:
    """Return what a YAML text says, in plain values; NotPlain where it cannot be settings."""
    try:
        return yaml.load(text, _Loader)
    except NotPlain:
        raise
    except _NO_YAML:
        raise NotPlain("is not YAML") from None


def parse_json(text: str) -> Any:
    """Return what a JSON text says; NotPlain where it cannot be settings."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except NotPlain:
        raise
    except RecursionError:
        raise NotPlain("is not JSON: it is nested too deep") from None
    except ValueError as error:
        raise NotPlain(f"is not JSON ({error})") from None


class _Loader(yaml.SafeLoader):
    """Reads plain values only, and refuses equal keys, aliases and what is nested too deep."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read a value and what is in it."""
        if self.check_event(yaml.AliasEvent):
            raise NotPlain("has an alias (*name), which settings do not need; write the value out")
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotPlain("is nested too deep for settings")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping whose keys all differ."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise Twice(str(key), key_node.start_mark.line + 1)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise Twice(next(name for name in names if names.count(name) > 1))
    return found
