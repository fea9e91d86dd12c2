"""Cut a release: its number and changelog, then a wheel and an sdist that build twice to the same bytes and run where nothing else is.

    python -m tests.release VERSION [--try]

Writes the number, CITATION.cff, CHANGELOG.md, the exported jobs and the record of messages, builds into dist/, checks the metadata,
and runs the wheel in an empty environment of every Python that pyproject.toml states and this machine has, and the sdist in one of
this Python. With --try all of it happens in a copy, and nothing stays. The commit and the tag are yours. Of a development version,
such as 0.4.0.dev1 after 0.3.0, it writes the number, the jobs and the record, and builds nothing.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.paths import ROOT

#: What a new user does first, in a process of the new environment.
FIRST_STEPS = (
    ("--version",),
    ("run", "lloyd", "--data", "iris", "--k", "3", "--engine", "inprocess", "--no-track"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", type=Version)
    parser.add_argument("--try", dest="trial", action="store_true", help="in a copy that is removed")
    asked = parser.parse_args()
    if (changed := _output("git", "status", "--porcelain", folder=ROOT)) and not asked.trial:
        sys.exit(f"commit these first, so that the release is what is tagged:\n{changed}")
    with tempfile.TemporaryDirectory(prefix="flareclust-release-") as name:
        tree = ROOT
        if asked.trial:
            tree = Path(name) / "tree"
            _output("git", "clone", "--quiet", str(ROOT), str(tree), folder=ROOT)
        today = datetime.now(timezone.utc).date()
        number(tree, asked.version, today)
        files = [] if asked.version.is_devrelease else built_twice(tree, Path(name), today)
        check_metadata(files, asked.version)
        for python, file in trials(files):
            try_installed(python, file, Path(name))
        if files and not asked.trial:
            (ROOT / "dist").mkdir(exist_ok=True)
            for file in files:
                shutil.copy(file, ROOT / "dist")
    print(f"{asked.version}: {'tried' if asked.trial else left_to_do(asked.version)}")


def left_to_do(version: Version) -> str:
    """Return what follows by hand once a number is written."""
    if version.is_devrelease:
        return "look at git diff, and commit it"
    return f"look at git diff, commit, and tag it; then make release VERSION={version.major}.{version.minor + 1}.0.dev1"


def number(tree: Path, version: Version, today: date) -> None:
    """Write a number wherever a checkout states it, that of a release with its day; exit where it is none that may follow."""
    file = tree / "flareclust" / "_foundation" / "version.py"
    before = re.search(r'__version__ = "(.+)"', file.read_text()).group(1)  # type: ignore[union-attr]
    if version.pre or len(version.release) != 3 or version <= Version(before):
        sys.exit(f"expected three numbers above {before}, or these and .dev1, got {version}")
    _replace(file, f'__version__ = "{before}"', f'__version__ = "{version}"')
    if not version.is_devrelease:
        _replace(tree / "CHANGELOG.md", "## [Unreleased]\n", f"## [Unreleased]\n\n## [{version}] - {today}\n")
        citation = tree / "CITATION.cff"
        text = re.sub(r"(?m)^version: .*$", f"version: {version}", citation.read_text())
        citation.write_text(re.sub(r"(?m)^date-released: .*$", f"date-released: {today}", text))
    for module in ("flareclust.nvflare_jobs", "tests.contracts.test_protocol"):
        _output(sys.executable, "-m", module, folder=tree)


def built_twice(tree: Path, scratch: Path, today: date) -> list[Path]:
    """Return wheel and sdist; exit unless two copies of the tree build to the same bytes."""
    seconds = int(datetime(today.year, today.month, today.day, tzinfo=timezone.utc).timestamp())
    made = []
    for name in ("once", "again"):
        copy, out = scratch / name / "tree", scratch / name / "dist"
        left_out = shutil.ignore_patterns(
            ".git", ".venv", "*.egg-info", "build", "dist", "__pycache__", "*_cache", "site"
        )
        shutil.copytree(tree, copy, symlinks=True, ignore=left_out)
        command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out))
        _output(*command, folder=copy, SOURCE_DATE_EPOCH=str(seconds))
        files = sorted(out.iterdir())
        for sdist in (file for file in files if file.name.endswith(".tar.gz")):
            sdist.write_bytes(normalised(sdist.read_bytes(), seconds))
        made.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    if made[0] != made[1]:
        sys.exit(f"two builds differ: {made}")
    print("\n".join(f"{digest}  {name}" for name, digest in made[0].items()))
    return files


def normalised(sdist: bytes, seconds: int) -> bytes:
    """Return an sdist whose members are in order, all of one time and of nobody: setuptools writes the times of files."""
    plain, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(sdist)) as read, tarfile.open(fileobj=plain, mode="w") as written:
        for member in sorted(read.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=seconds) as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def check_metadata(files: Sequence[Path], version: Version) -> None:
    """Raise an error where an index would refuse the metadata, or the files are not those of this version."""
    for file in files:
        own = _metadata(file)
        assert (own.name, own.version, own.description_content_type) == ("flareclust", version, "text/markdown"), (
            file.name
        )
        assert own.license_expression == "Apache-2.0", own.license_expression


def _metadata(file: Path) -> Metadata:
    if file.suffix == ".whl":
        with ZipFile(file) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            return Metadata.from_email(wheel.read(name))
    with tarfile.open(file) as sdist:
        (member,) = [member for member in sdist.getmembers() if re.fullmatch(r"[^/]+/PKG-INFO", member.name)]
        return Metadata.from_email(sdist.extractfile(member).read())  # type: ignore[union-attr]


def pythons(files: Sequence[Path]) -> list[str]:
    """Return the interpreters on this machine that the metadata states, one of each minor version, this one among them."""
    stated = _metadata(files[0]).requires_python or SpecifierSet()
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for minor in range(8, 20):
        places = [
            shutil.which(f"python3.{minor}"),
            *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
        ]
        for place in filter(None, places):
            done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if not done.returncode and f"3.{minor}.0" in stated:
                found.setdefault(f"3.{minor}", place)
    return list(found.values())


def trials(files: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return what to install with which Python: a wheel with each, an sdist, whose wheel is the same, with this one."""
    return [
        (python, file) for file in files for python in (pythons(files) if file.suffix == ".whl" else [sys.executable])
    ]


def try_installed(python: str, file: Path, scratch: Path) -> None:
    """Install a wheel or an sdist with what it needs into an empty environment, and do a new user's first steps in an empty folder."""
    here = Path(tempfile.mkdtemp(dir=scratch))
    _output(python, "-m", "venv", str(here / "venv"), folder=here)
    own = here / "venv" / "bin"
    uv = Path(sys.executable).with_name("uv")  # a tenth of pip's time
    if uv.exists():
        found = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
            capture_output=True,
            text=True,
            check=False,
        )
        index = {"UV_DEFAULT_INDEX": found.stdout.strip()} if not found.returncode else {}
        asked = ("pip", "install", "--quiet", "--system-certs", "--python", str(own / "python"), str(file))
        _output(str(uv), *asked, folder=here, **index)
    else:
        _output(str(own / "python"), "-m", "pip", "install", "--quiet", str(file), folder=here)
    for step in FIRST_STEPS:
        said = _output(str(own / "flareclust"), *step, folder=here)
    print(f"{file.name}, {_output(str(own / 'python'), '--version', folder=here)}: {said.splitlines()[0]}")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(old) != 1:
        sys.exit(f"{file.name}: expected {old!r} once")
    file.write_text(text.replace(old, new), encoding="utf-8")


def _output(*command: str, folder: Path, **environment: str) -> str:
    """Return what a command prints; exit with all that it said where it fails."""
    own = {**os.environ, "PYTHONPATH": "", **environment}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
