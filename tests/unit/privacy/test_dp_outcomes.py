"""Outcomes under differential privacy: what they cost, that a row changes one number by one, and that what comes of noise is possible."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.cli.main import main
from flareclust.core.dp.outcomes import possible_counts
from flareclust.core.outcomes import OutcomeForm, counts_by_outcome
from flareclust.data.ids import Ids
from flareclust.data.tables import Table
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.summary import budget_split
from flareclust.experiment.reports.terminal import print_result
from flareclust.federation.noisy_outcomes import possible_arrays
from flareclust.federation.site import answer
from flareclust.privacy.dp.accounting import epsilon_of, rho_of
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

pytest.importorskip("opendp", reason="needs the extra dp")

TIMES = OutcomeForm("time", every=10.0, until=100.0)
CENTROIDS = np.array([[-5.0, 0.0], [5.0, 0.0]])
DELTA = 1e-5
TIMED, GRADE, SCORE = "{time: t, event: e, every: 20, until: 100}", "{value: g}", "{value: t}"


def policy(epsilon: float = 1000.0, **said: Any) -> dict[str, Any]:
    terms = {"bounds": [-20, 20], "epsilon": epsilon, "delta": DELTA, "budget": epsilon, **said}
    return {"differential_privacy": terms}


def table(n: int = 200) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(np.where(np.arange(n) % 2, 5, -5)[:, None] * [1, 0], 1.0, size=(n, 2))
    outcomes = np.column_stack([rng.uniform(0, 120, n), rng.integers(2, size=n)]).astype(np.float64)
    return Table(X, outcomes=outcomes, outcome_form=tuple(TIMES.numbers.tolist()))


def asked(rows: Table, ledger: Ledger, form: OutcomeForm = TIMES, terms: Any = None, **settings: Any) -> FloatArray:
    """Return what a site answers to a question about outcomes."""
    executor, _ = get("dp-lloyd").build(2, 0, {"delta": DELTA, **settings})
    task: Message = {"centroids": CENTROIDS, "outcome_form": form.numbers}
    session = SiteSession(Policy.of(terms or policy()), "job", ledger)
    return answer(executor, Task(StepName.OUTCOME_COUNTS, 9, task, "north"), rows, lambda: False, session).arrays[
        "counts"
    ]


def test_counts_are_those_of_the_rows_but_for_the_noise_that_is_paid_for() -> None:
    rows, ledger = table(), Ledger.in_memory()
    assert rows.outcomes is not None
    exact = counts_by_outcome(rows.outcomes, (rows.X[:, 0] > 0).astype(np.int64), 2, TIMES)
    nearly = asked(rows, ledger, epsilon=1.0, outcome_epsilon=900.0)
    np.testing.assert_array_equal(np.rint(nearly), exact)
    (entry,) = ledger.entries()
    assert entry.what == "outcomes"
    assert epsilon_of(entry.rho, DELTA) == pytest.approx(900.0, rel=1e-6)


def test_the_noise_has_the_deviation_that_the_epsilon_buys() -> None:
    wide = OutcomeForm("time", every=1.0, until=2000.0)
    rows = Table(np.zeros((5, 2)), outcomes=np.full((5, 2), np.nan), outcome_form=tuple(wide.numbers.tolist()))
    noise = asked(rows, Ledger.in_memory(), wide, epsilon=1.0, outcome_epsilon=1.0).ravel()
    assert len(noise) == 8004
    expected = 1 / np.sqrt(2 * rho_of(1.0, DELTA))
    assert noise.std() == pytest.approx(expected, rel=0.05)  # six standard errors
    assert abs(noise.mean()) < 6 * expected / np.sqrt(len(noise))


@given(st.integers(0, 10**6), st.sampled_from([TIMES, OutcomeForm("category", values=4)]))
def test_a_row_changes_one_number_by_one(seed: int, form: OutcomeForm) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    values = rng.uniform(0, 150, n) if form.kind == "time" else rng.integers(4, size=n)
    outcomes = np.column_stack([values, rng.integers(2, size=n)])[:, : form.width].astype(np.float64)
    outcomes[rng.random(n) < 0.1] = np.nan
    labels, gone = rng.integers(3, size=n), int(rng.integers(n))
    whole = counts_by_outcome(outcomes, labels, 3, form)
    less = counts_by_outcome(np.delete(outcomes, gone, axis=0), np.delete(labels, gone), 3, form)
    change = whole - less
    assert change.sum() == np.abs(change).sum() == int(not np.isnan(outcomes[gone]).any())


def test_what_the_job_spends_on_outcomes_is_beside_epsilon_and_within_the_limits_of_the_site() -> None:
    rows = table()
    with pytest.raises(
        Refusal,
        match=r"asks for epsilon=1 and outcome_epsilon=2 at delta=1e-05; ask for epsilon=2, both together, or less",
    ):
        asked(rows, Ledger.in_memory(), terms=policy(2.0), epsilon=1.0, outcome_epsilon=2.0)
    with pytest.raises(Refusal, match="spends nothing on them; submit with outcome_epsilon"):
        asked(rows, Ledger.in_memory(), epsilon=1.0)
    ledger = Ledger.in_memory()
    for _ in range(2):  # where the job spends nothing on clustering, a server can have outcomes twice for the same
        asked(rows, ledger, terms=policy(2.0), epsilon=1.0, outcome_epsilon=1.0)
    with pytest.raises(Refusal, match="on this job"):
        asked(rows, ledger, terms=policy(2.0), epsilon=1.0, outcome_epsilon=1.0)


def test_of_an_id_its_first_rows_count() -> None:
    rows, ids = table(), Ids()
    ids.extend([f"p{i // 4}" for i in range(len(rows))])
    assert rows.outcomes is not None
    by_id = Table(rows.X, ids=ids, outcomes=rows.outcomes, outcome_form=rows.outcome_form)
    terms = policy(unit="id")
    found = np.rint(asked(by_id, Ledger.in_memory(), terms=terms, epsilon=1.0, outcome_epsilon=900.0, unit="id"))
    first = np.arange(0, len(rows), 4)
    exact = counts_by_outcome(rows.outcomes[first], (rows.X[first, 0] > 0).astype(np.int64), 2, TIMES)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("form", [TIMES, OutcomeForm("category", values=11)])
def test_possible_counts_are_near_the_rows_and_never_negative(form: OutcomeForm) -> None:
    rng = np.random.default_rng(1)
    exact = rng.poisson(3.0, size=(form.shape[0], 2, form.shape[1]))
    exact[..., ::2] = 0
    np.testing.assert_array_equal(possible_counts(exact.astype(np.float64), form), exact)
    totals = list[FloatArray]()
    for _ in range(300):
        found = possible_counts(exact + rng.normal(0, 4.0, exact.shape), form)
        assert (found >= 0).all()
        totals.append(found.sum(axis=(0, 2)) - exact.sum(axis=(0, 2)))
    # Numbers cut at 0 would have 0.4 * 4 rows too many for each of 11 or 22 cells.
    assert (np.abs(np.mean(totals, axis=0)) < 6).all()
    assert not possible_counts(np.full(exact.shape, -5.0), form).any()


@pytest.mark.parametrize("form", [TIMES, OutcomeForm("category", values=11)])
@pytest.mark.parametrize("lie", [1e140, -1e140])
def test_numbers_that_no_rows_have_are_cut(form: OutcomeForm, lie: float) -> None:
    params = get("dp-lloyd").build(2, 0, {"outcome_epsilon": 1.0})[0].params
    assert isinstance(params, PrivateParams)
    noisy = np.full((form.shape[0], 2, form.shape[1]), 5.0)
    noisy[0, 0, 3] = lie
    arrays, _ = possible_arrays(params, noisy, form, 4.0)
    counts = arrays["outcome_counts"]
    assert (counts >= 0).all()
    assert counts[:, 1].sum() == 5 * noisy[:, 1].size
    assert counts.sum() < 2**47


def run(folder: Path, outcome: str, algorithm: str = "dp-lloyd", **settings: Any) -> flareclust.Result:
    """Cluster three sites with two clusters each under differential privacy."""
    rng = np.random.default_rng(0)
    kinds = {"t": "number", "e": "number", "g": "{type: category, values: [low, high]}"}
    columns = "".join(f"  {name}: {kind if f' {name}' in outcome else 'ignore'}\n" for name, kind in kinds.items())
    folder.mkdir(exist_ok=True)
    (folder / "schema.yaml").write_text(
        f"columns:\n  a: number\n  b: number\n{columns}outcome: {outcome}\n", encoding="utf-8"
    )
    (folder / "data").mkdir()
    for site in ("north", "south", "west"):
        lines = [
            f"{rng.normal(10 * (i % 2) - 5):.5f},{rng.normal():.5f},{rng.exponential(30 * (1 + i % 2)):.2f},{i % 3 % 2},{('low', 'high')[i % 2]}"
            for i in range(400)
        ]
        (folder / "data" / f"{site}.csv").write_text("\n".join(["a,b,t,e,g", *lines, ""]), encoding="utf-8")
    terms = policy(bounds={"a": [-20, 20], "b": [-20, 20]})
    return flareclust.run(
        algorithm,
        str(folder / "data"),
        partition="none",
        schema=str(folder / "schema.yaml"),
        k=2,
        epsilon=5.0,
        policy=settings.pop("policy", terms),
        **settings,
    )


@pytest.mark.parametrize(
    ("algorithm", "secure_sums"), [("dp-lloyd", False), ("dp-lloyd", True), ("dp-oneshot", False), ("dp-gmm", True)]
)
def test_a_run_has_curves_and_says_how_much_noise_they_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, secure_sums: bool
) -> None:
    result = run(tmp_path, TIMED, algorithm, outcome_epsilon=5.0, secure_sums=secure_sums)
    (warning,) = [text for text in result.warnings if text.startswith("outcomes hold noise")]
    noise = float(result.arrays["outcome_noise"])
    one = 1 / np.sqrt(2 * rho_of(5.0, DELTA))
    assert noise == pytest.approx(one * np.sqrt(1.5 if secure_sums else 3), rel=1e-6)
    assert f"(outcome_epsilon=5), a standard deviation of {noise:.2g} rows in each of 6 numbers" in warning
    curves, lines = result.outcomes_by_cluster("curves"), result.outcomes_by_cluster()
    assert lines["rows"].sum() == pytest.approx(1200, abs=20 * noise)
    for _, curve in curves.groupby("cluster"):
        assert (np.diff(curve["survival"]) <= 0).all()
        assert (np.diff(curve["at_risk"]) <= 0).all()
    assert curves["lower"].isna().all()
    assert not len(result.outcomes_by_cluster("tests"))
    assert "outcome_site_counts" not in result.arrays
    print_result(result)
    assert "no test: it would take noise for differences" in capsys.readouterr().out
    assert "Kaplan-Meier" in report_page(result)


def test_shares_have_noise_as_curves_do(tmp_path: Path) -> None:
    result = run(tmp_path, GRADE, outcome_epsilon=50.0)
    shares = result.outcomes_by_cluster()
    assert sorted(shares["share"].round(1)) == [0.0, 0.0, 1.0, 1.0]
    assert shares["lower"].isna().all()


@pytest.mark.parametrize(
    ("outcome", "settings", "why"),
    [
        (TIMED, {}, "they cost of the sites' budgets what outcome_epsilon says; set it, beside epsilon"),
        (SCORE, {"outcome_epsilon": 1.0}, "a number would need bounds under differential privacy"),
    ],
)
def test_a_run_says_why_it_has_none(tmp_path: Path, outcome: str, settings: dict[str, Any], why: str) -> None:
    result = run(tmp_path, outcome, **settings)
    assert any("there are no outcomes of the clusters" in text and why in text for text in result.warnings)
    with pytest.raises(UserError, match="there are no outcomes of the clusters"):
        result.outcomes_by_cluster()


def test_a_job_that_asks_for_more_than_a_site_grants_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    terms = policy(6.0, bounds={"a": [-20, 20], "b": [-20, 20]})
    with pytest.raises(flareclust.JobFailed, match="and outcome_epsilon=3 at delta"):
        run(tmp_path, TIMED, outcome_epsilon=3.0, policy=terms)


def test_what_outcomes_cost_is_beside_the_budget_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path, TIMED, outcome_epsilon=5.0)
    own = "assess 5 %; outcomes have a budget of their own: epsilon 5"
    assert budget_split(result).endswith(own)
    print_result(result)
    assert own in capsys.readouterr().out
    assert "outcomes have a budget of their own: epsilon 5." in report_page(result)
    assert budget_split(run(tmp_path / "none", TIMED)).endswith("assess 5 %")


def test_a_budget_for_outcomes_that_no_schema_names_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "outcome_epsilon=1.0 is for the outcomes that a schema names, and there are none here"
    terms, sites = policy(bounds=[[-20, 20]] * 2), {site: np.zeros((400, 2)) for site in "ab"}
    with pytest.raises(UserError, match=why):
        flareclust.run("dp-lloyd", sites, k=2, outcome_epsilon=1.0, policy=terms)
    with pytest.raises(UserError, match=why):
        flareclust.recipe("dp-lloyd", k=2, outcome_epsilon=1.0)
    with pytest.raises(SystemExit):
        main(["jobs", "export", "dp-lloyd", str(tmp_path / "job"), "--k", "2", "--set", "outcome_epsilon=1.0"])
    assert why in capsys.readouterr().err
    assert not (tmp_path / "job").exists()
