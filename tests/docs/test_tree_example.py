"""The example of trees runs, finds the clusters that it made, and prints what docs/algorithms/tree.md shows."""

import runpy

from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "trees.py"


def test_the_example_prints_what_the_page_shows(capsys):
    example = runpy.run_path(str(EXAMPLE))
    example["main"]()
    printed = capsys.readouterr().out
    assert "of 2 to 8 clusters the tree takes 2, k-means 8" in printed
    page = (ROOT / "docs" / "algorithms" / "tree.md").read_text(encoding="utf-8")
    assert f"$ python examples/trees.py\n{printed}```" in page
