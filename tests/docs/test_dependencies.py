"""What decisions and docs/install.md say of layers, dependencies and extras is what pyproject.toml has."""

import re
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_EXTRAS = PYPROJECT["project"]["optional-dependencies"]

#: What `make install` takes without a hash: its files differ by index and machine.
UNLOCKED = {"torch"}
LAYERS, FORBIDDEN, *_ = PYPROJECT["tool"]["importlinter"]["contracts"]


def page(name: str) -> str:
    (file,) = (ROOT / "docs").glob(name)
    return file.read_text(encoding="utf-8")


def installed(extra: str | None) -> set[str]:
    """Return the packages that an extra brings, those of the extras that it names among them; with None, those of all installs."""
    listed = PYPROJECT["project"]["dependencies"] if extra is None else _EXTRAS[extra]
    found: set[str] = set()
    for requirement in map(Requirement, listed):
        found |= (
            set().union(*map(installed, requirement.extras)) if requirement.name == "flareclust" else {requirement.name}
        )
    return found


def versions(name: str) -> dict[str, Version]:
    """Return the version of each package in a file of pins."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in lines}


@pytest.mark.parametrize("name", ["site", "dev", "uv"])
def test_every_pin_of_a_lock_has_hashes_and_names_no_index(name):
    text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    pins = re.split(r"\n(?! )", text.rstrip("\n"))
    assert len(pins) == len(versions(f"locks/{name}.txt"))
    for pin in pins:
        assert re.fullmatch(r"\S+==\S+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", pin), pin.splitlines()[0]


def test_locks_have_the_versions_of_the_constraints_and_leave_out_torch_alone():
    """If this fails, run `make locks`."""
    constraints, uv, dev = (versions(name) for name in ("constraints.txt", "locks/uv.txt", "locks/dev.txt"))
    assert {name: version for name, version in (dev | uv).items() if name in constraints} == {
        name: version for name, version in constraints.items() if name not in UNLOCKED
    }


def test_locks_have_all_dependencies():
    """If this fails, run `make locks`."""
    dev, site = versions("locks/dev.txt"), versions("locks/site.txt")
    assert site.items() <= dev.items()
    for extra, found in ((None, site), ("dev", dev), ("postgres", dev)):
        wanted = {canonicalize_name(name) for name in installed(extra)} - UNLOCKED
        assert wanted - {"tomli"} <= found.keys(), "tomli is for Python 3.10, for which no lock is"
    for requirement in map(Requirement, PYPROJECT["project"]["dependencies"]):
        name = canonicalize_name(requirement.name)
        assert name == "tomli" or requirement.specifier.contains(site[name])


def test_the_layers_are_those_that_lint_holds():
    (line,) = re.findall(r"^`__main__` > .*$", page("adr/0019-*.md"), re.MULTILINE)
    assert line.replace("`", "").split(" > ") == LAYERS["layers"]


def test_what_numerics_and_messages_may_not_import_is_what_lint_holds():
    ((sources, targets),) = re.findall(r"with a second one: (.*) import no (.*?)\.", page("adr/0019-*.md"))
    assert [f"flareclust.{name}" for name in re.findall(r"`(\w+)`", sources)] == FORBIDDEN["source_modules"]
    assert re.findall(r"\w+", targets.replace(" or ", " ")) == FORBIDDEN["forbidden_modules"]
    assert "ignore_imports" not in LAYERS | FORBIDDEN  # "no exceptions in the list"
    assert PYPROJECT["tool"]["importlinter"]["exclude_type_checking_imports"]


def test_opendp_is_an_extra_of_its_own():
    assert "OpenDP is an extra, `flareclust[dp]`" in page("adr/0013-*.md")
    assert installed("dp") == {"opendp"}
    assert "opendp" not in installed(None) | installed("all")


def test_a_site_with_a_cluster_needs_no_prefect():
    text = page("adr/0028-*.md")
    assert "The extra `dask`** is that of sweeps and brings Prefect" in text
    assert "`compute` brings `distributed` alone" in text
    assert "prefect" in installed("dask")
    assert installed("compute") == {"distributed"}


def test_no_extra_brings_homomorphic_encryption():
    assert "extra `he`, tenseal" in page("adr/0011-*.md")
    assert "tenseal" not in set().union(installed(None), *map(installed, _EXTRAS))


def test_the_table_of_extras_has_them_all():
    named = re.findall(
        r"`flareclust\[(\w+)\]`", "".join(re.findall(r"^\| `flareclust.*?\|", page("install.md"), re.MULTILINE))
    )
    assert sorted(named) == sorted(_EXTRAS)
    assert installed("all") == installed("tracking") | installed("flows") | installed("plots")
    assert installed(None).isdisjoint({"mlflow", "prefect", "torch", "matplotlib"})
