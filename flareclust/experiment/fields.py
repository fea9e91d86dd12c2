"""The fields of an experiment: everything that decides its result."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from flareclust.engines.options import RunSettings
from flareclust.evaluation.criteria import RULES, USUAL
from flareclust.privacy.policy import PER_ID

Engine = Literal["inprocess", "devices", "simulator", "poc", "production"]

#: The MLflow experiment of runs for which nobody has named one.
EXPERIMENT = "flareclust"


class ExperimentFields(RunSettings):
    """The fields of an experiment, and what follows from them; `flareclust.experiment.config.Experiment` checks them."""

    renamed: ClassVar[Mapping[str, str]] = {"clients": "n_sites", "choose_by": "criterion", "schema": "table_schema"}

    algorithm: str = Field(description="A name of the registry.")
    data: str = Field(
        default="digits",
        description='A data set\'s name, a table file, or with partition "none" a folder with one file per site.',
    )
    k: int | None = Field(default=None, ge=1, description="Number of clusters; None for the known one of a data set.")
    k_range: tuple[int, int] | None = Field(
        default=None, strict=False, description="The smallest and the largest k to try, in place of k."
    )
    criterion: str = Field(default=USUAL, description=f"Criterion that selects k: {', '.join(RULES)}.")
    partition: str = Field(default="iid", description="How rows are assigned to sites (`flareclust.data.partition`).")
    n_sites: int = Field(default=10, ge=1, description="Number of sites.")
    engine: Engine = Field(
        default="simulator",
        description="inprocess, devices (many small sites), simulator, poc (sites that `flareclust poc up` started) or production (provisioned sites "
        "with their own rows, so that data, partition, n_sites and columns do not apply).",
    )
    kit: str | None = Field(
        default=None, description="For production the kit of the admin who submits; for poc its folder."
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description="Names of the columns to use, in this order, of data in files; None for all.",
    )
    table_schema: str | None = Field(
        default=None, description="File with the schema by which tables of one's own are read (`flareclust.schema`)."
    )
    id_column: str | None = Field(default=None, description="The column with ids, where no schema says it; no feature.")
    truth: str | None = Field(
        default=None, description="The column with known classes, to compare the clusters with; no feature."
    )
    profile: bool | None = Field(
        default=None,
        description="Whether the clusters are described, column by column; None for where the columns have names and are few.",
    )
    cohort: int | None = Field(
        default=None,
        ge=1,
        description="Sites that are drawn for each round, of the engines inprocess and devices; None for all.",
    )
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a site of these engines drops out of a round."
    )
    params: dict[str, Any] = Field(default_factory=dict, description="The algorithm's own parameters.")
    policy: dict[str, Any] | None = Field(
        default=None, description="Policy of simulated sites (`flareclust.privacy.policy`); real sites have their own."
    )
    match_to: str | None = Field(
        default=None,
        min_length=1,
        description="Earlier result whose numbers the clusters get: folder, runs:/ID or models:/NAME@ALIAS.",
    )
    retries: int = Field(
        default=1, ge=0, description="How often a job starts again that ended for a reason outside of it."
    )
    tracking_uri: str | None = Field(
        default=None, description="MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db."
    )
    mlflow_experiment: str = Field(
        default_factory=lambda: usual_experiment(),
        min_length=1,
        description="Name of the MLflow experiment; by default MLFLOW_EXPERIMENT_NAME or flareclust.",
    )
    register_as: str | None = Field(
        default=None, description="Name under which the model is registered; None for not at all."
    )

    @property
    def protects_ids(self) -> bool:
        """Return whether the algorithm protects ids with all of their rows, and not single rows."""
        return self.params.get("unit") == PER_ID

    @property
    def typed(self) -> bool:
        """Return whether the data are tables that are read column by column, by a schema or the names of ids and classes."""
        return any(value is not None for value in (self.table_schema, self.id_column, self.truth))

    @property
    def samples(self) -> bool:
        """Return whether rounds have some of the sites only."""
        return self.cohort is not None or self.dropout > 0

    @property
    def gaps(self) -> bool:
        """Return whether the settings say what to make of missing cells."""
        return bool(self.params.get("missing", "refuse") != "refuse")

    @property
    def name(self) -> str:
        """Return the name of the run: `feca/iris/k3/dirichlet:0.3/s0`, without k where the data decide it later."""
        k = "" if self.k is None else f"k{self.k}"
        k = k if self.k_range is None else f"k{self.k_range[0]}..{self.k_range[1]}"
        data = Path(self.data).name or self.data
        return "/".join(part for part in (self.algorithm, data, k, self.partition, f"s{self.seed}") if part)


def usual_experiment() -> str:
    """Return the name of the MLflow experiment where none is given: MLFLOW_EXPERIMENT_NAME, else `EXPERIMENT`."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
