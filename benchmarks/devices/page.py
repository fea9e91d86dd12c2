"""The table in docs/performance.md and the picture of the cost against the number of devices, made from a record."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.page import between
from flareclust.experiment.plotting.style import PALETTE, headline, open_frame
from flareclust.experiment.plotting.style import page as figure_of

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def text_line(line: dict[str, Any]) -> str:
    """Return a line for the terminal."""
    return (
        f"{line['name']:8} {line['devices']:8d} devices {line['seconds']:8.2f} s wall {line['cpu']:8.2f} s CPU "
        f"{line['merge']:7.2f} s merge {line['peak_mb']:6.0f} MB  inertia per row {line['inertia_per_row']:.6g}"
    )


def slope(lines: list[dict[str, Any]]) -> float:
    """Return by which power of the number of devices the CPU time grows, from 10,000 on, where fixed costs are small."""
    large = [line for line in lines if line["devices"] >= 10_000]
    if len(large) < 2:
        return float("nan")
    return float(np.polyfit(np.log([line["devices"] for line in large]), np.log([line["cpu"] for line in large]), 1)[0])


def write(record: list[dict[str, Any]]) -> None:
    """Replace the table between the page's marks, and the picture."""
    path = DOCS / "performance.md"
    path.write_text(between(path.read_text(), "devices", table(record)))
    picture(record)


def table(record: list[dict[str, Any]]) -> str:
    """Return the largest run of each case."""
    rows = [
        "| work | devices | wall time | goal | CPU time | of it at the server | memory | slope | measured |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in dict.fromkeys(line["name"] for line in record):
        own = [line for line in record if line["name"] == name]
        last = max(own, key=lambda line: line["devices"])
        rows.append(
            f"| {last['title']} | {last['devices']:,} | {_seconds(last['seconds'])} | {_against(last)} | {_seconds(last['cpu'])} | "
            f"{_seconds(last['merge'])} | {last['peak_mb'] / 1000:.1f} GB | {'' if len(own) == 1 else f'{slope(own):.2f}'} | {last['date']}, {last['cores']} cores |"
        )
    return "\n".join(rows)


def _against(line: dict[str, Any]) -> str:
    """Return the goal of a line, and whether its wall time reaches it; nothing without one."""
    goal = line.get("goal")
    return "" if goal is None else f"≤ {goal:.0f} s {'met' if line['seconds'] <= goal else '**missed**'}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def picture(record: list[dict[str, Any]]) -> None:
    """Draw CPU time against the number of devices, both on logarithmic axes."""
    figure = figure_of(6.0, 3.6)
    axes = figure.subplots()
    for colour, name in zip(PALETTE, dict.fromkeys(line["name"] for line in record), strict=False):
        own = [line for line in record if line["name"] == name]
        if len(own) == 1:
            continue
        axes.loglog(
            [line["devices"] for line in own], [line["cpu"] for line in own], "o-", color=colour, label=own[0]["title"]
        )
    axes.set_xlabel("devices")
    axes.set_ylabel("CPU time (s)")
    axes.legend(frameon=False, fontsize=8)
    open_frame(axes)
    headline(axes, "Cost against the number of devices")
    figure.savefig(DOCS / "images" / "devices.png", dpi=100, metadata={"Software": None})
