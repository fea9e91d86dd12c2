"""What the command line shows a person."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape as _escape_markup
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from flareclust._foundation.display import in_unit, number_or_dash, printable, shortened, shown, some
from flareclust._foundation.settings import as_text, expected
from flareclust._foundation.typing import IntArray
from flareclust.core import compiled
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import stability as cluster_stability
from flareclust.evaluation.moved import Moved
from flareclust.experiment.config import Experiment
from flareclust.experiment.reports.outcomes import outcome_lines
from flareclust.experiment.reports.placed import PAGE, moved_tables
from flareclust.experiment.reports.summary import MOST_CLUSTERS, budget_split, summarise
from flareclust.experiment.reports.table import Cell
from flareclust.experiment.reports.table import Table as PageTable
from flareclust.experiment.results.disclosure import disclosure_line, disclosure_of
from flareclust.experiment.results.profiled import kept_from_profiles
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.sizes import counts_by_site, size_text
from flareclust.federation import OnRound
from flareclust.federation.site import phases_of, stages_of, steps_to_end
from flareclust.preparation import result as partial
from flareclust.protocol.outcome import Outcome, numbers_of_sites
from flareclust.protocol.params import side_of
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import StepName
from flareclust.sites.account import Budget

if TYPE_CHECKING:
    from flareclust.data.schema.cells import OddCell
    from flareclust.platform.status import FederationStatus
    from flareclust.sites.check import Checked
    from flareclust.sites.job_log import JobLine

#: Of a bar, the text about what is under way.
_ABOUT = "{task.description}"

_COLOURS = {"stable": "green", "uncertain": "yellow", "unstable": "red"}


def escape(text: object) -> str:
    """Return a text for rich's markup as it is to be read: neither rich nor a terminal finds anything to obey in it."""
    return _escape_markup(printable(text))


def table_of(*heads: str | Column | Cell, rows: Iterable[Iterable[object]], title: str | None = None) -> Table:
    """Return a table without a frame, whose cells are shown as they are to be read, coloured where they are a `Text`."""
    columns = (
        Column(escape(head.text), justify="right" if head.kind == "n" else "left", no_wrap=head.kind == "n")
        if isinstance(head, Cell)
        else head
        for head in heads
    )
    table = Table(*columns, box=None, title=title)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else escape(cell) for cell in row))
    return table


def _fitting(table: PageTable, width: int) -> Iterator[Table]:
    """Give a table of a page with the texts of its cells: as it is, or where that is too wide its first columns, then the others below.

    Each part begins with the first column of the table, and has one more at least.
    """
    lines = [[_in_one_line(cell) if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]
    columns = [[head.text, *(line[j] for line in lines)] for j, head in enumerate(table.heads)]
    wide = [2 + max(len(str(text)) for text in column) for column in columns]  # rich puts a space on each side
    first, *others = range(len(columns))
    parts, room = [[first]], width - wide[first]
    for j in others:
        if len(parts[-1]) > 1 and wide[j] > room:
            parts.append([first])
            room = width - wide[first]
        parts[-1].append(j)
        room -= wide[j]
    for part in parts:
        named = Column(escape(table.heads[first].text), no_wrap=True)
        yield table_of(named, *(table.heads[j] for j in part[1:]), rows=([line[j] for j in part] for line in lines))


def _in_one_line(cell: Cell) -> str:
    """Return the text of a cell, with what stands below it on a page in brackets."""
    return f"{cell.text} ({', '.join(cell.lines)})" if cell.lines else str(cell.text)


def numbers(*heads: str, **how: Any) -> list[Column]:
    """Return columns of numbers, which stand to the right."""
    return [Column(head, justify="right", **how) for head in heads]


def say(text: object, kind: str = "", console: Console | None = None) -> None:
    """Print a text on a line of its own as it is to be read; `kind` (note, hint, ...) stands in yellow before it."""
    before = f"[yellow]{kind}:[/] " if kind else ""
    (console or Console()).print(f"{before}{escape(text)}", highlight=False, soft_wrap=True)


@contextmanager
def bar_of(*columns: str | ProgressColumn, about: str = "", total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr, where that is a terminal or a notebook; give what changes its description, and how much is done of how much."""
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(about, total=total)
        yield lambda **changes: bar.update(task, **changes)


@contextmanager
def repeats_progress() -> Iterator[Callable[[int, int], None]]:
    """Show on stderr how many repeats of a study of stability are done, where that is a terminal."""
    with bar_of(_ABOUT, BarColumn(), TimeElapsedColumn(), about="reference run") as update:
        yield lambda done, total: update(description=f"repeat {done} of {total}", completed=done, total=total)


def compile_if_first() -> None:
    """Compile before a first run, and say so on stderr, as it takes seconds without another sign of life."""
    if compiled.compiles_first():  # plain, since a console makes a part of a notebook's page of it
        print("compiling the numeric kernels, once for this installation: up to half a minute", file=sys.stderr)
        compiled.compile_side_by_side()


@contextmanager
def progress(experiment: Experiment) -> Iterator[OnRound]:
    """Show rounds and sites while a job runs, in a notebook or on a stderr that is a terminal; give the callback to feed it."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield lambda record: None
        return
    compile_if_first()
    columns = SpinnerColumn(), _ABOUT, BarColumn(20), TimeElapsedColumn()
    with bar_of(*columns, about=f"{experiment.name}: starting") as update:

        def on_round(record: Mapping[str, object]) -> None:
            sites, refused = numbers_of_sites(record)
            lost = f", {refused} left out" if refused else ""
            update(description=f"{experiment.name}: {record['step']} round {record['round']}, {sites} sites{lost}")

        yield on_round


def print_result(result: Result) -> None:
    """Print a result as a table, with its warnings and where its files are."""
    found, console = summarise(result), Console()
    if named := result.experiment.get("title"):
        say(named)
    title = f"{result.algorithm}, {result.engine}, {result.took_part}, seed {result.seed}"
    console.print(escape(title), highlight=False)
    rows = [("centroids found", f"{result.centroids_found} of {result.k}")]
    rows += [(found.measure_name(name), value) for name, value in found.measures.items()]
    rows += [*found.numbers_of_rows, ("rounds", str(result.rounds))]
    rows += [(f"seconds {name.replace('_', ' ')}", f"{seconds:,.3f}") for name, seconds in result.seconds.items()]
    rows += [(f"bytes {name}", f"{size:,}") for name, size in result.bytes.items()]
    console.print(table_of("measure", *numbers("value"), rows=rows))
    for line in _profile_lines(result):
        console.print(line) if isinstance(line, Table) else say(line)
    for part in outcome_lines(result.arrays, found.row_name):
        if isinstance(part, str):
            say(part)
        else:
            console.print(*_fitting(part, console.width), sep="")
    if found.continuity:
        say(found.continuity)
    if (chosen := found.choice) is not None:
        rules = ", ".join(f"{rule} {k}" for rule, k in chosen["rules"].items())
        console.print(f"{found.chosen}; by rule: {rules}", highlight=False)
    if split := budget_split(result):
        say(f"privacy budget by step: {split}")
    for sentence in partial.sentences(result.arrays):
        say(sentence)
    left_out = {f"{site} {reason}" for site, reason in result.left_out.items()}
    for warning in result.warnings:
        say(warning, "left out" if warning in left_out else "note")
    for line in filter(None, (found.unread, disclosure_line(disclosure_of(result)))):
        say(line)
    if result.centroids_file:
        say(f"files: {Path(result.centroids_file).parent}")
    if result.job:
        say(f"NVFlare job {result.job}; the sites' labels are named by it")
    if result.run_id:
        for line in run_lines(result.run_id, result.run_page):
            say(line)


def print_stability(result: Result, warnings: Sequence[str]) -> None:
    """Print of a run that was repeated a line per cluster, what the numbers are, and warnings, of the repeats last."""
    say(f"{result.algorithm}, k={result.k}, {result.took_part}, seed {result.seed}")
    lines, rows, found = [], result.row_name, summarise(result)
    for one in result.stability:
        indices = map(number_or_dash, (one.seeds, one.resampled, one.left_out))
        lines.append(
            (
                one.cluster,
                found.size(one.cluster) or f"{one.rows:,}",
                *indices,
                Text(one.word, _COLOURS.get(one.word, "default")),
            )
        )
    Console().print(table_of(*numbers("cluster", rows, *cluster_stability.kinds(rows).values()), "", rows=lines))
    say(
        f"mean Jaccard index with the reference run over the repeats ({cluster_stability.repeats_text(result.repeated['done'], rows)}); by the smallest of a "
        f"line: stable from {cluster_stability.STABLE}, unstable below {cluster_stability.UNCERTAIN}"
    )
    if result.null is not None and result.null.evidence:  # else it is the first of the warnings
        say(result.null.sentence)
    say(f"can the clusters be trusted? {found.verdict.sentence}")
    for warning in [*result.warnings, *warnings]:
        say(warning, "note")


def _profile_lines(result: Result) -> Iterator[str | Table]:
    """Give the table of clusters with what is special about each, then lines of notes; without profiles what setting is against them."""
    found = summarise(result)
    if found.profiles is None:
        yield from filter(None, (kept_from_profiles(result),))
        return
    described, rows = found.described(), found.row_name if found.noisy is None else f"{found.row_name}, noisy"
    lines = [(c, found.size(c), found.words(c)) for c in described[:MOST_CLUSTERS]]
    yield table_of(*numbers("cluster"), *numbers(rows, no_wrap=True), "what is special about it", rows=lines)
    if (more := len(described) - MOST_CLUSTERS) > 0:
        yield f"and {more} more clusters; report.html has all of them"
    yield from filter(None, (found.counted,))
    yield from found.notes()
    if found.exact is not None and len(own := counts_by_site(result)) > 1:
        sizes = [f"{site} {size_text(int(rows.sum()), found.floor)}" for site, rows in own.items()]
        yield f"{found.labelled} of each site: {some(sizes, MOST_CLUSTERS, 'more sites')}"


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
        "sends": _describe_replies(algorithm) if algorithm.federated else "everything: not federated",
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
    rows = [(row | {"default": as_text(row["default"])}).values() for row in parameter_rows(algorithm)]
    console.print(table_of("parameter (--set)", "default", "values", "read by", "meaning", rows=rows))


def stage_rows(algorithm: Algorithm) -> dict[str, list[dict[str, object]]]:
    """Return the phases and stages that jobs of an algorithm can have, as mappings."""
    executor = algorithm.build(1)[0]
    listed = {"phases": phases_of(type(executor)), "stages": stages_of(executor)}
    return {kind: [one._asdict() for one in found] for kind, found in listed.items()}


def print_stages(algorithm: Algorithm) -> None:
    """Print the phases and stages that jobs of an algorithm can have, in their order."""
    console, executor = Console(highlight=False), algorithm.build(1)[0]
    console.print(f"Phases of a job of {algorithm.name}, from first to last:\n")
    phases = [(one.name, ", ".join(one.steps), one.does) for one in phases_of(type(executor))]
    console.print(table_of(Column("phase", no_wrap=True), "steps", "what it does", rows=phases))
    words = "Stages of a reply at a site, from first to last before the step is computed, and last to first after it:"
    console.print(f"\n{words}\n", soft_wrap=True)
    stages = [(one.name, one.does) for one in stages_of(executor)]
    console.print(table_of(Column("stage", no_wrap=True), "what it does", rows=stages))


def _describe_replies(algorithm: Algorithm) -> str:
    """Return what leaves a site in every step, in words: `centroids float64 (k, d), radii float64 (k)`."""
    executor = algorithm.executor_class()
    in_rounds, before = [], []
    for name, step in steps_to_end(executor).items():
        sent = ", ".join(f"{array} {field}" for array, field in step.schema.fields.items())
        if name not in executor.steps and name != StepName.DESCRIBE:
            before += [] if step.jobs == "secure" else [f"in step {name}: {sent}"]
        elif step.jobs == "all":
            in_rounds.append(sent if name == StepName.CLUSTER else f"in step {name}: {sent}")
    asked = "; before the rounds, where settings ask for it, "
    return "; ".join(in_rounds) + (asked + "; ".join(before) if before else "")


def print_algorithms(algorithms: Iterable[Algorithm]) -> None:
    """Print the registry as a table that fits 80 columns: names, and when to use each."""
    rows = [(algorithm.name, algorithm.when or algorithm.title) for algorithm in algorithms]
    Console().print(table_of(Column("name", no_wrap=True), "when to use it", rows=rows))
    Console().print("settings, and what leaves a site: flareclust list NAME", highlight=False)


def print_pairs(heading: str, pairs: Mapping[str, str]) -> None:
    """Print names with a line about each."""
    Console().print(table_of(heading, "", rows=pairs.items()))


def print_checked(checked: "Checked") -> None:
    """Print what a kit brings to a job to its own operator, with hints; errors go to stderr."""
    if (rows := checked.rows) is not None:
        lines, heads = [], numbers("different", "least", "mean", "largest")
        for column in rows.columns:
            values = (f"{value:,.6g}" for value in (column.minimum, column.mean, column.largest))
            lines.append((column.name, f"{column.different:,}{'+' if column.more else ''}", *values))
        title = escape(f"{checked.name}: {rows.number:,} rows in {rows.file}")
        Console().print(table_of("column", *heads, rows=lines, title=title))
    elif checked.without_rows:
        say(f"{shortened(checked.name, 200)}: {checked.without_rows}, which has no rows")
    else:
        say(f"{shortened(checked.name, 200)}: no rows, see below")
    for subject, words in checked.facts.items():
        say(f"{subject}: {words}")
    for hint in checked.hints:
        say(hint, "hint")
    for line in "\n".join(f"error: {shortened(error)}" for error in checked.errors).splitlines():
        say(line, console=Console(stderr=True))
    if not checked.hints and not checked.errors:
        Console().print("nothing odd")


def print_odd_cells(cells: "Sequence[OddCell]") -> None:
    """Print cells that do not fit to those who own the rows."""
    if not cells:
        say("no cell that does not fit")
        return
    lines = [(cell.column, f"{cell.row:,}", shown(cell.value), cell.why) for cell in cells]
    Console().print(table_of("column", *numbers("row"), "value", "what is wrong", rows=lines))


def print_status(found: "FederationStatus") -> None:
    """Print what a federation's server knows: its sites, its last jobs, and what to look at."""
    console = _whole_lines()
    say(
        f"server {found.server}, NVFlare {found.nvflare or 'unknown'}, started {_said_time(found.started)}",
        console=console,
    )
    sites = []
    for site in found.sites:
        state = Text(site.state, "green" if site.connected else "red")
        reported = site.nvflare or "-", site.flareclust or "-", _said_time(site.certificate_end)[:10]
        sites.append((site.name, state, _said_time(site.last_seen), *reported, site.said_disk, site.said_budget))
    heads = "site", "state", "last seen", "NVFlare", "flareclust", "kit ends"
    console.print(table_of(*heads, *numbers("free disk", "budget left"), rows=sites))
    jobs = [(_said_time(job.submitted), job.id, job.name, job.user, job.duration, job.status) for job in found.jobs]
    console.print(table_of("submitted", "job", "name", "by", "took", "state", rows=jobs))
    for job in found.jobs:
        for refusal in job.refusals:
            say(f"{job.id}: {refusal}", "not taken", console)
    for problem in found.problems:
        say(problem, "missing", console)
    for hint in found.hints:
        say(hint, "hint", console)


def print_rules(rules: Mapping[str, Mapping[str, float | bool] | None]) -> None:
    """Print what sites say of their policies, a line each; rules without a value do not hold at any site."""
    names = dict.fromkeys(name for said in rules.values() for name in said or ())
    lines = [[site, *(_rule(said, name) for name in names)] for site, said in rules.items() if said]
    if lines:
        _whole_lines().print(table_of("site", *numbers(*names), rows=lines))
    if silent := [site for site, said in rules.items() if not said]:
        say(
            f"{', '.join(silent)}: no policy, or one that is not shared (there: flareclust site policy KIT --share-rules)",
            "unknown",
        )


def _rule(said: Mapping[str, float | bool], name: str) -> str:
    value = said.get(name, "-")
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def print_budget(found: Budget) -> None:
    """Print what was spent of a site's budget of privacy, by job and date."""
    heads = [Column(head, overflow="fold") for head in ("date (UTC)", "job", "site", "what")]
    rows = [
        (line.at[:19], line.job, line.site, line.what, f"{line.epsilon:.4g}", f"{line.total:.4g}")
        for line in found.lines
    ]
    title = f"epsilon {found.spent:.4g} of {found.budget:g} (delta {found.delta:g})"
    table = table_of(*heads, *numbers("epsilon", "in all", overflow="fold"), rows=rows, title=title)
    console = _whole_lines()
    console.print(table)
    lines = [f"table: {found.place}", f"ledger: {found.file}", *(f"shared with: {other}" for other in found.others)]
    if found.trouble is not None:
        lines.append(f"no job may spend from it: {found.trouble}")
    for words in lines:
        say(words, console=console)


def print_site_log(jobs: "Sequence[JobLine]", held: Sequence[int | None] | None = None) -> None:
    """Print a line for each job that came to a site.

    `held` is how many ids that are asked about each job had rows of, None where that is not known, or where none are asked about.
    """
    if not jobs:
        say("no job has come to this site since it has a log of them")
    for job, had in zip(jobs, held or [0] * len(jobs), strict=True):
        words = [_said_time(job.came), job.job, job.name, job.algorithm, job.user]
        if job.ended is not None:
            words.append(f"{job.exchanges} answers, {job.bytes_out:,} bytes out in {job.ended - job.came:.0f} s")
        elif job.accepted:
            words.append("no end")
        if job.refused:
            words.append(f"{'answered without numbers' if job.accepted else 'refused'}: {job.refused}")
        words.append(f"{job.withdrawn:,} row{'' if job.withdrawn == 1 else 's'} left out" if job.withdrawn else "")
        words.append(
            "not known which rows it had" if had is None else f"had rows of {had:,} of the withdrawn ids" if had else ""
        )
        say("  ".join(word for word in words if word))


def _said_time(when: float | None) -> str:
    """Return a time in seconds since 1970 UTC as it is read at this machine; a dash for none."""
    return "-" if when is None else datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _whole_lines() -> Console:
    """Return a console on which lines that go to a file stay whole."""
    return Console() if Console().is_terminal else Console(width=160)


def print_placement(
    labels: IntArray, folder: Path, notes: Sequence[str], moved: Moved | None, row_name: str = "rows"
) -> None:
    """Print how many of a late site's rows went to which cluster, what has moved since the run, and notes on them."""
    clusters, counts = np.unique(labels, return_counts=True)
    if moved is None:
        print_pairs("cluster", {str(c): f"{n} {row_name}" for c, n in zip(clusters, counts, strict=True)})
    else:
        for table in moved_tables(moved):
            (console := Console()).print(*_fitting(table, console.width), sep="")
        for sentence in moved.sentences():
            say(sentence)
    for note in notes:
        say(note, "note")
    if moved is not None:
        say(f"page: {folder.absolute() / PAGE}")
    say(f"labels: {folder.absolute() / LABELS_FILE}")


def print_placed(outcome: Outcome, rows: int, row_name: str) -> None:
    """Print how many rows, which the run calls so, late sites of a federation have placed."""
    say(f"{rows:,} {row_name} placed at {', '.join(sorted(set(outcome.sites) - set(outcome.refused)))}")
    for site, reason in sorted(outcome.refused.items()):
        say(f"{site} {in_unit(reason, row_name)}", "left out")
    say(f"labels: at the sites, named by the job {outcome.job}")
