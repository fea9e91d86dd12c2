"""Which run measured each line of a table, when, and on what machine: lines of several runs stand side by side."""

import string
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

#: The lines of a table, and the limits of the machine by the name of a run: its date and a number.
Lines = list[dict[str, Any]]
Runs = dict[str, dict[str, Any]]


def new_name(runs: Mapping[str, Any]) -> str:
    """Return the name of a run of today that is not among these."""
    today, number = date.today().isoformat(), 1
    while f"{today}-{number}" in runs:
        number += 1
    return f"{today}-{number}"


def still_used(runs: Runs, tables: Iterable[Lines]) -> Runs:
    """Return those runs, by their names in order, that measured a line."""
    names = {line["run"] for lines in tables for line in lines}
    return {name: runs[name] for name in sorted(names)}


def letters(runs: Runs) -> dict[str, str]:
    """Return what each run is called on the page."""
    return dict(zip(runs, string.ascii_lowercase, strict=False))


def described(runs: Runs, lines: Lines) -> str:
    """Return a list of the runs that measured these lines: date, machine, and its limits."""
    names, used = letters(runs), {line["run"] for line in lines}
    return "\n".join(f"- Run *{names[name]}*: {_about(name, runs[name])}" for name in runs if name in used)


def _about(name: str, run: Mapping[str, Any]) -> str:
    threads = "one thread" if run["threads"] == 1 else f"{run['threads']} threads"
    load = f"at a load of {run['load']:.0f}" if "load" in run else "beside other work"
    limits = [f"2048³ product {run['gemm_float64']:.0f} GF/s in float64"]
    if "gemm_float32" in run:
        limits.append(f"{run['gemm_float32']:.0f} GF/s in float32")
    if "fma_float64" in run:
        limits.append(f"multiply-adds in registers {run['fma_float64']:.0f} GF/s in float64")
    if "read_gb" in run:
        limits.append(f"memory read at {run['read_gb']:.1f} GB/s")
    packages = "".join(f", {package} {version}" for package, version in run.get("packages", {}).items())
    about = f"{name[:10]}, {threads} of an {run['processor']}, Python {run['python']}{packages}, {load}"
    return f"{about}; {', '.join(limits)}."
