"""The promise that lets a class stand in a kit's list: its constructor keeps its arguments and does nothing else.

NVFlare calls the constructors of the classes that a job names, with whatever JSON the job has as arguments, before any
policy of the site is in force. So a constructor that opens a file, imports a module or starts something does that for
whoever submits jobs. What Python's interpreter does is seen by an audit hook, in a process of its own, as a hook stays.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from flareclust.checks_tools import ensure
from flareclust.registry import Algorithm

#: The interpreter's events (docs.python.org/3/library/audit_events.html) that a constructor may not cause, by their beginnings.
_EFFECTS = (
    *("open", "import", "exec", "compile", "code.__new__", "marshal.", "pickle.", "_thread.start"),
    *(
        "os.",
        "shutil.",
        "glob.",
        "tempfile.",
        "mmap.",
        "sqlite3.",
        "dbm.",
        "socket.",
        "subprocess.",
        "urllib.",
        "ctypes.",
    ),
    *(
        "pty.",
        "signal.",
        "webbrowser.",
        "http.",
        "ftplib.",
        "smtplib.",
        "poplib.",
        "imaplib.",
        "telnetlib.",
        "nntplib.",
    ),
)

_SECONDS = 120


def check_constructors_do_nothing(algorithm: Algorithm) -> None:
    """Constructing either side opens no file, imports nothing and starts nothing, whatever the arguments are."""
    sides = algorithm.executor_class(), algorithm.aggregator_class()
    found = effects_of([f"{side.__module__}.{side.__qualname__}" for side in sides])
    ensure(not found, algorithm, f"a constructor does more than keep its arguments: {'; '.join(found[:3])}")


def effects_of(paths: Sequence[str]) -> list[str]:
    """Return what the constructors of the classes with these import paths do beside keeping arguments, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        asked = json.dumps({"paths": list(paths), "folder": folder})
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            input=asked,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    if done.returncode:
        return [f"ends the process that constructs it: {done.stderr[-300:]}"]
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Construct the classes that stdin names, and print what their constructors did."""
    asked = json.load(sys.stdin)
    sides = [_load(path) for path in asked["paths"]]
    odd = _odd(asked["folder"])
    seen: list[str] = []
    watching = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event.startswith(_EFFECTS):
            seen.append(f"{event} {ascii(args[:1])[:80]}")

    sys.addaudithook(hook)
    found: dict[str, None] = {}
    for path, side in zip(asked["paths"], sides, strict=True):
        for name, arguments in _calls(side, odd):
            before = set(sys.modules)
            watching = True
            try:
                side(**arguments)
            except Exception:  # noqa: BLE001, S110 - refusing odd arguments is right, in whatever words
                pass
            finally:
                watching = False
            seen[:0] = [
                f"import {module}" for module in sorted(set(sys.modules) - before)
            ]  # not all imports are events
            found |= {f"{path} with an odd {name}: {line}": None for line in seen}
            seen.clear()
    print(json.dumps(list(found)))


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _calls(side: Any, odd: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments as a job may have them, and the name of the one that is not as it should be."""
    known = signature(side).parameters
    usual = {name: 3 if one.default is Parameter.empty else one.default for name, one in known.items()}
    yield "nothing", usual
    for name in known:
        for value in odd:
            yield name, usual | {name: value}


def _odd(folder: str) -> list[Any]:
    """Return values that a job could mean as files, modules, addresses or components."""
    texts = [
        sys.executable,
        __file__,
        folder,
        f"{folder}/new",
        "xml.dom.minidom",
        "antigravity",
        "http://127.0.0.1:9/x",
    ]
    nested = [{"path": "os.getcwd", "args": {}}, {"class_path": "xml.dom.minidom.parse"}, {"site-1": __file__}]
    return [*texts, *nested, [__file__], [nested[0]], {}, [], "", None, True, -1, 1.5, 10**30]
