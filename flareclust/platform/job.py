"""From an algorithm and its settings to an NVFlare job: folder, FedJob or Recipe."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.job_config.api import FedJob

import flareclust
from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust.engines.options import JobOptions
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.outcomes import outcome_steps
from flareclust.federation.profiles import profiling_steps
from flareclust.federation.rows_read import reading_steps
from flareclust.federation.server import ServerJob
from flareclust.federation.site import steps_of_member, steps_to_end
from flareclust.platform.controller import ClusteringController
from flareclust.privacy.job_sums import SECURE_SUMS
from flareclust.protocol.registry import BUILT_IN, Algorithm, algorithms, get
from flareclust.protocol.task import StepName
from flareclust.sites.job_settings import braced

#: Seconds between two questions of a waiting site for its next task; NVFlare's default of 2 s is most of a round.
_TASK_REQUEST_INTERVAL = 0.1

#: All of our code, for jobs that bring it along.
_PACKAGE = Path(flareclust.__file__).parent

#: Seconds after which a round stops waiting for a site that NVFlare has reported dead, and seconds that every task has
#: before anybody is taken for dead. NVFlare's defaults are 60 and 30.
_LOST_SITES = {"dead_client_grace_period": 10.0, "dead_client_check_lead_time": 10.0}


def build_job(
    algorithm: Algorithm,
    params: Mapping[str, object],
    options: JobOptions,
    *,
    job_name: str | None = None,
    packaged: bool = True,
    sides: tuple[ClusteringExecutor, ClusteringAggregator] | None = None,
    about: Mapping[str, object] | None = None,
    resume: str | None = None,
    sites: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> FedJob:
    """Return the NVFlare job of an algorithm.

    Args:
        algorithm: a line of the registry; must be federated.
        job_name: name of the job's folder; the algorithm's name by default.
        packaged: True where the sites have flareclust, and the package of another registered algorithm, installed and
            list the classes: the job then carries configuration only. False copies the classes into the job (NVFlare
            calls it BYOC), which sites must permit.
        sides: of the algorithm with these settings, where they are built already.
        about: what a job that goes on from this one must agree in, beside the settings above.
        resume: the job to go on from, see `ClusteringController`.
        sites: names of the sites that it goes to; None for all that are connected.
        tasks: what the sites are asked for; None for all that the algorithm's rounds and the options need.
    """
    executor, aggregator = sides or algorithm.build(options.k, options.seed, params)
    if options.secure_sums:
        ServerJob(aggregator, secure=True)  # raises where a setting does not go with it
    sums = options.sums()
    controller = ClusteringController(
        algorithm.name,
        dict(params) or None,
        needs=executor.version(),
        about=dict(about) if about else None,
        resume=resume,
        **options.of_controller(),
    )
    job = FedJob(name=job_name or algorithm.name, min_clients=options.needed())
    # What is not named here NVFlare copies into the job, by the imports that it finds; of ours that is not all.
    installed = installed_plugin(algorithm) if packaged else ()
    job.set_app_packages(["flareclust", *(get(name).aggregator.partition(".")[0] for name in installed)])
    job.to_server(controller)
    job.to_server(aggregator, id=controller.aggregator_id)
    job.to_server({"server": {"task_request_interval": _TASK_REQUEST_INTERVAL}, **_LOST_SITES})
    if sums is not None:
        job.to_clients(sums, id=SECURE_SUMS)
    if tasks is None:
        profiling = profiling_steps(executor.params, secure=sums is not None) if options.profile else ()
        tasks = _steps_of(executor, secure=sums is not None)
        tasks += [
            name
            for name in (*profiling, *outcome_steps(options.outcomes), *reading_steps(executor.params))
            if name in executor.job_steps()
        ]
    if sites is None:
        job.to_clients(executor, tasks=list(tasks))
    for site in sites or ():
        job.to(executor, site, tasks=list(tasks))
    if not packaged:
        for file, folder in _sources():
            job.add_file_to_server(file, folder)
            job.add_file_to_clients(file, folder)
    return job


def _steps_of(executor: ClusteringExecutor, *, secure: bool) -> list[str]:
    """Return what a job asks the sites for, beside the placing of late rows: the names of its NVFlare tasks."""
    own = steps_to_end(type(executor))
    own |= steps_of_member(type(executor.member)) if executor.member is not None else {}
    if not secure:
        return [*(name for name, step in own.items() if step.jobs != "secure"), StepName.ASSESS]
    masked_only = [name for name, step in own.items() if step.jobs == "secure"]
    of_all = (name for name, step in own.items() if step.jobs == "all")
    after = {StepName.ASSESS, StepName.OWN_CLUSTERS} & executor.job_steps().keys()
    return [StepName.KEYS, *masked_only, *of_all, *sorted(after)]


def installed_plugin(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the name of an algorithm that another installed package has registered; nothing for any other."""
    built_in = algorithm in BUILT_IN or algorithms().get(algorithm.name) != algorithm
    return () if built_in else (algorithm.name,)


def _sources() -> Iterator[tuple[str, str]]:
    """Yield every module of the package with the folder that it has in a job."""
    for folder, _, names in os.walk(_PACKAGE, followlinks=True):  # in a checkout some folders are links
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name), os.path.relpath(folder, _PACKAGE.parent)


def export_job(job: FedJob, folder: Path) -> Path:
    """Write the job's folder `folder`, which must not exist yet or hold an older export; return it.

    Raises:
        UserError: the folder holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder to write the job to")
    if folder.exists() and any(folder.iterdir()) and not _is_ours(folder):
        raise UserError(f"{folder} holds other files than an exported job; choose another folder")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.absolute().parent, prefix=".export-") as scratch:
            job.export_job(scratch)
            _check_plain(Path(scratch) / job.name)
            if folder.exists():  # both are missing for no longer than a rename
                folder.rename(Path(scratch) / "replaced")
            (Path(scratch) / job.name).rename(folder)
    except OSError as error:
        raise UserError(f"the job cannot be written to {folder} ({error.strerror}); choose another folder") from error
    return folder


def _check_plain(exported: Path) -> None:
    """Raise UserError where a text in a job's configuration holds a brace, with which sites refuse it."""
    for file in sorted(exported.glob("app*/config/*.json")):
        if found := braced(json.loads(file.read_text(encoding="utf-8"))):
            place, text = found
            raise UserError(
                f"{shown(text)} holds a brace, which no setting of a job may (NVFlare would put a variable there; "
                f"{place} in {file.name}): rename it, a column in the schema (its mapping says what it is in a file)"
            )


def _is_ours(folder: Path) -> bool:
    if not all(path.name in ("meta.json", "app") or path.name.startswith("app_") for path in folder.iterdir()):
        return False
    server = next(folder.glob("app*/config/config_fed_server.json"), None)
    return server is not None and ClusteringController.__module__ in server.read_text()
