"""Which messages the installed NVFlare answers, found in its sources and its tables, and what is written about each."""

import ast
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nvflare
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.server_commands import ServerCommands

NVFLARE = Path(nvflare.__file__).parent
TABLE = Path(__file__).parent / "contracts" / "nvflare_messages.csv"

#: NVFlare's functions that register what answers a message: the kind of message, and the places of its channel and topic
#: among the arguments.
_REGISTERS = {
    "register_request_cb": ("request", 0, 1),
    "register_blob_cb": ("request", 0, 1),
    "register_callback": ("stream", 0, 1),
    "register_aux_message_handler": ("auxiliary", None, 0),
    "register_request_handler": ("reliable", None, 0),
    "register_stream_processing": ("object stream", 0, 1),
    "register_app_command": ("application command", None, 0),
}
#: Looks at messages before they are answered or passed on. Of these filters NVFlare asks those for the message's own channel
#: and topic, and those for all only where there are none: one for a channel takes the place of ours.
_FILTER = "add_incoming_filter"
_NAMES = (*_REGISTERS, _FILTER, "CommandSpec")

#: NVFlare's types are registered when a process starts, so they are listed in one of its own, where no test adds any.
_LIST_TYPES = """
import json
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize
from nvflare.fuel.utils.fobs import dots, fobs
from nvflare.fuel.utils.fobs.builtin_decomposers import BUILTIN_DECOMPOSERS, BUILTIN_TYPES
nvflare_fobs_initialize()
fobs._register_decomposers()
numbers = {number: name for name, number in vars(dots).items() if name.isupper()}
print(json.dumps({
    "type decoded": list(fobs._decomposers),
    "type loaded on demand": sorted(BUILTIN_TYPES - set(fobs._decomposers)),
    "decomposer loaded on demand": sorted(BUILTIN_DECOMPOSERS),
    "section": [*numbers.values()],
    "section processed": [numbers.get(dot, str(dot)) for dot in fobs._dot_handlers],
}))
"""


class Answer(NamedTuple):
    """A message that some process of NVFlare answers: its kind, its name and the file of NVFlare that registers it."""

    kind: str
    name: str
    file: str


class Row(NamedTuple):
    """A line of the table: the message, the processes that answer it, what ours do with it, and why."""

    kind: str
    name: str
    file: str
    at: str
    ours: str
    why: str

    @property
    def answer(self) -> Answer:
        """Return what the line is about."""
        return Answer(self.kind, self.name, self.file)


def written() -> list[Row]:
    """Return the lines of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Row(**line) for line in csv.DictReader(file)]


@cache
def found() -> frozenset[Answer]:
    """Return what the installed NVFlare answers."""
    return frozenset([*_in_sources(), *_in_tables(), *_types()])


def _in_tables() -> Iterator[Answer]:
    for processor in ClientRequestProcessors.request_processors:
        for topic in processor.get_topics():
            yield Answer("site request", topic, "private/fed/client/client_req_processors.py")
    for command in AdminCommands.commands:
        yield Answer("site job command", command.get_command_name(), "private/fed/client/admin_commands.py")
    for command in ServerCommands.commands:
        yield Answer("server job command", command.get_command_name(), "private/fed/server/server_commands.py")


def _types() -> Iterator[Answer]:
    listed = subprocess.run([sys.executable, "-c", _LIST_TYPES], check=True, capture_output=True, text=True).stdout
    for kind, names in json.loads(listed.splitlines()[-1]).items():
        for name in names:
            yield Answer(kind, name, "fuel/utils/fobs")


def _in_sources() -> Iterator[Answer]:
    for path in sorted(NVFLARE.rglob("*.py")):
        if not any(name in path.read_text(encoding="utf-8") for name in _NAMES):
            continue
        for function, call in _calls(_parsed(path), ()):
            yield from _registered(path, function, call)
    server = NVFLARE / "private" / "fed" / "server" / "fed_server.py"
    for listener in ast.walk(_parsed(server)):
        for test in ast.walk(listener) if getattr(listener, "name", "") == "_listen_command" else ():
            if isinstance(test, ast.Compare) and ast.unparse(test.left) == "command":
                yield Answer("server parent command", _text(test.comparators[0], server), _relative(server))


def _registered(path: Path, function: tuple[ast.AST, ...], call: ast.Call) -> Iterator[Answer]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "CommandSpec":
        yield Answer("command", _text(_argument(call, "name", 0), path), _relative(path))
    elif name == _FILTER:
        channel, topic = (_text(_argument(call, key, at), path) for at, key in enumerate(("channel", "topic")))
        yield Answer("filter", f"{channel}:{topic}", _relative(path))
    elif name in _REGISTERS:
        kind, channel_at, topic_at = _REGISTERS[name]
        parts = [_argument(call, "topic", topic_at)]
        if channel_at is not None:
            parts.insert(0, _argument(call, "channel", channel_at))
        if all(isinstance(part, ast.Name) and part.id in _parameters(function) for part in parts):
            around = ".".join(getattr(outer, "name", "?") for outer in function)
            yield Answer("registers for others", around, _relative(path))
        else:
            yield Answer(kind, ":".join(_text(_default(part, function), path) for part in parts), _relative(path))


def _calls(node: ast.AST, within: tuple[ast.AST, ...]) -> Iterator[tuple[tuple[ast.AST, ...], ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield within, child
        opens = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _calls(child, (*within, child) if opens else within)


def _parameters(function: tuple[ast.AST, ...]) -> set[str]:
    if not function or not isinstance(function[-1], ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    arguments = function[-1].args
    return {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}


def _default(value: ast.expr | None, function: tuple[ast.AST, ...]) -> ast.expr | None:
    """Return the default of the constructor's argument behind an attribute of self; the expression where there is none."""
    methods = [method for outer in function if isinstance(outer, ast.ClassDef) for method in outer.body]
    made = next((one for one in methods if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if made is None or not isinstance(value, ast.Attribute) or ast.unparse(value.value) != "self":
        return value
    named = [argument.arg for argument in made.args.args][len(made.args.args) - len(made.args.defaults) :]
    default = dict(zip(named, made.args.defaults, strict=True)).get(value.attr, value)
    return value if isinstance(default, ast.Constant) and default.value is None else default


def _argument(call: ast.Call, key: str, at: int | None) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == key), None)
    return named if named is not None or at is None or at >= len(call.args) else call.args[at]


def _text(value: ast.expr | None, path: Path) -> str:
    """Return the text that an expression stands for; the expression in braces where that is known at run time only."""
    text = _constant(value, path)
    return text if text is not None else f"{{{ast.unparse(value) if value is not None else ''}}}"


def _constant(value: ast.expr | None, path: Path) -> str | None:
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.BinOp):
        left, right = _constant(value.left, path), _constant(value.right, path)
        return None if left is None or right is None else left + right
    if isinstance(value, ast.Name | ast.Attribute):
        return _named(ast.unparse(value).split("."), path)
    return None


def _named(name: list[str], path: Path) -> str | None:
    """Return what a dotted name stands for in a file: an assignment in it, in a class of it, or in a module it imports."""
    body = _parsed(path).body
    for statement in body:
        if isinstance(statement, ast.ClassDef) and statement.name == name[0] and len(name) == 2:
            return _assigned(statement.body, name[1], path)
        for alias in statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ():
            if (alias.asname or alias.name) == name[0]:
                module = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
                whole, part = _file(module + alias.name), _file(module.rstrip("."))
                if whole is not None:
                    return _named(name[1:], whole)
                return _named([alias.name, *name[1:]], part) if part is not None else None
    return _assigned(body, name[0], path) if len(name) == 1 else None


def _assigned(body: list[ast.stmt], name: str, path: Path) -> str | None:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return _constant(getattr(statement, "value", None), path)
    return None


def _file(module: str) -> Path | None:
    if module.split(".")[0] != "nvflare":
        return None
    path = NVFLARE.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _relative(path: Path) -> str:
    return path.relative_to(NVFLARE).as_posix()
