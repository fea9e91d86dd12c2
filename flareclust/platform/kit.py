"""What a kit's `local/` needs before NVFlare runs our jobs well: permission for our classes (see `flareclust.sites.class_list`), and settings.

What an operator chose is kept: only the values that NVFlare's provisioning puts there are replaced. NVFlare reads
`resources.json` and, only where that is absent, `resources.json.default`; `authorization.json` likewise. A default of
NVFlare looks like the same value chosen by an operator, so what stands in a file that ends in `.default` counts
as NVFlare's. `allow_log_streaming: true` in `resources.json`, and the whole of `authorization.json`, are the operator's.

Code in a job is loaded whatever the list of allowed classes says, so that the list protects only where nobody has the right
`byoc` in `local/authorization.json`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.security.security import COMMAND_CATEGORIES

from flareclust._foundation.errors import UserError
from flareclust.sites import class_list as classes
from flareclust.sites import kit

#: Where NVFlare's provisioning puts the server's jobs, unasked.
_SHARED = "/tmp/nvflare/"
_NVFLARE_HEART_BEAT = 600

#: How many sites may connect: of NVFlare's kits, and of ours, to which sites are added without a change at the server.
_NVFLARE_MOST_SITES, _MOST_SITES = 100, 10_000

_NVFLARE_STORAGE = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
_NVFLARE_LOGS = "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"
_NVFLARE_RECEIVER = "nvflare.app_common.logging.job_log_receiver.JobLogReceiver"
_LOGS = "flareclust.engines.log_streaming.SiteLogs"
_RECEIVER = "flareclust.engines.log_streaming.LogReceiver"
_STORAGE = "flareclust.engines.server.WorkspaceStorage"
#: The id under which NVFlare's client looks for it, and the key under which NVFlare's server does.
_DEPLOYER = {"id": "app_deployer", "path": "flareclust.engines.admission.SiteDeployer", "args": {}}
_VALIDATOR = {"path": "flareclust.engines.admission.ServerValidator", "args": {}}

#: Components of a server: ids, classes, and what they do.
_OF_SERVER = (
    ("outcome_wait", "OutcomeWait", "{:g} s for sites that vanished from a finished job, instead of 900"),
    ("lost_jobs", "LostJobs", "jobs that the server lost in a crash are ended when it starts again, not listed as running for ever"),
    ("returned_memory", "ReturnedMemory", "memory that finished jobs needed goes back to the operating system"),
    ("returning_sites", "ReturningSites", "jobs go on without a site that was started again, and kits that run twice are named in the log"),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a kit is set to, as `flareclust.platform.provision.SiteDefaults` describes it.

    None leaves `allow_log_streaming` or `byoc` as it is; False does so, too, with the former in an operator's own file.
    """

    heart_beat_timeout: float = 60
    outcome_wait: float = 20.0
    allow_log_streaming: bool | None = False
    byoc: bool | None = False
    nvflare_classes: bool = False
    plugins: tuple[str, ...] = ()


def allow_classes(local: Path, plugins: Sequence[str] = ()) -> Path:
    """List our classes, of both sides and of these plug-ins, as a simulator needs it that reads `local`; return the file."""
    local.mkdir(parents=True, exist_ok=True)
    file = kit.resources_of(local)
    resources = kit.read_json(file) if file.exists() else {"format_version": 2, classes.CLASSES: []}
    wanted = (*classes.of_sites(), *classes.of_server())
    if [*_allow(resources, file, wanted, Settings(plugins=tuple(plugins)))] or not file.exists():
        kit.write_json(file, resources)
    return file


def prepare_site(local: Path, settings: Settings | None = None) -> tuple[Path, list[str]]:
    """Set up a server's or site's kit for our jobs; return its resources file and what was changed, a line each.

    Raises:
        UserError: there is no such file, or one is not what NVFlare's provisioning makes; nothing was changed.
    """
    settings, file = settings or Settings(), kit.resources_of(local)
    if not file.exists():
        raise UserError(f"{local} has neither {kit.RESOURCES} nor {kit.RESOURCES}.default; is it the local/ of a kit?")
    resources = kit.read_json(file)
    wanted = classes.of_server() if "servers" in resources else classes.of_sites()
    changes = [*_allow(resources, file, wanted, settings)]
    changes += _at_server(resources, settings, file) if "servers" in resources else _at_site(resources, settings, file)
    rights, permitted = kit.rights_of(local), [*_permit(local, settings)]
    if changes:
        kit.write_json(file, resources)
    for text, changed in permitted:
        kit.write_json(rights, changed)
        changes.append(text)
    return file, changes


def _permit(local: Path, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what changes in the kit's rights, where they are not the operator's own, and all of the file after it."""
    file = kit.rights_of(local)
    if file.name == kit.RIGHTS or not file.exists():
        return
    found = kit.read_json(file)
    permissions = found.get("permissions")
    if not isinstance(permissions, dict):
        raise UserError(f"{file}: expected an object as permissions, as NVFlare's provisioning makes it")
    if (wanted := kit.with_versions(permissions)) != permissions:
        text = f"report_version: who may see sites may see their versions ({file.name})"
        yield text, {**found, "permissions": wanted}
    if settings.byoc is None:
        return
    before = kit.code_from(wanted)
    change = kit.with_code if settings.byoc else kit.without_code if before else None
    wanted = wanted if change is None else change(wanted, _all_rights())
    after = kit.code_from(wanted)
    if after != before:
        listed = ", ".join(f"{role} ({right})" for role, right in (after or before).items())
        text = f"byoc: code in jobs from {listed}" if after else f"byoc: no code in jobs, from {listed} until now"
        yield f"{text} ({file.name})", {**found, "permissions": wanted}


def _allow(resources: dict[str, Any], file: Path, wanted: Sequence[str], settings: Settings) -> Iterator[str]:
    before = resources.get(classes.CLASSES, list(DEFAULT_CLASS_ALLOW_LIST))
    if not isinstance(before, list) or not all(isinstance(entry, str) for entry in before):
        raise UserError(f"{file}: expected a list of names as {classes.CLASSES}")
    plugins = classes.of_plugins(settings.plugins)
    after, lines = listed(before, wanted, nvflare=settings.nvflare_classes, plugins=plugins)
    resources[classes.CLASSES] = after
    yield from [*lines, *classes.enforced(resources)]


def _at_site(resources: dict[str, Any], settings: Settings, file: Path) -> Iterator[str]:
    wanted, found = settings.allow_log_streaming, resources.get("allow_log_streaming", True)
    chosen = wanted is False and file.name == kit.RESOURCES and "allow_log_streaming" in resources
    if wanted is not None and found is not wanted and not chosen:
        resources["allow_log_streaming"] = wanted
        yield f"allow_log_streaming: {json.dumps(wanted)}" + ("" if wanted else ", the site's error texts stay there")
    yield from _launch_jobs(resources, file)
    for component in _components(resources, file, path=_NVFLARE_LOGS):
        if not settings.nvflare_classes:
            component["path"] = _LOGS
            yield "site_log_streamer: where error texts may go to the server, no other file of a job does"
    if not _components(resources, file, id=_DEPLOYER["id"]):
        resources.setdefault("components", []).append(dict(_DEPLOYER))
        yield "app_deployer: jobs that bring files beside their configuration are refused, and files of local/ are watched"


def _at_server(resources: dict[str, Any], settings: Settings, file: Path) -> Iterator[str]:
    for server in kit.objects_in(resources["servers"], "servers", file):
        if server.get("heart_beat_timeout", _NVFLARE_HEART_BEAT) == _NVFLARE_HEART_BEAT != settings.heart_beat_timeout:
            server["heart_beat_timeout"] = settings.heart_beat_timeout
            yield f"heart_beat_timeout: {settings.heart_beat_timeout:g} s instead of {_NVFLARE_HEART_BEAT}"
        if server.get("max_num_clients") == _NVFLARE_MOST_SITES:
            server["max_num_clients"] = _MOST_SITES
            yield f"max_num_clients: {_MOST_SITES:,} sites instead of {_NVFLARE_MOST_SITES}"
    yield from _launch_jobs(resources, file)
    yield from _store_inside(resources, file)
    if "app_validator" not in resources:
        resources["app_validator"] = dict(_VALIDATOR)
        yield "app_validator: jobs that bring files beside their configuration are refused, and files of local/ are watched"
    for component in _components(resources, file, path=_NVFLARE_RECEIVER):
        component["path"] = _RECEIVER
        yield "log_receiver: no file but the error log of a job comes from a site"
    for name, kind, does in _OF_SERVER:
        args = {"seconds": settings.outcome_wait} if name == "outcome_wait" else {}
        component = {"id": name, "path": f"flareclust.engines.server.{kind}", "args": args}
        if not _components(resources, file, path=component["path"]):
            resources.setdefault("components", []).append(component)
            yield f"{name}: {does.format(settings.outcome_wait)}"


def _launch_jobs(resources: dict[str, Any], file: Path) -> Iterator[str]:
    for component in _components(resources, file):
        if ours := kit.LAUNCHERS.get(str(component.get("path"))):
            component["path"] = ours
            killed = "" if "servers" in resources else ", and one that is killed does not end the job of all sites"
            yield f"process_launcher: the processes of jobs get listed environment variables only{killed}"


def _store_inside(resources: dict[str, Any], file: Path) -> Iterator[str]:
    """Move jobs and snapshots into the server's own workspace, where they are in NVFlare's shared folder."""
    by_id = {component.get("id"): component for component in _components(resources, file)}
    manager, store = by_id.get("job_manager", {}).get("args", {}), by_id.get("job_store", {})
    jobs = str(manager.get("uri_root", ""))
    if jobs.startswith(_SHARED) and store.get("path") == _NVFLARE_STORAGE and not store.get("args"):
        manager["uri_root"] = "jobs-storage"
        store["path"] = _STORAGE
        yield f"job_store: jobs-storage/ in the server's workspace; jobs that are in {jobs} stay there"
    storage = resources.get("snapshot_persistor", {}).get("args", {}).get("storage", {})
    if str(storage.get("args", {}).get("root_dir", "")).startswith(_SHARED) and storage.get("path") == _NVFLARE_STORAGE:
        storage["path"] = _STORAGE
        storage["args"]["root_dir"] = "snapshot-storage"
        yield "snapshot_persistor: snapshot-storage/ in the server's workspace"


def _components(resources: dict[str, Any], file: Path, **wanted: object) -> list[dict[str, Any]]:
    """Return the components of a kit, or those among them whose entries are these."""
    found = kit.objects_in(resources.get("components", []), "components", file)
    return [one for one in found if all(one.get(name) == value for name, value in wanted.items())]


def listed(
    before: Sequence[str], wanted: Sequence[str], *, nvflare: bool, plugins: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the list of classes that replaces a kit's, and what changes, a line each.

    It has our wanted ones, those of plug-ins, an operator's own, and with `nvflare` those of NVFlare's own list.
    """
    defaults, ours = set(DEFAULT_CLASS_ALLOW_LIST), {*classes.of_sites(), *classes.of_server()}
    too_wide = [entry for entry in before if classes.reaches_functions(entry)]
    whole = defaults <= set(before)  # a few of them are an operator's choice
    gone = [entry for entry in before if entry not in ours and classes.of_another_version(entry)]
    replaced = {*too_wide, *gone, *ours, *(defaults if whole else ())}
    own = [entry for entry in before if entry not in replaced]
    after = [*own, *(entry for entry in DEFAULT_CLASS_ALLOW_LIST if nvflare and entry not in own)]
    after += [*wanted, *(entry for entry in plugins if entry not in own)]
    lines = [f"took out {entry!r}, with which jobs call every function of flareclust" for entry in too_wide]
    if missing := set(wanted) - set(before):
        lines.append(f"added {len(missing)} classes of flareclust")
    if dropped := [entry for entry in before if entry in ours and entry not in wanted]:
        lines.append(f"took out {len(dropped)} classes of flareclust that no job needs here")
    if gone:
        lines.append(f"took out {len(gone)} classes of another version of flareclust")
    if whole and not nvflare:
        lines.append(f"took out {len(defaults)} classes of NVFlare; --nvflare-classes keeps them")
    if nvflare and (more := defaults - set(before)):
        lines.append(f"added {len(more)} classes of NVFlare")
    lines += [f"added {entry!r}" for entry in plugins if entry not in before]
    return after, [f"{classes.CLASSES}: {line}" for line in lines]


def _all_rights() -> list[str]:
    """Return all rights that NVFlare knows: one expression for a whole role cannot have an exception."""
    categories = set(COMMAND_CATEGORIES.values())
    commands = {name for key, name in vars(AdminCommandNames).items() if key.isupper()}
    return [*sorted(categories), *sorted(commands - set(COMMAND_CATEGORIES) - categories), "server-predeployed-flwr"]
