"""Whether flareclust works with another version of NVFlare, of the package index or of a checkout.

    python -m benchmarks.platform VERSION            # as 2.8.3
    python -m benchmarks.platform FOLDER             # that has nvflare/, such as a clone of NVFlare's main branch
    python -m benchmarks.platform VERSION --quick    # no processes: names, words and modules only

In an environment of its own, beside the packages of this one: every name, class path and sentence of NVFlare that flareclust uses
(tests/unit/platform/test_canaries.py), every module of flareclust, a job in the simulator, in a POC, and in a provisioned federation
with certificates. The exit code is 1 where something fails.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flareclust._foundation.errors import UserError

ROOT = Path(__file__).resolve().parent.parent

#: Prints the names beyond NVFlare's documentation that it does not have.
NAMES = """
from flareclust.platform import _private
for name in _private._NAMES:
    try:
        getattr(_private, name)
    except ImportError as error:
        print(error)
"""

#: Imports every module of flareclust that needs no extra; prints those that fail, with the reason.
IMPORTS = """
import importlib, pkgutil, flareclust
for module in pkgutil.walk_packages(flareclust.__path__, "flareclust."):
    try:
        importlib.import_module(module.name)
    except Exception as error:
        print(f"{module.name}: {error}")
"""

_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE")
_RUN = ("-m", "flareclust", "run", "lloyd", "--data", "iris", "--k", "3", "--no-track", "--out")

#: By what is looked at: what Python is called with, and whether that starts processes.
CHECKS: Mapping[str, tuple[Sequence[str], bool]] = {
    "names": (("-c", NAMES), False),
    "what they do, and words": ((*_PYTEST, "tests/unit/platform/test_canaries.py"), False),
    "modules": (("-c", IMPORTS), False),
    "a job in the simulator": ((*_RUN, "{out}/simulator", "--engine", "simulator"), True),
    "jobs in a POC": ((*_PYTEST, "tests/integration/poc/test_poc.py", "-m", "smoke"), True),
    "jobs at provisioned sites": ((*_PYTEST, "tests/integration/federation/test_same_result.py", "-m", "smoke"), True),
}

#: Seconds that one of them may take.
PATIENCE = 900


def environment(folder: Path, wanted: str) -> Path:
    """Return the interpreter of an environment in a folder, with this NVFlare in front of the packages of this one."""
    here = (Path(wanted) / "nvflare").is_dir()
    subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if here else []), str(folder)], check=True)
    python = folder / "bin" / "python"
    own = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    (own / "beside.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    if here:
        shutil.copytree(Path(wanted) / "nvflare", own / "nvflare")
        return python
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        f"nvflare=={wanted}",
    ]
    if (done := subprocess.run(command, check=False, capture_output=True, text=True)).returncode:
        raise UserError(
            f"{wanted} is no folder with nvflare in it, and no version that pip can install: {done.stderr.strip()[-300:]}"
        )
    return python


def failures(python: Path, arguments: Sequence[str], out: Path) -> Iterator[str]:
    """Give what fails where Python is called in this way, a line each."""
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(python), *(word.replace("{out}", str(out)) for word in arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **pipes)
    try:
        said, errors = started.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # also what it has started
        started.communicate()
        yield f"no end after {PATIENCE} s"
        return
    lines = said.splitlines()
    found = lines if arguments[0] == "-c" else [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    yield from found
    if started.returncode and not found:
        yield ["it said nothing", *lines, *errors.strip().splitlines()][-1]


def main(arguments: Sequence[str] | None = None) -> int:
    words = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.platform", description=words[0], epilog=words[2])
    parser.add_argument("nvflare", help="a version, or a folder that has nvflare/")
    parser.add_argument("--quick", action="store_true", help="start no processes of NVFlare")
    given = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="platform") as folder:
        try:
            python = environment(Path(folder) / "venv", given.nvflare)
        except UserError as error:
            print(error, file=sys.stderr)
            return 2
        for what, (call, processes) in CHECKS.items():
            if processes and given.quick:
                continue
            found = list(failures(python, call, Path(folder)))
            failed += bool(found)
            print(f"{what}: {f'{len(found)} fail' if found else 'as needed'}", *found, sep="\n    ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
