"""The section on malicious sites of docs/reliability.md, from what benchmarks/lying_sites.py measured."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]

SECTION = """
## Malicious sites

A site can send false numbers of the right form. `mavg`, `pooled`, `portfolio`, `fkm` and `lloyd` have robust settings against them: `robust` (`none`, `trimmed` or `median`), `trim` and, except for `mavg`, `cap`. The page of each algorithm describes them. They need most sites to be honest, and they are no guarantee.

### Which sites are left out

With `robust`, a site is left out when its centroids are farther from those of most other sites than these are from each other; `left_out` in `result.npz` names it. This compares sites with one another, not with the truth: an honest site with clusters of its own can be left out, and where sites differ much, a lying site can remain. With fewer than three sites none is left out. `flareclust/core/robust.py` has the computation.

### How it was measured

For the figures below, the rows of S1 (k = 15) or digits (k = 10) are split at random over {sites} sites, in-process, and some sites lie in every exchange:

- **random**: centroids drawn anew in every round, uniformly from the box that holds the data;
- **shifted**: the site's true centroids, moved by twice the range of every column;
- **colluding**: all lying sites send the same centroids, drawn once from that box.

Each lie is sent with true numbers of rows and with numbers {inflated} times as large. Where sites compare solutions, the lying sites report that the worst fits best. Figures are means over {seeds} seeds, divided by those of the same algorithm without lying sites and with `robust=none`: the distance to the true centroids (`l2`; for digits the means of the ten classes), and in brackets the inertia of the true rows of all sites. Each figure is that of the worst lie, with or without larger numbers. `trimmed` and `median` are values of `robust`, with defaults for the rest.

Every run found k centroids{found}. In `lloyd`, `rounds` was 30.

![l2 and inertia against the share of lying sites](images/lying_sites.png)

Dashed: no settings; lines: `trimmed`; dots: `median`. The grey line is at twice the clean distance, and at the clean inertia.

### Two of ten sites lie

{two}

With the settings, none of these three lies by two sites takes the distance beyond {worst_two} times that of the clean run. This is no bound: lying sites that keep most of their centroids honest reach {worst_partly} times here, with [one](#a-single-false-centroid) or [nearly half](#half-of-the-centroids-false) of them false ({worst_partly_where}). The columns without lying sites show what the settings cost, or gain, if all sites are honest. They gain where the sites use single starts of k-means, some of which go wrong.

### Four of ten sites lie

{four}

At the worst of these lies the distance is {worst_four} times that of the clean run ({worst_four_where}). If half of the sites lie in the same way, no setting can decide which half is right.

### A single false centroid

Two of ten sites send honest centroids except for one, which is random.

{single}

Such a site is not left out, since most of its reply is right. `mavg` compares cluster by cluster, and so do the updates of `lloyd`. In the others, and in the start of `lloyd`, a false centroid in the box of the data may take the place of an honest cluster among the k; one far outside is left out.

### Half of the centroids false

Lying sites that know the settings keep most of their centroids honest. Two of ten sites send false ones for fewer than half of k, both the same, drawn once from the box of the data. They claim that nearly all of their rows are there, or just under half. The table has the distance only.

{half}

With the settings the distance reaches {worst_half} times that of the clean run ({worst_half_where}). Where centroids are weighted by rows, a site with most of its rows on false centroids is left out. In the start of `lloyd` they are not weighted, and its updates do not undo a false start. With just under half of the rows on false centroids, most of a reply is right by either count, and the site stays, like a site with a single false centroid. Other lies may be worse: the settings reduce the damage and are no guarantee.

### Where sites differ

The same with the rows split by `dirichlet:0.3`, so that no two sites have the same mix of clusters, and two of ten sites lying. The table has the distance only, with `shifted` separate from the lies in the box of the data.

{differ}

If honest sites have as little in common as here on S1, a lie in the box of the data looks like one more site with clusters of its own, and is often not left out. The settings then help only against inflated numbers and far lies, except with `lloyd`, whose updates compare cluster by cluster. The columns without lying sites show that honest sites lose little, but a cluster that few sites have can be lost.

### Limits of the robust settings

- They protect the centroids, but not the metrics of the assessment, which are sums over the replies of all sites.
- They do not find a lie close to the truth. Its effect is bounded by how far honest sites differ.
- They do not work with secure sums, which hide the replies of single sites.

`benchmarks/records/lying_sites.json` has all figures. To measure again, about a quarter of an hour with five seeds on two cores, and to make this page from it:

```console
$ python -m benchmarks.lying_sites
$ python -m benchmarks.pages.reliability
```
"""

#: Where lying sites with half of their centroids false say that their rows are, by what the records call it.
HEADINGS = {"half": "nearly all rows", "even": "just under half of the rows"}

#: Above this ratio the second digit after the point says nothing.
LARGE = 10.0


def lying_sites(measured: Mapping[str, Any]) -> str:
    """Return the section."""
    cells = measured["cells"]
    whole, single = [c for c in cells if c["lie"] != "single"], [c for c in cells if c["lie"] == "single"]
    (two, _), (four, where) = (_worst_of_all(cells, [c for c in whole if c["lying sites"] == n]) for n in (2, 4))
    partly, partly_where = _worst_of_all(cells, [*single, *measured["half"]])
    half, half_where = _worst_of_all(cells, measured["half"])
    return SECTION.format(
        sites=measured["sites"],
        inflated=measured["inflated"],
        seeds=measured["seeds"],
        found=_fewer([*cells, *measured["half"]]),
        two=_table(cells, 2),
        worst_two=two,
        worst_partly=partly,
        worst_partly_where=partly_where,
        four=_table(cells, 4),
        worst_four=four,
        worst_four_where=where,
        single=_single(cells),
        half=_half(cells, measured["half"]),
        worst_half=half,
        worst_half_where=half_where,
        differ=_differ(cells),
    )


def _groups(cells: Sequence[Cell], spec: str) -> list[tuple[Cell, list[Cell]]]:
    """Return the cell without lying sites of every data set and algorithm, with those with lying sites."""
    own = [cell for cell in cells if cell["partition"] == spec]
    return [
        (
            clean,
            [c for c in own if c["lying sites"] and (c["data"], c["algorithm"]) == (clean["data"], clean["algorithm"])],
        )
        for clean in own
        if not clean["lying sites"]
    ]


def _ratio(clean: Cell, chosen: Iterable[Cell], option: str, measure: str) -> float:
    """Return the largest of what was measured with an option, over the clean run."""
    return max(float(cell[option][measure]) for cell in chosen) / float(clean["none"][measure])


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= LARGE else f"{ratio:.2f}"


def _both(clean: Cell, chosen: Sequence[Cell], option: str) -> str:
    return f"{_number(_ratio(clean, chosen, option, 'l2'))} ({_number(_ratio(clean, chosen, option, 'inertia'))})"


def _rows(heading: str, lines: Iterable[Sequence[str]]) -> str:
    columns = heading.count("|") + 1
    body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {heading} |", "|" + "---|" * columns, *body])


def _table(cells: Sequence[Cell], untrusted: int) -> str:
    lines = []
    for clean, lying in _groups(cells, "iid"):
        chosen = [cell for cell in lying if cell["lying sites"] == untrusted and cell["lie"] != "single"]
        honest = [_both(clean, [clean], option) for option in ("trimmed", "median")]
        spoilt = [_both(clean, chosen, option) for option in ("none", "trimmed", "median")]
        lines.append([clean["data"], f"`{clean['algorithm']}`", *honest, *spoilt])
    return _rows("data | algorithm | no lying sites, trimmed | no lying sites, median | none | trimmed | median", lines)


def _worst_of_all(cells: Sequence[Cell], chosen: Sequence[Cell]) -> tuple[str, str]:
    """Return the largest l2 with one of the settings over the clean one, and where it was."""
    found = [
        (
            cell[option]["l2"] / clean["none"]["l2"],
            f"`{cell['algorithm']}` on {cell['data']}, `{option}`, {_called(cell)}",
        )
        for clean, _ in _groups(cells, "iid")
        for cell in _of(clean, chosen)
        for option in ("trimmed", "median")
    ]
    ratio, where = max(found)
    return f"{ratio:.2f}", where


def _called(cell: Cell) -> str:
    return HEADINGS.get(cell["lie"], str(cell["lie"]))


def _of(clean: Cell, chosen: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the same partition, data set and algorithm as the one without lying sites."""
    return [cell for cell in chosen if all(cell[name] == clean[name] for name in ("partition", "data", "algorithm"))]


def _single(cells: Sequence[Cell]) -> str:
    lines = []
    for clean, lying in _groups(cells, "iid"):
        chosen = [cell for cell in lying if cell["lie"] == "single"]
        spoilt = [_both(clean, chosen, option) for option in ("none", "trimmed", "median")]
        lines.append([clean["data"], f"`{clean['algorithm']}`", *spoilt])
    return _rows("data | algorithm | none | trimmed | median", lines)


def _half(cells: Sequence[Cell], measured: Sequence[Cell]) -> str:
    lines = []
    for clean, _ in _groups(cells, "iid"):
        chosen = [[cell for cell in _of(clean, measured) if cell["lie"] == lie] for lie in HEADINGS]
        spoilt = [_number(_ratio(clean, t, o, "l2")) for t in chosen for o in ("none", "trimmed", "median")]
        lines.append([clean["data"], f"`{clean['algorithm']}`", *spoilt])
    heading = " | ".join(f"{chosen}, none | trimmed | median" for chosen in HEADINGS.values())
    return _rows(f"data | algorithm | {heading}", lines)


def _differ(cells: Sequence[Cell]) -> str:
    lines = []
    for clean, lying in _groups(cells, "dirichlet:0.3"):
        far = [cell for cell in lying if cell["lie"] == "shifted"]
        near = [cell for cell in lying if cell["lie"] != "shifted"]
        line = [_number(_ratio(clean, [clean], option, "l2")) for option in ("trimmed", "median")]
        line += [_number(_ratio(clean, t, o, "l2")) for t in (far, near) for o in ("none", "trimmed", "median")]
        lines.append([clean["data"], f"`{clean['algorithm']}`", *line])
    heading = "data | algorithm | no lying sites, trimmed | no lying sites, median | shifted, none | trimmed | median"
    return _rows(f"{heading} | in the box, none | trimmed | median", lines)


def _fewer(cells: Sequence[Cell]) -> str:
    """Return what to add where a run found fewer than k centroids: there the distance is of fewer pairs."""
    k = {"s1": 15, "digits": 10}
    few = {
        f"`{cell['algorithm']}` on {cell['data']} (`{option}`, {cell['partition']}, {cell['lying sites']} lying sites)"
        for cell in cells
        for option in ("none", "trimmed", "median")
        if cell[option]["found"] < k[cell["data"]]
    }
    return f", but for {', '.join(sorted(few))}, where the distance is of fewer pairs" if few else ""
