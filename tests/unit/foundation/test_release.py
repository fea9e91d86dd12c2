"""What a release writes and tries, without building anything."""

import shutil
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version

from flareclust._foundation.version import __version__
from tests import release
from tests.paths import ROOT

DAY = date(2027, 1, 2)

#: Above the number of this checkout, which may be any.
NEXT = f"{Version(__version__).major}.{Version(__version__).minor + 1}.0"


#: What writes the exported jobs and the record of messages anew.
WRITERS = ["flareclust.nvflare_jobs", "tests.contracts.test_protocol"]


@pytest.fixture
def tree(tmp_path):
    """The files of a checkout that state the number."""
    (tmp_path / "flareclust" / "_foundation").mkdir(parents=True)
    for name in ("flareclust/_foundation/version.py", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def written(monkeypatch, tree):
    """The modules that ran in the checkout, which are only named here."""
    ran = []

    def run(*command, folder):
        assert folder == tree
        ran.append(command[-1])

    monkeypatch.setattr(release, "_output", run)
    return ran


def texts(tree):
    names = ("flareclust/_foundation/version.py", "CHANGELOG.md", "CITATION.cff")
    return [(tree / name).read_text(encoding="utf-8") for name in names]


def test_a_release_has_its_number_and_day_wherever_they_stand_and_main_goes_on_with_the_next_one(tree, written):
    release.number(tree, Version(NEXT), DAY)
    version, log, citation = texts(tree)
    assert f'\n__version__ = "{NEXT}"\n' in version
    assert f"## [Unreleased]\n\n## [{NEXT}] - 2027-01-02\n" in log
    assert f"\nversion: {NEXT}\n" in citation
    assert "\ndate-released: 2027-01-02\n" in citation
    told = release.left_to_do(Version(NEXT))
    after = Version(told.rpartition("VERSION=")[2])
    assert after.is_devrelease
    release.number(tree, after, DAY)
    assert texts(tree) == [version.replace(f'"{NEXT}"', f'"{after}"'), log, citation]
    assert written == WRITERS * 2
    assert "tag" not in release.left_to_do(after)


@pytest.mark.parametrize(
    "number", ["0.0.1", "0.0.1.dev1", f"{NEXT}rc1", f"{NEXT}rc1.dev1", NEXT.rpartition(".")[0], __version__]
)
def test_a_number_that_may_not_follow_changes_nothing(tree, written, number):
    before = texts(tree)
    with pytest.raises(SystemExit, match="expected three numbers above"):
        release.number(tree, Version(number), DAY)
    assert texts(tree) == before
    assert written == []


def test_the_wheel_is_tried_with_every_python_and_the_sdist_with_this_one(monkeypatch):
    wheel, sdist = Path("flareclust-1.0.0-py3-none-any.whl"), Path("flareclust-1.0.0.tar.gz")
    monkeypatch.setattr(release, "pythons", lambda files: [release.sys.executable, "python3.99"])
    found = release.trials([wheel, sdist])
    assert found == [(release.sys.executable, wheel), ("python3.99", wheel), (release.sys.executable, sdist)]
    assert release.trials([]) == [], "a development version is built by nobody"
