"""The picture of docs/performance.md: how many times as fast as scikit-learn each contender is, by shape."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.speed.page import PAGE

PICTURE = PAGE.parent / "images" / "speed.png"
COLORS = {"flareclust": "#0b6e4f", "scikit-learn elkan": "#b0b0b0", "oneDAL": "#3d6fb4", "faiss (float32)": "#e09f3e"}
INK = "#1a1a1a"


def draw(record: Mapping[str, Any], file: Path = PICTURE) -> None:
    """Draw Lloyd's algorithm from given centroids and k-means++ of a record; weighted rows stand in the tables only."""
    figure = Figure(figsize=(10, 4.6), dpi=120, facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (group, title) in zip(panels, (("lloyd", "Lloyd's algorithm"), ("seeds", "k-means++")), strict=True):
        lines = [line for line in record[group] if "weighted" not in line["case"]]
        shapes = list(dict.fromkeys(line["case"] for line in lines))
        names = [name for name in COLORS if any(line["contender"] == name for line in lines)]
        for number, name in enumerate(names):
            ratio = {line["case"]: line["ratio"] for line in lines if line["contender"] == name}
            at = np.arange(len(shapes)) + (number - (len(names) - 1) / 2) * 0.8 / len(names)
            bars = axes.bar(at, [ratio.get(shape, np.nan) for shape in shapes], 0.8 / len(names), color=COLORS[name])
            if name == "flareclust":
                axes.bar_label(bars, fmt="%.1f", fontsize=8, color=INK)
            bars.set_label(name)
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xticks(np.arange(len(shapes)), [_shape(shape) for shape in shapes], fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("times as fast as scikit-learn, one thread")
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(file, metadata={"Software": None})


def _shape(case: str) -> str:
    """Return rows, columns and clusters of a case in lines, such as 10^5, d = 2, k = 15."""
    n, d, k = case.split(",")
    rows = f"{int(n) // 1_000_000} M" if int(n) >= 1_000_000 else f"{int(n) / 1000:g} k"
    return f"{rows}\nd={d}\nk={k}"
