"""Kits list classes one by one: what the list keeps out, how an old kit is found and repaired, and who refuses it."""

import json
from importlib import import_module

import pytest
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.utils.class_loader import load_class

from flareclust._foundation.errors import UserError
from flareclust.platform.kit import allow_classes, listed
from flareclust.sites.check import check
from flareclust.sites.class_list import (
    of_another_version,
    of_server,
    of_sites,
    open_entries,
    problem_of,
    reaches_functions,
)
from flareclust.sites.config import write_site
from flareclust.sites.kit import classes_problem
from tests.command_line import call

OURS = {*of_sites(), *of_server()}

#: Functions with which a job of configuration alone did something, and what leads to others.
FUNCTIONS = [
    "flareclust.cli.main.app",
    "flareclust.run",
    "flareclust.protocol.registry.import_module",
    "flareclust.sites.policy_file.remove_policy",
    "flareclust.federation.nvflare_executor.SiteData",
    "flareclust.executors.lloyd.LloydParams",
    "nvflare.fuel.utils.class_utils.instantiate_class",
    "nvflare.app_common.logging.job_log_streamer.JobLogStreamer",
]


def test_the_lists_name_classes_that_are_there_by_their_own_path():
    for path in OURS:
        module, _, name = path.rpartition(".")
        found = getattr(import_module(module), name)
        assert isinstance(found, type)
        assert f"{found.__module__}.{found.__qualname__}" == path
    assert not {*of_sites()} & {*of_server()}


def test_nvflare_takes_nothing_but_these_classes_for_allowed():
    """By NVFlare's own comparison. It also takes what an entry and a dot begin, under which there is nothing to load."""
    for path in FUNCTIONS:
        assert not any(ComponentPathAuthorizer._path_matches_prefix(path, entry) for entry in OURS), path
    for entry in OURS:
        assert ComponentPathAuthorizer._path_matches_prefix(f"{entry}.answer", entry)
        with pytest.raises(TypeError, match="is not a package"):
            load_class(f"{entry}.answer")


@pytest.mark.parametrize("entry", ["*", "flareclust.", "flareclust", "flareclust.executors.", "flareclust.cli"])
@pytest.mark.parametrize("path", ["flareclust.cli.main.app", "flareclust.federation.nvflare_executor.SiteData"])
def test_what_counts_as_too_wide_is_what_nvflare_matches(entry, path):
    assert reaches_functions(entry)
    if entry == "*" or ComponentPathAuthorizer._path_matches_prefix(path, entry):
        assert open_entries({"class_allow_list": [entry]}) == [repr(entry)]


@pytest.mark.parametrize("entry", [*FUNCTIONS[:6], "nvflare.", "nvflare.fuel", "nvflare.fuel.utils.class_utils"])
def test_functions_and_modules_are_too_wide(entry):
    assert reaches_functions(entry)


@pytest.mark.parametrize(
    "entry", [*sorted(OURS), *sorted(DEFAULT_CLASS_ALLOW_LIST), "hospital.Own", "hospital.", "nvflare.x.MyClass"]
)
def test_classes_and_what_is_the_operators_own_are_not(entry):
    assert not reaches_functions(entry)


NEWER = [
    "flareclust.executors.newer.NewerExecutor",
    "flareclust.newer.executor.NewerExecutor",
    "flareclust.executors.lloyd.New",
]


def test_classes_of_another_version_open_nothing_and_are_replaced():
    for entry in NEWER:
        assert not reaches_functions(entry)
        assert of_another_version(entry)
        with pytest.raises(TypeError, match="Can't load class"):
            load_class(entry)
    assert open_entries({"class_allow_list": [*OURS, *NEWER]}) == []
    after, lines = listed(["hospital.Own", *of_sites(), *NEWER], of_sites(), nvflare=False)
    assert after == ["hospital.Own", *of_sites()]
    assert lines == ["class_allow_list: took out 3 classes of another version of flareclust"]


def test_classes_of_plugins_are_of_no_version_of_ours():
    assert not of_another_version("flareclust_plugin.MeanExecutor")


@pytest.mark.parametrize("entry", ["flareclust.sites.class_list.Path", "flareclust.executors.lloyd.LloydParams"])
def test_what_a_module_has_beside_its_classes_for_jobs_stays_too_wide(entry):
    assert reaches_functions(entry)


def test_an_old_list_is_replaced_and_what_the_operator_added_stays():
    before = [*DEFAULT_CLASS_ALLOW_LIST, "hospital.Own", "flareclust."]
    after, lines = listed(before, of_sites(), nvflare=False)
    assert after == ["hospital.Own", *of_sites()]
    assert lines == [
        "class_allow_list: took out 'flareclust.', with which jobs call every function of flareclust",
        f"class_allow_list: added {len(of_sites())} classes of flareclust",
        f"class_allow_list: took out {len(DEFAULT_CLASS_ALLOW_LIST)} classes of NVFlare; --nvflare-classes keeps them",
    ]
    assert listed(after, of_sites(), nvflare=False) == (after, [])
    with_others, lines = listed(before, of_sites(), nvflare=True)
    assert with_others == ["hospital.Own", *DEFAULT_CLASS_ALLOW_LIST, *of_sites()]
    assert listed(with_others, of_sites(), nvflare=True) == (with_others, [])
    one = DEFAULT_CLASS_ALLOW_LIST[0]
    assert listed([one], of_sites(), nvflare=False)[0] == [one, *of_sites()], "one by one they are somebody's choice"


def test_a_list_that_only_warns_is_none(tmp_path):
    resources = {"class_allow_list": [], "class_list_enforcement_mode": "warn"}
    assert open_entries(resources) == ["class_list_enforcement_mode 'warn'"]
    (tmp_path / "resources.json").write_text(json.dumps(resources))
    allow_classes(tmp_path)
    assert json.loads((tmp_path / "resources.json").read_text())["class_list_enforcement_mode"] == "enforce"


@pytest.fixture
def old_kit(tmp_path):
    """A site's kit as version 0.1 made it."""
    kit = tmp_path / "north"
    (kit / "startup").mkdir(parents=True)
    (kit / "local").mkdir(mode=0o755)
    (kit / "rows.csv").write_text("a,b\n1.5,2.5\n2.25,3.5\n4.5,1.25\n")
    entries = [*DEFAULT_CLASS_ALLOW_LIST, "flareclust."]
    (kit / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": entries, "components": []}))
    write_site(kit / "local", str(kit / "rows.csv"))
    return kit


def test_site_check_finds_an_old_kit_and_site_allow_repairs_it(old_kit, capsys):
    (error,) = check(old_kit).errors
    assert error == (
        "north lets jobs call every function of flareclust ('flareclust.' in local/resources.json.default); run "
        "`flareclust site allow KIT` there"
    )
    assert call("site", "check", old_kit) == 2
    assert check(old_kit).facts["classes"] == "every function of flareclust"
    assert call("site", "allow", old_kit) == 0
    assert "took out 'flareclust.', with which jobs call every function" in capsys.readouterr().out
    assert classes_problem(old_kit / "local") is None
    checked = check(old_kit)
    assert not [reported for reported in (*checked.errors, *checked.hints) if "function" in reported]


def test_what_is_too_wide_is_named_without_an_end(tmp_path):
    entries = [f"flareclust.module{number}" for number in range(9)]
    problem = problem_of({"class_allow_list": entries}, tmp_path / "resources.json")
    assert "'flareclust.module2', ... in local/resources.json" in problem


def test_an_unknown_plugin_is_refused_and_changes_nothing(old_kit, capsys):
    before = (old_kit / "local" / "resources.json.default").read_bytes()
    assert call("site", "allow", old_kit, "--plugin", "stacked") == 2
    assert "no installed package has the algorithm 'stacked'" in capsys.readouterr().err
    assert (old_kit / "local" / "resources.json.default").read_bytes() == before
    with pytest.raises(UserError, match="classes are allowed without --plugin"):
        listed_plugin("lloyd")


def listed_plugin(name):
    from flareclust.sites.class_list import of_plugins

    return of_plugins([name])
