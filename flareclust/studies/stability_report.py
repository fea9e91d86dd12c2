"""What a person sees of a stability study: its table on the terminal, and a bar while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from flareclust._foundation.display import number_or_dash
from flareclust.evaluation.stability import KINDS, STABLE, UNCERTAIN, repeats_text
from flareclust.experiment.reports import terminal
from flareclust.studies.stability import Stability

_COLOURS = {"stable": "green", "uncertain": "yellow", "unstable": "red"}


@contextmanager
def repeats_progress() -> Iterator[Callable[[int, int], None]]:
    """Show on stderr how many repeats are done, where that is a terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reference run", total=None)

        def on_done(done: int, total: int) -> None:
            bar.update(task, description=f"repeat {done} of {total}", completed=done, total=total)

        yield on_done


def print_stability(found: Stability) -> None:
    """Print a line per cluster, and what the numbers are."""
    result = found.result
    terminal.say(f"{found.algorithm}, k={found.k}, {result.took_part}, seed {result.seed}")
    lines = [
        (
            one.cluster,
            f"{one.rows:,}",
            *map(number_or_dash, (one.seeds, one.resampled, one.left_out)),
            Text(one.word, _COLOURS.get(one.word, "default")),
        )
        for one in found.clusters
    ]
    Console().print(terminal.table_of(*terminal.numbers("cluster", "rows", *KINDS.values()), "", rows=lines))
    terminal.say(
        f"mean Jaccard index with the reference run over the repeats ({repeats_text(found.repeats)}); by the smallest of a line: stable from "
        f"{STABLE}, unstable below {UNCERTAIN}"
    )
    if found.null is not None and found.null.evidence:  # else it is the first of the warnings
        terminal.say(found.null.sentence)
    for warning in [*result.warnings, *found.warnings]:
        terminal.say(warning, "note")
