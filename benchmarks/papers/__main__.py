"""`python -m benchmarks.papers`: the papers' tables and figures again."""

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.extras import installed, require
from flareclust.cli.entry import run_app
from flareclust.cli.sweep import Interrupted, stop_signals

if TYPE_CHECKING:
    from benchmarks.papers.base import Entry, Study
    from benchmarks.papers.running import EntryResult

FOLDER = Path("flareclust-runs") / "papers"


def papers(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="all, a paper (feca), or a table or figure (feca-table1).")
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of every study; 10, with --quick 2.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, smaller data: to see that all of it runs.")
    ] = False,
    features: Annotated[
        Path | None, typer.Option(help="An npz with features X and classes y of your own, for feca-table2.")
    ] = None,
    track: Annotated[bool, typer.Option(help="Log all runs to MLflow.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the tables and figures.")] = FOLDER,
    page: Annotated[Path | None, typer.Option(help="Also write this page from all reports in the folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")] = False,
) -> None:
    """Run the papers' tables and figures again; the same command goes on where it was stopped."""
    from benchmarks import papers as known
    from benchmarks.papers import base, report

    entries = _runnable(list({entry.name: entry for name in names for entry in known.find(name)}.values()), names)
    if features is not None and "feca-table2" not in [entry.name for entry in entries]:
        raise UserError("--features is for feca-table2; name it, or leave out --features")
    if features is not None and not features.is_file():
        raise UserError(f"there is no file {features}; --features expects an npz with X (n, d) and y (n,)")
    if page is not None and page.is_dir():
        raise UserError(f"{page} is a folder; --page must name a file")
    chosen = seeds or (base.QUICK_SEEDS if quick else base.SEEDS)
    study = base.Study(chosen, quick, features=features)
    words = ["python -m benchmarks.papers", *names, *(["--quick"] if quick else [])]
    words += ["--seeds", str(chosen)] if seeds or not quick else []
    words += [] if features is None else ["--features", features.name]
    with redirect_stdout(sys.stderr):
        with stop_signals() as received:
            try:
                ran = _run(entries, study, out, " ".join(words), track=track)
            except BaseException:
                if not received:
                    raise
        if received:
            raise Interrupted("interrupted; what is done is kept, the same command does the rest")
        if page is not None:
            report.write_page(out, page)
    if as_json:
        typer.echo(json.dumps(_summary(ran, page), allow_nan=False))
    else:
        _print(ran, page)
    problems = [f"{one.entry.name}: {one.error}" for one in ran if one.error]
    failed = sum(one.report.failed for one in ran if one.report)
    if failed:
        problems.append(f"{failed} runs failed; the reports say why")
    if problems:
        raise JobFailed("; ".join(problems))


def _runnable(entries: "list[Entry]", names: "Sequence[str]") -> "list[Entry]":
    """Return the entries whose packages are here; a line names the others, or UserError where one was asked for by name."""
    left_out = [entry for entry in entries if entry.extra is not None and not installed(entry.extra)]
    for entry in left_out:
        if len(left_out) == len(entries) or {entry.name, *entry.covers} & set(names):
            require(str(entry.extra), entry.name)
    if left_out:
        extras = " and ".join(sorted({f"flareclust[{entry.extra}]" for entry in left_out}))
        typer.echo(f"left out, because {extras} is not installed: {', '.join(one.name for one in left_out)}", err=True)
    return [entry for entry in entries if entry not in left_out]


def _run(entries: "Sequence[Entry]", study: "Study", out: Path, command: str, *, track: bool) -> "list[EntryResult]":
    from benchmarks.papers.running import run_papers

    if not track:
        return run_papers(entries, study, out, command=command)
    from benchmarks.papers.flow import Tracked

    tracked = Tracked()
    return run_papers(entries, study, out, tracked.start, command, tracked.on_saved)


def _summary(ran: "list[EntryResult]", page: Path | None) -> dict[str, object]:
    from benchmarks.papers.report import to_json

    reports = [{**to_json(one.report), "folder": str(one.folder)} for one in ran if one.report]
    return {
        "reports": reports,
        "errors": {one.entry.name: one.error for one in ran if one.error},
        "page": None if page is None else str(page),
    }


def _print(ran: "list[EntryResult]", page: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from benchmarks.papers.report import counts

    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a file or a pipe has no width to fit, and names must not be cut
    table = Table(box=None)
    for heading in ("table or figure", "lines", "agree", "lower", "higher", "failed runs", "seconds", "folder"):
        table.add_column(heading, justify="left" if heading in ("table or figure", "folder") else "right", no_wrap=True)
    for one in ran:
        if one.report is not None:
            found = counts(one.report.lines)
            shown = (
                found.values() if any(found.values()) else ("-", "-", "-")
            )  # a paper without numbers to compare with
            numbers = (len(one.report.lines), *shown, one.report.failed, round(one.report.seconds))
            table.add_row(one.entry.name, *map(str, numbers), str(one.folder))
    console.print(table)
    if page is not None:
        console.print(f"page: {page}", highlight=False, soft_wrap=True)


def main(args: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(papers)
    run_app(app, args)


if __name__ == "__main__":
    main()
