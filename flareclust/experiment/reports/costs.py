"""The parts of a report about trust and costs: quality, the choice of k, what left the sites, how to repeat the run."""

from flareclust._foundation.version import __version__
from flareclust.evaluation import selection as choice
from flareclust.evaluation.null_reference import LEVEL
from flareclust.evaluation.profile_words import percent
from flareclust.evaluation.profiles import Profiles
from flareclust.experiment.reports.command import command_of
from flareclust.experiment.reports.html_parts import Html, joined, section, table, tag
from flareclust.experiment.reports.step_words import step_words
from flareclust.experiment.results.budget_split import budget_split
from flareclust.experiment.results.coverage import coverage_text
from flareclust.experiment.results.values import ResultValues
from flareclust.protocol import registry

#: What a silhouette means in words, from so much on (Kaufman and Rousseeuw 1990, Table 4).
_SILHOUETTES = (
    (0.71, "a strong structure"),
    (0.51, "a reasonable structure"),
    (0.26, "a weak structure, which may be artificial"),
)

_MEASURES = {
    "inertia": "inertia (sum of squared distances to the centroids)",
    "inertia_signal_to_noise": "inertia over the deviation of its noise (of differential privacy)",
    "clipped_share": "share of rows beyond the sites' bounds",
    "davies_bouldin": "Davies-Bouldin index (lower is better)",
    "ari": "adjusted Rand index against the known classes",
    "nmi": "normalised mutual information with the known classes",
    "purity": "purity against the known classes",
    "accuracy": "accuracy against the known classes",
    "drift_centroids": "drift of the centroids (0 to 1; beyond 1 a cluster counts as another one)",
    "drift_shares": "drift of the shares (part of the rows that is in other clusters than before)",
}


def no_value(name: str) -> str:
    """Return why a metric has no value."""
    return "within its noise" if name == "clipped_share" else "undefined"


def quality(result: ResultValues, profiles: Profiles | None) -> Html:
    """Return how well the clusters are apart, in numbers and words."""
    rows: list[tuple[object, object]] = []
    for name, value in result.metrics.items():
        shown = no_value(name) if value is None else f"{value:,.3f}"
        if name == "simplified_silhouette":
            rows.insert(0, ("silhouette, simplified (0 to 1, higher is better)", f"{shown}{_silhouette(value)}"))
        else:
            rows.append((_MEASURES.get(name, name.replace("_", " ")), shown))
    if result.assessed is not None and result.assessed["rows"] is not None:
        rows.append(("rows assessed", coverage_text(result.assessed)))
    if profiles is not None and profiles.tree is not None and profiles.tree.rows[0].any():
        leaves = len(profiles.tree.leaves())
        rows.append((f"rows that a tree of {leaves} leaves puts into their cluster", percent(profiles.tree.accuracy)))
    cells = [(tag("td", measure, class_="text"), value) for measure, value in rows]
    measures = table(("measure", "value"), cells) if rows else Html("")
    return section("Can the clusters be trusted?", _null(result), measures)


def _null(result: ResultValues) -> Html:
    """Return whether the rows have clusters at all; nothing where that was not asked for."""
    if (test := result.null) is None:
        return Html("")
    meaning = (
        "Such rows have no clusters, and p is the share of all runs, this one included, that are at least as good as this one: up to "
        f"{LEVEL} it counts as evidence."
    )
    answer = tag("p", tag("b", f"{test.sentence[:1].upper()}{test.sentence[1:]}."))
    return joined([answer, tag("p", meaning, class_="soft")])


def _silhouette(value: float | None) -> str:
    if value is None:
        return ""
    words = next((words for least, words in _SILHOUETTES if value >= least), "no structure to speak of")
    return f": {words}, by the usual rule of thumb"


def choice_of_k(result: ResultValues) -> Html:
    """Return how k was chosen; nothing where it was given."""
    if (chosen := choice.summary(result.arrays)) is None:
        return Html("")
    criterion = result.experiment.get("criterion", "")
    asked = ("calinski_harabasz", "simplified_silhouette", "davies_bouldin")
    names = [name for name in asked if any(value is not None for value in chosen[name])]
    rows = [
        (
            tag("td", tag("b", k) if k == result.k else k, class_="n"),
            *(tag("td", _score(chosen[name][i]), class_="n") for name in names),
        )
        for i, k in enumerate(chosen["k"])
    ]
    head = (tag("th", "k", class_="n"), *(tag("th", name.replace("_", " "), class_="n") for name in names))
    others = ", ".join(f"{rule} {k}" for rule, k in chosen["rules"].items() if rule != criterion)
    first, last = chosen["k"][0], chosen["k"][-1]
    words = f"k={result.k} was chosen from {first} to {last} by {criterion}."
    if others:
        words += f" Other criteria would take: {others}."
    return section("Why this number of clusters", tag("p", words), table(head, rows))


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def messages(result: ResultValues) -> Html:
    """Return what left the sites, and under which protections."""
    if result.outcome is None or not registry.get(result.algorithm).federated:
        return section("What left the sites", tag("p", "All rows: this baseline is not federated."))
    totals: dict[str, list[int]] = {}
    for record in result.outcome.rounds:
        one = totals.setdefault(str(record["step"]), [0, 0, 0])
        one[0] += 1
        for i, name in ((1, "bytes_up"), (2, "bytes_down")):
            one[i] += int(str(record.get(name, 0)))
    rows = [
        (tag("td", step_words(step), class_="text"), *(tag("td", f"{value:,}", class_="n") for value in values))
        for step, values in totals.items()
    ]
    head = (
        "what",
        *(tag("th", name, class_="n") for name in ("exchanges", "bytes from all sites", "bytes to all sites")),
    )
    total = f"{result.bytes['up']:,} bytes left the sites in all, and {result.bytes['down']:,} reached them. Rows and labels did not leave."
    return section(
        "What left the sites",
        tag("p", total),
        tag("ul", *(tag("li", line) for line in _protections(result))),
        table(head, rows),
    )


def _protections(result: ResultValues) -> list[str]:
    experiment, found = result.experiment, []
    policy = experiment.get("policy")
    if policy:
        floor, multiple = policy.get("min_count"), policy.get("round_counts")
        found.append(
            f"The sites' policy: groups of at least {floor} similar rows in place of rows, counts as multiples of {multiple}."
        )
    elif result.engine in ("inprocess", "simulator"):
        found.append(
            f"No policy: clusters of fewer than {result.params.get('min_count', 2)} rows at a site were not sent."
        )
    else:
        found.append("Each site's own policy held, where it has one.")
    if experiment.get("secure_sums"):
        found.append("Secure sums: the server learned the sums of all sites together, and not those of one.")
    if "differentially-private" in registry.get(result.algorithm).promises:
        terms = (policy or {}).get("differential_privacy") or {}
        budget = {name: result.params.get(name, terms.get(name)) for name in ("epsilon", "delta")}
        spent = ", ".join(f"{name} {value}" for name, value in budget.items() if value is not None)
        unit, most = result.params.get("unit", "row"), result.params.get("rows_per_id", 1)
        whose = "each row" if unit == "row" else f"each id with all of its rows; {most} of each at most were used"
        found.append(
            f"Differential privacy{': at most ' + spent + ' per site' if spent else ''}, for {whose}.{_split(result)}"
        )
    return found


def _split(result: ResultValues) -> str:
    return f" By step: {split}." if (split := budget_split(result, step_words, "; ")) else ""


def repeat(result: ResultValues) -> Html:
    """Return how to run it again."""
    command = command_of(result.experiment)
    with_policy = " policy.yaml is the file with the sites' policy." if result.experiment.get("policy") else ""
    words = f"flareclust {__version__}, seed {result.seed}, {result.rounds} rounds, {result.seconds['total']:.1f} s.{with_policy}"
    shown = (
        tag("pre", command)
        if command
        else tag("p", "The rows were in memory: flareclust.run(...) with the same rows and settings.")
    )
    job = tag("p", f"NVFlare job {result.job}", class_="soft") if result.job else Html("")
    return section("How to repeat it", shown, tag("p", words, class_="soft"), job)
