"""`python -m tests.shape [--write]`: the shape of the product in figures, beside the values that it may not exceed.

Sizes, names and imports are counted in the sources; what stands under an algorithm, and what one reply and k pass through, in
two runs of FeCA under a profiler. tests/contracts/shape.json has the largest value allowed of each figure; `--write` lowers
those that have become better, and never raises one.
"""

import argparse
import ast
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from flareclust import run
from flareclust.protocol.registry import algorithms
from tests.paths import ROOT, TESTS

RECORD = TESTS / "contracts" / "shape.json"
FOLDERS = ("flareclust", "executors", "aggregators", "flows", "nvflare_jobs")
#: A number of clusters that no other integer of a run is.
K = 1009
#: NVFlare's modules that its documentation does not name, but for the FLARE API.
INTERNAL = re.compile(r"nvflare\.(private|fuel(?!\.flare_api))\b")
Definition = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Source:
    """A file of the product: its path below the root, its import path, its text and its tree."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package of flareclust, or the module where it is in none."""
        return [*self.module.split("."), ""][1]


@cache
def sources() -> tuple[Source, ...]:
    """Return the files of the product; links to other folders are not followed."""
    found = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT)
            parts = [part for part in path.with_suffix("").parts if part != "__init__"]
            module = ".".join(parts if folder == "flareclust" else ["flareclust", *parts])
            text = file.read_text(encoding="utf-8")
            found.append(Source(path, module, text, ast.parse(text)))
    return tuple(found)


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *Definition)) and ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(source: Source) -> int:
    """Count the lines with code: without blank ones, comments and docstrings."""
    layout = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = source.text.splitlines()
    return sum(bool(lines[number - 1].strip()) for number in code - _docstring_lines(source.tree))


def _defined(tree: ast.Module) -> Iterator[str]:
    """Give the names that a module defines at its top."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _crossing(source: Source, modules: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    """Give the module and the name of each import from another package."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flareclust"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                where, name = (full, "*") if full in modules else (str(node.module), alias.name)
                if where in modules and modules[where].package != source.package:
                    yield where, name


def counted() -> dict[str, int]:
    """Return the figures of the sources."""
    every = sources()
    modules = {source.module: source for source in every}
    names = {found for source in every for found in _crossing(source, modules)}
    pairs = {(source.package, modules[where].package) for source in every for where, _ in _crossing(source, modules)}
    nvflare = {s.path: re.findall(r"^\s*(?:from|import)\s+(nvflare[\w.]*)", s.text, re.MULTILINE) for s in every}
    nvflare = {path: imported for path, imported in nvflare.items() if imported}
    internal = sorted(sum(bool(INTERNAL.match(module)) for module in imported) for imported in nvflare.values())
    return {
        "product lines": sum(len(source.text.splitlines()) for source in every),
        "code lines": sum(map(code_lines, every)),
        "public top-level names": sum(not name.startswith("_") for source in every for name in _defined(source.tree)),
        "packages of flareclust": len({s.module.split(".")[1] for s in every if _is_package_file(s)}),
        "package pairs": len(pairs),
        "names imported across packages": len(names),
        "files that import nvflare": len(nvflare),
        "folders that import nvflare": len({_folder(path) for path in nvflare}),
        "private or fuel modules of nvflare imported outside one file": sum(internal[:-1]),
        "files that name min_sites": sum("min_sites" in source.text for source in every),
        "files that name policy": sum(bool(re.search(r"\bpolic(y|ies)\b", source.text)) for source in every),
        "modules below 40 lines": sum(s.text.count("\n") < 40 for s in every if s.path.name != "__init__.py"),
    }


def _is_package_file(source: Source) -> bool:
    return source.module.count(".") > (0 if source.path.name == "__init__.py" else 1)


def _folder(path: Path) -> str:
    return "/".join(path.parts[: 2 if path.parts[0] == "flareclust" else 1])


def inherited() -> dict[str, int]:
    """Return the figures of the classes of the algorithms."""
    federated = {name: algorithm for name, algorithm in algorithms().items() if algorithm.federated}
    sites = {name: algorithm.executor_class() for name, algorithm in federated.items()}
    servers = [algorithm.aggregator_class() for algorithm in federated.values()]
    return {
        "steps of feca": len(sites["feca"].steps),
        "classes under a site's algorithm": max(len(_own(cls)) for cls in sites.values()),
        "lines under a site's algorithm": max(_lines_under(cls) for cls in sites.values()),
        "classes under a server's algorithm": max(len(_own(cls)) for cls in servers),
        "kinds of step in all": len({step for cls in sites.values() for step in cls.steps}),
    }


def _own(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("flareclust")]


def _lines_under(cls: type) -> int:
    files = {inspect.getsourcefile(base) for base in _own(cls)}
    return sum(len(Path(str(file)).read_text(encoding="utf-8").splitlines()) for file in files)


@contextmanager
def _profiled(watch: Callable[[FrameType, str, str, str], None]) -> Iterator[None]:
    """Call `watch` with the frame, the event, the file below the root and the name of each function of the product."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not (path := _product_path(code.co_filename)):
            return
        name = getattr(code, "co_qualname", code.co_name)
        if not code.co_name.startswith("<"):
            watch(frame, event, path, name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


@cache
def _product_path(file: str) -> str:
    """Return the path of a file of the product below its folder, or nothing for another one."""
    path = Path(file).resolve()
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ("",)
    if parts[0] not in FOLDERS:
        return ""
    return "/".join(parts[1:] if parts[0] == "flareclust" else parts)


@dataclass
class _Way:
    """What one reply passes through between a site's function and the merge."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    on: bool = False

    def __call__(self, frame: FrameType, event: str, path: str, name: str) -> None:
        if _ends_local(event, path, name):
            self.on, self.calls = True, []
        elif event == "call" and self.on:
            if not self.calls or self.calls[-1] != (path, name):
                self.calls.append((path, name))
            self.on = not (path == "aggregators/feca.py" and name.split(".")[-1] == "merge")


def _ends_local(event: str, path: str, name: str) -> bool:
    """Whether a site's function of FeCA has returned."""
    return event == "return" and path == "executors/feca.py" and name.split(".")[-1] in ("local", "cluster")


@dataclass
class _Holders:
    """The functions that have k among their arguments, from the user's call to the end of the first site's function."""

    found: set[tuple[str, str]] = field(default_factory=set)
    on: bool = True

    def __call__(self, frame: FrameType, event: str, path: str, name: str) -> None:
        self.on = self.on and not _ends_local(event, path, name)
        if self.on and event == "call" and _holds_k(frame):
            self.found.add((path, name))


def _holds_k(frame: FrameType) -> bool:
    """Whether k is among the arguments of a call: alone, as an attribute, or under its name."""
    values = list(frame.f_locals.values())
    candidates = [*values, *(getattr(value, "k", None) for value in values)]
    candidates += [value.get("k") for value in values if isinstance(value, dict)]
    return any(type(value) is int and value == K for value in candidates)


def crossed() -> dict[str, int]:
    """Return the figures of a run: the functions, modules and packages that one reply crosses, and the functions that hold k."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(center, 1, (200, 2)) for center in (5, 15, 25)])
    rng.shuffle(rows)
    run("feca", {"a": rows[:300], "b": rows[300:]}, k=3, policy={"min_count": 10})  # all is imported and compiled
    way = _Way()
    with _profiled(way):
        run("feca", {"a": rows[:300], "b": rows[300:]}, k=3, policy={"min_count": 10})
    many = rng.normal(size=(3000, 2))
    holders = _Holders()
    with _profiled(holders):
        run("feca", {"a": many[:1500], "b": many[1500:]}, k=K)
    places = [Path(path).parts[0] if "/" in path else "." for path, _ in way.calls]
    return {
        "one reply: functions": len(set(way.calls)),
        "one reply: modules": len({path for path, _ in way.calls}),
        "one reply: changes of package": sum(one != other for one, other in pairwise(places)),
        "functions that hold k": len(holders.found),
    }


def figures() -> dict[str, int]:
    """Return all figures."""
    return {**counted(), **inherited(), **crossed()}


def allowed() -> dict[str, int]:
    """Return the largest value allowed of each figure."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def main() -> int:
    """Print the figures beside the values allowed; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.shape", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="lower the values allowed to those of today")
    write = parser.parse_args().write
    limits, today = allowed() if RECORD.exists() else {}, figures()
    for name, value in today.items():
        limit = limits.get(name, value)
        print(f"{'!' if value > limit else ' '} {name:64s} {value:8,d}   at most {limit:,}")
    if write:
        lower = {name: min(value, limits.get(name, value)) for name, value in today.items()}
        RECORD.write_text(json.dumps(lower, indent=2) + "\n", encoding="utf-8")
    return int(any(value > limits.get(name, value) for name, value in today.items()))


if __name__ == "__main__":
    sys.exit(main())
