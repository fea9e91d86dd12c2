"""The executor as NVFlare calls it: contexts and shareables by hand."""

import csv
import json
import re
import stat

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.signal import Signal
from scipy import stats

from flareclust._foundation.version import __version__
from flareclust.core.chunks import is_mapped
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.evaluation.scores import stack
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.gmm import GMMExecutor
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.portfolio import PortfolioExecutor
from flareclust.federation.aggregator import unpack
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.job_folder import TRACEBACK_FILE
from flareclust.privacy.job_sums import SECURE_SUMS, SecureSums
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import QUESTION
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import REFUSED, ROUND, STEP, StepName
from flareclust.sites.held_rows import held
from flareclust.sites.job_log import note_came, read_log
from flareclust.sites.policy_file import write_policy
from flareclust.sites.withdrawn import withdraw
from tests.unit.platform.shell_cases import OLD_LIST, TOO_WIDE


def ask(executor, step, arrays, fl_ctx, signal=None, **meta):
    shareable = DXO(DataKind.WEIGHTS, data=arrays, meta={ROUND: 0, **meta}).to_shareable()
    return executor.execute(step, shareable, fl_ctx, signal or Signal())


def test_execute_answers_with_the_schema(context):
    dxo = from_shareable(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context))
    assert dxo.data_kind == DataKind.WEIGHTS
    assert set(dxo.data) == {"centroids", "radii", SECONDS}
    assert dxo.meta == {STEP: StepName.CLUSTER, ROUND: 0}, "numbers in the meta would pass by a site's filters"


def test_assess_writes_labels_for_the_site_only(context, tmp_path, sites):
    centroids = sites["site-1"][:2].copy()
    dxo = from_shareable(ask(FeCAExecutor(4), StepName.ASSESS, {"centroids": centroids}, context))
    assert set(dxo.data) == {"counts", "sse", "silhouette", "scatter", SECONDS}
    path = tmp_path / "job" / LABELS_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    np.testing.assert_array_equal(np.bincount(read_labels(tmp_path / "job")), dxo.data["counts"])


def test_labels_go_by_job_into_the_sites_own_folder_with_ids_that_do_not_leave(context, tmp_path, sites):
    X = sites["site-1"]
    ids = np.array([f"patient-{i}" for i in range(len(X))])
    np.savez(tmp_path / "rows.npz", X=X, columns=np.array(["a", "b", "c"]), patient=ids)
    (tmp_path / "local" / "flareclust.yaml").write_text("path: ../rows.npz\nid: patient\nlabels: ../kept\n")
    reply = ask(FeCAExecutor(4), StepName.ASSESS, {"centroids": X[:2].copy()}, context)
    assert "patient" not in str(dict(reply))
    path = tmp_path / "kept" / "job.csv"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text().splitlines()
    assert lines[0] == "row,patient,label"
    assert [line.split(",")[1] for line in lines[1:]] == ids.tolist()
    np.testing.assert_array_equal(
        np.bincount(read_labels(tmp_path / "kept", "job.csv")), from_shareable(reply).data["counts"]
    )
    assert not (tmp_path / "job" / LABELS_FILE).exists()


def test_the_labels_of_a_mixture_come_with_probabilities_that_stay(context, tmp_path, sites):
    X = sites["site-1"]
    arrays = {"centroids": X[:2].copy(), "weights": np.array([0.25, 0.75]), "factors": np.stack([np.eye(3)] * 2)}
    reply = ask(GMMExecutor(2), StepName.ASSESS, arrays, context)
    assert not {"probability", "log_density"} & set(from_shareable(reply).data)
    with (tmp_path / "job" / LABELS_FILE).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["row", "probability", "log_density", "label"]
    joint = arrays["weights"] * stats.multivariate_normal.pdf(X[:, None] - arrays["centroids"], np.zeros(3), np.eye(3))
    np.testing.assert_array_equal([int(line["label"]) for line in lines], joint.argmax(axis=1))
    probabilities = [float(line["probability"]) for line in lines]
    np.testing.assert_allclose(probabilities, joint.max(axis=1) / joint.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose([float(line["log_density"]) for line in lines], np.log(joint.sum(axis=1)), rtol=1e-9)
    np.testing.assert_array_equal(read_labels(tmp_path / "job"), joint.argmax(axis=1))


@pytest.mark.parametrize("policy", [None, Policy(min_count=4)])
def test_withdrawn_rows_are_in_no_answer_and_no_labels_and_the_log_says_so(context, tmp_path, sites, policy):
    X, kit = sites["site-1"], tmp_path
    ids = [f"patient-{i}" for i in range(len(X))]
    np.savez(tmp_path / "rows.npz", X=X, columns=np.array(["a", "b", "c"]), patient=np.array(ids))
    (kit / "local" / "flareclust.yaml").write_text("path: ../rows.npz\nid: patient\n")
    if policy is not None:
        write_policy(kit / "local", policy)
        context.set_prop(QUESTION, "cluster", private=True, sticky=False)
    counted = []
    for job in ("job", "next"):
        (kit / job).mkdir(exist_ok=True)
        context.set_prop(FLContextKey.CURRENT_RUN, job, private=False, sticky=False)
        note_came(kit, job, "night", "lead@hub.org", "lloyd", "")
        reply = ask(LloydExecutor(1, min_count=1), StepName.ASSESS, {"centroids": X[:1].copy()}, context)
        assert "patient" not in str(dict(reply))
        counted.append(int(from_shareable(reply).data["counts"].sum()))
        withdraw(kit / "local", [ids[2], ids[5], "nobody"])
    lines = [line.split(",") for line in (kit / "next" / LABELS_FILE).read_text().splitlines()[1:]]
    assert [line[1] for line in lines] == [one for one in ids if one not in (ids[2], ids[5])]
    assert [line[0] for line in lines] == [str(row) for row in range(len(X) - 2)]
    assert counted[0] - counted[1] == 2 if policy is None else counted[0] - counted[1] >= policy.min_count
    jobs = read_log(kit)
    assert [job.withdrawn for job in jobs] == [0, 2]
    assert held(kit, jobs, [ids[2], ids[5], "nobody"]) == [2, 0]


def test_rows_beyond_the_memory_are_kept_in_the_jobs_folder(context, tmp_path, sites):
    expected = from_shareable(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context)).data["centroids"]
    np.savez(tmp_path / "rows.npz", X=sites["site-1"])
    text = "path: ../rows.npz\nmemory: 100\n"
    (tmp_path / "local" / "flareclust.yaml").write_text(text)
    executor = FeCAExecutor(4)
    found = from_shareable(ask(executor, StepName.CLUSTER, {}, context)).data["centroids"]
    np.testing.assert_array_equal(found, expected)
    assert is_mapped(executor._rows[1].X)
    (tmp_path / "job").rmdir()
    _, problem = unpack(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context))
    assert "scratch folder cannot take them" in problem


def test_rows_are_read_once(context, tmp_path):
    executor = FeCAExecutor(4)
    ask(executor, StepName.CLUSTER, {}, context)
    (tmp_path / "rows.npy").unlink()
    assert "centroids" in from_shareable(ask(executor, StepName.CLUSTER, {}, context)).data


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "local" / "flareclust.yaml").unlink(), "has no local/flareclust.yaml"),
        (lambda f: (f / "local" / "flareclust.yaml").write_text("path: ["), "cannot be read as settings"),
        (lambda f: (f / "local" / "flareclust.yaml").write_text("file: x"), "without a path"),
        (lambda f: (f / "local" / "flareclust.yaml").write_text("path: x.npy\nfrom: y"), "unknown keys .*: from"),
        (lambda f: (f / "rows.npy").unlink(), "rows.npy"),
        (lambda f: (f / "rows.npy").write_bytes(b""), "rows.npy"),
        (lambda f: np.save(f / "rows.npy", np.array([["a", "b"]])), "expected real numbers"),
        (lambda f: np.save(f / "rows.npy", np.full((5, 2), np.nan)), "NaN"),
        (lambda f: np.save(f / "rows.npy", np.ones((2, 3))), "fewer rows than k=4"),
    ],
)
def test_a_site_that_cannot_take_part_says_why_and_not_where(context, tmp_path, spoil, words):
    spoil(tmp_path)
    _, problem = unpack(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context))
    assert re.search(words, problem), problem
    assert str(tmp_path) not in problem, "the site's folders are nobody's business"


def test_unexpected_errors_leave_their_type_only(context, tmp_path, monkeypatch):
    def burst(*args):
        raise KeyError("patient 4711")

    monkeypatch.setattr(FeCAExecutor, "local", burst)
    reply = ask(FeCAExecutor(4), StepName.CLUSTER, {}, context)
    _, problem = unpack(reply)
    assert problem == f"raised KeyError; the traceback is at the site, in {TRACEBACK_FILE}"
    assert "4711" not in str(dict(reply))
    kept = tmp_path / "job" / TRACEBACK_FILE
    assert "patient 4711" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_an_abort_is_nvflares_own_return_code(context):
    signal = Signal()
    signal.trigger(True)
    assert ask(FeCAExecutor(4), StepName.CLUSTER, {}, context, signal).get_return_code() == ReturnCode.TASK_ABORTED


def test_execute_answers_every_step_of_an_algorithm(context, sites):
    executor = LloydExecutor(4)
    dxo = from_shareable(ask(executor, UPDATE, {"centroids": sites["site-1"][:4] + 0.1}, context))
    assert set(dxo.data) == {"centroids", "counts", "cluster", "inertia", SECONDS}


@pytest.mark.parametrize("step", ["fly", StepName.SCORE])
def test_a_step_that_the_algorithm_does_not_have_is_refused(context, step):
    dxo = from_shareable(ask(FeCAExecutor(4), step, {}, context))
    assert dxo.data == {}
    assert f"{step!r}, which FeCAExecutor does not have" in dxo.meta[REFUSED]


def test_scores_are_answered_by_the_base_class(context, sites):
    task = stack([sites["site-1"][:2] + 0.1, sites["site-1"][:4] + 0.1])
    dxo = from_shareable(ask(PortfolioExecutor(4), StepName.SCORE, task, context))
    gaps = ((sites["site-1"][:, None] - task["candidates"][None, :2]) ** 2).sum(axis=2).min(axis=1)
    assert dxo.data["sse"].shape == (2,)
    assert dxo.data["sse"][0] == pytest.approx(gaps.sum(), rel=1e-12)


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"candidates": np.zeros((3, 3))},
        {"candidates": np.zeros((3, 3)), "candidate": np.array([0, 2, 2])},
        {"candidates": np.zeros((3, 3)), "candidate": np.array([1, 1, 1])},
        {"candidates": np.zeros((3, 3)), "candidate": np.array([0, 0])},
        {"candidates": np.full((1, 3), np.nan), "candidate": np.array([0])},
        {"candidates": np.zeros((1, 2)), "candidate": np.array([0])},
    ],
)
def test_candidates_that_make_no_sense_are_refused(context, task):
    dxo = from_shareable(ask(PortfolioExecutor(4), StepName.SCORE, task, context))
    assert dxo.data == {}
    assert dxo.meta[REFUSED]


def test_a_site_with_another_version_refuses_before_it_reads_its_rows(context, tmp_path):
    (tmp_path / "rows.npy").unlink()
    dxo = from_shareable(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context, needs="99.1.0"))
    assert dxo.data == {}
    assert dxo.meta[REFUSED] == (
        f"has flareclust {__version__} where the job needs 99.1.0; install that version at the site"
    )


def test_what_a_job_says_of_secure_sums_holds_at_the_site(context):
    """The component that the job's configuration names is found by the executor, whatever the server asks."""
    components = {SECURE_SUMS: SecureSums(4)}
    context.get_engine().get_component = components.get
    executor = LloydExecutor(2)
    centroids = {"centroids": np.zeros((2, 3))}
    reported = from_shareable(ask(executor, UPDATE, centroids, context)).meta[REFUSED]
    assert reported.startswith(
        "takes part in a job with secure sums, and was asked for those of the step update without"
    )
    assert "key" in from_shareable(ask(executor, StepName.KEYS, {}, context)).data
    assert REFUSED in from_shareable(ask(LloydExecutor(2), StepName.KEYS, {}, context)).meta, (
        "a second key in the same job"
    )
    components[SECURE_SUMS] = FLComponent()
    reported = from_shareable(ask(LloydExecutor(2), UPDATE, centroids, context)).meta[REFUSED]
    assert reported == "was sent a job whose component 'secure_sums' is none of flareclust's"
    components.clear()
    assert "counts" in from_shareable(ask(LloydExecutor(2), UPDATE, centroids, context)).data


def test_a_site_with_an_old_list_of_classes_refuses_before_it_reads_a_row(context, tmp_path):
    (tmp_path / "local" / "resources.json").write_text(OLD_LIST)
    (tmp_path / "rows.npy").unlink()
    reply = from_shareable(ask(FeCAExecutor(4), StepName.CLUSTER, {}, context))
    assert reply.meta == {REFUSED: TOO_WIDE}
    assert not reply.data


def test_a_network_of_the_users_own_runs_only_where_the_operator_lists_it(context, tmp_path):
    own = "tests.unit.deep.networks_of_ours.Flat"
    resources = tmp_path / "local" / "resources.json"
    deepfeca = pytest.importorskip("flareclust.executors.deepfeca")

    def refusal(listed):
        resources.write_text(json.dumps({"class_allow_list": listed}))
        executor = deepfeca.DeepFeCAExecutor(2, network=own)
        return from_shareable(ask(executor, deepfeca.SHAPE, {}, context)).meta.get(REFUSED)

    words = f"does not allow {own}; its operator adds it to class_allow_list in local/resources.json"
    assert refusal(["flareclust.executors.deepfeca.DeepFeCAExecutor"]) == words
    assert refusal([own.rpartition(".")[0]]) == words, "a module is no class"
    assert refusal([own]) is None
