"""Jobs of personalised models for provisioned sites: of federated averaging, one for each cluster that k-FED found there or one
for all sites, or of IFCA.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from nvflare.job_config.api import FedJob

from flareclust._foundation.errors import UserError
from flareclust.engines.job import build_job, export_job
from flareclust.engines.late_sites import read_finished
from flareclust.personal.clusters import KFED, clusters_of_sites
from flareclust.personal.jobs import job_algorithm
from flareclust.personal.rows import CLASS_COLUMN
from flareclust.personal.selection import check_fewer
from flareclust.personal.settings import TRAINED_BY, ExportSettings
from flareclust.protocol.outcome import Outcome


def export_jobs(settings: ExportSettings, folder: Path) -> list[Path]:
    """Write the jobs of a method: `folder`/cluster-0 and so on for kfed, `folder`/ifca, or `folder`/global.

    A job of a cluster goes to its sites only, at most all of which a round can need.

    Args:
        settings: what to train, and at which sites.
        folder: where to write; each job's own folder there must be new, or hold an older export.

    Raises:
        UserError: the clusters are none of k-FED, a site has rows of several clusters, or a job's folder cannot be written.
    """
    if settings.method != KFED:
        clusters = None if settings.clusters is None else clusters_of_sites(_found(settings.clusters))
        params = {**_params(settings), **settings.selection_params(), "clusters": clusters}
        job = _job(settings.method, settings, params, settings.sites)
        return [export_job(job, folder / settings.method)]
    by_cluster, written = _sites_by_cluster(_found(str(settings.clusters))), []
    check_fewer(settings.per_round, settings.candidates, [len(sites) for sites in by_cluster.values()])
    for cluster, sites in by_cluster.items():
        name = f"cluster-{cluster}"
        params = {**_params(settings), "cluster": cluster}
        if settings.per_round is not None and settings.per_round < len(sites):
            params |= settings.selection_params()
        written.append(export_job(_job(name, settings, params, sites), folder / name))
    return written


def _found(folder: str) -> Outcome:
    """Return the result of k-FED in a folder."""
    outcome, about = read_finished(Path(folder))
    if about["algorithm"] != KFED:
        raise UserError(f"{folder} has a result of {about['algorithm']}; personalised models need one of {KFED}")
    return outcome


def _sites_by_cluster(outcome: Outcome) -> dict[int, list[str]]:
    """Return the names of the sites of each cluster.

    Raises:
        UserError: a site has rows of several clusters.
    """
    clusters = clusters_of_sites(outcome)
    if several := [site for site, own in clusters.items() if len(own) > 1]:
        raise UserError(
            f"{several[0]} has rows of {len(clusters[several[0]])} clusters, and a site trains with all of its rows; run k-FED "
            "with k_local=1"
        )
    found = np.unique([cluster for own in clusters.values() for cluster in own])
    return {int(cluster): [site for site, own in clusters.items() if cluster in own] for cluster in found}


def _job(name: str, settings: ExportSettings, params: Mapping[str, object], sites: Sequence[str] | None) -> FedJob:
    """Return a job for these sites, at most all of which a round can need; None for all that are connected."""
    options = settings.job_options(None if sites is None else len(sites))
    options = options if sites is None else options.simulated(sites)
    return build_job(job_algorithm(settings.method), params, options, job_name=name, sites=sites)


def _params(settings: ExportSettings) -> dict[str, object]:
    """Return the parameters of federated averaging that all jobs have."""
    params = {name: getattr(settings, name) for name in ("model", "rounds", *TRAINED_BY, "test_share", "classes")}
    return params | {"class_column": settings.label or CLASS_COLUMN}
