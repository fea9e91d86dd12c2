"""What one site can do to the outcomes of all: it counts once among the sites that change numbers, and its sums move no mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.experiment.tables.typed_files import read_table
from flareclust.federation.outcomes import ClusterOutcomes
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.task import Task

LIAR, ROWS = "south", 40
TIMED, SCORE = "{time: t, event: e, until: 100}", "{value: t}"

#: What a site makes of its honest reply.
Lie = Callable[[Message, Task], Message]


def run(folder: Path, outcome: str, **settings: Any) -> flareclust.Result:
    """Cluster three sites with two clusters each."""
    rng = np.random.default_rng(0)
    e = "number" if outcome == TIMED else "ignore"
    schema = f"columns:\n  a: number\n  b: number\n  t: number\n  e: {e}\noutcome: {outcome}\n"
    (folder / "schema.yaml").write_text(schema, encoding="utf-8")
    (folder / "data").mkdir()
    for site in ("north", LIAR, "west"):
        lines = [
            f"{rng.normal(9 * (i % 2)):.5f},{rng.normal():.5f},{rng.uniform(40, 60):.2f},{rng.integers(2)}"
            for i in range(ROWS)
        ]
        (folder / "data" / f"{site}.csv").write_text("\n".join(["a,b,t,e", *lines, ""]), encoding="utf-8")
    schema = str(folder / "schema.yaml")
    return flareclust.run("lloyd", str(folder / "data"), partition="none", schema=schema, k=2, **settings)


def lies(monkeypatch: pytest.MonkeyPatch, step: str, lie: Lie) -> None:
    """Let one site answer a step with a lie."""
    honest = getattr(ClusterOutcomes, step)

    def answered(self: ClusterOutcomes, task: Task, rows: SiteRows) -> Message:
        reply = honest(self, task, rows)
        return lie(reply, task) if task.site == LIAR else reply

    monkeypatch.setattr(ClusterOutcomes, step, answered)


@pytest.mark.parametrize("secure_sums", [False, True])
def test_a_site_counts_once_among_those_that_change_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure_sums: bool
) -> None:
    lies(monkeypatch, "outcome_counts", lambda reply, task: reply | {"adjusted": np.array(1000)})
    result = run(tmp_path, TIMED, secure_sums=secure_sums)
    assert int(result.arrays["outcome_adjusted"]) == (3 if secure_sums else 1)  # of a total nobody knows who said it
    sites = "3 sites" if secure_sums else "a site"
    assert sum(f"the policy of {sites} lets out no small numbers" in warning for warning in result.warnings) == 1


def test_a_sum_that_loses_the_other_sites_leaves_no_means_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = {"total": np.full(2, 1e140), "squares": np.zeros(2)}  # others cannot square differences from such a mean
    lies(monkeypatch, "outcome_sums", lambda reply, task: reply | huge)
    result = run(tmp_path, SCORE, min_sites=1)
    assert any("there are no outcomes of the clusters" in warning for warning in result.warnings)
    with pytest.raises(UserError, match="there are no outcomes of the clusters: sites sent other numbers"):
        result.outcomes_by_cluster()


def test_a_site_that_is_lost_between_the_two_questions_leaves_no_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent_then(reply: Message, task: Task) -> Message:
        if float(task.arrays["origin"]) != 0.0:
            raise Refusal("has no more rows")
        return reply

    lies(monkeypatch, "outcome_sums", silent_then)
    result = run(tmp_path, SCORE)
    assert any("sites sent other numbers of rows when they were asked again" in warning for warning in result.warnings)
    with pytest.raises(UserError, match="there are no outcomes of the clusters: sites sent other numbers"):
        result.outcomes_by_cluster()


@pytest.mark.parametrize(("outcome", "cell"), [(SCORE, "1e60"), (SCORE, "-1e100"), (TIMED, "1e60")])
def test_values_too_large_to_be_squared_are_found_where_they_are_read(tmp_path: Path, outcome: str, cell: str) -> None:
    e = "number" if outcome == TIMED else "ignore"
    schema = tmp_path / "schema.yaml"
    schema.write_text(f"columns:\n  a: number\n  t: number\n  e: {e}\noutcome: {outcome}\n", encoding="utf-8")
    (tmp_path / "x.csv").write_text(f"a,t,e\n1,2,0\n2,{cell},1\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_table(tmp_path / "x.csv", schema)
    assert "t: 1 cell is beyond 1e+59, where squares cannot be added up, first in row 2" in str(error.value)
    assert cell not in str(error.value)
