"""Examples whose output a page shows run, find the groups that they made, and print what the page has."""

import runpy

import pytest

from tests.paths import ROOT


@pytest.mark.parametrize(
    ("example", "page", "found"),
    [
        ("mixtures", "choosing-k.md", "3 components: BIC 3653 <- the least"),
        ("trees", "algorithms/tree.md", "of 2 to 8 clusters the tree takes 2, k-means 8"),
    ],
)
def test_an_example_prints_what_the_page_shows(capsys, example, page, found):
    runpy.run_path(str(ROOT / "examples" / f"{example}.py"))["main"]()
    printed = capsys.readouterr().out
    assert found in printed
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert f"$ python examples/{example}.py\n{printed}```" in text
