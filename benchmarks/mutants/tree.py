"""A copy of the checkout in which the product is changed and tested."""

import ast
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import plugin
from benchmarks.mutants.places import PRODUCT, Mutant, changed, sources

#: As of pytest: all tests passed; some failed; there were none.
PASSED, FAILED, NONE = 0, 1, 5
OPTIONS = ("-p", plugin.__name__, "--tb=no", "-p", "no:cacheprovider", "-m", "not slow")


@dataclass(frozen=True)
class Run:
    """How a run of tests ended: pytest's exit code, or None where it was stopped, and the ids of tests that failed."""

    code: int | None
    failed: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return self.code in (PASSED, NONE)


def tracked(checkout: Path) -> list[str]:
    """Return the files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and os.path.lexists(checkout / name)]


class Tree:
    """A copy of these files of a checkout, with the compiled kernels of the product."""

    def __init__(self, checkout: Path, files: Iterable[str], folder: Path) -> None:
        self.root = folder / "tree"
        self.failures = folder / "failures"
        for name in files:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, self.root / name, follow_symlinks=False)
        for top in PRODUCT:  # their index compares time and size of the source, which copy2 keeps
            for cache in (checkout / top).rglob("__pycache__"):
                shutil.copytree(cache, self.root / cache.relative_to(checkout), dirs_exist_ok=True)
        self.importers = self._importers_with_kernels()
        self.changes = 0
        self.server: subprocess.Popen[str] | None = None
        self.process: int | None = None  # leads the session of the run

    @contextlib.contextmanager
    def with_(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        """Change the product, and restore it with its times and compiled kernels."""
        with contextlib.ExitStack() as stack:
            for file in sorted({mutant.place.file for mutant in mutants}):
                stack.enter_context(self._without_kernels(file))
                stack.enter_context(self._changed(file, [mutant for mutant in mutants if mutant.place.file == file]))
            yield

    def run(self, *arguments: str, limit: float) -> Run:
        """Run the fast tests among these; stop them after `limit` seconds."""
        self.failures.write_text("")
        if self.server is None:
            self.server = self._start()
        started = time.monotonic()
        print(json.dumps([*OPTIONS, *arguments]), file=self.server.stdin, flush=True)
        self.process = int(self._answer(None))
        try:
            code = int(self._answer(limit))
        except TimeoutError:
            code = None
        finally:
            self._end()  # also what it has left
        if code is None:
            self._answer(None)
        failed = dict.fromkeys(self.failures.read_text(encoding="utf-8").splitlines())
        return Run(code, tuple(failed), time.monotonic() - started)

    def close(self) -> None:
        """End the processes that run tests."""
        if self.server is not None:
            self._end()
            self.server.kill()
            self.server.communicate()

    def _end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process, signal.SIGKILL)
            self.process = None

    def _start(self) -> "subprocess.Popen[str]":
        temporary = self.failures.with_name("t")
        temporary.mkdir(exist_ok=True)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPATH": str(self.root), plugin.FAILURES: str(self.failures), "TMPDIR": str(temporary)}
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mutants.server"],
            cwd=self.root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        server.stdout.readline()
        return server

    def _answer(self, limit: float | None) -> str:
        """Return the server's next line, which comes as a whole."""
        assert self.server is not None
        assert self.server.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.server.stdout, selectors.EVENT_READ)
            if not selector.select(limit):
                raise TimeoutError
        return self.server.stdout.readline()

    @contextlib.contextmanager
    def _changed(self, file: str, mutants: Sequence[Mutant]) -> Iterator[None]:
        path = self.root / file
        source, before = path.read_text(encoding="utf-8"), path.stat()
        self.changes += 1
        try:
            path.write_text(changed(source, mutants), encoding="utf-8")
            # Each change has a second of its own: bytecode of the same second and size would do for it.
            later = before.st_mtime_ns + self.changes * 10**9
            os.utime(path, ns=(later, later))
            yield
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @contextlib.contextmanager
    def _without_kernels(self, file: str) -> Iterator[None]:
        """Put away the compiled kernels that have those of a file inside them: numba looks only at the time of their own file."""
        users = {file}
        while more := {user for used in users for user in self.importers.get(used, ())} - users:
            users |= more
        with tempfile.TemporaryDirectory() as away:
            kept = {path: Path(away) / str(i) for i, path in enumerate(self._compiled(users))}
            for path, place in kept.items():
                shutil.move(path, place)
            try:
                yield
            finally:
                for path in self._compiled(users):
                    path.unlink()
                for path, place in kept.items():
                    shutil.move(place, path)

    def _compiled(self, files: set[str]) -> list[Path]:
        paths = [self.root / file for file in sorted(files)]
        return [found for path in paths for found in path.parent.glob(f"__pycache__/{path.stem}.*.nb[ic]")]

    def _importers_with_kernels(self) -> dict[str, set[str]]:
        """Return for files of the product which files with kernels import from them."""
        files = {module_of(file): file for file in sources(self.root)}
        importers: dict[str, set[str]] = {}
        for file in files.values():
            text = (self.root / file).read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "@kernel(" in text or "numba" in text else ():
                if isinstance(node, ast.ImportFrom) and node.module:
                    for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                        if module in files:
                            importers.setdefault(files[module], set()).add(file)
        return importers


def module_of(file: str) -> str:
    """Return the name by which a file of the product is imported."""
    parts = Path(file).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "flareclust" else ("flareclust", *parts))
