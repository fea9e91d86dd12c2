"""What a run found as HTML: report.html, a page that loads nothing, for people who do not run it; and what a notebook shows.

The order of report.html is that of the questions of a reader: who, warnings, which clusters, what is special about them, whether they can be
trusted, whose rows they are, what left the sites, and how to repeat it. The texts are in templates/report.html.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.display import all_of, measured, number_or_dash, rounded
from flareclust._foundation.extras import installed
from flareclust._foundation.version import __version__
from flareclust.evaluation import null_reference, profile_words
from flareclust.evaluation import stability as cluster_stability
from flareclust.evaluation.noisy_profiles import FREE
from flareclust.experiment.config import OWN_ROWS, REMOTE
from flareclust.experiment.plotting.style import cluster_colour, png
from flareclust.experiment.reports.charts import RowMap
from flareclust.experiment.reports.columns import columns_left_out, heat_tables, site_tables
from flareclust.experiment.reports.command import UNNAMED_POLICY, command_of, study_command
from flareclust.experiment.reports.html import cluster_cell, render, stacked
from flareclust.experiment.reports.outcomes import view_of_outcomes
from flareclust.experiment.reports.summary import MOST_CLUSTERS, Summary, budget_split, no_value, summarise
from flareclust.experiment.reports.table import Cell, Table, numbers
from flareclust.experiment.results.disclosure import REPORT, disclosure_of, has_map
from flareclust.experiment.results.picture import has_tree, image_of, picture_of, tree_of
from flareclust.experiment.results.profiled import why_no_profiles
from flareclust.experiment.results.sizes import counts_by_site, shown_sizes, size_text, withholds
from flareclust.preparation import result as partial
from flareclust.preparation.scaling import scaling_of
from flareclust.protocol import cluster_arrays, registry

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: So many sites have a bar and a map of their own; so many are named at the top, with so many columns.
_MOST_SITES, _MOST_NAMED, _MOST_COLUMNS = 60, 12, 30

#: Where a run was, by its engine; every other engine is that of the sites' own machines.
_WHERE = {
    "inprocess": "simulated in one process",
    "simulator": "simulated with NVFlare on one machine",
    "poc": "in an NVFlare POC on one machine",
}

#: Of the statuses of outputs.
_STATUS_COLOURS = {"pass": "color:#2a6e3b", "review": "color:#8a5a00", "fail": "color:#bd1f01"}

#: What k-prototypes has in the place of the inertia.
_MIXED_COST = "cost of k-prototypes (squared distances of numbers, plus gamma for each category that differs)"

_MEASURES = {
    "simplified_silhouette": "silhouette, simplified (how much nearer {rows} are to their own cluster than to the next: 0 to 1, higher is better)",
    "inertia": "inertia (sum of squared distances to the centroids, the middles of the clusters; only for runs on the same {rows} and columns to compare)",
    "inertia_signal_to_noise": "inertia over the deviation of its noise (of differential privacy)",
    "clipped_share": "share of {rows} beyond the sites' bounds",
    "davies_bouldin": "Davies-Bouldin index (how wide clusters are for the distance between them; lower is better)",
    "log_likelihood": "mean log likelihood of the mixture (higher is better)",
    "bic": "BIC (lower is better)",
    "icl": "ICL (lower is better; it prefers components that are apart)",
    "noise_rows": "{rows} of micro-clusters in no cluster",
    "ari": "adjusted Rand index against the known classes",
    "nmi": "normalised mutual information with the known classes",
    "purity": "purity against the known classes",
    "accuracy": "accuracy against the known classes",
    "drift_centroids": "drift of the centroids (0 to 1; beyond 1 a cluster counts as another one)",
    "drift_shares": "drift of the shares (part of the {rows} that is in other clusters than before)",
}

#: The steps of all algorithms. Those in which DeepFeCA clusters embedded rows ("feca_cluster") follow from the others.
WORDS: Mapping[str, str] = {
    "keys": "keys of secure sums",
    "describe": "names of columns, numbers of {rows} and, where the job needs them, means and spread of the columns",
    "names": "names of columns, in hashed form",
    "moments": "means and spread of the columns",
    "known_moments": "known cells of the columns, with their means and spread",
    "scales": "location and spread of the columns",
    "known_scales": "location and spread of the columns, over the known cells",
    "odd_columns": "columns that are unlike those of the other sites: how many sites have such",
    "bins": "numbers of values in bins of the columns",
    "finer_bins": "numbers of values in finer bins of the columns",
    "bounds": "bounds of the columns, from the sites' policies",
    "outline": "noisy number of {rows}, with noisy sums of their values and squares",
    "second_moments": "noisy number of {rows}, with noisy sums of their values and products",
    "axes": "noisy numbers of {rows} in cells along the main axes",
    "shape": "size of the images and number of classes",
    "cluster": "clusters or starting points",
    "fuzzy": "means of fuzzy clusters",
    "sample": "means of clusters in a random sample of the {rows}",
    "spread": "means and deviations of clusters",
    "spread_counts": "sizes of clusters, asked for before means and deviations",
    "update": "means of clusters",
    "update_counts": "sizes of clusters, asked for before means",
    "fit": "mixtures of the sites' own {rows}: weights, means and covariances",
    "fit_diagonal": "mixtures of the sites' own {rows}: weights, means and variances",
    "expectation": "components of the mixture: weights, means and covariances",
    "train": "weights of the network, with its loss",
    "score": "how well solutions fit",
    "score_inertia": "how well solutions fit, by squared distances",
    "score_silhouette": "how well solutions fit, by squared distances and silhouettes",
    "own_clusters": "clusters that are nearly all one site's: how many sites have such",
    "assess": "the assessment: sizes and sums of distances",
    "place": "numbers of late {rows} that have got a cluster",
    "profile": "the profiles: means and deviations of clusters",
    "profile_bins": "the profiles: counts in bins",
    "profile_totals_counts": "the profiles: sizes of clusters",
    "profile_totals": "the profiles: means and deviations of clusters, of all sites together",
    "profile_known": "the profiles: means and deviations of known cells",
    "profile_known_bins": "the profiles: known cells in bins",
    "outcome_counts": "outcomes: {rows} of clusters by outcome",
    "rows_read": "tables: {rows} that took no part",
    "outcome_sums": "outcomes: sums of clusters",
    "linear_moments": "the linear evaluation: sums of products of the features",
    "linear_gradient": "the linear evaluation: gradients, and numbers of {rows} that are in the right class",
}


def report_page(result: "Result") -> str:
    """Return the page."""
    found, k = summarise(result), result.centroids_found
    data, asked = str(result.experiment.get("data", "data")), result.repeated.get("asked", {})
    algorithm = registry.get(result.algorithm)
    cramers_v = {} if found.exact is None else found.exact.cramers_v
    rules = {} if found.choice is None else found.choice["rules"]
    sizes = None if found.sizes is None else [[cluster_cell(c, k), found.size(c)] for c in range(k)]
    # The tree of local clusters, with names of sites, is in a file of its own.
    drawn = installed("plots") and has_tree(result.arrays) and "tree_left" not in result.arrays
    return render(
        "report.html",
        found=found,
        result=result,
        data=f"the sites' own {found.row_name}" if data == OWN_ROWS else data.rstrip("/").rsplit("/", 1)[-1],
        sites=[] if result.outcome is None else [site for site in result.outcome.sites if site not in result.left_out],
        most_named=_MOST_NAMED,
        where=_WHERE.get(result.engine, "on the sites' own machines"),
        columns=profile_words.plain_names(result.columns or ()),
        most_columns=_MOST_COLUMNS,
        scaled=scaling_of(result.arrays) is not None,
        free=FREE,
        noise=[] if found.noisy is None else [one for one in (found.noisy.unclear(), found.noisy.unknown()) if one],
        cards=_cards(found),
        why_none="" if found.profiles is not None else why_no_profiles(result),
        total=shown_sizes(result),
        sizes=None if sizes is None else Table([Cell("cluster"), *numbers(found.row_name)], sizes),
        continuity=_continuity(result),
        heat=[] if found.profiles is None else heat_tables(found.profiles),
        left_out="" if found.profiles is None else columns_left_out(found.profiles),
        gaps=found.exact is not None and cluster_arrays.CELLS in found.exact.arrays,
        cramers_v=", ".join(f"{name} {v:.2f}" for name, v in cramers_v.items() if np.isfinite(v)),
        bars=_site_bars(found),
        site_means=[] if found.exact is None else site_tables(found.exact),
        colours=[cluster_colour(c, k) for c in range(k)],
        became=view_of_outcomes(result.arrays, found.row_name),
        row_map=(row_map := _row_map(result)),
        mapped=[] if row_map is None else sorted(row_map.sites)[:_MOST_SITES],
        level=null_reference.LEVEL,
        measures=_measures(found),
        stability=_stability(result),
        stable=cluster_stability.STABLE,
        uncertain=cluster_stability.UNCERTAIN,
        repeats=cluster_stability.repeats_text(result.repeated["done"], found.row_name) if result.repeated else "",
        study_settings=", ".join(f"{name}={value!r}" for name, value in asked.items()),
        study_command=study_command(result.experiment, asked) if asked else "",
        criterion=(criterion := "" if found.choice is None else found.rule),
        other_rules=", ".join(f"{rule} {k}" for rule, k in rules.items() if rule != criterion),
        choice=_choice_of_k(found),
        tree=base64.b64encode(png(tree_of(result), dpi=100)).decode() if drawn else "",
        federated=result.outcome is not None and algorithm.federated,
        messages=_messages(result),
        policy=result.experiment.get("policy") or {},
        unnamed_policy=UNNAMED_POLICY,
        remote=REMOTE,
        private=_private(result) if "differentially-private" in algorithm.promises else None,
        split=budget_split(result, lambda step: _step_words(step, found.row_name), "; "),
        disclosure=(record := disclosure_of(result)),
        page_status=record["files"][REPORT],
        outputs=_outputs(record["results"].values(), hides=withholds(result)),
        command=command_of(result.experiment),
        unnamed_match=result.matched_to is not None and not result.experiment.get("match_to"),
        version=__version__,
    )


def notebook_page(result: "Result") -> str:
    """Return what ran, metrics, sizes of clusters, sites, warnings, and the picture where there are rows to show."""
    found = summarise(result)
    counts = [found.size(c) for c in range(result.centroids_found)] if (result.labels >= 0).any() else []
    sites = () if result.outcome is None else result.outcome.sites
    tables = [
        (("measure", "value"), [(name.replace("_", " "), value) for name, value in found.measures.items()]),
        (("cluster", found.row_name), _first([(str(c), n) for c, n in enumerate(counts)]) or None),
        (("site", found.row_name), _first([(site, _rows_at(site, found)) for site in sites])),
    ]
    drawn = installed("plots") and bool(result.sites or partial.is_partial(result.arrays))
    return render(
        "notebook.html",
        result=result,
        found=found,
        tables=tables if result.outcome is not None else tables[:-1],
        picture=base64.b64encode(png(picture_of(result))).decode() if drawn else "",
        alt=f"{found.row_name} by site and centroids" if image_of(result.arrays) is None else "images of each cluster",
    )


def _rows_at(site: str, found: Summary) -> str:
    """Return how many rows a site has, as far as that is known here, or why it took no part."""
    result = found.result
    if (why := result.left_out.get(site)) is not None:
        return why
    own, shown = None if found.floor else result.site_labels.get(site), counts_by_site(result)
    rows = len(own) if own is not None else int(shown[site].sum()) if site in shown else None
    return "yes" if rows is None else size_text(rows, found.floor)


def _first(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return rows if len(rows) <= MOST_CLUSTERS else [*rows[:MOST_CLUSTERS], ("...", f"{len(rows) - MOST_CLUSTERS} more")]


def _cards(found: Summary) -> list[dict[str, Any]]:
    """Return what is said of each cluster; under differential privacy with noisy sizes, whatever is known of the rows here."""
    if (profiles := found.profiles) is None:
        return []
    rows: list[int] = (profiles.rows if found.sizes is None else found.sizes).tolist()
    total = sum(rows)
    return [
        {
            "rows": found.size(c),
            "share": profile_words.percent(rows[c] / total) if total and (rows[c] or not found.floor) else "",
            "telling": [one.text for one in profile_words.telling(profiles, c)],
            "words": found.words(c),
            "rule": None if found.exact is None else profile_words.rule_of(found.exact, c),
            "such": found.described_units,
        }
        for c in range(found.result.centroids_found)
    ]


def _continuity(result: "Result") -> Table | None:
    """Return what each cluster was in the earlier run; the warnings say which ended or began."""
    since, rows = result.continuity, shown_sizes(result)
    if since is None:
        return None
    total = 0 if rows is None else max(int(rows.sum()), 1)
    lines = []
    for r, (a, moved) in enumerate(zip(since.was, since.moved, strict=True)):
        own = since.joined.get(r, [] if a is None else [a])
        before = profile_words.percent(sum(since.before[a] for a in own)) if own and since.before is not None else ""
        cells = [all_of(own) if own else "", "" if moved is None else profile_words.percent(moved), before]
        now = "" if rows is None else profile_words.percent(int(rows[r]) / total)
        lines.append([cluster_cell(r, result.centroids_found), *cells, now])
    heads = numbers(f"number in {result.matched_to}", "centroid moved", "share before", "share now")
    return Table([Cell("cluster"), *heads], lines)


def _site_bars(found: Summary) -> Table | None:
    """Return the rows of each site by cluster, from labels that are here, else as the sites have described them."""
    counts = counts_by_site(found.result)
    rows = [
        [site, size_text(int(own.sum()), found.floor), Cell("", "fill", bar=stacked(own.tolist()))]
        for site, own in list(counts.items())[:_MOST_SITES]
    ]
    heads = [Cell("site", "name"), *numbers(found.labelled), Cell(f"its {found.labelled} by cluster", "fill")]
    return Table(heads, rows, style="width:100%", more=max(len(counts) - _MOST_SITES, 0)) if rows else None


def _row_map(result: "Result") -> RowMap | None:
    if not has_map(result):
        return None
    sites, centroids = dict(result.sites), result.centroids
    if (scaling := scaling_of(result.arrays)) is not None:
        sites, centroids = {site: scaling(rows) for site, rows in sites.items()}, scaling(centroids)
    columns = result.columns or [f"column {j + 1}" for j in range(centroids.shape[1])]
    names = [profile_words.plain_name(columns, j) for j in range(len(columns))]
    found = RowMap(sites, result.site_labels, centroids, names)
    return found if found.sites else None


def _measures(found: Summary) -> Table | None:
    """Return how well the clusters are apart, in numbers and words."""
    result = found.result
    rows: list[Sequence[object]] = []
    for name, value in result.ranked_metrics.items():
        shown = no_value(name) if value is None else measured(name, value, 3)
        mixed = name == "inertia" and "gamma" in result.arrays
        known = _MIXED_COST if mixed else _MEASURES.get(name, "").format(rows=found.row_name)
        rows.append((known or name.replace("_", " "), shown))
    rows += found.numbers_of_rows
    tree = None if found.exact is None else found.exact.tree
    if tree is not None and tree.rows[0].any():
        what = f"{found.described_units} that rules as those of the cards (a tree of {len(tree.leaves())} leaves) put into their cluster"
        rows.append((what, profile_words.percent(tree.accuracy)))
    return Table([Cell("measure", "text"), Cell("value")], rows) if rows else None


def _stability(result: "Result") -> Table:
    """Return the Jaccard indices of each cluster with a word."""
    rows = []
    for one in result.stability:
        indices = map(number_or_dash, (one.seeds, one.resampled, one.left_out))
        rows.append([cluster_cell(one.cluster, result.centroids_found), *indices, one.word])
    return Table([Cell("cluster"), *numbers(*cluster_stability.kinds(result.row_name).values()), Cell("")], rows)


def _choice_of_k(found: Summary) -> Table | None:
    """Return what was measured for each k; None where k was given."""
    if (chosen := found.choice) is None:
        return None
    asked = ("calinski_harabasz", "simplified_silhouette", "davies_bouldin", "bic", "icl")
    names = [name for name in asked if any(value is not None for value in chosen.get(name, ()))]
    rows = [
        [Cell(k, "n", inner="b" if k == found.result.k else ""), *(_score(chosen[name][i]) for name in names)]
        for i, k in enumerate(chosen["k"])
    ]
    return Table(numbers("k", *(name.replace("_", " ") for name in names)), rows)


def _score(value: float | None) -> str:
    return "" if value is None else rounded(value, 3 if abs(value) < 100 else 0)


def _messages(result: "Result") -> Table:
    """Return what left the sites, step by step."""
    totals: dict[str, Counter[str]] = {}
    for record in () if result.outcome is None else result.outcome.rounds:
        sent = {name: int(str(record.get(name, 0))) for name in ("bytes_up", "bytes_down")}
        totals.setdefault(str(record["step"]), Counter()).update({"exchanges": 1, **sent})
    rows = [
        [_step_words(step, result.row_name), *(f"{value:,}" for value in values.values())]
        for step, values in totals.items()
    ]
    return Table([Cell("what", "text"), *numbers("exchanges", "bytes from all sites", "bytes to all sites")], rows)


def _step_words(step: str, rows: str) -> str:
    """Return a step in words; a step of a user's own algorithm has none, and is its name without underscores."""
    if step in WORDS:
        return WORDS[step].format(rows=rows)
    algorithm, _, inner = step.partition("_")
    if inner in WORDS and algorithm in {one.name for one in registry.BUILT_IN}:
        return f"{WORDS[inner].format(rows=rows)}; of embedded {rows}, by {algorithm}"
    return step.replace("_", " ")


#: Why the page says nothing of cells of other files.
_ELSEWHERE = "disclosure.json has its smallest cell, which this page withholds"


def _outputs(records: Iterable[Mapping[str, Any]], *, hides: bool) -> Table:
    """Return the disclosure record, a line for each output; without smallest cells of other files where the page hides some."""
    rows = []
    for one in records:
        about, names = one["properties"], [file["name"] for file in one["files"]]
        elsewhere = hides and REPORT not in names
        known, files = None if elsewhere else about["smallest_cell"], ", ".join(names)
        output = Cell(about["method"], "name", lines=[files], line_kind="soft")
        why = [_ELSEWHERE] if elsewhere else one["comments"] or [""]
        status = Cell(one["status"], style=_STATUS_COLOURS[one["status"]], inner="b")
        rows.append([output, status, "" if known is None else f"{known:,}", Cell(why[0], "text", lines=why[1:])])
    heads = [Cell("output", "name"), Cell("status"), *numbers("smallest cell"), Cell("why", "text")]
    return Table(heads, rows, "outputs")


def _private(result: "Result") -> str:
    """Return the budget of a run under differential privacy, and whose rows it is for."""
    terms = (result.experiment.get("policy") or {}).get("differential_privacy") or {}
    budget = {name: result.params.get(name, terms.get(name)) for name in ("epsilon", "outcome_epsilon", "delta")}
    spent = ", ".join(f"{name} {value}" for name, value in budget.items() if value is not None)
    unit, most = result.params.get("unit", "row"), result.params.get("rows_per_id", 1)
    whose = "each row" if unit == "row" else f"each id with all of its rows; {most} of each at most were used"
    return f"{': at most ' + spent + ' per site' if spent else ''}, for {whose}"
