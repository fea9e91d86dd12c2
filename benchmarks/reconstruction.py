"""How many rows of its sites a server can compute: the attacks of `benchmarks/attacks` on real federations and real data.

    FLARECLUST_DATA=<folder> python -m benchmarks.reconstruction               # all attacks
    FLARECLUST_DATA=<folder> python -m benchmarks.reconstruction ATTACK ...    # these, the records of the others stay

It writes benchmarks/records/privacy.json, from which `python -m benchmarks.pages.privacy --pictures` makes the tables of docs/privacy.md and
docs/images/reconstruction.png. Everything is random by stated seeds, so two runs write the same, but for differential
privacy.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.differencing import (
    differences,
    from_noise,
    number_recovered,
    pairs_in_one_column,
    rounds_of,
    samples,
)
from benchmarks.attacks.questions import Ask, chosen_solutions, clusters_again, kept_back, sweep
from benchmarks.attacks.settings import DATA, NAIVE, PRIVATE, SETTINGS, Setting, count, listen, sites_of
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.lloyd import cluster_statistics, kmeans, recompute_centroids
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import Task

DOCS = Path(__file__).resolve().parent.parent / "docs"


# ---- the attacks: each returns a count for a data set and a setting, None where it has no meaning ----

Count = dict[str, int] | None


def lone_rows(data: str, title: str, setting: Setting) -> Count:
    """Clusters of one row: k is half the rows of a site, and a centroid of one row is that row."""
    sites = sites_of(data)
    k = min(map(len, sites.values())) // 2
    if title == NAIVE:
        seen: list[Any] = [("cluster", {}, {site: _naive(rows, k, site) for site, rows in sites.items()})]
    else:
        seen = listen("pooled", data, sites, k, setting)[:1]
    return count(seen, sites, lambda name: [c for _, _, r in seen for c in r[name]["centroids"]])


def seeds_that_are_rows(data: str, title: str, setting: Setting) -> Count:
    """Seeds by k-means++ are rows, and `seeds=rows` sends them, as papers have it."""
    if title == NAIVE:
        return None
    sites = sites_of(data)
    seen = listen("lloyd", data, sites, DATA[data].k, setting, seeds="rows")[:1] if not setting.private else []
    return count(seen, sites, lambda name: [c for _, _, r in seen for c in r[name]["centroids"]])


def pairs(data: str, title: str, setting: Setting) -> Count:
    """Clusters of two rows in data of one column: the centroid, and the radius to either side."""
    sites = sites_of(data, slice(1))
    k = min(map(len, sites.values())) // 3
    if title == NAIVE:
        seen: list[Any] = [("cluster", {}, {site: _naive(rows, k, site) for site, rows in sites.items()})]
    else:
        seen = listen("portfolio", data, sites, k, setting, members=["feca"], polish=0)[:1]
    return count(seen, sites, lambda name: [c for _, _, r in seen for c in pairs_in_one_column(_twos(r[name]), 0.001)])


def _twos(message: Message) -> Message:
    two = message["counts"] == 2
    return {name: message[name][two] for name in ("centroids", "radii")}


def moving_rows(algorithm: str, data: str, title: str, setting: Setting, **params: int) -> Count:
    """Two rounds of an algorithm: the difference of a group's sums is the row that joined or left it."""
    if title == NAIVE:
        return None
    sites = sites_of(data)
    seen = listen(algorithm, data, sites, DATA[data].k, setting, **params)
    return count(seen, sites, lambda name: differences(rounds_of(seen, name), setting.slack))


def known_samples(data: str, title: str, setting: Setting) -> Count:
    """Mini-batch k-means with more rounds than a site has rows: the samples are drawn from the job's seed."""
    if title == NAIVE:
        return None
    sites = sites_of(data)
    seen = listen("minibatch", data, sites, 2, setting, rounds=95)
    return count(seen, sites, lambda name: samples(seen, name, 0))


def chosen_centroids(data: str, title: str, setting: Setting) -> Count:
    """A server that breaks the rules: it asks for 95 updates of centroids of its own choice."""
    if title == NAIVE or setting.secure_sums:
        return None
    return _swept(data, setting, one_job=True)


def chosen_starts(data: str, title: str, setting: Setting) -> Count:
    """The same by a lead who keeps to the rules: 95 jobs of one round from two centroids each, and nothing but results."""
    if title == NAIVE:
        return None
    if setting.private:
        return _swept(data, setting, one_job=False)
    sites = sites_of(data)

    def answers_of(name: str) -> Callable[[FloatArray], Message | None]:
        def ask(centroids: FloatArray) -> Message | None:
            seen = listen("lloyd", data, sites, 2, setting, start=centroids.tolist(), rounds=1)
            return seen[0][2].get(name) if seen else None

        return ask

    names = ["all sites"] if setting.secure_sums else list(sites)
    d = next(iter(sites.values())).shape[1]
    claims = {name: sweep(answers_of(name), d, 95, setting.slack) for name in names}
    pooled = np.concatenate(list(sites.values()))
    right = sum(number_recovered(found, sites.get(name, pooled)) for name, found in claims.items())
    return {"recovered": right, "claimed": sum(map(len, claims.values())), "rows": len(pooled)}


def _swept(data: str, setting: Setting, *, one_job: bool) -> dict[str, int]:
    sites = sites_of(data)
    found = {"recovered": 0, "claimed": 0, "rows": sum(map(len, sites.values()))}
    for site, rows in sites.items():
        claims = sweep(_asking(site, rows, data, setting, one_job=one_job), rows.shape[1], 95, setting.slack)
        found["claimed"] += len(claims)
        found["recovered"] += number_recovered(claims, rows)
    return found


def _asking(
    site: str, rows: FloatArray, data: str, setting: Setting, *, one_job: bool
) -> Callable[[FloatArray], Message | None]:
    """Return a function that has a site answer an update, as a server in the middle of a job of Lloyd's algorithm can."""
    algorithm = get(PRIVATE["lloyd"] if setting.private else "lloyd")
    executor, _ = algorithm.build(2, 0, setting.params)
    policy = setting.policy_for(data)
    held = None if policy is None else SimulatedSite.of(policy, algorithm)
    asked = iter(range(1000))

    def ask(centroids: FloatArray) -> Message | None:
        now, at = next(asked), held
        sent = {"centroids": centroids, **({"radii": np.full(2, DATA[data].bounds[1])} if setting.private else {})}
        if policy is not None and held is not None and not one_job:  # what was spent stays written down
            at = replace(SimulatedSite.of(policy, algorithm), session=replace(held.session, job=f"job {now}"))
        try:
            message = answered(executor, Task(UPDATE, now if one_job else 0, sent, site), rows, at).arrays
        except (Refusal, BadMessage):
            return None
        return from_noise(message, sent) if setting.private else message

    return ask


def asked(attack: Callable[[Ask, int], list[FloatArray]], data: str, title: str, setting: Setting) -> Count:
    """A server that breaks the rules asks the sites of a job of `pooled` what it likes, each in one job."""
    if title == NAIVE:
        return None
    sites, refused = sites_of(data), True
    found = {"recovered": 0, "claimed": 0, "rows": sum(map(len, sites.values()))}
    for site, rows in sites.items():
        ask, answers = in_a_job(site, rows, DATA[data].k, setting.policy_for(data), setting), list[bool]()

        def noted(step: str, arrays: Message, ask: Ask = ask, answers: list[bool] = answers) -> Message | None:
            answer = ask(step, arrays)
            answers.append(answer is not None)
            return answer

        claims = attack(noted, setting.slack)
        refused = refused and not any(answers)
        found["claimed"] += len(claims)
        found["recovered"] += number_recovered(claims, rows)
    return {**found, "refused": 1} if refused else found


def in_a_job(site: str, rows: FloatArray, k: int, policy: Policy | None, setting: Setting) -> Ask:
    """Return a function that has a site answer any step of `pooled`, each time in the next round of one job."""
    algorithm = get("pooled")
    executor, _ = algorithm.build(k, 0, setting.params)
    held = None if policy is None else SimulatedSite.of(policy, algorithm)
    rounds = iter(range(1000))

    def ask(step: str, arrays: Message) -> Message | None:
        try:
            return answered(executor, Task(step, next(rounds), arrays, site), rows, held).arrays
        except (Refusal, BadMessage):
            return None

    return ask


def _naive(rows: FloatArray, k: int, site: str) -> Message:
    """Return what a site would send that holds nothing back: the centroids, sizes and radii of its k-means."""
    found = recompute_centroids(rows, kmeans(rows, k, stream(0, 0, site)))
    radii = cluster_statistics(rows, found.labels, found.centroids).max_distance
    return {"centroids": found.centroids, "counts": found.counts, "radii": radii}


Attack = Callable[[str, str, Setting], Count]

#: What is attacked, in the order of the table: data sets and attack.
ATTACKS: dict[str, tuple[tuple[str, ...], Attack]] = {
    "a cluster of one row": (tuple(DATA), lone_rows),
    "seeds that are rows": (("digits",), seeds_that_are_rows),
    "a cluster of two rows, one column": (("breast_cancer",), pairs),
    "rounds of `lloyd`": (tuple(DATA), lambda *a: moving_rows("lloyd", *a)),
    "rounds of `fkm`": (tuple(DATA), lambda *a: moving_rows("fkm", *a)),
    "rounds of `portfolio`, `polish=10`": (
        ("digits",),
        lambda *a: moving_rows("portfolio", *a, polish=10, split_merge=0),
    ),
    "repeatable samples of `minibatch`": (("iris",), known_samples),
    "chosen centroids": (("iris", "digits"), chosen_centroids),
    "chosen solutions": (
        ("iris", "s1"),
        lambda *a: asked(lambda ask, slack: chosen_solutions(ask, 30, slack), *a),
    ),
    "own clusters again": (
        tuple(DATA),
        lambda *a: asked(lambda ask, slack: clusters_again(ask, 95, slack), *a),
    ),
    "what is kept back": (("iris", "breast_cancer"), lambda *a: asked(kept_back, *a)),
    "chosen starts of 95 jobs": (("iris",), chosen_starts),
}


def measured(attacks: Iterable[str] = ATTACKS, data: Iterable[str] = DATA) -> list[dict[str, Any]]:
    """Return a record per attack, data set and setting."""
    records = []
    for name in attacks:
        sets, attack = ATTACKS[name]
        for title, setting in SETTINGS.items():
            for one in (one for one in sets if one in data):
                if (found := attack(one, title, setting)) is not None:
                    records.append({"attack": name, "data": one, "setting": title, **found})
    return records


def merged(old: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with those of the attacks that were run again in the place of their old ones, in their order."""
    again = list(new)
    names = {record["attack"] for record in again}
    kept = [record for record in old if record["attack"] in ATTACKS and record["attack"] not in names]
    return sorted(kept + again, key=lambda record: list(ATTACKS).index(record["attack"]))


if __name__ == "__main__":
    chosen, records = sys.argv[1:], DOCS.parent / "benchmarks" / "records" / "privacy.json"
    found = measured(chosen or ATTACKS)
    for record in found:
        print(json.dumps(record))
    if chosen:
        found = merged(json.loads(records.read_text(encoding="utf-8")), found)
    records.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
