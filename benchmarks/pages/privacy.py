"""Write the generated parts of docs/privacy.md: what leaves a site, what can be computed from it, what it costs to hold back.

    python -m benchmarks.pages.privacy               # the tables between markers, from the registry and the records
    python -m benchmarks.pages.privacy --pictures    # docs/images/reconstruction.png as well

The records are benchmarks/records/privacy.json of `benchmarks/reconstruction.py`, benchmarks/records/policy_cost.json of `benchmarks/policy_cost.py` and
benchmarks/records/privacy_cost.json of `benchmarks/privacy_cost.py`. `tests/docs/test_privacy_docs.py` fails while a table differs from them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.pages import DOCS, RECORDS
from benchmarks.pages.generate import with_profiles
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.profiles import ClusterProfiles
from flareclust.federation.site import steps_to_end
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import BUILT_IN, Algorithm
from flareclust.protocol.schema import SECONDS, Field, Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName

PAGE = DOCS / "privacy.md"

Record = Mapping[str, Any]

#: The steps that all algorithms have, in words.
OF_ALL = {
    StepName.KEYS: "the keys of secure sums",
    StepName.ASSESS: "the assessment",
    StepName.PLACE: "rows of a late site",
}

#: What the algorithms with differential privacy send in them.
UNDER_DP = {
    StepName.KEYS: "as without",
    StepName.ASSESS: "`sse`, `silhouette`, `clipped` with noise, else 0",
    StepName.PLACE: "0",
}

#: The policy of the third column.
ROUNDED = Policy(round_counts=5)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# ---- what leaves a site ----


def leaves(algorithms: Iterable[Algorithm] = BUILT_IN) -> str:
    """Return what leaves a site and what each measure does about it, from the schemas; algorithms that are alike share a line."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for algorithm in algorithms:
        name = f"`{algorithm.name}`"
        if not algorithm.federated:
            lines.setdefault(("not federated", "the rows themselves", *4 * ["cannot be used"]), []).append(name)
            continue
        executor = algorithm.executor_class()
        for step, line in steps_to_end(executor).items():
            lines.setdefault((f"`{step}`", *_cells(step, line, private=executor.private)), []).append(name)
    rows = [[", ".join(names), *cells] for cells, names in lines.items()]
    for step, words in OF_ALL.items():
        *cells, _ = _cells(step, ClusteringExecutor.job_steps()[step])
        rows.append(["all that are federated", words, *cells, UNDER_DP[step]])
    own = StepName.OWN_CLUSTERS
    rows.append(["all without noise", f"`{own}`", *_cells(own, ClusteringExecutor.job_steps()[own])])
    for step, line in ClusterProfiles.steps.items():
        *cells, masked, _ = _cells(step, LloydExecutor.job_steps()[step])  # which has all of them
        rows.append(
            [with_profiles(line), f"`{step}`", *cells, masked if line.jobs == "secure" else "refused", "refused"]
        )
    rows.append(["all that are federated", "every message", f"`{SECONDS}`: value", *3 * ["as without"], "0"])
    columns = ("without a policy", "default policy", "`round_counts: 5`", "`secure_sums`", "`differential_privacy`")
    return table(["algorithm", "step", *columns], rows)


def _cells(step: str, sent: Step, *, private: bool = False) -> list[str]:
    """Return what is sent without a policy, and what each policy makes of it."""
    words = _words(sent.schema)
    if private:
        return [*4 * ["refused"], f"{words}: with noise, or not from rows"]
    if sent.jobs == "secure":
        return [*3 * ["nothing"], f"masked: {words}", "refused"]
    default = _floored(step, sent, Policy())
    return [words, default, _rounded(sent, default), _masked(step, sent), "refused"]


def _words(schema: Schema) -> str:
    return ", ".join(f"`{name}`: {_of(field)}" for name, field in schema.fields.items())


def _of(field: Field) -> str:
    """Return in words what a schema says of an array."""
    each = f"{_times(field.axes)} " if field.axes else ""
    if field.rows and field.dtype == "int64":
        return f"{each}numbers of rows" if field.axes else "number of rows"
    if field.rows:
        return f"{each}weights of rows"
    if field.less_than:
        return f"{each}indices of the {field.less_than} centroids"
    if field.dtype == "int64":
        return f"{each}integers" if field.axes else "integer"
    return f"{each}values" if field.axes else "value"


def _times(axes: tuple[str, ...]) -> str:
    return " by ".join(axes)


def _grouped(schema: Schema) -> bool:
    """Return whether a message describes groups of rows, each by its values in the columns."""
    return any(len(field.axes) == 2 and field.axes[-1] == "d" for field in schema.fields.values())


def _floored(step: str, sent: Step, policy: Policy) -> str:
    """Return what the floor of a policy does to a message."""
    if _grouped(sent.schema) or step == StepName.ASSESS:
        return f"groups of {policy.min_count} rows or more"
    whole = [f"`{name}`" for name, field in sent.schema.fields.items() if field.rows and field.dtype == "int64"]
    return f"{', '.join(whole)} 0 or at least {policy.min_count}" if whole else "as without"


def _rounded(sent: Step, default: str) -> str:
    counted = [f"`{name}`" for name, field in sent.schema.fields.items() if field.rows]
    return f"{default}; {', '.join(counted)} in multiples of {ROUNDED.round_counts}" if counted else default


def _masked(step: str, sent: Step) -> str:
    if sent.summed or step in StepName.SCORING:
        return "masked: totals only" if sent.summed else "refused"
    return "as by default, without `mean` and `m2`" if step == StepName.DESCRIBE else "as by default"


# ---- the records ----


def reconstruction(records: Sequence[Record]) -> str:
    """Return how many rows each attack computes, a line per attack and data set and a column per setting."""
    settings = list(dict.fromkeys(str(record["setting"]) for record in records))
    cells = {(r["attack"], r["data"], r["setting"]): r for r in records}
    rows = []
    for attack, data in dict.fromkeys((r["attack"], r["data"]) for r in records):
        n = next(r["rows"] for r in records if (r["attack"], r["data"]) == (attack, data))
        rows.append([attack, data, f"{n:,}", *(_recovered(cells.get((attack, data, s))) for s in settings)])
    return table(["attack", "data", "rows", *settings], rows)


def _recovered(record: Record | None) -> str:
    if record is None:
        return "-"
    return "refused" if record.get("refused") else f"**{record['recovered']:,}**" if record["recovered"] else "0"


def verdict(records: Sequence[Record]) -> str:
    """Return a line per setting: which of the attacks it stops, which it does not, and which were not tried."""
    everything = list(dict.fromkeys(str(record["attack"]) for record in records))
    lines = []
    for setting in list(dict.fromkeys(str(record["setting"]) for record in records)):
        own = [record for record in records if record["setting"] == setting]
        attacks = list(dict.fromkeys(str(record["attack"]) for record in own))
        open_ = [a for a in attacks if any(r["recovered"] for r in own if r["attack"] == a)]
        stopped = [a for a in attacks if a not in open_]
        if not open_:
            ends = f"stops all {len(stopped)} attacks that were tried"
        elif not stopped:
            ends = f"stops **none** of the {len(open_)} attacks that were tried"
        else:
            ends = f"stops {_listed(stopped)}, but **not** the {len(open_)} others that were tried"
        missing = [a for a in everything if a not in attacks]
        if missing:
            ends += f"; not tried: {_listed(missing) if len(missing) <= 3 else f'the other {len(missing)}'}"
        lines.append(f"- {setting}: {ends}.")
    return "\n".join(lines)


def _listed(attacks: Sequence[str]) -> str:
    return ", ".join(f"“{attack}”" for attack in attacks)


def policy_cost(records: Sequence[Record]) -> str:
    """Return what policies cost: a line per data set, split and algorithm, a column per policy."""
    policies = list(dict.fromkeys(_policy(r["policy"]) for r in records))
    cells = {(r["data"], r["split"], r["algorithm"], _policy(r["policy"])): r for r in records}
    rows = []
    for case in dict.fromkeys((r["data"], r["split"], r["algorithm"]) for r in records):
        data, split, algorithm = case
        costs = (_cost(cells[(*case, policy)], cells[(*case, policies[0])]) for policy in policies)
        rows.append([data, split, f"`{algorithm}`", *costs])
    return table(["data", "split", "algorithm", *policies], rows)


def _policy(policy: Mapping[str, int] | None) -> str:
    if policy is None:
        return "none"
    return ", ".join(f"`{name}: {value}`" for name, value in policy.items())


def _cost(record: Record, base: Record) -> str:
    if record["failed"] == record["seeds"]:
        return "no result"
    notes = f"; {record['failed']} of {record['seeds']} failed" if record["failed"] else ""
    notes += f"; {record['fewer']} with fewer than k" if record["fewer"] else ""
    ratio = f"{record['inertia'] / base['inertia']:.4f}{notes}"
    return ratio if record["data"] != "s1" else f"{record['l2'] / 1e4:.2f} ({ratio})"


def privacy_cost(record: Record) -> str:
    """Return what differential privacy costs: a line per data set, algorithm and epsilon, those without noise beside them."""
    rows = []
    for data, lines in record["figures"].items():
        for name, line in lines.items():
            for epsilon, measures in line.items():
                numbers = [_mean(measures.get(key), unit) for key, unit in (("l2", 1e4), ("inertia", 1), ("ari", 1))]
                l2, *rest = numbers
                rows.append([data, f"`{name}`", epsilon or "no noise", l2 if data == "s1" else "-", *rest])
    return table(["data", "algorithm", "epsilon", "l2 / 10,000", "inertia / central", "ARI"], rows)


def _mean(pair: Sequence[float] | None, unit: float) -> str:
    return "-" if pair is None else f"{pair[0] / unit:.2f} ± {pair[1] / unit:.2f}"


def read(name: str) -> Any:
    """Return what is in docs/NAME.json."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "leaves": leaves,
    "reconstruction": lambda: reconstruction(read("privacy")),
    "verdict": lambda: verdict(read("privacy")),
    "policy cost": lambda: policy_cost(read("policy_cost")),
    "privacy cost": lambda: privacy_cost(read("privacy_cost")),
}


def rendered(text: str) -> str:
    """Return the text of the page with its generated blocks written anew.

    Raises:
        ValueError: a marker is missing or comes twice.
    """
    for name, make in BLOCKS.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if (text.count(start), text.count(end)) != (1, 1):
            raise ValueError(f"{PAGE.name} must have the lines {start} and {end} once each")
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{make()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    if "--pictures" in sys.argv[1:]:
        from benchmarks.pages.privacy_picture import draw

        draw(read("privacy"), DOCS / "images" / "reconstruction.png")
