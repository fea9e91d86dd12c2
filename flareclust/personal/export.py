"""Jobs of personalised models for provisioned sites: of federated averaging, one for each cluster that k-FED found there or one
for all sites, or of IFCA.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.core.client_selection import clusters_by_client
from flareclust.engines.job import MIN_SITES, add_server, export_job, steps_of
from flareclust.engines.late_sites import read_finished
from flareclust.federation.run import quorum
from flareclust.flare.controller import ClusteringController
from flareclust.personal.clusters import KFED
from flareclust.personal.jobs import FEDAVG, IFCA
from flareclust.personal.settings import TRAINED_BY, ExportSettings
from flareclust.protocol.outcome import Outcome, names_of_sites
from flareclust.protocol.task import CLUSTER


def export_jobs(settings: ExportSettings, folder: Path) -> list[Path]:
    """Write the jobs of a method: `folder`/cluster-0 and so on for kfed, `folder`/ifca, or `folder`/global.

    A job of a cluster goes to its sites only, at most all of which a round can need.

    Args:
        settings: what to train, and at which sites.
        folder: where to write; each job's own folder there must be new, or hold an older export.

    Raises:
        UserError: the clusters are none of k-FED, a site has rows of several clusters, or a job's folder cannot be written.
    """
    if settings.clusters is None:
        return [
            export_job(_job(settings.method, settings, settings.sites, settings.min_sites), folder / settings.method)
        ]
    outcome, about = read_finished(Path(settings.clusters))
    if about["algorithm"] != KFED:
        raise UserError(
            f"{settings.clusters} has a result of {about['algorithm']}; personalised models need one of {KFED}"
        )
    written = []
    for cluster, sites in sites_by_cluster(outcome).items():
        name, needed = f"cluster-{cluster}", settings.min_sites and min(settings.min_sites, len(sites))
        written.append(export_job(_job(name, settings, sites, needed), folder / name))
    return written


def sites_by_cluster(outcome: Outcome) -> dict[int, list[str]]:
    """Return the names of the sites of each cluster.

    Raises:
        UserError: a site has rows of several clusters.
    """
    senders = names_of_sites(outcome, CLUSTER)
    clusters = clusters_by_client(outcome.arrays["tau"], outcome.arrays["received_site"], senders)
    if several := [site for site, own in clusters.items() if len(own) > 1]:
        raise UserError(
            f"{several[0]} has rows of {len(clusters[several[0]])} clusters, and a site trains with all of its rows; run k-FED "
            "with k_local=1"
        )
    found = np.unique([cluster for own in clusters.values() for cluster in own])
    return {int(cluster): [site for site, own in clusters.items() if cluster in own] for cluster in found}


def _job(name: str, settings: ExportSettings, sites: Sequence[str] | None, min_sites: int | None) -> FedJob:
    """Return a job for these sites, None for all that are connected."""
    algorithm, k = (IFCA, settings.k or 1) if settings.method == "ifca" else (FEDAVG, 1)
    params = _params(settings)
    executor, aggregator = algorithm.build(k, settings.seed, params)
    needed = min_sites if sites is None else quorum(len(sites), min_sites)
    controller = ClusteringController(algorithm.name, params, min_sites=needed, assess=False, needs=__version__)
    job = FedJob(name=name, min_clients=needed or MIN_SITES)
    job.set_app_packages(["flareclust"])
    add_server(job, controller, aggregator)
    tasks = steps_of(executor, secure=False)
    if sites is None:
        job.to_clients(executor, tasks=tasks)
    for site in sites or ():
        job.to(executor, site, tasks=tasks)
    return job


def _params(settings: ExportSettings) -> dict[str, object]:
    """Return the parameters of federated averaging."""
    params = {name: getattr(settings, name) for name in ("model", "rounds", *TRAINED_BY, "test_share", "classes")}
    return params | {"class_column": settings.label or "class"}
