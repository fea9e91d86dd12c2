"""Embeddings are computed once for the exchanges that share a network."""

import numpy as np
import pytest

from flareclust.deep import training
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.deepfeca import LastEmbeddings
from flareclust.protocol.registry import get


def test_what_is_new_is_computed_again_and_what_is_not_is_not():
    kept, calls = LastEmbeddings(), []
    weights, rows = np.arange(3.0), np.arange(8.0).reshape(4, 2)

    def compute():
        calls.append(1)
        return np.full((4, 2), float(len(calls)))

    def asked(site="a", part="network", w=weights, x=rows):
        return kept.of(site, part, w, x, compute)

    first = asked()
    first[:] = -1  # the caller's own
    np.testing.assert_array_equal(asked(w=weights.copy(), x=rows.copy()), np.full((4, 2), 1.0))
    assert len(calls) == 1
    for changes in (
        {"part": "backbone"},
        {"w": weights + 1},
        {"x": rows.reshape(2, 4)},
        {"x": rows + 1},
        {"site": "b"},
    ):
        before = len(calls)
        assert (asked(**changes) == before + 1).all(), changes
    assert len(calls) == 6


@pytest.mark.parametrize("rounds", [0, 2])
def test_the_exchanges_of_a_round_embed_the_rows_once(monkeypatch, rounds):
    rng, calls, embed = np.random.default_rng(0), [], training.embed
    sites = {name: rng.normal(size=(30, 64)) + 3 * np.eye(3, 64)[rng.integers(0, 3, 30)] for name in ("north", "south")}
    monkeypatch.setattr(training, "embed", lambda *arguments: calls.append(1) or embed(*arguments))
    run_inprocess(get("deepfeca"), {"rounds": rounds, "epochs": 1, "augment": "none"}, sites, JobOptions(k=3))
    assert len(calls) == len(sites) * (rounds + 1)
