"""MkDocs hook: pages and files outside docs/ that pages link to are part of the site, under repository/.

In the repository, links are relative to the files; the site has the same pages at the same places, and README, CONTRIBUTING
and others under repository/.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent

#: A markdown link or image: what is before the target, and the target without its anchor.
_LINK = re.compile(r"(\]\()([^)#\s]+)")

#: Pages outside docs/; all that they, and the pages in docs/, link to is added.
_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "poc_workspace/README.md")

OUTSIDE = "repository"


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add what is linked to outside docs/."""
    wanted = set(_PAGES)
    docs = Path(config.docs_dir)
    sources = [
        *((ROOT / page, page) for page in _PAGES),
        *((p, f"docs/{p.relative_to(docs)}") for p in docs.rglob("*.md")),
    ]
    for file, place in sources:
        wanted |= {target for target in _targets(file.read_text(encoding="utf-8"), place) if (ROOT / target).is_file()}
    for target in sorted(wanted):
        if not target.startswith("docs/"):
            files.append(File.generated(config, f"{OUTSIDE}/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    source = page.file.src_uri
    place = source.removeprefix(f"{OUTSIDE}/") if source.startswith(f"{OUTSIDE}/") else f"docs/{source}"

    def moved(match: re.Match[str]) -> str:
        target = match[2]
        if ":" in target:
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        on_site = there.removeprefix("docs/") if there.startswith("docs/") else f"{OUTSIDE}/{there}"
        return match[1] + posixpath.relpath(on_site, posixpath.dirname(source) or ".")

    return _LINK.sub(moved, markdown)


def _targets(text: str, place: str) -> set[str]:
    """Return the files of the repository that a page links to."""
    found = (match[2] for match in _LINK.finditer(text))
    folder = posixpath.dirname(place)
    return {posixpath.normpath(posixpath.join(folder, target)) for target in found if ":" not in target}
