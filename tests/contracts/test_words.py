"""Words that have standard ones in their place do not come back: in names, docstrings, messages and pages (docs/glossary.md)."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

#: What was written, and the standard term.
STANDARD = {
    r"yardsticks?": "baseline",
    r"whole numbers?": "integer",
    r"dealt": "assigned, split",
    r"liars?": "lying site, untrusted site",
    r"strangeness": "outlier score",
    r"last words": "last log lines",
    r"mend it": "correct it",
    r"slip of the keyboard": "typing error",
    r"in a hurry": "say what happens",
    r"PromiseBroken": "ContractViolation",
    r"SiteTerms|terms_of": "SiteSession, session_of",
    r"class Asked|class Watched|class Heard|class Judged|class Stamp|class Gate|class Terms|class Question": "the thing's name",
    r"may_leave|along_one_column|note_small|def settle|def insist|def hear|def judge": "the action's name",
    r"least=|most=": "minimum=, maximum=",
    r"told|tells? of": "reported, sent, disclosed, known",
    r"whoever": "the person or process by name",
}
#: Records of decisions and of changes keep the words of their day; the papers' page quotes.
LEFT_OUT = {"CHANGELOG.md", "docs/reproduction.md"}


def texts() -> list[Path]:
    """Return the sources of the package and the pages."""
    code = [path for top in ("flareclust", "executors", "aggregators", "flows") for path in (ROOT / top).rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "algorithms").glob("*.md")]
    return [path for path in (*code, *pages) if str(path.relative_to(ROOT)) not in LEFT_OUT]


@pytest.mark.parametrize("word", STANDARD)
def test_a_word_that_has_a_standard_one_does_not_come_back(word):
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"(?<!\w)(?:{word})(?!\w)", line, flags=0 if word[0].isupper() or "_" in word else re.IGNORECASE)
    ]
    assert not found, f"write {STANDARD[word]} instead: {found}"


def test_warnings_have_no_prefix_of_their_own():
    """The command line and the report say that a sentence is a warning."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path.suffix == ".py" and path.parent.name != "cli" and re.search(r"[\"'](warning|note|hint): ", line)
    ]
    assert not found, f"leave out the prefix: {found}"


def test_the_sources_are_found():
    names = {path.name for path in texts()}
    assert {"feca.py", "README.md", "glossary.md", "nvflare_executor.py"} <= names
