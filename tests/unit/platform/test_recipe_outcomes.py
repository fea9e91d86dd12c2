"""An NVFlare recipe that asks for outcomes has the job that `flareclust jobs export` writes for the same schema."""

import json
from pathlib import Path
from typing import Any

import pytest

import flareclust
from flareclust import UserError
from tests.command_line import call

SCHEMA = "columns: {age: number, days: number, died: number}\n"
TIMED = "outcome: {time: days, event: died, every: 10, until: 40}\n"


def settings(folder: Path) -> tuple[Any, list[str]]:
    """Return what a job's controller is given as outcomes, and which tasks its sites do."""
    config = folder / "app" / "config"
    server, sites = (json.loads((config / f"config_fed_{side}.json").read_text()) for side in ("server", "client"))
    tasks = [task for one in sites["executors"] for task in one["tasks"]]
    return server["workflows"][0]["args"].get("outcomes"), tasks


@pytest.mark.parametrize(("outcome", "step"), [(TIMED, "outcome_counts"), ("outcome: {value: days}\n", "outcome_sums")])
def test_a_recipe_asks_for_the_outcome_of_a_schema(tmp_path: Path, outcome: str, step: str) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        SCHEMA.replace("died: number", "died: ignore") + outcome if "value" in outcome else SCHEMA + outcome
    )
    flareclust.recipe("lloyd", k=3, outcomes=schema).export(str(tmp_path / "recipe"))
    assert call("jobs", "export", "lloyd", tmp_path / "exported", "--k", 3, "--schema", schema) == 0
    (asked, tasks), (exported, _) = settings(tmp_path / "recipe" / "lloyd"), settings(tmp_path / "exported")
    assert asked == exported
    assert step in tasks
    flareclust.recipe("lloyd", k=3).export(str(tmp_path / "plain"))
    assert not any(task.startswith("outcome") for task in settings(tmp_path / "plain" / "lloyd")[1])


def test_a_schema_without_outcome_is_refused(tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(SCHEMA)
    with pytest.raises(UserError, match="names no outcome"):
        flareclust.recipe("lloyd", k=3, outcomes=str(schema))
    with pytest.raises(UserError, match="cannot be read"):
        flareclust.recipe("lloyd", k=3, outcomes=tmp_path / "none.yaml")
