"""docs/privacy.md says what the code does and what its records hold; the attacks do what the page says of them."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import steps_to_end
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import registry as definition
from flareclust.protocol.registry import BUILT_IN, Algorithm, get
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import exchanges, iid_sites
from tests.paths import ROOT, of_the_whole

PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
FEDERATED = [algorithm for algorithm in BUILT_IN if algorithm.federated]


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{Path(path).stem}_of_the_page", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    return module("benchmarks/pages/privacy.py")


@pytest.fixture(scope="module")
def attacks() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.attacks.differencing")


@pytest.fixture(scope="module")
def reconstruction(attacks: ModuleType) -> ModuleType:
    return importlib.import_module("benchmarks.reconstruction")


# ---- the page ----


@of_the_whole
def test_the_generated_parts_are_those_of_the_code_and_the_records(docs: ModuleType) -> None:
    """If this fails, run `python -m benchmarks.pages.privacy`."""
    assert docs.rendered(PAGE) == PAGE


def test_a_missing_marker_is_noticed(docs: ModuleType) -> None:
    with pytest.raises(ValueError, match="<!-- /verdict --> once"):
        docs.rendered(PAGE.replace("<!-- /verdict -->", ""))


def line_of(table: str, algorithm: str, step: str) -> list[str]:
    """Return the cells of the one line about a step of an algorithm."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    (found,) = [cells for cells in lines if f"`{algorithm}`" in cells[0].split(", ") and cells[1] == f"`{step}`"]
    return found


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_every_algorithm_is_in_the_table_with_all_that_it_sends(algorithm: Algorithm, docs: ModuleType) -> None:
    executor = algorithm.executor_class()
    for step, line in steps_to_end(executor).items():
        cells = line_of(docs.leaves(), algorithm.name, step)
        reported = re.findall(r"`(\w+)`: ", " ".join(cells))
        assert reported == list(line.schema.fields)


class CountingExecutor(ClusteringExecutor):
    """Sends how many rows it has."""

    steps = {StepName.CLUSTER: Step(Schema(how_many=counts("k")))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        return {"how_many": np.array([len(rows)])}


def test_an_algorithm_that_is_registered_later_is_in_the_table(
    docs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Algorithm(
        "counting", "Counts rows", "counting.CountingExecutor", "flareclust.aggregators.pooled.PooledAggregator"
    )
    monkeypatch.setattr(definition, "_import", lambda path: CountingExecutor if "counting" in path else None)
    cells = line_of(docs.leaves([later]), "counting", "cluster")
    assert cells[2:] == [
        "`how_many`: k numbers of rows",
        "`how_many` 0 or at least 10",
        "`how_many` 0 or at least 10; `how_many` in multiples of 5",
        "as by default",
        "refused",
    ]


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_what_is_refused_under_differential_privacy_is_refused(algorithm: Algorithm, docs: ModuleType) -> None:
    executor, _ = algorithm.build(3)
    rows = np.random.default_rng(0).uniform(size=(40, 2))
    steps = steps_to_end(type(executor))
    step = StepName.CLUSTER if StepName.CLUSTER in steps else next(iter(steps))
    refused = line_of(docs.leaves(), algorithm.name, step)[-1] == "refused"
    policy = Policy(dp=DifferentialPrivacy((0.0, 1.0), 1.0, 1e-5, 1.0))
    if refused:
        with pytest.raises(Refusal, match="differentially private"):
            executor.answer(Task(step, 0, {}, "a"), rows, never_abort, SiteSession(policy, "job"))
    else:
        assert executor.private


@pytest.mark.parametrize("name", ["lloyd", "pooled", "portfolio", "masked"])
@pytest.mark.parametrize("multiple", [1, 5])
def test_floors_and_roundings_of_the_table_hold(name: str, multiple: int) -> None:
    rows, _ = iid_sites(m=3)
    small = {site: own[:23] for site, own in rows.items()}
    policy = Policy(round_counts=multiple)
    seen = exchanges(
        get(name), {**rows, **{f"{site}-small": own for site, own in small.items()}}, 4, 0, policy, assess=True
    )
    assert any(task.step == StepName.ASSESS for task, _ in seen)
    for task, arrays in seen:
        for array, value in arrays.items():
            schema = get(name).executor_class().job_steps()[task.step].schema if task.step != StepName.ASSESS else None
            if array in ("counts", "rows") and (schema is None or schema.fields[array].rows):
                assert ((value == 0) | (value >= 10)).all()
                assert (value % multiple == 0).all()


# ---- the attacks ----


def groups(attacks: ModuleType, data: FloatArray, centroids: FloatArray, *, multiple: int = 1) -> Any:
    """Return what a server hears of an update."""
    reported = SiteRows(Table(data), np.random.default_rng(0), never_abort, SiteContext(10)).update(centroids)
    shown = np.rint(reported.counts / multiple).astype(np.int64) * multiple
    return attacks.Groups(centroids, reported.cluster, reported.centroids, shown)


@pytest.mark.parametrize("multiple", [1, 5])
def test_the_difference_of_two_rounds_is_the_row_that_moved(attacks: ModuleType, multiple: int) -> None:
    data = np.random.default_rng(0).normal(size=(80, 3))
    places = np.sort(data[:, 0])
    borders = [float(places[i : i + 2].mean()) for i in (39, 40)]  # one row lies between them
    rounds = [
        groups(attacks, data, np.array([[at - 1.0, 0, 0], [at + 1.0, 0, 0]]), multiple=multiple) for at in borders
    ]
    claims = attacks.differences(rounds, slack=multiple - 1)
    assert attacks.number_recovered(claims, data) == 1
    assert np.abs(claims[0][0] - places[40]) < 1e-9


def test_what_no_row_moved_tells_nothing(attacks: ModuleType) -> None:
    data = np.random.default_rng(0).normal(size=(80, 3))
    same = groups(attacks, data, np.array([[-1.0, 0, 0], [1.0, 0, 0]]))
    assert attacks.differences([same, same]) == attacks.differences([same, same], slack=4) == []


def test_samples_that_can_be_repeated_tell_all_rows(attacks: ModuleType) -> None:
    data = np.random.default_rng(1).normal(size=(20, 3))
    seen = []
    for t in range(30):
        times = np.bincount(stream(0, t, "a").integers(20, size=20), minlength=20)
        mean = (times @ data / times.sum())[None]
        message = {"centroids": mean, "counts": np.array([times.sum()]), "cluster": np.array([0])}
        seen.append(("sample", {"centroids": np.zeros((1, 3))}, {"a": message}))
    assert attacks.number_recovered(attacks.samples(seen, "a", seed=0), data) == 20
    assert attacks.number_recovered(attacks.samples(seen, "a", seed=1), data) == 0


def test_the_radius_of_a_pair_in_one_column_tells_both(attacks: ModuleType) -> None:
    pair = np.array([[1.1], [3.7]])
    exact = {"centroids": np.array([[2.4]]), "radii": np.array([1.3])}
    assert attacks.number_recovered(attacks.pairs_in_one_column(exact, 0.001), pair) == 2
    raised = {"centroids": np.array([[2.4]]), "radii": np.array([1.4])}
    assert attacks.number_recovered(attacks.pairs_in_one_column(raised, 0.001), pair) == 0  # a hundred values fit
    assert attacks.number_recovered(attacks.pairs_in_one_column(raised, 0.1), pair) == 2  # one does


def asking(reconstruction: ModuleType, rows: FloatArray, k: int, policy: Policy | None) -> Any:
    return reconstruction.in_a_job("a", rows, k, policy, reconstruction.Setting({"min_count": 2}))


def clouds(seed: int) -> FloatArray:
    """Return rows (61, 3) in three clouds, with one row far from all others."""
    rng = np.random.default_rng(seed)
    middles = np.repeat([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0]], 20, axis=0)
    return np.vstack([middles + rng.normal(size=(60, 3)), [[40.0, -30.0, 20.0]]])


def test_solutions_of_ones_own_choice_tell_rows_and_not_at_a_site_with_a_policy(reconstruction: ModuleType) -> None:
    rows = clouds(0)
    claims = reconstruction.chosen_solutions(asking(reconstruction, rows, 3, None), 30)
    assert reconstruction.number_recovered(claims, rows) > 50
    claims = reconstruction.chosen_solutions(asking(reconstruction, rows, 3, Policy()), 30)
    assert reconstruction.number_recovered(claims, rows) == 0


def test_own_clusters_again_tell_rows_and_not_at_a_site_with_a_policy(reconstruction: ModuleType) -> None:
    rows = clouds(1)
    claims = reconstruction.clusters_again(asking(reconstruction, rows, 8, None), 60)
    assert reconstruction.number_recovered(claims, rows) > 10
    claims = reconstruction.clusters_again(asking(reconstruction, rows, 8, Policy()), 60)
    assert reconstruction.number_recovered(claims, rows) == 0


def test_all_rows_less_the_clusters_are_the_row_kept_back_and_not_at_a_site_with_a_policy(
    reconstruction: ModuleType,
) -> None:
    rows = clouds(2)
    (claim,) = reconstruction.kept_back(asking(reconstruction, rows, 4, None))
    assert np.abs(claim - rows[60]).max() < 1e-9
    claims = reconstruction.kept_back(asking(reconstruction, rows, 4, Policy()))
    assert reconstruction.number_recovered(claims, rows) == 0


def test_a_close_guess_is_not_counted(attacks: ModuleType) -> None:
    data = np.random.default_rng(2).normal(size=(20, 3))
    assert attacks.number_recovered(list(data + 1e-8), data) == 20
    assert attacks.number_recovered(list(data + 1e-4), data) == 0


@pytest.mark.parametrize(
    "names",
    [
        ["a cluster of one row", "rounds of `lloyd`", "what is kept back"],
        pytest.param(
            [
                "rounds of `fkm`",
                "repeatable samples of `minibatch`",
                "chosen solutions",
                "own clusters again",
            ],
            marks=[pytest.mark.nightly, pytest.mark.timeout(300)],
        ),
    ],
    ids=["quick ones", "others"],
)
def test_the_records_are_those_of_the_attacks(names: list[str], reconstruction: ModuleType, docs: ModuleType) -> None:
    """If this fails, run `python -m benchmarks.reconstruction` and `python -m benchmarks.pages.privacy --pictures`."""
    stated = [record for record in docs.read("privacy") if record["data"] == "iris" and record["attack"] in names]
    exact = [record for record in stated if record["setting"] != "differential privacy"]
    found = reconstruction.measured(names, data=("iris",))
    assert [record for record in found if record["setting"] != "differential privacy"] == exact
    private = [record for record in found if record["setting"] == "differential privacy"]
    assert private
    assert all(record["recovered"] == 0 for record in private)


def test_some_attacks_can_be_run_again_alone(reconstruction: ModuleType, docs: ModuleType) -> None:
    records = docs.read("privacy")
    again = [{**record, "recovered": -1} for record in records if record["attack"] == "rounds of `fkm`"]
    merged = reconstruction.merged(records, again)
    assert [(r["attack"], r["data"], r["setting"]) for r in merged] == [
        (r["attack"], r["data"], r["setting"]) for r in records
    ]
    assert {r["attack"] for r in merged if r["recovered"] == -1} == {"rounds of `fkm`"}


def test_the_picture_shows_what_the_page_says() -> None:
    assert "images/reconstruction.png" in PAGE
    assert (ROOT / "docs" / "images" / "reconstruction.png").stat().st_size > 20_000
