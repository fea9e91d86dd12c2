"""The part of a report that compares the clusters with those of an earlier run, whose numbers they have."""

from flareclust.evaluation.continuity_words import summary
from flareclust.evaluation.profile_words import percent
from flareclust.experiment.reports.charts import swatch
from flareclust.experiment.reports.html_parts import Html, section, table, tag
from flareclust.experiment.results.values import ResultValues


def since(result: ResultValues) -> Html:
    """Return what each cluster was in the earlier run; the warnings say which ended or began. Nothing where the clusters were not matched to one."""
    found, name = result.continuity, result.matched_to
    if found is None or name is None:
        return Html("")
    rows = result.cluster_rows
    total = 0 if rows is None else max(int(rows.sum()), 1)
    k = result.centroids_found
    lines = []
    for r, (a, moved) in enumerate(zip(found.was, found.moved, strict=True)):
        before = "" if a is None or found.before is None else percent(found.before[a])
        cells = ["" if a is None else a, "" if moved is None else percent(moved), before]
        cells.append("" if rows is None else percent(int(rows[r]) / total))
        lines.append((tag("td", swatch(r, k), f"cluster {r}"), *(tag("td", cell, class_="n") for cell in cells)))
    heads = (f"number in {name}", "centroid moved", "share before", "share now")
    head = ("cluster", *(tag("th", one, class_="n") for one in heads))
    words = summary(found, name)
    note = "Moved: part of the distance from which on it would count as another cluster."
    return section(
        "Since the earlier run",
        tag("p", f"{words[:1].upper()}{words[1:]}."),
        table(head, lines),
        tag("p", note, class_="soft"),
    )
