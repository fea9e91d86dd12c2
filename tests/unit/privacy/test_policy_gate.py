"""What a job may ask of a site with a policy, what may leave it, and what becomes of numbers of rows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flareclust
from flareclust._foundation.errors import Refusal, UserError
from flareclust.core import assessment
from flareclust.core.disclosure import factor, rounded
from flareclust.engines.inprocess import SimulatedSite, answered, run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.refinement import UPDATE
from flareclust.privacy import session
from flareclust.privacy.enforcement import PolicyEnforcer, Request
from flareclust.privacy.job_folder import RequestLog
from flareclust.privacy.policy import DifferentialPrivacy, Policy, read_policy, unknown_arrays
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import executors, get
from flareclust.protocol.schema import _LONGEST_TEXT, SECONDS
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from flareclust.testing.promised import overlapping_sites

TWO = {"centroids": np.zeros((2, 3))}
SUMS = {"counts": np.array([12, 0]), "scatter": np.ones(2), "sse": np.array(3.0), "silhouette": np.array(1.0)}
ASSESSED = Request(StepName.ASSESS, 2, {"K": 2, "k": 2})
SECRET = "v123456.789"
DP = Policy(dp=DifferentialPrivacy((0, 1), 1.0, 1e-6, 5.0))


def statement(policy, private=False, algorithm="kfed"):
    return SiteSession(policy, "job").statement(algorithm, private=private)


def sender(step, arrays):
    """Return an algorithm that sends these arrays in a step, or has such a step at least."""
    able = {name: kind.job_steps()[step] for name, kind in executors().items() if step in kind.job_steps()}
    alike = (name for name, spec in able.items() if set(spec.schema.fields) == set(arrays) - {SECONDS})
    return next(alike, next(iter(able), None))


def released(arrays, policy=None, question=ASSESSED, made_under=None):
    policy = policy or Policy()
    return PolicyEnforcer(policy).check_reply(
        question, arrays, made_under or statement(policy, algorithm=sender(question.step, arrays))
    )


# ---- numbers of rows ----


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(1, 500), st.integers(1, 500))
def test_rounded_numbers_are_the_nearest_multiples_that_do_not_go_below_the_floor(values, multiple, floor):
    counts = np.array([0 if value < floor else value for value in values])
    reported = rounded(counts, multiple, floor)
    assert reported.dtype == np.int64
    assert ((reported == 0) == (counts == 0)).all()
    assert (reported % multiple == 0).all()
    assert (reported[counts > 0] >= floor).all()
    free = (counts > 0) & (counts >= floor + multiple)
    assert (2 * np.abs(reported - counts)[free] <= multiple).all()
    np.testing.assert_array_equal(rounded(reported, multiple, floor), reported)
    np.testing.assert_allclose(counts * factor(counts, multiple, floor), reported)


def test_means_over_cells_stay_what_they_are_when_their_numbers_are_rounded(sites):
    """So the simplified silhouette is no larger than 1, and the others are those of the exact numbers, nearly."""
    exact = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=4), policy=Policy())
    reported = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=4), policy=Policy(round_counts=50))
    assert reported.metrics["simplified_silhouette"] == pytest.approx(exact.metrics["simplified_silhouette"], rel=0.01)
    assert reported.metrics["davies_bouldin"] == pytest.approx(exact.metrics["davies_bouldin"], rel=0.01)


@pytest.mark.parametrize(("policy", "calls"), [(None, 0), (Policy(), 4)])
def test_only_sites_with_a_policy_microaggregate_and_each_once(sites, monkeypatch, policy, calls):
    seen = []

    def groups_of_one(X, floor, withdrawn):
        seen.append(len(X))
        yield X, np.arange(len(X)), np.arange(len(X))

    monkeypatch.setattr(session, "microaggregate_with_sources", groups_of_one)
    run_inprocess(get("portfolio"), {"polish": 2}, sites, JobOptions(k=4), policy=policy)
    assert len(seen) == calls


# ---- small cells ----


def test_small_cells_are_in_none_of_the_sums_of_the_assessment(rng):
    X = np.concatenate([rng.normal(size=(40, 2)), 50 + rng.normal(size=(3, 2))])
    centroids = np.array([[0.0, 0.0], [50.0, 50.0]])
    sums = assessment.without_small(assessment.assessment_sums(X, centroids)[1], 4)
    of_large = assessment.assessment_sums(X[:40], centroids)[1]
    for name, value in sums.items():
        np.testing.assert_array_equal(value, np.where([True, False], of_large[name], 0))


# ---- what may be asked ----


@pytest.mark.parametrize(
    ("policy", "before", "asked", "words"),
    [
        (Policy(), [], ("rows", 0, {}), "no algorithm has"),
        (Policy(), [], (StepName.CLUSTER, None, {}), "number of a round"),
        (Policy(), [], (StepName.CLUSTER, True, {}), "number of a round"),
        (Policy(), [], (StepName.CLUSTER, -1, {}), "number of a round"),
        (Policy(), [(StepName.CLUSTER, 0)], (StepName.CLUSTER, 0, {}), "before"),
        (Policy(), [(StepName.CLUSTER, 0), (UPDATE, 3)], (UPDATE, 2, TWO), "too late"),
        (Policy(), [(StepName.ASSESS, 1)], (StepName.ASSESS, 2, TWO), "too late"),
        (Policy(), [(StepName.PLACE, 0)], (UPDATE, 1, TWO), "too late"),
        (Policy(max_rounds=2), [(StepName.CLUSTER, 0), (UPDATE, 1)], (UPDATE, 2, TWO), "at most 2 exchanges"),
        (Policy(max_centroids=1), [], (UPDATE, 1, TWO), "at most 1 centroids"),
        (Policy(max_centroids=1), [], (StepName.SCORE, 1, {"candidates": np.zeros((2, 3))}), "at most 1 centroids"),
        (Policy(), [], (UPDATE, 1, {"centroids": [[0.0]]}), "plain arrays"),
        (Policy(), [], (UPDATE, 1, {"centroids": np.array([[SECRET]], dtype=object)}), "plain arrays"),
        (Policy(), [], (UPDATE, 1, {"centroids": np.ma.zeros((2, 3))}), "plain arrays"),
    ],
)
def test_what_may_not_be_asked_is_refused_and_not_counted(policy, before, asked, words):
    gate = PolicyEnforcer(policy)
    for step, round_ in before:
        gate.asked.add(step, round_)
    with pytest.raises(Refusal, match=words) as caught:
        gate.check_request(*asked)
    assert SECRET not in str(caught.value)
    assert gate.asked.so_far() == before


@pytest.mark.parametrize("step", StepName.OF_CLASSES)
def test_models_of_classes_are_refused_with_the_setting_that_is_against_them_and_what_to_do(step):
    words = f"was asked for the step {step} of federated averaging .*means of them.*leave the site out.*: min_count"
    with pytest.raises(Refusal, match=words) as caught:
        PolicyEnforcer(Policy()).check_request(step, 0, {})
    assert len(str(caught.value)) < _LONGEST_TEXT


def test_the_exchanges_of_ordinary_jobs_are_let_in():
    gate = PolicyEnforcer(Policy())
    for step, round_ in (
        (StepName.DESCRIBE, 0),
        (StepName.CLUSTER, 0),
        (StepName.SCORE, 1),
        (UPDATE, 2),
        (UPDATE, 3),
        (StepName.ASSESS, 4),
    ):
        gate.check_request(step, round_, TWO)
    assert len(gate.asked.so_far()) == 6


@pytest.mark.parametrize("name", ["kfed", "masked", "proxy", "fkm-imputed"])
def test_late_rows_are_placed_under_a_policy_and_only_their_rounded_number_leaves(name):
    """A finished result of sites with different columns brings their names along."""
    line, held = get(name), Policy(round_counts=50)
    tables = overlapping_sites()[0] if line.partial else iid_sites()[0]
    finished = run_inprocess(line, {}, tables, JobOptions(k=4))
    executor, _ = line.build(4)
    task = Task(StepName.PLACE, 0, executor.placing(finished.arrays), "late")
    rows = next(iter(tables.values()))
    answer = answered(executor, task, rows, SimulatedSite.of(held, line))
    assert set(answer.arrays) == {"rows", SECONDS}
    assert answer.arrays["rows"] == 50 * round(len(rows) / 50)
    assert answer.labels is not None


def test_what_was_asked_outlives_the_process(tmp_path):
    file = tmp_path / "asked.txt"
    RequestLog(file).add(StepName.CLUSTER, 0)
    RequestLog(file).add(UPDATE, 12)
    assert RequestLog(file).so_far() == [(StepName.CLUSTER, 0), (UPDATE, 12)]
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refusal, match="before"):
        PolicyEnforcer(Policy(), RequestLog(file)).check_request(StepName.CLUSTER, 0, {})


# ---- what may leave ----


def test_a_reply_that_fits_leaves_as_a_copy():
    arrays = {**SUMS, SECONDS: np.array(0.5)}
    out = released(arrays)
    assert set(out) == set(arrays)
    for name, value in out.items():
        np.testing.assert_array_equal(value, arrays[name])
        assert value is not arrays[name]


@pytest.mark.parametrize(
    ("policy", "change", "words"),
    [
        (Policy(), {SECRET: np.zeros(3)}, "other arrays"),
        (Policy(arrays=("counts", "sse", "silhouette")), {}, "does not let out scatter"),
        (Policy(arrays=("counts",)), {SECRET: np.zeros(3)}, "does not let out scatter"),
        (Policy(), {"counts": [12, 0]}, "plain arrays"),
        (Policy(), {"counts": np.ma.array([12, 0])}, "plain arrays"),
        (Policy(), {"counts": np.array([12, 9])}, "no counts below 10"),
        (Policy(), {"counts": np.array([12, 10, 10]), "scatter": np.ones(3)}, "another form"),
        (Policy(), {"scatter": np.array([np.nan, 1.0])}, "another form"),
        (Policy(), {"sse": np.array([3.0])}, "another form"),
        (Policy(), {"sse": np.array(3.0, dtype=object)}, "another form"),
        (Policy(round_counts=5), {}, "counts as multiples of 5"),
    ],
)
def test_what_may_not_leave_is_kept_back(policy, change, words):
    with pytest.raises(Refusal, match=words) as caught:
        released({**SUMS, **change}, policy)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "made_under",
    [None, 3, "{", "{}", json.dumps({"private": True, "policy": None}), statement(Policy(min_count=2))],
)
def test_a_reply_must_have_been_made_under_the_policy_itself(made_under):
    with pytest.raises(Refusal, match=r"own executors|could not read|another policy"):
        PolicyEnforcer(Policy()).check_reply(ASSESSED, SUMS, made_under)


def test_a_reply_must_be_of_a_registered_algorithm_in_the_form_of_that_one():
    arrays, request = {"centroids": np.zeros((2, 3)), "counts": np.full(2, 20)}, Request(StepName.CLUSTER, 0, {})
    assert released(arrays, question=request, made_under=statement(Policy(), algorithm="kfed"))
    for name in (None, "no such algorithm"):
        with pytest.raises(Refusal, match="of an algorithm that is not registered there"):
            released(arrays, question=request, made_under=statement(Policy(), algorithm=name))
    with pytest.raises(Refusal, match="other arrays than mavg sends"):
        released(arrays, question=request, made_under=statement(Policy(), algorithm="mavg"))
    with pytest.raises(Refusal, match="another form than kfed sends"):
        released(arrays, question=request, made_under=statement(DP, algorithm="kfed", private=True), policy=DP)


def test_only_differentially_private_replies_leave_where_the_policy_asks_for_it():
    policy = Policy(dp=DifferentialPrivacy((0, 1), 1.0, 1e-6, 5.0))
    with pytest.raises(Refusal, match="differentially private"):
        released(SUMS, policy)
    noisy = {**SUMS, "counts": np.array([3, 1]), "clipped": np.array(0.4)}
    assert released(noisy, policy, made_under=statement(policy, private=True, algorithm="dp-lloyd"))


def test_too_many_centroids_do_not_leave():
    arrays = {"centroids": np.zeros((4, 3)), "counts": np.full(4, 20)}
    with pytest.raises(Refusal, match="at most 3 centroids"):
        released(arrays, Policy(max_centroids=3), Request(StepName.CLUSTER, 0, {}))


def test_an_odd_account_of_time_counts_nothing():
    for odd in (np.array(np.nan), np.array([1.0, 2.0]), np.array(-1.0), np.array(123456)):
        assert released({**SUMS, SECONDS: odd})[SECONDS] == 0.0


@pytest.mark.parametrize(
    ("name", "settings"), [("portfolio", {"polish": 3}), ("pooled", {"k": "2..6"}), ("fkm", {"rounds": 5})]
)
def test_honest_jobs_of_many_steps_end_under_the_default_policy(name, settings):
    result = flareclust.run(name, data="digits", n_sites=5, policy={}, **settings)
    assert not result.left_out
    assert result.centroids_found > 1


def test_measures_that_repeat_the_sites_clustering_repeat_it_under_their_policy():
    result = flareclust.run("masked", data="digits", partition="dirichlet:0.3", policy={})
    assert 0.5 < result.metrics["e1"] <= 1.0


def test_sums_leave_masked_only_where_the_policy_says_so():
    with pytest.raises(Refusal, match="sums masked only"):
        released(SUMS, Policy(secure_sums=True))
    masked = {"masked": np.zeros((4, 6), np.int64)}
    question = Request(StepName.ASSESS, 2, {}, masked=True)
    assert set(released(masked, Policy(secure_sums=True), question)) == {"masked", SECONDS}
    with pytest.raises(Refusal, match="is not"):
        released({"masked": np.zeros((80, 3))}, Policy(secure_sums=True), question)


# ---- settings ----


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"min_cuont": 3}, "did you mean 'min_count'"),
        ({"min_count": 0}, "min_count"),
        ({"small": "refuse"}, "small"),
        ({"arrays": "centroids"}, "arrays must be a list"),
        (
            {"differential_privacy": {"epsilon": 1}},
            "needs bounds, delta, budget; bounds are never computed from the rows",
        ),
        ({"differential_privacy": {"epsilon": 1, "delta": 1e-6, "budget": 5, "bounds": [3, 1]}}, "low below high"),
    ],
)
def test_a_policy_that_cannot_be_says_what_is_wrong(said, words):
    with pytest.raises(UserError, match=words):
        Policy.of(said)


def test_a_policy_names_arrays_of_all_steps_of_jobs():
    assert unknown_arrays(Policy()) == []
    assert unknown_arrays(Policy(arrays=("centroids", "m2", "bins", "silhouette", "key"))) == []
    assert unknown_arrays(Policy(arrays=("scater",))) == ["'scater' (did you mean 'scatter'?)"]


def test_a_policy_says_the_same_when_it_was_written_and_read():
    dp = DifferentialPrivacy({"crp": (0, 9), "iron": (1, 2)}, 0.5, 1e-6, 3.0)
    for policy in (Policy(), Policy(5, 7, 4, 30, 8, ("centroids",), True, dp, 4, ("a", "b", "c", "d"))):
        assert Policy.of(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_a_file_without_settings_weakens_no_policy(tmp_path, text):
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(UserError, match=r"policy.yaml has no settings; without a file you get the recommended ones"):
        read_policy(tmp_path / "policy.yaml")


def test_two_arrays_are_enough_for_centroids_where_columns_are_not_compared_first(tmp_path):
    rng = np.random.default_rng(0)
    for name in "abc":
        rows = np.concatenate([rng.normal(center, 1, (60, 2)) for center in (-10, 0, 10)])
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    about = {"partition": "none", "k": 3}
    two = {"min_count": 5, "arrays": ["centroids", "counts"]}
    for algorithm in ("pooled", "kfed", "mavg"):
        result = flareclust.run(algorithm, tmp_path, policy=two, compare="none", **about)
        assert (result.centroids.shape, dict(result.metrics)) == ((3, 2), {})
    named = {**two, "arrays": [*two["arrays"], "codes", "salt"]}
    assert flareclust.run("pooled", tmp_path, policy=named, compare="names", **about).centroids.shape == (3, 2)
    with pytest.raises(
        flareclust.JobFailed, match=r"does not let out codes, salt, which .* compare=none and scale=none"
    ):
        flareclust.run("pooled", tmp_path, policy=two, **about)
    with pytest.raises(flareclust.JobFailed, match=r"does not let out radii \(its policy: arrays\)"):
        flareclust.run("feca", tmp_path, policy=two, compare="none", **about)
