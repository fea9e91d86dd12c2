"""Federations in which sites lie, and merges with and without the settings that judge sites."""

import importlib.util
import sys

import numpy as np
import pytest

from flareclust.aggregators.lloyd import LloydState
from flareclust.aggregators.mavg import _match_average
from flareclust.aggregators.portfolio import _MEMBERS
from flareclust.core import clusterers
from flareclust.core.robust import USUAL_CAP, Rule
from flareclust.evaluation.scores import stack, unstack
from flareclust.federation import FederationOptions
from flareclust.federation.refinement import UPDATE
from flareclust.preparation import settings
from flareclust.protocol import registry
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName
from flareclust.testing import ALWAYS, PROMISES
from flareclust.testing.tools import iid_sites
from tests.computed import merged
from tests.paths import ROOT

ALGORITHMS = ("mavg", "pooled", "portfolio", "fkm", "lloyd")


def _benchmark():
    path = ROOT / "benchmarks" / "lying_sites.py"
    spec = importlib.util.spec_from_file_location("lying_sites", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lying_sites"] = module  # which its named tuple asks for
    spec.loader.exec_module(module)
    return module


lying = _benchmark()


# Without the settings nothing is changed: the merges against the plain steps that they are made of


@pytest.fixture(scope="module")
def uploads():
    sites, _ = iid_sites(m=5)
    found = {}
    for name in ALGORITHMS:
        executor, _ = registry.get(name).build(4)
        asked = [lying.Task("cluster", 0, {}, site) for site in sites]
        replies = {task.site: executor.answer(task, sites[task.site], lying.never_abort).arrays for task in asked}
        found[name] = {site: {n: v for n, v in reply.items() if n != "seconds"} for site, reply in replies.items()}
    return sites, found


def _end_to_end(replies, name):
    return np.concatenate([reply[name] for reply in replies.values()])


def _merged(name, replies, round_=None, **params):
    aggregator = registry.get(name).build(4, 0, params)[1]
    return merged(aggregator, round_ or aggregator.begin(), replies, seed=3)


def test_by_default_the_merges_are_the_plain_ones_bit_for_bit(uploads):
    _, sent = uploads
    plain = {
        "mavg": lambda r, rng: _match_average([reply["centroids"] for reply in r.values()])[0],
        "pooled": lambda r, rng: clusterers.weighted_kmeans(
            _end_to_end(r, "centroids"), _end_to_end(r, "counts").astype(float), 4, 20, rng
        )[0],
        "fkm": lambda r, rng: clusterers.weighted_kmeans(
            _end_to_end(r, "centroids"), _end_to_end(r, "counts"), 4, 10, rng
        )[0],
        "lloyd": lambda r, rng: clusterers.cluster_means(_end_to_end(r, "centroids"), 4, "kmeans", rng)[0],
    }
    for name, merge in plain.items():
        after = _merged(name, sent[name])
        assert np.array_equal(after.task["centroids"], merge(sent[name], np.random.default_rng(3))), name
        assert not {"left_out", "kept"} & set(after.state.arrays())
    rng = np.random.default_rng(3)
    members = stack(
        [member(list(sent["portfolio"].values()), 4, 20, rng) for name, member in _MEMBERS.items() if name != "feca"]
    )
    assert np.array_equal(_merged("portfolio", sent["portfolio"]).task["candidates"], members["candidates"])


def test_an_update_of_one_cluster_by_hand():
    def said(mean, rows):
        arrays = {"centroids": np.array([[mean]]), "counts": np.array([rows]), "cluster": np.array([0])}
        return arrays | {"inertia": np.array(1.0)}

    before = Round({"centroids": np.array([[0.0]])}, state=LloydState(), step=UPDATE, index=1)
    replies = {f"site-{i}": said(mean, 10) for i, mean in enumerate([1.0, 2.0, 3.0, 4.0])} | {"site-9": said(2.5, 9000)}

    def updated(**params):
        params |= {"tol": 0.0}
        aggregator = registry.get("lloyd").build(1, 0, params)[1]
        return float(merged(aggregator, before, replies).task["centroids"][0, 0])

    assert updated() == pytest.approx((10 * 10.0 + 9000 * 2.5) / 9040)
    assert updated(cap=1) == pytest.approx((10 * 10.0 + 10 * 2.5) / 50)
    assert updated(robust="trimmed") == pytest.approx(2.5)
    assert updated(robust="median") == pytest.approx(2.5)
    replies["site-9"] = said(900.0, 9000)
    assert updated(cap=1) == pytest.approx((10 * 10.0 + 10 * 900) / 50)
    assert updated(robust="trimmed") == pytest.approx(2.5)
    assert 1.0 < updated(robust="median") < 4.0


# Federations with sites that lie


@pytest.mark.parametrize(("kind", "counts"), [("half", [73, 73, 1, 1, 1]), ("even", [37, 37, 25, 25, 25])])
def test_half_false_liars_agree_on_where_and_on_how_many(federations, kind, counts):
    lie = federations["pooled"].lie(kind, False)
    honest = {"centroids": np.arange(15.0).reshape(5, 3), "counts": np.array([10, 20, 30, 40, 50])}
    reported = [lie.falsified(lying.Task("cluster", 0, {}, site), honest) for site in ("site-1", "site-2")]
    assert np.array_equal(reported[0]["centroids"], reported[1]["centroids"])
    assert np.array_equal(reported[0]["centroids"][2:], honest["centroids"][2:])
    assert not (reported[0]["centroids"][:2] == honest["centroids"][:2]).any()
    assert reported[0]["counts"].tolist() == counts
    assert honest["counts"].tolist() == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("robust", ["trimmed", "median"])
@pytest.mark.parametrize("name", ["pooled", "portfolio", "fkm"])
def test_where_rows_count_half_false_liars_cost_at_most_twice_the_clean_distance(federations, name, robust):
    federation = federations[name]
    clean = federation.run("none")[0]
    for inflated in (False, True):
        lie = federation.lie("half", inflated)
        assert federation.run(robust, 2, lie)[0] <= 2 * clean, inflated


class Absurd(lying.Lie):
    """The largest numbers that pass the checks of a message."""

    def falsified(self, task, honest):
        reported = super().falsified(task, honest)
        for name, value in honest.items():
            if name in ("centroids", "radii", "inertia"):
                reported[name] = np.full(value.shape, 1e139)
            if name == "sse" or name == "spread":
                reported[name] = np.where(np.arange(value.size) % 2, 1e139, 0.0)
            if name in ("rows", "counts"):
                reported[name] = np.full(value.shape, 2**43)  # of five
        return reported


#: Those that say something about what the server makes of replies, whatever it makes of them.
HOLD = (
    "check_same_seed_same_centroids",
    "check_result_is_finite_and_at_most_k",
    "check_bad_site_is_left_out",
    "check_degenerate_sites",
    "check_recovers_iid",
    "check_small_sites",
    "check_translation",
)


@pytest.mark.parametrize(
    ("name", "robust"),
    [("mavg", "median"), ("pooled", "trimmed"), ("portfolio", "trimmed"), ("fkm", "median"), ("lloyd", "trimmed")],
)
def test_the_promises_hold_with_the_setting(name, robust, monkeypatch):
    monkeypatch.setattr(settings.RobustParams, "rule", property(lambda params: Rule(robust, params.trim, USUAL_CAP)))
    algorithm = registry.get(name)
    checks = [c for c in (*ALWAYS, *(PROMISES[p] for p in algorithm.promises)) if c.__name__.removeprefix("_") in HOLD]
    assert len(checks) >= 6
    for check in checks:
        check(algorithm)


@pytest.fixture(scope="module")
def federations():
    sites, truth = iid_sites(m=10, k=5)
    return {name: lying.Federation(name, sites, 5, truth, 0) for name in ALGORITHMS}


@pytest.mark.parametrize("robust", ["trimmed", "median"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_of_ten_liars_cost_at_most_twice_the_clean_distance(federations, name, robust):
    federation = federations[name]
    clean = federation.run("none")[0]
    assert federation.run(robust)[0] <= 1.5 * clean
    spoilt = []
    for kind, inflated, untrusted in lying.lies(name, (0, 2)):
        lie = federation.lie(kind, inflated)
        assert federation.run(robust, untrusted, lie)[0] <= 2 * clean, (kind, inflated)
        spoilt.append(federation.run("none", untrusted, lie)[0])
    # Without the setting the lies do harm, but for one member of the portfolio where clusters are far apart.
    assert name == "portfolio" or max(spoilt) > 3 * clean


@pytest.mark.parametrize("robust", ["trimmed", "median"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_largest_numbers_that_pass_do_no_harm(federations, name, robust):
    federation = federations[name]
    clean = federation.run("none")[0]
    with np.errstate(all="raise", under="ignore"):
        l2, _, found = federation.run(robust, 2, Absurd(*federation.lie("shifted", True)))
    assert l2 <= 2 * clean
    assert found == 5


def test_the_sites_that_were_left_out_are_named(uploads):
    _, sent = uploads
    for name in ALGORITHMS:
        replies = {site: dict(reply) for site, reply in sent[name].items()}
        replies["site-2"]["centroids"] = replies["site-2"]["centroids"] + 300.0
        after = _merged(name, replies, robust="trimmed")
        assert after.diagnostics["left_out"] == 1.0
        assert after.state.left_out.tolist() == ["site-2"]
        if name == "portfolio":
            assert all(np.abs(solution).max() < 30 for solution in unstack(after.task))
            worst = np.array([4.0, 3.0, 2.0, 1.0])
            scored = {site: {"rows": np.array(9), "sse": worst[::-1]} for site in replies}
            scored["site-2"] = {"rows": np.array(9), "sse": 1e9 * worst}
            asked = Round(after.task, state=after.state, step=StepName.SCORE, index=1)
            assert _merged(name, scored, asked, robust="trimmed").diagnostics["chosen"] == 0.0


def test_sites_with_nothing_to_send_are_not_left_out(uploads):
    _, sent = uploads
    last = {name: value[:0] for name, value in sent["fkm"]["site-5"].items()}
    after = _merged("fkm", sent["fkm"] | {"site-5": last}, robust="median")
    assert after.state.left_out.tolist() == []
    assert len(after.task["centroids"]) == 4


def test_the_same_numbers_of_clusters_are_compared_without_the_liars(federations):
    sites, truth = iid_sites(m=10, k=5)
    executor, aggregator = registry.get("pooled").build(7, 0, {"k_min": 2, "robust": "median"})
    lie = federations["pooled"].lie("colluding", True)

    def ask(step, round_, arrays, asked):
        tasks = [lying.Task(step, round_, arrays, site) for site in asked]
        honest = {task.site: executor.answer(task, sites[task.site], lying.never_abort).arrays for task in tasks}
        reported = {
            t.site: lie.falsified(t, honest[t.site]) if t.site in ("site-1", "site-2") else honest[t.site]
            for t in tasks
        }
        return {site: lying.SiteReply(arrays) for site, arrays in reported.items()}

    outcome = lying.run_federation(aggregator, ask, list(sites), FederationOptions(assess=False))
    assert int(outcome.arrays["chosen_k"]) == 5
    assert lying.metrics.l2_distance(outcome.centroids, truth) < 1.0
