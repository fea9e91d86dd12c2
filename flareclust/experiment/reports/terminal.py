"""What the command line shows a person."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape as _escape_markup
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from flareclust._foundation.display import printable, shortened
from flareclust._foundation.setting_text import as_text
from flareclust._foundation.settings import expected
from flareclust._foundation.typing import IntArray
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import selection as choice
from flareclust.evaluation.continuity_words import summary
from flareclust.experiment.config import Experiment, folder_name
from flareclust.experiment.reports.costs import no_value
from flareclust.experiment.reports.profiles import profile_lines
from flareclust.experiment.results.budget_split import budget_split
from flareclust.experiment.results.coverage import coverage_text
from flareclust.experiment.results.result import Result
from flareclust.features import result as partial
from flareclust.federation import OnRound
from flareclust.protocol.outcome import Outcome, numbers_of_sites
from flareclust.protocol.params import side_of
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.schema import Schema
from flareclust.protocol.task import BEFORE_ROUNDS, CLUSTER
from flareclust.sites.budget import Budget
from flareclust.sites.check import Checked, Rows


def escape(text: object) -> str:
    """Return a text for rich's markup as it is to be read: neither rich nor a terminal finds anything to obey in it."""
    return _escape_markup(printable(text))


def default_out(experiment: Experiment) -> Path:
    """Return a new folder for this run's files."""
    return folder_name(experiment, time.strftime("%Y%m%d-%H%M%S"))


@contextmanager
def progress(experiment: Experiment) -> Iterator[OnRound]:
    """Show rounds and sites while a job runs, in a notebook or on a stderr that is a terminal; give the callback to feed it."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda record: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{experiment.name}: starting", total=None)

        def on_round(record: Mapping[str, object]) -> None:
            sites, refused = numbers_of_sites(record)
            lost = f", {refused} left out" if refused else ""
            text = f"{experiment.name}: {record['step']} round {record['round']}, {sites} sites{lost}"
            bar.update(task, description=text)

        yield on_round


def print_result(result: Result) -> None:
    """Print a result as a table, with its warnings and where its files are."""
    console = Console()
    console.print(
        escape(f"{result.algorithm}, {result.engine}, {result.took_part}, seed {result.seed}"), highlight=False
    )
    table = Table(box=None)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("centroids found", f"{result.centroids_found} of {result.k}")
    for name, value in result.metrics.items():
        table.add_row(name.replace("_", " "), no_value(name) if value is None else f"{value:,.4f}")
    if result.assessed is not None:
        table.add_row("rows assessed", coverage_text(result.assessed))
    table.add_row("rounds", str(result.rounds))
    for name, seconds in result.seconds.items():
        table.add_row(f"seconds {name.replace('_', ' ')}", f"{seconds:,.3f}")
    for name, size in result.bytes.items():
        table.add_row(f"bytes {name}", f"{size:,}")
    console.print(table)
    for line in profile_lines(result):
        console.print(escape(line) if isinstance(line, str) else line, highlight=False, soft_wrap=isinstance(line, str))
    if result.continuity is not None:
        console.print(escape(summary(result.continuity, result.matched_to or "")), highlight=False, soft_wrap=True)
    if (chosen := choice.summary(result.arrays)) is not None:
        rules = ", ".join(f"{rule} {k}" for rule, k in chosen["rules"].items())
        console.print(
            f"k={result.k} was chosen from {chosen['k'][0]}..{chosen['k'][-1]}; by rule: {rules}", highlight=False
        )
    if split := budget_split(result):
        console.print(f"privacy budget by step: {split}", highlight=False, soft_wrap=True)
    for sentence in partial.sentences(result.arrays):
        console.print(escape(sentence), highlight=False, soft_wrap=True)
    left_out = {f"{site} {reason}" for site, reason in result.left_out.items()}
    for warning in result.warnings:
        kind = "left out" if warning in left_out else "note"
        console.print(f"[yellow]{kind}:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    if result.centroids_file:
        console.print(f"files: {escape(str(Path(result.centroids_file).parent))}", highlight=False, soft_wrap=True)
    if result.job:
        console.print(f"NVFlare job {result.job}; the sites' labels are named by it", highlight=False, soft_wrap=True)
    if result.run_id:
        for line in run_lines(result.run_id, result.run_page):
            console.print(escape(line), highlight=False, soft_wrap=True)


def run_lines(run_id: str, page: str | None) -> list[str]:
    """Return what is said of a run in MLflow: where its page is, and how the pages of a local store are started."""
    if page is None:
        return [f"MLflow run {run_id}; see it with: flareclust ui"]
    local = page.startswith("http://127.0.0.1:")
    return [f"MLflow run: {page}" + ("  (start the pages with: flareclust ui)" if local else "")]


def algorithm_row(algorithm: Algorithm) -> dict[str, Any]:
    """Return one algorithm's line for tables: what it is, what leaves a site, its settings."""
    return {
        "name": algorithm.name,
        "title": algorithm.title,
        "when": algorithm.when,
        "federated": algorithm.federated,
        "sends": describe_replies(algorithm) if algorithm.federated else "everything: not federated",
        "parameters": algorithm.parameters(),
        "promises": sorted(algorithm.promises),
        "source": algorithm.source,
    }


def parameter_rows(algorithm: Algorithm) -> list[dict[str, Any]]:
    """Return a line per parameter of an algorithm."""
    return [
        {
            "name": name,
            "default": field.default,
            "values": expected(field),
            "read_by": side_of(field) if algorithm.federated else "pooled",
            "meaning": field.description or "",
        }
        for name, field in algorithm.params_class().own().items()
    ]


def print_parameters(algorithm: Algorithm) -> None:
    """Print an algorithm's title, what leaves a site, and its parameters as a table."""
    console = Console()
    console.print(f"{escape(algorithm.title)} ({escape(algorithm.source)})\n", soft_wrap=True)
    console.print(f"leaves a site: {escape(algorithm_row(algorithm)['sends'])}\n", highlight=False, soft_wrap=True)
    table = Table(box=None)
    for heading in ("parameter (--set)", "default", "values", "read by", "meaning"):
        table.add_column(heading)
    for row in parameter_rows(algorithm):
        cells = (row["name"], as_text(row["default"]), row["values"], row["read_by"], row["meaning"])
        table.add_row(*map(escape, cells))
    console.print(table)


def describe_replies(algorithm: Algorithm) -> str:
    """Return what leaves a site in every step, in words."""
    words = optional = ""
    for name, step in algorithm.executor_class().own_steps().items():
        sent = describe_schema(step.schema)
        if step.parameter is not None:
            optional += f"; with {step.parameter}, in step {name}: {sent}"
        elif name in BEFORE_ROUNDS and step.jobs == "all":
            words += f"in step {name}: {sent}; then "
        elif name == CLUSTER:
            words += sent
        elif step.jobs == "all":
            words += f"; in step {name}: {sent}"
    return words + optional


def describe_schema(schema: Schema) -> str:
    """Return a schema in words: `centroids float64 (k, d), radii float64 (k)`."""
    return ", ".join(f"{name} {field}" for name, field in schema.fields.items())


def print_algorithms(algorithms: Iterable[Algorithm]) -> None:
    """Print the registry as a table that fits 80 columns: names, and when to use each."""
    table = Table(box=None)
    table.add_column("name", no_wrap=True)
    table.add_column("when to use it")
    for algorithm in algorithms:
        table.add_row(escape(algorithm.name), escape(algorithm.when or algorithm.title))
    console = Console()
    console.print(table)
    console.print("settings, and what leaves a site: flareclust list NAME", highlight=False)


def print_pairs(heading: str, pairs: Mapping[str, str]) -> None:
    """Print names with a line about each."""
    table = Table(box=None)
    table.add_column(heading)
    table.add_column("")
    for name, text in pairs.items():
        table.add_row(escape(name), escape(text))
    Console().print(table)


def print_checked(checked: Checked) -> None:
    """Print what a kit brings to a job to its own operator, with hints; errors go to stderr."""
    console = Console()
    if checked.rows is not None:
        console.print(_rows_table(checked.name, checked.rows))
    else:
        text = (
            f"{shortened(checked.name, 200)}: {checked.without_rows}, which has no rows"
            if checked.without_rows
            else f"{shortened(checked.name, 200)}: no rows, see below"
        )
        console.print(escape(text), highlight=False, soft_wrap=True)
    for subject, words in checked.facts.items():
        console.print(f"{escape(subject)}: {escape(words)}", highlight=False, soft_wrap=True)
    for hint in checked.hints:
        console.print(f"[yellow]hint:[/] {escape(hint)}", highlight=False, soft_wrap=True)
    for error in checked.errors:
        Console(stderr=True).print(f"error: {escape(shortened(error))}", highlight=False, soft_wrap=True)
    if not checked.hints and not checked.errors:
        console.print("nothing odd")


def _rows_table(name: str, rows: Rows) -> Table:
    table = Table(title=escape(f"{name}: {rows.number:,} rows in {rows.file}"), box=None)
    for heading in ("column", "different", "least", "mean", "largest"):
        table.add_column(heading, justify="left" if heading == "column" else "right")
    for column in rows.columns:
        numbers = (f"{value:,.6g}" for value in (column.minimum, column.mean, column.largest))
        table.add_row(escape(column.name), f"{column.different:,}{'+' if column.more else ''}", *numbers)
    return table


def print_budget(found: Budget) -> None:
    """Print what was spent of a site's budget of privacy, by job and date."""
    table = Table(title=f"epsilon {found.spent:.4g} of {found.budget:g} (delta {found.delta:g})", box=None)
    for heading in ("date (UTC)", "job", "site", "what", "epsilon", "in all"):
        table.add_column(heading, justify="right" if heading in ("epsilon", "in all") else "left", overflow="fold")
    for line in found.lines:
        numbers = f"{line.epsilon:.4g}", f"{line.total:.4g}"
        table.add_row(line.at[:19], *map(escape, (line.job, line.site, line.what)), *numbers)
    console = Console() if Console().is_terminal else Console(width=160)  # lines that go to a file stay whole
    console.print(table)
    lines = [f"table: {found.place}", f"ledger: {found.file}", *(f"shared with: {other}" for other in found.others)]
    if found.waiting:
        lines.append(f"{found.waiting} of these spendings are in the kit's old ledger; the next job adds them")
    if found.trouble is not None:
        lines.append(f"no job may spend from it: {found.trouble}")
    for words in lines:
        console.print(printable(words), highlight=False, soft_wrap=True, markup=False)


def print_placement(labels: IntArray, folder: Path, notes: Sequence[str] = ()) -> None:
    """Print how many of a late site's rows went to which cluster, and notes on them."""
    clusters, counts = np.unique(labels, return_counts=True)
    print_pairs("cluster", {str(c): f"{n} rows" for c, n in zip(clusters, counts, strict=True)})
    for note in notes:
        Console().print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    Console().print(f"labels: {escape(str(folder.absolute() / LABELS_FILE))}", highlight=False, soft_wrap=True)


def print_placed(outcome: Outcome, rows: int) -> None:
    """Print how many rows late sites of a federation have placed."""
    console = Console()
    sites = ", ".join(sorted(set(outcome.sites) - set(outcome.refused)))
    console.print(f"{rows:,} rows placed at {escape(sites)}", highlight=False, soft_wrap=True)
    for site, reason in sorted(outcome.refused.items()):
        console.print(f"[yellow]left out:[/] {escape(site)} {escape(reason)}", highlight=False, soft_wrap=True)
    console.print(f"labels: at the sites, named by the job {outcome.job}", highlight=False, soft_wrap=True)
