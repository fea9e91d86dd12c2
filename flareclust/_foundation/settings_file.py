"""Reading files with settings strictly: a key that is there twice is refused, as is what nobody writes by hand.

YAML and JSON both keep the last of two equal keys and say nothing, so that a `min_count` further down would undo the one
that the reader has seen. Aliases, nesting beyond any need and files of megabytes take much time or memory to read.
"""

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from flareclust._foundation.errors import UserError

#: Bytes of the longest YAML file with settings, which takes about ten seconds to read; that is bounds for ten thousand columns.
_LONGEST = 1 << 18

#: Bytes of the longest JSON file of a kit, which has the same bounds three times and is read fast.
LONGEST_JSON = 1 << 24

#: No settings are nested as deep; the time that yaml takes grows with the square of the depth.
_DEEPEST = 20

#: What yaml raises for a text that cannot be what its tag or its form promises, such as a 13th month or endless brackets.
_NO_YAML = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

#: The parts of a JSON text that say where its keys are.
_JSON_TOKEN = re.compile(r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>\s*:)?|[{}\[\]]')


class NotPlain(ValueError):
    """The text is no settings; the message says why in words that follow the file's name, and holds no value."""


class Twice(NotPlain):
    """A key is there twice in one mapping.

    Attributes:
        key: the key.
        line: where it is for the second time, from 1.
    """

    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"has the key {key!r} twice, again in line {line}; leave one of them")
        self.key, self.line = key, line


def read_text(file: Path, longest: int = _LONGEST) -> str:
    """Return the text of a file with settings; OSError where it cannot be read, NotPlain where it is too long or no text."""
    with file.open("rb") as stream:
        return decoded(stream.read(longest + 1), longest)


def decoded(found: bytes, longest: int = _LONGEST) -> str:
    """Return settings as text; NotPlain where they are too long or no text."""
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
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _unreadable(min(mark.line + 1, len(text.splitlines())) if mark else 0) from None
    except yaml.reader.ReaderError as error:
        raise _unreadable(text.count("\n", 0, error.position) + 1) from None
    except _NO_YAML:
        raise _unreadable(0) from None


def read_mapping_file(path: Path) -> dict[str, Any]:
    """Return the keys of a YAML file; raise UserError where it holds something else."""
    try:
        values = parse_yaml(read_text(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except NotPlain as reason:
        raise UserError(f"{path} {reason}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{path}: expected keys and values, such as `columns:` in a schema")
    return values


def parse_json(text: str) -> Any:
    """Return what a JSON text says; NotPlain where it cannot be settings."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except NotPlain:
        raise _second_key(text) from None
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
        if self._depth > _DEEPEST:
            raise NotPlain("is nested too deep for settings")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping whose keys all differ."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _unreadable(key_node.start_mark.line + 1)
            if key in seen:
                raise Twice(str(key), key_node.start_mark.line + 1)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return a value; what its form or its tag promises and it is not, such as a 13th month, is refused with its line."""
        try:
            return super().construct_object(node, deep)
        except NotPlain:
            raise
        except _NO_YAML:
            raise _unreadable(node.start_mark.line + 1) from None


def _unreadable(line: int) -> NotPlain:
    return NotPlain("cannot be read as settings" + (f" (line {line})" if line else ""))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotPlain("has a key twice")
    return found


def _second_key(text: str) -> Twice:
    """Return what to say of the first key that a JSON text has twice in one object, whose place the parser does not report."""
    objects: list[set[str]] = []
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in "{[":
            objects.append(set())
        elif token[0] in "}]":
            objects.pop()
        elif token["colon"]:
            key = json.loads(token["text"])
            if key in objects[-1]:
                return Twice(key, text.count("\n", 0, token.start()) + 1)
            objects[-1].add(key)
    raise AssertionError("the text has no key twice")
