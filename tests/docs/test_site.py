"""The documentation as a site."""

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import yaml

import flareclust
from tests.paths import ROOT
from tests.patience import PATIENCE


def pages_of(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return {page for part in parts for page in pages_of(part)}  # type: ignore[union-attr]


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {
        str(path.relative_to(ROOT / "docs")) for end in ("md", "ipynb") for path in (ROOT / "docs").rglob(f"*.{end}")
    }
    left_out = {page for page in pages - pages_of(nav) if not page.startswith("adr/")}
    assert left_out == set()
    missing = {page for page in pages_of(nav) if not page.startswith("repository/")} - pages
    assert missing == set()


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="tables.html"' in index
    assert (tmp_path / "site" / "repository" / "index.html").is_file()
    notebooks = tmp_path / "site" / "notebooks"
    pages = sorted(page.stem for page in notebooks.glob("*.html"))
    assert pages == sorted(file.stem for file in (notebooks / "files").glob("*.ipynb"))
    assert len(pages) == 3
    for page in pages:
        html = (notebooks / f"{page}.html").read_text(encoding="utf-8")
        assert f'href="files/{page}.ipynb"' in html
        assert '<pre style="margin: 0"><code' in html, "what cells printed"
        assert "<table>" in html
    assert "data:image/png;base64," in html


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    entries = {line.removeprefix("::: ") for line in page.splitlines() if line.startswith("::: ")}
    defined = {f"{thing.__module__}.{thing.__qualname__}" for thing in map(resolved, entries)}
    assert len(defined) == len(entries)
    missing = [
        name
        for name in flareclust.__all__
        if f"`flareclust.{name}`" not in page and f"{getattr(flareclust, name).__module__}.{name}" not in defined
    ]
    assert missing == []


def resolved(entry: str) -> Any:
    """Return what an entry of the reference names."""
    module, _, name = entry.rpartition(".")
    return getattr(import_module(module), name)
