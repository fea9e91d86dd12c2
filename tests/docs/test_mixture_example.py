"""The example of Gaussian mixtures runs, chooses the number of groups that it made, and prints what docs/choosing-k.md shows."""

import runpy

from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "mixtures.py"


def test_the_example_prints_what_the_page_shows(capsys):
    example = runpy.run_path(str(EXAMPLE))
    example["main"]()
    printed = capsys.readouterr().out
    assert "3 components: BIC 3653 <- the least" in printed
    page = (ROOT / "docs" / "choosing-k.md").read_text(encoding="utf-8")
    assert f"$ python examples/mixtures.py\n{printed}```" in page
