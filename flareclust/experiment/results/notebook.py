"""A result as a notebook shows it."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from flareclust._foundation.extras import installed
from flareclust.experiment.reports.costs import no_value
from flareclust.experiment.results.images import image_of
from flareclust.experiment.results.picture import picture_of
from flareclust.experiment.results.values import ResultValues
from flareclust.features import result as partial

#: So many sites and clusters are listed, the others counted.
_MOST = 20


def page(result: ResultValues) -> str:
    """Return the result as HTML: what ran, metrics, sizes of clusters, sites, warnings, and the picture."""
    title = f"{result.algorithm}, {result.engine}: {result.centroids_found} of {result.k} centroids, {result.took_part}"
    metrics = [
        (name.replace("_", " "), no_value(name) if value is None else f"{value:,.4f}")
        for name, value in result.metrics.items()
    ]
    tables = [_table(("measure", "value"), metrics)]
    if sizes := _sizes(result):
        tables.append(_table(("cluster", "rows"), sizes))
    if result.outcome is not None:
        tables.append(_table(("site", "took part"), _sites(result)))
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in result.warnings)
    return (
        f"<div><p><b>{escape(title)}</b></p>"
        f'<div style="display:flex; gap:2em; align-items:flex-start; flex-wrap:wrap">{"".join(tables)}{_picture(result)}</div>'
        f"{f'<ul>{warnings}</ul>' if warnings else ''}</div>"
    )


def _sizes(result: ResultValues) -> list[tuple[str, str]]:
    labels = result.labels[result.labels >= 0]
    if not len(labels):
        return []
    counts = np.bincount(labels, minlength=len(result.centroids))
    return _first([(str(cluster), f"{rows:,}") for cluster, rows in enumerate(counts.tolist())])


def _sites(result: ResultValues) -> list[tuple[str, str]]:
    assert result.outcome is not None
    return _first([(site, result.left_out.get(site, "yes")) for site in result.outcome.sites])


def _first(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return rows if len(rows) <= _MOST else [*rows[:_MOST], ("...", f"{len(rows) - _MOST} more")]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _picture(result: ResultValues) -> str:
    """Return the picture as part of the page; nothing where there are no rows to show, or no matplotlib."""
    if not installed("plots") or not (result.sites or partial.is_partial(result.arrays)):
        return ""
    from flareclust.plotting.style import png

    data = base64.b64encode(png(picture_of(result))).decode()
    shown = "rows by site and centroids" if image_of(result.arrays) is None else "images of each cluster"
    return f'<img alt="{shown}" style="max-width:min(32em, 100%)" src="data:image/png;base64,{data}">'
