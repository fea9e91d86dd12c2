"""What is installed: one name in site-packages, the same files from every way of building, and it runs from there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from tests.living import naming
from tests.paths import ROOT, of_the_whole
from tests.patience import PATIENCE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
MAPPED = {name.removeprefix("flareclust."): folder for name, folder in SETUPTOOLS["package-dir"].items() if "." in name}
LINKS_WORK = os.name == "posix"


def source_packages():
    """Every folder with an __init__.py, by the name it has when installed; links are not followed."""
    found = {}
    for top in ("flareclust", *MAPPED.values()):
        for folder, _, files in os.walk(ROOT / top):
            if "__init__.py" in files:
                parts = Path(folder).relative_to(ROOT).parts
                found[".".join(parts if parts[0] == "flareclust" else ("flareclust", *parts))] = "/".join(parts)
    return found


# --- the map, the links and the list ---


@pytest.mark.skipif(not LINKS_WORK, reason="a Windows checkout has text files in place of links; the map does the work")
def test_the_links_mirror_the_map():
    links = {path.name: os.readlink(path) for path in (ROOT / "flareclust").iterdir() if path.is_symlink()}
    assert links == {name: f"../{folder}" for name, folder in MAPPED.items()}
    assert all((ROOT / "flareclust" / name).samefile(ROOT / folder) for name, folder in MAPPED.items())


def test_the_prescribed_folders_hold_the_real_files():
    names = ("executors", "aggregators", "flows", "nvflare_jobs")
    assert MAPPED == {name: name for name in names}  # noqa: SIM300 - the upper case is not the expected value
    assert not any((ROOT / folder).is_symlink() for folder in MAPPED.values())


@of_the_whole
def test_every_package_is_listed_once_and_lies_where_the_map_says():
    listed = SETUPTOOLS["packages"]
    found = source_packages()
    assert sorted(listed) == sorted(found)
    places = SETUPTOOLS["package-dir"]
    for name in listed:
        parent = max((known for known in places if f"{name}.".startswith(f"{known}.")), key=len)
        assert found[name] == places[parent] + name.removeprefix(parent).replace(".", "/")


def test_no_generic_name_can_be_imported_from_elsewhere(tmp_path):
    names = [*MAPPED, "tests", "core", "engines"]
    code = f"import importlib.util as u, sys; print([n for n in {names!r} if u.find_spec(n)], bool(u.find_spec('flareclust.executors.feca')))"
    done = limited([sys.executable, "-c", code], cwd=tmp_path)
    assert done.out == "[] True\n", done.err


# --- what is built ---


class TrialRun(NamedTuple):
    code: int
    out: str
    err: str


def limited(command, *, cwd, **env):
    """Run a command in a session of its own; end all of it when the time is over."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=inherited | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # the command takes its sites' processes with it
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        pytest.fail(f"{command} took more than {PATIENCE} s\n{out}\n{err}")
    return TrialRun(process.returncode, out, err)


def build(source, out, *kinds):
    """Build in the environment that is there, so that no network is needed."""
    done = limited([sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", out, source], cwd=out.parent)
    assert done.code == 0, done.out + done.err
    return out


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The files that a fresh clone has, at their present state."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    done = limited(["git", "ls-files", "-z"], cwd=ROOT)
    assert done.code == 0, done.err
    folder = tmp_path_factory.mktemp("clone") / "flareclust"
    for name in filter(None, done.out.split("\0")):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def built(tree):
    return build(tree, tree.parent / "dist", "--sdist", "--wheel")


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built):
    (path,) = built.glob("*.tar.gz")
    return path


def installed(wheel, folder):
    """Install the wheel, and nothing else, into a folder of its own, and return this."""
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    done = limited(pip, cwd=folder)
    assert done.code == 0, done.err
    return target


def wheel_files(path):
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def tracked(tree, *suffixes):
    """The files of the packages in the tree, by the place they have when installed."""
    for name, folder in source_packages().items():
        for path in (tree / folder).iterdir():
            if path.is_file() and path.suffix in suffixes:
                yield f"{name.replace('.', '/')}/{path.name}"


@pytest.mark.slow
def test_the_wheel_puts_one_name_into_site_packages(wheel):
    files = wheel_files(wheel)
    tops = {name.split("/")[0] for name in files}
    assert len(tops) == 2
    assert {top for top in tops if not top.endswith(".dist-info")} == {"flareclust"}
    (entries,) = [name for name in files if name.endswith("/entry_points.txt")]
    with zipfile.ZipFile(wheel) as archive:
        assert "flareclust = flareclust.cli.main:main" in archive.read(entries).decode()


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_every_job_once_and_nothing_else(wheel, tree):
    files = [name for name in wheel_files(wheel) if name.startswith("flareclust/")]
    jobs = [f"flareclust/{path.relative_to(tree).as_posix()}" for path in (tree / "nvflare_jobs").rglob("*.json")]
    assert len(jobs) >= 6
    templates = tracked(tree, ".yml", ".yaml", ".toml", ".html")
    assert sorted(files) == sorted([*tracked(tree, ".py"), *jobs, *templates, "flareclust/py.typed"])
    assert {"flareclust/cli/templates/sweep.toml", "flareclust/experiment/reports/templates/report.html"} <= set(files)


@pytest.mark.slow
def test_the_sdist_holds_the_real_folders_once_and_no_links(sdist):
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = [member.name.partition("/")[2] for member in members if member.isfile()]
    assert len(set(names)) == len(names)
    for folder, file in (("executors", "lloyd.py"), ("aggregators", "lloyd.py"), ("flows", "experiment.py")):
        assert f"{folder}/{file}" in names
    assert "nvflare_jobs/feca/meta.json" in names
    assert not [name for name in names if name.startswith(tuple(f"flareclust/{folder}/" for folder in MAPPED))]
    assert {"pyproject.toml", "README.md", "LICENSE", "flareclust/py.typed"} <= set(names)


@pytest.mark.slow
def test_the_wheel_from_the_sdist_is_the_wheel_from_the_tree(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    (again,) = build(source, tmp_path / "dist", "--wheel").glob("*.whl")
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
        for name in one.namelist():
            assert one.read(name) == other.read(name), name


@pytest.mark.slow
def test_the_installed_wheel_runs_the_simulator_without_the_checkout(wheel, tmp_path):
    target, empty = installed(wheel, tmp_path), tmp_path / "empty"
    empty.mkdir()
    code = "import flareclust, flareclust.executors.feca as e, flareclust.experiment.config as f; print(flareclust.__file__, e.__file__, f.__file__, sep='\\n')"
    where = limited([sys.executable, "-c", code], cwd=empty, PYTHONPATH=str(target))
    assert [Path(line).is_relative_to(target) for line in where.out.splitlines()] == [True] * 3, where
    run = [sys.executable, "-m", "flareclust", "run", "feca", "--data", "iris", "--n-sites", "3"]
    done = limited([*run, "--no-track", "--json"], cwd=empty, PYTHONPATH=str(target))
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert (printed["engine"], printed["n_sites"], printed["warnings"]) == ("simulator", 3, [])
    assert Path(printed["centroids_file"]).is_relative_to(empty / "flareclust-runs")
    assert [path.name for path in empty.iterdir()] == ["flareclust-runs"]


@pytest.mark.slow
def test_the_installed_wheel_keeps_its_kernels_beside_its_files(wheel, tmp_path):
    target, home = installed(wheel, tmp_path), tmp_path / "home"
    code = (
        "import numpy as np, flareclust; from flareclust.core.kernels import nearest_centroids as kernel; X = np.eye(3); "
        "kernel(X, X.copy(), np.zeros(3, np.int64), np.empty(3)); print(sum(kernel.stats.cache_misses.values()), flareclust.__file__)"
    )
    where = {"PYTHONPATH": str(target), "HOME": str(home), "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    first, later = (limited([sys.executable, "-c", code], cwd=tmp_path, **where).out.split() for _ in range(2))
    assert (first[0], later[0]) == ("1", "0")
    assert Path(later[1]).is_relative_to(target)
    assert list((target / "flareclust" / "core" / "__pycache__").glob("*.nbc"))
    assert not home.exists()


@pytest.mark.nightly
def test_the_installed_wheel_runs_a_federation_without_the_checkout(wheel, tmp_path):
    target, empty = installed(wheel, tmp_path), tmp_path.resolve() / "empty"
    empty.mkdir()
    code = "import flareclust, flareclust.platform.poc.federation as p, flareclust.executors.kfed as e; print(flareclust.__file__, p.__file__, e.__file__, sep='\\n')"
    where = limited([sys.executable, "-c", code], cwd=empty, PYTHONPATH=str(target))
    assert [Path(line).is_relative_to(target) for line in where.out.splitlines()] == [True] * 3, where

    def flareclust(*words):
        command = [sys.executable, "-m", "flareclust", *words]
        done = limited(command, cwd=empty, PYTHONPATH=str(target))
        assert done.code == 0, done.out + done.err
        return done.out

    run = ("run", "kfed", "--k", "3", "--no-track", "--json")
    try:
        flareclust("poc", "up", "--n-sites", "2", "--data", "iris")
        reported = json.loads(flareclust(*run, "--engine", "poc"))
        paths = set()
        for process in naming(empty):
            with suppress(psutil.Error):  # it may just have ended
                paths.add(process.environ()["PYTHONPATH"])
        assert paths, "the federation does not run"
        assert all(str(target) in path.split(os.pathsep) for path in paths)
        flareclust("poc", "down", "--remove")
        assert naming(empty) == []
    finally:
        while left := naming(empty):  # a daemon may just be starting its process again
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)
    assert (reported["engine"], reported["n_sites"], reported["warnings"]) == ("poc", 2, [])
    here = json.loads(flareclust(*run, "--engine", "inprocess", "--data", "iris", "--n-sites", "2"))
    with np.load(reported["centroids_file"]) as one, np.load(here["centroids_file"]) as other:
        assert one["centroids"].shape == (3, 4)
        assert np.array_equal(one["centroids"], other["centroids"])
    assert not (empty / "poc_workspace" / "poc").exists()
