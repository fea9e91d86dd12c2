"""The part of a report about the stability of its clusters, where repeats of the run were compared with it."""

from flareclust._foundation.display import number_or_dash
from flareclust.evaluation.stability import KINDS, STABLE, UNCERTAIN, ClusterStability, repeats_text
from flareclust.experiment.reports.charts import swatch
from flareclust.experiment.reports.command import study_command
from flareclust.experiment.reports.html_parts import Html, section, table, tag
from flareclust.experiment.results.values import ResultValues


def stability_table(result: ResultValues) -> Html:
    """Return the Jaccard indices of each cluster with a word; nothing where the run was not repeated."""
    if not result.stability:
        return Html("")
    head = ("cluster", *(tag("th", one, class_="n") for one in KINDS.values()), "")
    k = result.centroids_found
    rows = [
        (
            tag("td", swatch(one.cluster, k), f"cluster {one.cluster}"),
            *(tag("td", number_or_dash(mean), class_="n") for mean in (one.seeds, one.resampled, one.left_out)),
            one.word,
        )
        for one in result.stability
    ]
    note = (
        "Mean Jaccard index of the cluster with that of repeated runs: 1 where the same rows come back. The smallest of a line "
        f"decides: stable from {STABLE}, uncertain from {UNCERTAIN}, unstable below. Do not interpret unstable clusters."
    )
    return section("Do the clusters come back?", table(head, rows), tag("p", note, class_="soft"), *_repeats(result))


def _repeats(result: ResultValues) -> list[Html]:
    """Return how many repeats there were, and how to make them again; nothing for a result that does not know."""
    if not result.repeated:
        return []
    asked, done = result.repeated["asked"], result.repeated["done"]
    counts = f"{sum(done.values())} repeats: {repeats_text(done)}. Seeds follow from that of the run, {result.seed}."
    command = study_command(result.experiment, asked)
    with_policy = " policy.yaml is the file with the sites' policy." if result.experiment.get("policy") else ""
    settings = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    again = tag("p", f"To repeat them: flareclust.stability(...) with the same rows and settings, and {settings}.")
    return [tag("p", counts + with_policy), tag("pre", command) if command else again]


def stability_line(one: ClusterStability) -> Html:
    """Return the word and the figure of one cluster, for its card."""
    return tag("div", f"{one.word}: Jaccard index {number_or_dash(one.jaccard)} in repeated runs", class_="soft")
