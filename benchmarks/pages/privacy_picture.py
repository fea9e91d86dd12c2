"""The picture of docs/privacy.md: rows that a server computed from two rounds, and what each setting makes of every attack."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from flareclust._foundation.typing import FloatArray

INK, SOFT = "#1a1a1a", "#777777"

#: How many digits are shown.
SHOWN = 6


def draw(records: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the picture of these records; the digits are computed anew, from a job of `lloyd`."""
    figure = Figure(figsize=(11, 5.6), dpi=120, facecolor="white")
    _digits(figure)
    _shares(figure, records)
    figure.savefig(file, metadata={"Software": None})


def _digits(figure: Figure) -> None:
    """Show digits of the sites beside what the server computes of them without a policy, and with two policies."""
    rows, found = _computed()
    figure.text(0.012, 0.955, "Handwritten digits of ten sites, rounds of lloyd", fontsize=10, color=INK)
    titles = ("at the sites", "computed by the server, no policy", "... default policy", "... differential privacy")
    pictures: list[Sequence[FloatArray | None]] = [rows, *found]
    for line, (title, shown) in enumerate(zip(titles, pictures, strict=True)):
        bottom = 0.715 - 0.222 * line
        figure.text(0.012, bottom + 0.175, title, fontsize=9, color=SOFT)
        for i in range(SHOWN):
            axes = figure.add_axes((0.012 + 0.056 * i, bottom, 0.052, 0.16))
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_box_aspect(1)
            for spine in axes.spines.values():
                spine.set_color("#cccccc")
            if (picture := shown[i]) is not None:
                axes.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            else:
                axes.text(0.5, 0.5, "-", ha="center", va="center", color=SOFT, transform=axes.transAxes)


def _computed() -> tuple[list[FloatArray], list[list[FloatArray | None]]]:
    """Return some rows, and for three settings what a server computes of each: that row, or None."""
    from benchmarks.attacks.differencing import differences, distinct, number_recovered, rounds_of
    from benchmarks.attacks.settings import DATA, SETTINGS, listen, sites_of

    sites = sites_of("digits")
    claims: dict[str, list[FloatArray]] = {}
    for title in ("min_count=2", "default policy", "differential privacy"):
        seen = listen("lloyd", "digits", sites, DATA["digits"].k, SETTINGS[title])
        names = sorted({name for _, _, replies in seen for name in replies})
        claims[title] = distinct([c for name in names for c in differences(rounds_of(seen, name))])
    pooled = np.concatenate(list(sites.values()))
    right = [c for c in claims["min_count=2"] if number_recovered([c], pooled)]
    rows = [pooled[np.abs(pooled - c).max(axis=1).argmin()] for c in right[:: max(1, len(right) // SHOWN)][:SHOWN]]
    found = [
        [next((c for c in own if number_recovered([c], row[None])), None) for row in rows] for own in claims.values()
    ]
    return rows, found


def _shares(figure: Figure, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw a table of colours: of how many rows in a hundred each attack computes all values, by setting."""
    settings = list(dict.fromkeys(str(r["setting"]) for r in records))
    lines = list(dict.fromkeys((str(r["attack"]), str(r["data"])) for r in records))
    cells = {(r["attack"], r["data"], r["setting"]): r for r in records}
    share = np.full((len(lines), len(settings)), np.nan)
    axes = figure.add_axes((0.62, 0.03, 0.305, 0.76))
    for i, line in enumerate(lines):
        for j, setting in enumerate(settings):
            record = cells.get((*line, setting))
            if record is None:
                continue
            part = 100 * record["recovered"] / record["rows"]
            share[i, j] = max(part, 0.01)
            words = (
                "refused" if record.get("refused") else f"{part:.0f}" if part >= 10 else f"{part:.1f}" if part else "0"
            )
            colour = "white" if part > 8 else INK if part else SOFT
            axes.text(j, i, words, ha="center", va="center", fontsize=7.5, color=colour)
    axes.imshow(share, cmap="Reds", norm=LogNorm(0.01, 100), aspect="auto")
    axes.set_xticks(range(len(settings)), settings, rotation=35, ha="left", fontsize=8, color=INK)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(lines)), [f"{a.replace('`', '')}, {d}" for a, d in lines], fontsize=8, color=INK)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(0.62, 0.955, "Rows recovered exactly, in % of all", fontsize=10, color=INK)
