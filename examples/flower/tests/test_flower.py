"""The app over a grid in this process and in Flower's own simulation: the same centroids as the in-process engine, bit for bit."""

import json

import numpy as np
import pytest
from flareclust_flower import client_app, server_app
from flareclust_flower.messages import pack, unpack
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import flareclust
from flareclust.engines.other_frameworks import ALGORITHMS

SITES = ("east", "north", "west")


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    """A message states the run that it is of, which Flower sets in a ServerApp's process."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class InMemory(Grid):
    """Carries messages to SuperNodes in this process, each as the bytes that would travel."""

    def __init__(self, *nodes):
        self.nodes = {number: dict(config) for number, config in enumerate(nodes, 100)}
        self.sent = []
        self.silent = set()

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        return [self._answer(message) for message in messages if message.metadata.dst_node_id not in self.silent]

    def _answer(self, message):
        asked = travelled(message)
        self.sent.append(asked)
        node = asked.metadata.dst_node_id
        context = Context(run_id=1, node_id=node, node_config=self.nodes[node], state=RecordDict(), run_config={})
        return travelled(client_app.app(asked, context))

    def run(self):
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = run


def travelled(message):
    return message_from_proto(type(message_to_proto(message)).FromString(message_to_proto(message).SerializeToString()))


@pytest.fixture
def sites(tmp_path):
    """Three sites with the files of their rows."""
    rows = {site: client_app.made_up_rows(number) for number, site in enumerate(SITES)}
    for site, own in rows.items():
        np.save(tmp_path / f"{site}.npy", own)
    return rows, [{"site": site, "rows": str(tmp_path / f"{site}.npy")} for site in SITES]


def check_equal(found, expected):
    assert set(found.arrays) == set(expected.arrays)
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value)
    assert found.metrics == {name: expected.metrics[name] for name in found.metrics}


@pytest.mark.parametrize(
    ("algorithm", "params"), [*((name, {}) for name in ALGORITHMS), ("lloyd", {"scale": "standard"})]
)
def test_the_result_is_that_of_the_in_process_engine(sites, algorithm, params):
    rows, nodes = sites
    grid = InMemory(*nodes)
    found = server_app.cluster(grid, algorithm, k=3, seed=7, params=params)
    check_equal(found, flareclust.run(algorithm, rows, 3, seed=7, **params))
    assert found.refused == {}
    assert len(grid.sent) > len(SITES)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_of_a_site_holds(sites, tmp_path, algorithm):
    rows, nodes = sites
    (tmp_path / "policy.yaml").write_text("min_count: 12\nround_counts: 4\n")
    found = server_app.cluster(
        InMemory(*(node | {"policy": str(tmp_path / "policy.yaml")} for node in nodes)), algorithm, k=3
    )
    check_equal(found, flareclust.run(algorithm, rows, 3, policy={"min_count": 12, "round_counts": 4}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_withdrawn_rows_are_left_out(sites, tmp_path, algorithm):
    rows, nodes = sites
    ids = np.array([f"p{i}" for i in range(len(rows["north"]))])
    np.savez(tmp_path / "north.npz", X=rows["north"], patient=ids)
    (tmp_path / "gone.txt").write_text("p3\np40\n")
    nodes[1] |= {"rows": str(tmp_path / "north.npz"), "withdrawn": str(tmp_path / "gone.txt")}
    found = server_app.cluster(InMemory(*nodes), algorithm, k=3)
    assert "its rows have none; name the column with ids" in found.refused["north"]
    nodes[1]["id"] = "patient"
    left = {**rows, "north": np.delete(rows["north"], [3, 40], axis=0)}
    check_equal(server_app.cluster(InMemory(*nodes), algorithm, k=3), flareclust.run(algorithm, left, 3))


def test_a_policy_for_masked_sums_refuses_plain_ones(sites, tmp_path):
    _, nodes = sites
    (tmp_path / "policy.yaml").write_text("secure_sums: true\n")
    nodes[1]["policy"] = str(tmp_path / "policy.yaml")
    found = server_app.cluster(InMemory(*nodes), "lloyd", k=3)
    assert "lets out sums only masked" in found.refused["north"]


def test_what_a_policy_counts_over_a_job_does_not_hold(sites, tmp_path):
    """Each question meets a new session; docs/other-frameworks.md says so."""
    rows, nodes = sites
    (tmp_path / "policy.yaml").write_text("max_rounds: 1\n")
    nodes = [node | {"policy": str(tmp_path / "policy.yaml")} for node in nodes]
    assert server_app.cluster(InMemory(*nodes), "lloyd", k=3).refused == {}
    with pytest.raises(flareclust.JobFailed, match="max_rounds"):
        flareclust.run("lloyd", rows, 3, policy={"max_rounds": 1})


def test_a_policy_with_a_budget_refuses(sites, tmp_path):
    _, nodes = sites
    noise = "{bounds: [0, 30], epsilon: 1, delta: 1.0e-6, budget: 2}"
    (tmp_path / "policy.yaml").write_text(f"differential_privacy: {noise}\n")
    nodes = [node | {"policy": str(tmp_path / "policy.yaml")} for node in nodes]
    with pytest.raises(flareclust.JobFailed, match="differentially private numbers only"):
        server_app.cluster(InMemory(*nodes), "pooled", k=3)


def test_sites_that_cannot_take_part_are_named_without_their_values(sites, tmp_path):
    _, nodes = sites
    np.save(tmp_path / "north.npy", np.array([[1.0, np.nan], [12345.678, 2.0]]))
    found = server_app.cluster(InMemory(*nodes), "lloyd", k=3)
    assert set(found.refused) == {"north"}
    assert "12345" not in found.refused["north"]
    del nodes[2]["rows"]
    with pytest.raises(flareclust.JobFailed, match="west has no rows"):
        server_app.cluster(InMemory(*nodes), "lloyd", k=3)


def test_the_text_of_an_exception_stays_at_the_site(sites, monkeypatch):
    _, nodes = sites

    def fail(*args, **words):
        raise ZeroDivisionError("12345.678")

    monkeypatch.setattr(client_app, "answer_task", fail)
    with pytest.raises(flareclust.JobFailed, match="raised ZeroDivisionError") as failure:
        server_app.cluster(InMemory(*nodes), "lloyd", k=3)
    assert "12345" not in str(failure.value)


def test_another_version_and_another_algorithm_are_refused(sites):
    _, nodes = sites
    grid = InMemory(*nodes)
    about = {
        "algorithm": "lloyd",
        "k": 3,
        "seed": 0,
        "params": "{}",
        "version": "0.0.1+1234",
        "step": "cluster",
        "round": 0,
    }
    for change, reason in (
        ({}, "where the job needs another version"),
        ({"algorithm": "deepfeca"}, "lloyd, pooled, kfed only"),
    ):
        (reply,) = grid.send_and_receive([Message(pack({}, **about | change), dst_node_id=100, message_type="train")])
        arrays, said = unpack(reply.content)
        assert arrays == {}
        assert reason in said["problem"]


def test_two_supernodes_of_one_name_are_refused(sites):
    _, nodes = sites
    with pytest.raises(flareclust.UserError, match="two SuperNodes are called 'east'"):
        server_app.cluster(InMemory(nodes[0], nodes[0]), "lloyd", k=3)


def test_a_supernode_that_does_not_answer_is_left_out(sites):
    rows, nodes = sites
    grid = InMemory(*nodes)
    asking = grid.send_and_receive

    def fall_silent(messages, *, timeout=None):
        replies = asking(messages, timeout=timeout)
        grid.silent = {101}
        return replies

    grid.send_and_receive = fall_silent
    found = server_app.cluster(grid, "pooled", k=3)
    assert found.refused == {"north": "did not answer in time"}
    expected = flareclust.run("pooled", {site: own for site, own in rows.items() if site != "north"}, 3)
    np.testing.assert_array_equal(found.centroids, expected.centroids)


def test_too_few_supernodes_are_waited_for_and_said(sites):
    with pytest.raises(flareclust.JobFailed, match="3 SuperNodes are connected where min-sites=4"):
        server_app.cluster(InMemory(*sites[1]), "lloyd", k=3, min_sites=4, timeout=0.0)


def test_flowers_simulation_gives_the_same(tmp_path):
    """Its SuperNodes have made-up rows, in processes of Ray."""
    pytest.importorskip("ray", reason="Flower's simulation needs ray: python -m pip install 'flwr[simulation]'")
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    app, folder = ServerApp(), tmp_path / "result"
    config = {
        "algorithm": "pooled",
        "k": 3,
        "seed": 0,
        "params": "{}",
        "min-sites": 3,
        "timeout": 60.0,
        "out": str(folder),
    }

    @app.main()
    def main(grid, context):
        context.run_config.update(config)
        server_app.main(grid, context)

    cores = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(app, client_app.app, num_supernodes=3, backend_config=cores)
    expected = flareclust.run("pooled", {f"site-{i}": client_app.made_up_rows(i) for i in range(3)}, 3)
    with np.load(folder / "result.npz") as file:
        np.testing.assert_array_equal(file["centroids"], expected.centroids)
    assert json.loads((folder / "result.json").read_text())["refused"] == {}
