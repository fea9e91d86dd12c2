"""Jobs of federated averaging for provisioned sites, one for each cluster that k-FED found there."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import check_int
from flareclust._foundation.version import __version__
from flareclust.core.client_selection import clusters_by_client
from flareclust.engines.job import add_server, export_job, steps_of
from flareclust.engines.late_sites import read_finished
from flareclust.federation.run import quorum
from flareclust.flare.controller import ClusteringController
from flareclust.personal.clusters import KFED
from flareclust.personal.jobs import FEDAVG
from flareclust.personal.settings import TRAINED_BY, PersonalSettings
from flareclust.protocol.outcome import Outcome


def export_jobs(
    settings: PersonalSettings, result: Path, folder: Path, classes: int | None = None, min_sites: int | None = None
) -> list[Path]:
    """Write a job for each cluster of a finished k-FED of provisioned sites: `folder`/cluster-0 and so on.

    A job goes to the sites of its cluster only.

    Args:
        settings: model, rounds and how to train; `label` is the column of the sites' rows that holds the class.
        result: folder with k-FED's result.npz and result.json.
        folder: where to write; each job's own folder there must be new.
        classes: number of classes; None for the largest that a cluster's sites have.
        min_sites: sites of a cluster that a round needs, at most all of them; None for more than half.

    Raises:
        UserError: the result is none of k-FED, a site has rows of several clusters, or a job's folder cannot be written.
    """
    if min_sites is not None:
        check_int("min_sites", min_sites, minimum=1)
    outcome, about = read_finished(result)
    if about["algorithm"] != KFED:
        raise UserError(f"{result} has a result of {about['algorithm']}; personalised models need one of {KFED}")
    params = {name: getattr(settings, name) for name in ("model", "rounds", *TRAINED_BY)}
    params |= {"class_column": settings.label or "class", "test_share": settings.test_share, "classes": classes}
    written = []
    for cluster, sites in sites_by_cluster(outcome).items():
        job = _job(
            f"cluster-{cluster}",
            params,
            settings.seed,
            sites,
            quorum(len(sites), min_sites and min(min_sites, len(sites))),
        )
        written.append(export_job(job, folder / f"cluster-{cluster}"))
    return written


def sites_by_cluster(outcome: Outcome) -> dict[int, list[str]]:
    """Return the names of the sites of each cluster.

    Raises:
        UserError: a site has rows of several clusters.
    """
    senders = next((record["sites"] for record in outcome.rounds if record["step"] == "cluster"), [])
    assert isinstance(senders, list)
    clusters = clusters_by_client(outcome.arrays["tau"], outcome.arrays["received_site"], senders)
    if several := [site for site, own in clusters.items() if len(own) > 1]:
        raise UserError(
            f"{several[0]} has rows of {len(clusters[several[0]])} clusters, and a site trains with all of its rows; run k-FED "
            "with k_local=1"
        )
    found = np.unique([cluster for own in clusters.values() for cluster in own])
    return {int(cluster): [site for site, own in clusters.items() if cluster in own] for cluster in found}


def _job(name: str, params: Mapping[str, object], seed: int, sites: Sequence[str], needed: int) -> FedJob:
    executor, aggregator = FEDAVG.build(1, seed, params)
    controller = ClusteringController(FEDAVG.name, dict(params), min_sites=needed, assess=False, needs=__version__)
    job = FedJob(name=name, min_clients=needed)
    job.set_app_packages(["flareclust"])
    add_server(job, controller, aggregator)
    for site in sites:
        job.to(executor, site, tasks=steps_of(executor, secure=False))
    return job
