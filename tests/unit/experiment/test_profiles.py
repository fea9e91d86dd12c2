"""Profiles of clusters in a result: against pandas, under secure sums and policies, in words and on the page."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import profile_words
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.experiment.reports.command import command_of
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import _profile_lines
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.profiles import ClusterProfiles
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

COLUMNS = ["age", "crp", "sex=f", "sex=m"]
ABLE = [
    name
    for name, one in registry.algorithms().items()
    if one.federated and not one.partial and "differentially-private" not in one.promises and name != "deepfeca"
]


def patients(n: int = 120, seed: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    frames = {}
    for site in ("north", "south", "west"):
        kind = rng.integers(0, 3, n)
        female = (rng.random(n) < np.array([0.8, 0.5, 0.2])[kind]).astype(float)
        values = rng.normal(np.array([[40, 5], [65, 60], [70, 10]])[kind], [4, 3])
        frames[site] = pd.DataFrame(np.column_stack([values, female, 1 - female]), columns=COLUMNS)
    return frames


@pytest.fixture(scope="module")
def result() -> flareclust.Result:
    return flareclust.run("lloyd", patients(), k=3)


def pooled(result: flareclust.Result) -> pd.DataFrame:
    frames = patients()
    return pd.concat([frames[site] for site in sorted(frames)], ignore_index=True).assign(cluster=result.labels)


def gappy(share: float = 0.15, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Return patients whose crp or sex is not always known."""
    rng = np.random.default_rng(seed)
    frames = patients()
    for frame in frames.values():
        missing = rng.random((len(frame), 2)) < share
        frame.loc[missing[:, 0], "crp"] = np.nan
        frame.loc[missing[:, 1], ["sex=f", "sex=m"]] = np.nan
    return frames


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lloyd", {}),
        ("lloyd", {"scale": "standard"}),
        ("lloyd", {"scale": "standard", "missing": "mean"}),
        ("lloyd", {"scale": "standard", "missing": "partial"}),
        ("ffcm", {"scale": "standard", "missing": "mean"}),
        ("feca", {"scale": "standard", "missing": "partial"}),
    ],
)
def test_the_frame_is_what_pandas_finds_in_the_known_cells_of_the_pooled_rows(name, settings):
    frames = gappy() if "missing" in settings else patients()
    found = flareclust.run(name, frames, k=3, **settings)
    rows = pd.concat([frames[site] for site in sorted(frames)], ignore_index=True).assign(cluster=found.labels)
    by_cluster, profiles = rows.groupby("cluster"), found.profiles().set_index(["cluster", "column"])
    expected = {"mean": by_cluster.mean(), "sd": by_cluster.std()}
    if "missing" in settings:
        expected["cells"] = by_cluster.count()
    for measure, value in expected.items():
        np.testing.assert_allclose(profiles[measure].unstack()[COLUMNS], value, rtol=1e-9, atol=1e-9)
    assert profiles["rows"].unstack()["age"].tolist() == by_cluster.size().tolist()
    everything = rows[COLUMNS]
    z = (by_cluster.mean() - everything.mean()) / everything.std()
    np.testing.assert_allclose(profiles["z"].unstack()[COLUMNS], z, rtol=1e-9, atol=1e-9)
    within = ((by_cluster[COLUMNS].transform("mean") - everything) ** 2).sum()
    eta = 1 - within / ((everything - everything.mean()) ** 2).sum()
    np.testing.assert_allclose(profiles["eta_squared"].unstack()[COLUMNS].iloc[0], eta, rtol=1e-9)
    medians = by_cluster[["age", "crp"]].median()
    np.testing.assert_allclose(profiles["median"].unstack()[["age", "crp"]], medians, atol=2.0)
    assert profiles["median"].unstack()[["sex=f", "sex=m"]].isna().all(axis=None)
    table = pd.crosstab(rows["cluster"], rows["sex=f"]).to_numpy()
    independent = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    v = np.sqrt(((table - independent) ** 2 / independent).sum() / table.sum())
    np.testing.assert_allclose(found.profiles().query("column == 'sex=m'")["cramers_v"], v, rtol=1e-9)
    said = "How closely each category goes with the clusters, from 0 (not at all) to 1 (each tells the other): sex "
    assert f"{said}{v:.2f} (Cramer&#39;s V)." in report_page(found).replace("'", "&#39;")


def test_shares_a_little_beyond_0_and_1_are_shares():
    """As those of rows in the place of groups are, under a policy."""
    means = np.array([[-2e-4, 1.0002, 0.5, 1.2], [0.3, 0.7, 0.2, 0.1]])
    columns = ("sex=f", "sex=m", "crp", "other=x")
    arrays = {"profile_rows": np.array([50, 60]), "profile_means": means, "profile_m2": means**2}
    found = profiles_of(arrays, columns)
    assert found is not None
    assert found.categories == {"sex": [0, 1]}
    assert found.shares.tolist() == [True, True, False, False]
    assert profile_words.percent(float(means[0, 0])) == "0 %"


def test_shares_of_sites_are_those_of_the_labels(result):
    found = result.profiles("sites").query("site == 'south'").set_index("cluster")
    counts = np.bincount(result.site_labels["south"], minlength=3)
    np.testing.assert_allclose(found["share_of_site"], counts / 120)
    np.testing.assert_allclose(found["share_of_cluster"], counts / np.bincount(result.labels))


def test_the_words_of_the_tree_hold_on_the_rows_as_it_says(result):
    rows, tree = pooled(result), result.profiles("tree")
    for leaf in tree.itertuples():
        parts = leaf.conditions.replace("sex is f", "`sex=f` > .5").replace("sex is m", "`sex=f` < .5")
        chosen = rows.query(parts.replace("≤", "<="))
        assert len(chosen) == pytest.approx(leaf.rows, abs=8)  # bins of a single row count with their neighbours
        assert (chosen["cluster"] == leaf.cluster).mean() == pytest.approx(leaf.purity, abs=0.05)
    profiles = profiles_of(result.arrays, result.columns)
    assert profiles.tree.accuracy > 0.98


@pytest.mark.parametrize("name", ABLE)
def test_every_algorithm_with_equal_columns_has_profiles(name):
    found = flareclust.run(name, patients(), k=3)
    frame = found.profiles()
    assert set(frame["column"]) == set(COLUMNS)
    assert frame.drop_duplicates("cluster")["rows"].sum() > 350


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("pooled", {"secure_sums": True}),
        ("portfolio", {"secure_sums": True}),
        ("lloyd", {"trim_rows": 0.1}),
        ("lloyd", {"secure_sums": True, "missing": "mean"}),
    ],
)
def test_no_profile_where_sums_of_the_rounds_cover_other_rows(name, more):
    """The difference of both would be the rows that one of them leaves out."""
    found = flareclust.run(name, patients(), k=3, **more)
    assert not any(name.startswith("profile_") for name in found.arrays)
    assert "profile" not in " ".join(found.warnings)
    with pytest.raises(UserError, match=f"have no profile: with {next(iter(more))}"):
        found.profiles()
    with pytest.raises(UserError, match="leave out profile"):
        flareclust.run(name, patients(), k=3, profile=True, **more)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("portfolio", {"secure_sums": True}, "with secure_sums, profiles are totals over all rows, and of portfolio"),
        ("lloyd", {"secure_sums": True, "missing": "mean"}, "with secure_sums and missing=mean"),
        ("lloyd", {"trim_rows": 0.1}, "with trim_rows"),
        ("lloyd", {"profile": False}, ""),
        ("portfolio", {"secure_sums": True, "profile": False}, ""),
    ],
    ids=str,
)
def test_the_terminal_says_which_setting_is_against_profiles(name, settings, why):
    lines = list(_profile_lines(flareclust.run(name, patients(40), k=2, **settings)))
    assert len(lines) == bool(why)
    assert all(line.startswith(f"the clusters have no profile: {why}") for line in lines)


@pytest.mark.parametrize(("params", "secure"), [({}, True), ({"trim_rows": 0.1}, False)])
def test_a_site_describes_nothing_there_whatever_a_server_asks(params, secure):
    executor = registry.get("lloyd").build(3, 0, params)[0]
    rows = np.random.default_rng(0).normal(size=(50, 2))
    task = Task("profile", 0, {"centroids": rows[:3]}, "site-1")
    with pytest.raises(Refusal, match="describes no clusters"):
        computed(executor, task, rows, np.random.default_rng(0), context=SiteContext(2, secure=secure))


def test_a_policy_holds_in_profiles_and_every_count_is_of_its_rows():
    policy = {"min_count": 10, "round_counts": 5}
    found = flareclust.run("lloyd", patients(), k=3, policy=policy)
    bins = found.arrays["profile_bins"]
    assert (bins[bins > 0] >= 10).all()
    assert (bins % 5 == 0).all()
    assert (found.arrays["profile_site_rows"] % 5 == 0).all()
    assert found.profiles()["rows"].min() >= 10


def asked(frames: dict[str, pd.DataFrame], params: dict[str, object]) -> list[tuple[str, str, dict[str, np.ndarray]]]:
    """Return what sites answer in a job: step, site and arrays."""
    executor, aggregator = registry.get("lloyd").build(3, 0, params)
    seen = []

    def ask(step, round_, arrays, sites):
        replies = {}
        for site in sites:
            task = Task(step, round_, {name: value.copy() for name, value in arrays.items()}, site)
            rows = Table(frames[site].to_numpy(), tuple(COLUMNS))
            replies[site] = SiteReply(executor.answer(task, rows, never_abort).arrays)
            seen.append((step, site, replies[site].arrays))
        return replies

    run_federation(aggregator, ask, list(frames), FederationOptions(profile=True))
    return seen


def test_no_bin_of_a_site_has_fewer_rows_than_min_count():
    seen = asked(patients(), {"min_count": 7})
    counts = [arrays["bins"] for step, _, arrays in seen if step == StepName.PROFILE_BINS]
    assert len(counts) >= 6
    assert all((one[one > 0] >= 7).all() for one in counts)
    assert all((arrays["counts"] >= 7).all() for step, _, arrays in seen if step == StepName.PROFILE)


def test_a_site_with_a_policy_answers_profiles_after_the_assessment_only_and_five_of_them():
    gate, arrays = PolicyEnforcer(Policy()), {"centroids": np.zeros((2, 3))}
    gate.check_request(StepName.CLUSTER, 0, {})
    with pytest.raises(Refusal, match="too late"):
        gate.check_request(StepName.PROFILE, 1, arrays)
    gate.check_request(StepName.ASSESS, 1, arrays)
    gate.check_request(StepName.PROFILE, 1, arrays)
    for round_ in range(1, 5):
        gate.check_request(StepName.PROFILE_BINS, round_, arrays)
    for step in (StepName.PROFILE_BINS, StepName.PROFILE, StepName.CLUSTER):
        with pytest.raises(Refusal, match="too late"):
            gate.check_request(step, 5, arrays)


def test_a_profile_that_fails_is_a_warning(monkeypatch):
    expected = flareclust.run("lloyd", patients(), k=3, profile=False)
    refuse = Refusal("does not say")

    def no(*_):
        raise refuse

    monkeypatch.setattr(ClusterProfiles, "profile", no)
    found = flareclust.run("lloyd", patients(), k=3)
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert [one for one in found.warnings if "no profile" in one and "does not say" in one]
    assert not found.left_out
    with pytest.raises(UserError, match="does not say"):
        found.profiles()


def test_sites_that_fail_later_leave_the_means(monkeypatch):
    def no(*_):
        raise Refusal("stops here")

    monkeypatch.setattr(ClusterProfiles, "profile_bins", no)
    found = flareclust.run("lloyd", patients(), k=3)
    frame = found.profiles()
    assert frame["mean"].notna().all()
    assert frame["median"].isna().all()
    assert [one for one in found.warnings if "lack quantiles" in one]
    assert "Cluster 0" in report_page(found)


@pytest.mark.parametrize(("most", "said"), [(5, 1), (4, 1), (3, 3)])
def test_a_refusal_is_said_once_where_it_ends_the_profiles(most, said):
    """Of three, the sites refuse the assessment, and each is left out in a line of its own."""
    found = flareclust.run("lloyd", data="iris", k=3, n_sites=3, engine="inprocess", policy={"max_rounds": most})
    assert sum(text.count(f"at most {most} exchanges") for text in found.warnings) == said
    (profiles,) = [text for text in found.warnings if "where at least 2 are needed" in text]
    assert profiles.endswith("site-1, site-2, site-3: left out before") == (most == 3)


@pytest.mark.parametrize("most", [2, 5])
def test_a_refinement_that_sites_interrupt_says_their_reasons_once(most):
    found = flareclust.run("portfolio", data="iris", k=3, n_sites=3, engine="inprocess", policy={"max_rounds": most})
    (said,) = [text for text in found.warnings if f"at most {most} exchanges" in text]
    assert said.startswith(f"the result is that of the last round before this: round {most}: 0 of 3 sites took part")
    assert said.endswith(
        f"site-1, site-2, site-3): each answers at most {most} exchanges of one job (its policy: max_rounds)"
    )


def test_the_page_explains_its_measures_where_they_stand(result):
    page = report_page(result)
    for words in (
        "silhouette, simplified (how much nearer rows are to their own cluster than to the next: 0 to 1",
        "inertia (sum of squared distances to the centroids, the middles of the clusters; only for runs on the same rows",
        "May this page and the files beside it be given to others? For the person who decides that: ",
    ):
        assert words in page


def test_rows_without_names_are_described_on_request_only():
    arrays = {site: frame.to_numpy() for site, frame in patients().items()}
    with pytest.raises(UserError, match="profile=True"):
        flareclust.run("pooled", arrays, k=3).profiles()
    assert set(flareclust.run("pooled", arrays, k=3, profile=True).profiles()["column"]) == {
        f"column {j}" for j in (1, 2, 3, 4)
    }


@pytest.mark.parametrize("name", ["masked", "central"])
def test_algorithms_without_profiles_say_why(name):
    with pytest.raises(UserError, match=r"different columns|not federated"):
        flareclust.run(name, patients(), k=3, profile=True)


def test_differentially_private_executors_do_not_have_the_steps():
    for name in ("dp-lloyd", "dp-oneshot", "masked", "proxy", "fkm-common", "fkm-imputed"):
        assert not {StepName.PROFILE, StepName.PROFILE_BINS} & set(registry.get(name).executor_class().steps)


def test_a_saved_result_has_its_profiles_again(result, tmp_path):
    result.save(tmp_path / "out")
    pd.testing.assert_frame_equal(flareclust.load_result(tmp_path / "out").profiles(), result.profiles())


def test_the_words_name_what_differs(result):
    profiles = profiles_of(result.arrays, result.columns)
    inflamed = int(np.nanargmax(profiles.mean[:, 1]))
    assert profile_words.telling(profiles, inflamed)[0].text.startswith("crp much higher: 6")
    young = int(np.nanargmin(profiles.mean[:, 0]))
    assert "age much lower: 4" in profile_words.sentence(profiles, young)
    assert "sex f higher: 76 % (all " in profile_words.sentence(profiles, young)
    assert "sex m" not in profile_words.sentence(profiles, young)
    assert {one.cluster for one in profile_words.branches(profiles)} == {0, 1, 2}
    lines = [line for line in _profile_lines(result) if isinstance(line, str)]
    assert "crp" in "".join(lines)


def test_a_cluster_that_is_not_described_says_so(result):
    arrays = {**result.arrays, "profile_rows": result.arrays["profile_rows"] * np.array([1, 1, 0])}
    assert "too few rows" in profile_words.sentence(Profiles(tuple(COLUMNS), arrays), 2)


def test_names_from_files_are_escaped_on_the_page():
    hostile = ["<script>alert(1)</script>", "a&b\"'", "x=<img src=y>", "\x1b[31m"]
    frames = {site: frame.set_axis(hostile, axis=1) for site, frame in patients().items()}
    found = flareclust.run("pooled", frames, k=3)
    warned = replace(found, warnings=["<b>bold</b>"], experiment={**found.experiment, "data": "<i>data</i>"})
    page = report_page(warned)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not any(bad in page for bad in ("<script", "<img", "<b>bold", "<i>", "\x1b", "http://", "https://"))


def test_the_page_has_what_a_reader_asks(result):
    page = report_page(replace(result, warnings=["south has 2 columns"]))
    order = [
        "Read this first",
        "The clusters",
        "What is special",
        "Whose rows",
        "Map of the rows",
        "trusted",
        "What left",
        "How to repeat",
    ]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert page.count("<figure") == 4


def test_the_command_on_the_page_repeats_the_run(tmp_path):
    for site, frame in patients().items():
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    found = flareclust.run("fkm", tmp_path, k=3, partition="none", seed=4, scale="standard")
    command = command_of(found.experiment)
    assert (
        command
        == f"flareclust run fkm --k 3 --data {tmp_path} --partition none --seed 4 --engine inprocess --set scale=standard"
    )


def test_a_range_of_k_is_explained():
    found = flareclust.run("pooled", "iris", k="2..4", n_sites=3)
    page = report_page(found)
    assert "Why this number of clusters" in page
    criterion = found.experiment["criterion"]
    assert f"by {criterion}." in page
    assert f"would take: {criterion}" not in page
    assert command_of(found.experiment) == "flareclust run pooled --k 2..4 --data iris --n-sites 3 --engine inprocess"


def test_profiles_do_not_change_the_result():
    sites = {site: frame.to_numpy() for site, frame in patients().items()}
    with_, without = (
        run_inprocess(registry.get("portfolio"), {}, sites, JobOptions(k=3, profile=profile))
        for profile in (True, False)
    )
    assert with_.n_rounds == without.n_rounds
    for name, value in without.arrays.items():
        np.testing.assert_array_equal(with_.arrays[name], value)
