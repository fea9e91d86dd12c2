"""The files of a study: tables, figure, and the page that compares its cells."""

from collections.abc import Sequence
from pathlib import Path

from flareclust._foundation.extras import installed
from flareclust.experiment.sweeps.compare import COMPARE, compare_page
from flareclust.experiment.sweeps.figure import sweep_figure
from flareclust.experiment.sweeps.report import comma_separated, failures, markdown, measures
from flareclust.experiment.sweeps.trials import TrialRun, by_cell
from flareclust.plotting.style import save

TABLE, CSV, FIGURE = "table.md", "table.csv", "figure.png"


def write_files(name: str, done: Sequence[TrialRun], folder: Path) -> list[Path]:
    """Write table.md, table.csv, compare.html and figure.png (where a trial came to something); return their paths."""
    cells = by_cell(done)
    texts = {
        TABLE: f"# {name}\n\n{markdown(cells)}{failures(done)}",
        CSV: comma_separated(cells),
        COMPARE: compare_page(name, done, measures(cells)),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    files = [folder / file for file in texts]
    if installed("plots") and any(cell.mean for cell in cells):
        files.append(save(sweep_figure(cells, title=name), folder / FIGURE))
    return files
