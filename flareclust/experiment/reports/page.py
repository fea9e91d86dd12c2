"""report.html: what a run found, on one page that loads nothing, for people who do not run it.

The order is that of the questions of a reader: who, warnings, which clusters, what is special about them, whether they can be
trusted, whose rows they are, what left the sites, and how to repeat it.
"""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import IntArray
from flareclust.evaluation.noisy_profiles import NoisyProfiles
from flareclust.evaluation.profile_words import Branch, percent, rule_of, sentence, telling
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.experiment.reports.charts import RowMap, legend, stacked, swatch
from flareclust.experiment.reports.columns import heat_map
from flareclust.experiment.reports.continuity import since
from flareclust.experiment.reports.costs import choice_of_k, messages, quality, repeat
from flareclust.experiment.reports.html_parts import Html, page, section, table, tag
from flareclust.experiment.reports.noisy import noisy_map, noisy_note
from flareclust.experiment.reports.stability import stability_line, stability_table
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.values import ResultValues, why_no_profiles
from flareclust.features import result as partial
from flareclust.features.scaling import scaling_of
from flareclust.plotting.style import cluster_colour

#: So many sites have a bar and a map of their own.
_MOST_SITES = 60


def report_page(result: ResultValues) -> str:
    """Return the page."""
    profiles, noisy = profiles_of(result.arrays, result.columns), shown_noisy_profiles(result)
    sizes = None if result.cluster_rows is None else result.cluster_rows.tolist()
    title = f"{result.centroids_found} clusters in {_data(result)}"
    return page(
        title,
        tag("h1", title),
        _who(result, sizes),
        _warnings(result, noisy),
        section("The clusters", _cards(result, profiles, sizes) if noisy is None else _noisy_cards(result, noisy)),
        since(result),
        heat_map(profiles) if profiles is not None else Html(""),
        noisy_map(noisy) if noisy is not None else Html(""),
        section("Whose rows they are", *_site_bars(result, profiles)),
        section("Map of the rows", *_maps(result)),
        quality(result, profiles),
        stability_table(result),
        choice_of_k(result),
        messages(result),
        repeat(result),
    )


def _data(result: ResultValues) -> str:
    data = str(result.experiment.get("data", "data"))
    return "the sites' own rows" if data == "sites" else data.rstrip("/").rsplit("/", 1)[-1]


def _who(result: ResultValues, sizes: list[int] | None) -> Html:
    rows = f"{sum(sizes):,} rows of " if sizes else ""
    names = [] if result.outcome is None else [site for site in result.outcome.sites if site not in result.left_out]
    named = ": " + ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else ""
    where = {
        "inprocess": "simulated in one process",
        "simulator": "simulated with NVFlare on one machine",
        "poc": "in an NVFlare POC on one machine",
    }
    engine = where.get(result.engine, "on the sites' own machines")
    columns = (
        f" Columns: {', '.join(result.columns[:30])}{' ...' if len(result.columns) > 30 else ''}."
        if result.columns
        else ""
    )
    scaled = " Columns were brought to the same spread first." if scaling_of(result.arrays) is not None else ""
    return tag(
        "p",
        f"{rows}{result.took_part}{named}. Clustered by {result.algorithm} into k={result.k}, {engine}.{columns}{scaled}",
    )


def _warnings(result: ResultValues, noisy: NoisyProfiles | None) -> Html:
    if not result.warnings:
        if noisy is not None and (noisy.unclear() or noisy.unknown()):
            return Html("")  # said beside the clusters
        return tag("div", "No warnings.", class_="fine")
    items = tag("ul", *(tag("li", warning) for warning in result.warnings))
    return tag("div", tag("b", "Read this first"), items, class_="warnings")


def _cards(result: ResultValues, profiles: Profiles | None, sizes: list[int] | None) -> Html:
    k = result.centroids_found
    if profiles is None:
        note = tag("p", why_no_profiles(result)[:1].upper() + why_no_profiles(result)[1:] + ".")
        if sizes is None:
            return note
        rows = [(tag("td", swatch(c, k), f"cluster {c}"), tag("td", f"{n:,}", class_="n")) for c, n in enumerate(sizes)]
        return tag("div", note, table(("cluster", tag("th", "rows", class_="n")), rows))
    come_back = [stability_line(one) for one in result.stability] or [Html("")] * k
    shown = [
        _card(
            profiles, c, k, (sizes or profiles.rows.tolist())[c], sum(sizes or []), rule_of(profiles, c), come_back[c]
        )
        for c in range(k)
    ]
    return tag("div", *shown, class_="cards")


def _noisy_cards(result: ResultValues, profiles: NoisyProfiles) -> Html:
    """Return the clusters with their noisy sizes, whatever is known of the rows on this machine."""
    k, sizes = result.centroids_found, profiles.rows.tolist()
    come_back = [stability_line(one) for one in result.stability] or [Html("")] * k
    shown = [_card(profiles, c, k, sizes[c], sum(sizes), None, come_back[c]) for c in range(k)]
    return tag("div", noisy_note(profiles), tag("div", *shown, class_="cards"))


def _card(
    profiles: Profiles | NoisyProfiles,
    c: int,
    k: int,
    rows: int,
    total: int,
    branch: Branch | None,
    comes_back: Html,
) -> Html:
    found = telling(profiles, c)
    what = tag("ul", *(tag("li", one.text) for one in found)) if found else tag("p", sentence(profiles, c))
    rule = Html("")
    if branch is not None:
        rule = tag(
            "div",
            branch.text,
            tag(
                "div",
                f"true of {percent(branch.found)} of the cluster; {percent(branch.purity)} of such rows are in it",
                class_="soft",
            ),
            class_="rule",
        )
    share = f" ({percent(rows / total)})" if total else ""
    return tag(
        "div",
        tag("h3", f"Cluster {c}"),
        tag("div", f"{rows:,} rows{share}"),
        comes_back,
        what,
        rule,
        class_="card",
        style=f"border-top-color:{cluster_colour(c, k)}",
    )


def _site_bars(result: ResultValues, profiles: Profiles | None) -> list[Html]:
    counts = _by_site(result, profiles)
    if not counts:
        secure = bool(result.experiment.get("secure_sums"))
        return [tag("p", "With secure sums nobody knows the clusters of a single site.")] if secure else []
    rows = []
    for site, own in list(counts.items())[:_MOST_SITES]:
        total = max(int(own.sum()), 1)
        rows.append(
            (
                tag("td", site, class_="name"),
                tag("td", f"{int(own.sum()):,}", class_="n"),
                tag("td", stacked((own / total).tolist()), class_="fill"),
            )
        )
    more = f" The first {_MOST_SITES} of {len(counts)} sites." if len(counts) > _MOST_SITES else ""
    note = tag(
        "p", f"Each bar is a site's rows by cluster; equal bars mean that the sites are alike.{more}", class_="soft"
    )
    head = (
        tag("th", "site", class_="name"),
        tag("th", "rows", class_="n"),
        tag("th", "share of its rows in each cluster", class_="fill"),
    )
    return [note, table(head, rows, style="width:100%"), legend(result.centroids_found)]


def _by_site(result: ResultValues, profiles: Profiles | None) -> Mapping[str, IntArray]:
    """Return the rows of each site by cluster (k,), from labels that are here, else as the sites have described them."""
    k = result.centroids_found
    if result.site_labels and not result.experiment.get("secure_sums"):
        return {site: np.bincount(own[own >= 0], minlength=k) for site, own in sorted(result.site_labels.items())}
    return (profiles.site_rows or {}) if profiles is not None else {}


def _maps(result: ResultValues) -> list[Html]:
    if not result.sites or partial.is_partial(result.arrays) or not result.site_labels:
        return []
    sites, centroids = dict(result.sites), result.centroids
    if any(rows.shape[1] != centroids.shape[1] for rows in sites.values()):
        return []  # images
    if (scaling := scaling_of(result.arrays)) is not None:
        sites, centroids = {site: scaling(rows) for site, rows in sites.items()}, scaling(centroids)
    d = centroids.shape[1]
    rows_map = RowMap(sites, result.site_labels, centroids, result.columns or [f"column {j + 1}" for j in range(d)])
    if not rows_map.sites:
        return []
    words = "The two columns." if d == 2 else "The two directions in which rows differ most."
    across = f" Left to right: {rows_map.axes[0]}. Bottom to top: {rows_map.axes[1]}."
    small = [
        tag("figure", rows_map.of(site), tag("figcaption", f"{site} ({len(rows_map.sites[site]):,} rows)"))
        for site in sorted(rows_map.sites)[:_MOST_SITES]
    ]
    note = "This page shows single rows: keep it where the rows may be seen."
    return [
        tag("p", f"{words}{across} Colour and number: cluster. {note}", class_="soft"),
        tag("figure", rows_map.whole(), class_="whole"),
        legend(rows_map.k),
        tag("p", "Site by site, in the same place and scale:", class_="soft") if len(small) > 1 else Html(""),
        tag("div", *small, class_="maps") if len(small) > 1 else Html(""),
    ]
