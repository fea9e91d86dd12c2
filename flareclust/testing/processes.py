"""The promises that take processes of their own: a constructor does nothing but keep its arguments, and a site's computation is pure.

NVFlare calls the constructors of the classes that a job names, with whatever JSON the job has as arguments, before any
policy of the site is in force. So a constructor that opens a file, imports a module or starts something does that for
the submitter. An audit hook records what the interpreter does, in a process of its own, because a hook cannot be removed.
Reading the environment and the attributes of files raises no audit event; there the module `os` is watched.

A site's reply follows from task, rows and settings, and from nothing else: fresh processes that get the tasks in other orders send
the same.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np

from flareclust._foundation.typing import never_abort
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import Task
from flareclust.testing.tools import ensure, exchanges, iid_sites

#: The interpreter's events (docs.python.org/3/library/audit_events.html) that a constructor may not cause, by their beginnings.
_EFFECTS = (
    *("open", "import", "exec", "compile", "code.__new__", "marshal.", "pickle.", "_thread.start"),
    *("os.", "shutil.", "glob.", "tempfile.", "mmap.", "sqlite3.", "dbm.", "pty.", "signal.", "subprocess.", "ctypes."),
    *("socket.", "urllib.", "webbrowser.", "http.", "ftplib.", "smtplib.", "poplib.", "imaplib."),
    *("telnetlib.", "nntplib."),
)

#: What asks about files without being an event.
_LOOKS = ("stat", "lstat", "access", "readlink", "getcwd", "statvfs")

#: The arguments that every side has, whose values are checked first, and defaults of arguments that nothing is done with.
_GENERAL = frozenset({"k", "seed", "min_count"})
_BLANK = (None, "", Parameter.empty)

#: Seconds that a process has, and where it writes its answer.
_SECONDS, _ANSWERS = 120, "answers.json"


def _apart(function: str, folder: str, *arguments: str) -> Any:
    """Return what a function of this module leaves in `answers.json` of a folder, called with these arguments in a fresh process.

    Raises:
        RuntimeError: it left nothing; the text is the end of what the process said.
    """
    answers = Path(folder) / _ANSWERS
    answers.unlink(missing_ok=True)
    program = f"import sys; from {__name__} import {function}; {function}(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, folder, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode or not answers.is_file():
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(answers.read_text(encoding="utf-8"))


# ---- constructors ----


def check_constructors_do_nothing(algorithm: Algorithm) -> None:
    """Constructing either side opens no file, imports nothing and starts nothing, whatever the arguments are."""
    sides = algorithm.executor_class(), algorithm.aggregator_class()
    found = effects_of([f"{side.__module__}.{side.__qualname__}" for side in sides])
    ensure(not found, algorithm, f"a constructor does more than keep its arguments: {'; '.join(found[:3])}")


def effects_of(paths: Sequence[str]) -> list[str]:
    """Return what the constructors of the classes with these import paths do beside keeping arguments, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return list(_apart("_construct_all", folder, *paths))
        except RuntimeError as error:
            return [f"ends the process that constructs it: {str(error)[-300:]}"]


def _construct_all(folder: str, *paths: str) -> None:
    """Construct the classes with these import paths, and write down what their constructors did."""
    sides = [resolve_name(path) for path in paths]
    odd, watch = Path(folder) / "odd", _Watch()
    odd.mkdir()
    for path, side in zip(paths, sides, strict=True):
        watch.path, watch.side = path, side
        _construct(watch, signature(side).parameters, _odd(str(odd)))
    (Path(folder) / _ANSWERS).write_text(json.dumps(list(watch.found)), encoding="utf-8")


class _Watch:
    """Constructs a class, and writes down what the interpreter does meanwhile."""

    def __init__(self) -> None:
        self.path, self.side = "", cast("Callable[..., object]", None)
        self.found: dict[str, None] = {}
        self._seen: list[str] = []
        self._watching = False
        sys.addaudithook(self._hook)
        # Looks at files and at the environment are no events of the interpreter.
        for owner, names in ((os, _LOOKS), (type(os.environ), ("__getitem__", "__contains__", "__iter__", "__len__"))):
            for name in names:
                setattr(owner, name, self._noted(f"{owner.__name__}.{name}", getattr(owner, name)))

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._watching and event.startswith(_EFFECTS):
            self._seen.append(f"{event} {ascii(args[:1])[:80]}")

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **more: Any) -> Any:
            if self._watching:
                self._seen.append(f"{name} {ascii(args[-1:])[:80]}")
            return function(*args, **more)

        return noted

    def constructs(self, what: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the class takes these arguments, and note under `what` they are what it does."""
        modules = set(sys.modules)
        self._watching = True
        try:
            made = self.side(**arguments)
            del made  # so that what it does at its end is seen, too
            taken = True
        except Exception:  # noqa: BLE001 - refusing odd arguments is right, in whatever words
            taken = False
        finally:
            self._watching = False
        # Not all imports are events.
        seen = [f"import {module}" for module in sorted(set(sys.modules) - modules)] + self._seen
        self.found |= {f"{self.path} with {what}: {line}": None for line in seen}
        self._seen = []
        return taken


def _construct(watch: _Watch, known: Mapping[str, Parameter], odd: Sequence[Any]) -> None:
    """Construct a class with arguments as a job may have them: each, those it takes, and all of them odd."""
    named = {name: one for name, one in known.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    for one in (one for name, one in known.items() if name not in named):
        watch.found[f"{watch.path} takes any arguments ({one}), which nobody can try"] = None
    starts = [start for start in _usual(named, odd[0]) if watch.constructs("usual arguments", start)]
    if not starts:
        why = "takes no usual arguments, so nobody can see what it does with odd ones; give them defaults"
        watch.found[f"{watch.path} {why}"] = None
    texts = [value for value in odd if isinstance(value, str) and value]
    for start in starts:
        each = product(named, enumerate(odd))
        taken = {(name, i) for name, (i, value) in each if watch.constructs(f"an odd {name}", start | {name: value})}
        others = set(named) - _GENERAL
        # An argument may be looked at only where another is set, and taken only then.
        for text in texts:
            fits = {name for name, i in taken if odd[i] is text}
            blank = {name for name in others if named[name].default in _BLANK}
            for group in {frozenset(fits), frozenset(others), frozenset(blank)} - {frozenset()}:
                alike = start | dict.fromkeys(group, text)
                watch.constructs(f"odd {' and '.join(sorted(group))}", alike)
                for name, value in product(group, odd):
                    watch.constructs(f"an odd {name} beside {text}", alike | {name: value})


def _usual(known: Mapping[str, Parameter], text: str) -> list[dict[str, Any]]:
    """Return arguments that a class may take: the defaults and integers, and texts where there may be some."""
    needed = {name for name, one in known.items() if one.default is Parameter.empty}
    texts = {name for name, one in known.items() if isinstance(one.default, str) or "str" in str(one.annotation)}
    defaults = {name: 3 if name in needed else one.default for name, one in known.items()}
    starts, unset = [defaults], {name for name in texts if not known[name].default}
    for names in (needed - _GENERAL, needed & texts, texts, (texts & needed) | unset):
        if (start := defaults | dict.fromkeys(names, text)) not in starts:
            starts.append(start)
    return starts


def _odd(folder: str) -> list[Any]:
    """Return values that a job could mean as files, modules, addresses or components."""
    texts = [sys.executable, __file__, folder, f"{folder}/new"]
    texts += ["xml.dom.minidom", "antigravity", "http://127.0.0.1:9/x"]
    nested = [{"path": "os.getcwd", "args": {}}, {"class_path": "xml.dom.minidom.parse"}, {"site-1": __file__}]
    return [*texts, *nested, [__file__], [nested[0]], {}, [], "", None, True, -1, 1.5, 10**30]


# ---- purity ----

_CLUSTERS = 4


def check_local_is_pure(algorithm: Algorithm) -> None:
    """Replies are the same in two fresh processes that get the tasks in opposite orders: nothing is remembered."""
    sites, _ = iid_sites(m=2)
    tasks = [one.task for one in exchanges(algorithm, sites, _CLUSTERS)]
    with tempfile.TemporaryDirectory(prefix="flareclust-") as folder:
        for number, task in enumerate(tasks):
            np.savez(Path(folder) / f"{number}.npz", allow_pickle=False, **task.arrays)
        np.savez(Path(folder) / "rows.npz", allow_pickle=False, **sites)
        about = {"executor": algorithm.executor, "tasks": [(task.step, task.round, task.site) for task in tasks]}
        (Path(folder) / "tasks.json").write_text(json.dumps(about))
        first, second = (_apart("_answer_all", folder, order) for order in ("1", "-1"))
    for number, task in enumerate(tasks):
        same = first[str(number)] == second[str(number)]
        ensure(same, algorithm, f"step {task.step}, round {task.round}: the reply depends on more than its arguments")


def _answer_all(folder: str, order: str) -> None:
    """Write down a digest of the reply to each task in a folder, which is answered in this order: 1, or -1 for backwards."""
    about = json.loads((Path(folder) / "tasks.json").read_text())
    executor, rows = resolve_name(about["executor"])(k=_CLUSTERS, seed=0), _arrays(Path(folder) / "rows.npz")
    found = {}
    for number, (step, round_, site) in list(enumerate(about["tasks"]))[:: int(order)]:
        task = Task(step, round_, _arrays(Path(folder) / f"{number}.npz"), site)
        found[number] = _digest(executor.answer(task, rows[site], never_abort).arrays)
    (Path(folder) / _ANSWERS).write_text(json.dumps(found), encoding="utf-8")


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _digest(arrays: Mapping[str, Any]) -> str:
    found = hashlib.sha256()
    for name in sorted(set(arrays) - {SECONDS}):
        value = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {value.dtype.str} {value.shape}".encode() + value.tobytes())
    return found.hexdigest()
