"""What the two configuration files of a job may hold: plain text, in which NVFlare finds no variable to resolve.

NVFlare puts variables in the place of names in braces, environment variables among them, before it builds the components
that a job names. An exported job has no brace in any text, so a received job with one is refused, unread by NVFlare.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flareclust._foundation.settings_file import LONGEST_JSON, NotPlain, decoded, parse_json

#: Where the files are in the folder of an app, and in that with its configuration.
_CLIENT, _SERVER = "config/config_fed_client.json", "config/config_fed_server.json"
FILES = (_CLIENT, _SERVER)

#: No configuration is nested as deep; NVFlare reads it by functions that call themselves.
_DEEPEST = 50

_BRACES = frozenset("{}")

#: Characters of a place or a reason in a message.
_LONGEST_PLACE = 200


def braced(settings: Any) -> tuple[str, str] | None:
    """Return the place, by keys, and the text of one with a brace among settings, keys included; None if there is none.

    Raises:
        NotPlain: they are nested too deep.
    """
    return next(((place, text) for place, text in _texts(settings) if not _BRACES.isdisjoint(text)), None)


def settings_problem(name: str, content: bytes) -> str | None:
    """Return why a job whose file `name` has this content may not run, in words that follow the site's name.

    The content may be cut after `LONGEST_JSON` + 1 bytes.
    """
    try:
        settings = parse_json(decoded(content, LONGEST_JSON))
        if not isinstance(settings, Mapping):
            raise NotPlain("is no JSON object")
        found = braced(settings)
    except NotPlain as reason:
        return f"refuses the job, whose {name} {str(reason)[:_LONGEST_PLACE]}"
    if found is None:
        return None
    return (
        f"refuses the job, whose {name} has a brace in {ascii(found[0])[:_LONGEST_PLACE]}: settings of jobs are plain text, "
        "and no variable is put into them"
    )


def folder_problem(app: Path) -> str | None:
    """Return why a job whose app is in this folder may not run, by its two files; None where it may, and for a missing file."""
    for name in FILES:
        if (file := app / name).exists():
            with file.open("rb") as stream:
                problem = settings_problem(name, stream.read(LONGEST_JSON + 1))
            if problem is not None:
                return problem
    return None


def executor_of(app: Path) -> str:
    """Return the class of the first executor that the job in this folder names, as a path; empty where there is none."""
    try:
        found = parse_json((app / _CLIENT).read_text(encoding="utf-8"))
        return str(found["executors"][0]["executor"]["path"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _texts(settings: Any) -> Iterator[tuple[str, str]]:
    """Yield all texts, values and keys, each with its place: that of the object which has it for a key."""
    left: list[tuple[str, int, Any]] = [("", 0, settings)]
    while left:
        place, depth, value = left.pop()
        if depth > _DEEPEST:
            raise NotPlain("is nested too deep for settings")
        if isinstance(value, str):
            yield place, value
        elif isinstance(value, Mapping):
            yield from ((f"a key of {place or 'the file'}", key) for key in value)
            left += [(f"{place}.{key}".lstrip("."), depth + 1, one) for key, one in value.items()]
        elif isinstance(value, list | tuple):
            left += [(f"{place}[{number}]", depth + 1, one) for number, one in enumerate(value)]
