"""A job in the simulator that was interrupted goes on from its checkpoint, there or in this process, to the same bits."""

import numpy as np
import pytest

from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.engines.inprocess import run_inprocess
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile, about_job, read
from flareclust.platform.simulator import run_simulator
from flareclust.protocol.registry import get
from tests.same_outcome import OPTIONS, case_of


class Stop(Exception):
    """What ends a run in the middle."""


class Stopping(CheckpointFile):
    """A file whose run ends when it has the state after the second exchange."""

    def copy(self, file):
        super().copy(file)
        if self.path.exists() and len(read(self.path, self.about, LloydAggregator(4)).progress.records) >= 2:
            raise Stop


@pytest.mark.slow
def test_a_job_in_the_simulator_goes_on_after_an_interruption(tmp_path):
    lloyd = get("lloyd")
    rows, params = case_of(lloyd)
    params = {**params, "rounds": 40, "tol": 0.0}
    kept = Stopping(tmp_path / "out" / CHECKPOINT, about={"data": "three sites"})
    with pytest.raises(Stop):
        run_simulator(lloyd, params, rows, OPTIONS, tmp_path, checkpoint=kept)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    aggregator = lloyd.build(OPTIONS.k, OPTIONS.seed, params)[1]
    about = {**kept.about, **about_job("lloyd", aggregator, params, secure_sums=False)}
    before = read(kept.path, about, LloydAggregator(4)).progress.records
    expected = run_inprocess(lloyd, params, rows, OPTIONS)
    assert 2 <= len(before) < len(expected.rounds)
    seen = []
    again = CheckpointFile(kept.path, True, kept.about)
    found = {
        "simulator": run_simulator(lloyd, params, rows, OPTIONS, tmp_path, seen.append, checkpoint=again),
        "inprocess": run_inprocess(lloyd, params, rows, OPTIONS, checkpoint=again),
    }
    for engine, outcome in found.items():
        for name, value in expected.arrays.items():
            np.testing.assert_array_equal(outcome.arrays[name], value, err_msg=f"{engine} {name}")
        assert outcome.metrics == expected.metrics
        assert outcome.n_rounds == expected.n_rounds
        assert outcome.rounds[: len(before)] == before
    assert [record["step"] for record in seen] == [record["step"] for record in expected.rounds]
