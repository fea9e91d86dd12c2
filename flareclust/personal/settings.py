"""The settings of personalised models, the same in Python, on the command line and in a flow."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.validation import did_you_mean, site_name
from flareclust.core.client_selection import POW_D_KFED
from flareclust.data.partition_specs import SPECS, parse, usages
from flareclust.engines.options import JobOptions
from flareclust.executors.linear_evaluation import MOST_CLASSES
from flareclust.personal.learners import Learner
from flareclust.personal.methods import AVERAGING, METHODS
from flareclust.personal.models import MODELS, make_learner
from flareclust.personal.rows import Split
from flareclust.personal.selection import SelectionSettings, check_fewer, check_method

#: Where the devices are: in this process, or in NVFlare's simulator, a job for the clustering and one for each cluster.
_ENGINES = ("inprocess", "simulator")

#: How columns can be scaled.
_SCALES = ("none", "standard")

#: The settings of a kind of model.
TRAINED_BY = ("hidden", "lr", "updates", "batch")

#: The partitions of rows that all have the same columns.
_PARTITIONS = tuple(name for name, form in SPECS.items() if name != "none" and not form.splits_columns)


class _TrainingSettings(SelectionSettings):
    """What is trained, wherever it is."""

    label: str | None = Field(
        default=None, min_length=1, description="The column that holds the class; None for `class`."
    )
    method: Annotated[str, OneOf(METHODS)] = Field(default="kfed", description="kfed, ifca, global or local.")
    model: Annotated[str, OneOf(MODELS)] = Field(default="mlp", description="mlp, or linear, which needs no extra.")
    k: int | None = Field(default=None, ge=1, description="Number of clusters, for kfed, ifca and pow-d-kfed.")
    rounds: int = Field(default=50, ge=1, le=100_000, description="Number of rounds.")
    hidden: int = Field(default=200, ge=1, le=100_000, description="Hidden units of mlp.")
    lr: float = Field(default=0.01, gt=0, description="Step size.")
    updates: int = Field(default=10, ge=1, description="Local updates of a round; of linear, passes over the rows.")
    batch: int = Field(default=10, ge=1, description="Rows of an update of mlp.")
    test_share: float = Field(default=0.2, gt=0, lt=1, description="Share of each device's rows held out for tests.")
    seed: int = Field(default=0, ge=0, lt=2**32, description="Of everything random.")
    min_sites: int | None = Field(
        default=None, ge=1, description="Of jobs: sites of a cluster that a round needs; None for more than half."
    )

    @model_validator(mode="after")
    def _used_by_method_and_model(self) -> "_TrainingSettings":
        if self.method not in ("kfed", "ifca") and self.select != POW_D_KFED:
            self._refuse("k", f"{self.method} has no clusters; leave it out, or use the method kfed or ifca")
        elif self.k is None and self.method == "ifca":
            raise UserError("ifca needs k, the number of clusters")
        if self.model == "linear":
            for name in ("hidden", "batch"):
                self._refuse(name, "it is a setting of the model mlp; leave it out, or use model=mlp")
        check_method(self.method, self.select)
        return self

    def job_options(self, m: int | None = None) -> JobOptions:
        """Return the settings of a job of m sites, which may be fewer than a round needs elsewhere; None for any number."""
        k = self.k if self.method == "ifca" else None
        options = JobOptions(k=k or 1, seed=self.seed, assess=False, min_sites=self.min_sites)
        return options if m is None else options.model_copy(update=options.for_sites(m))

    def _refuse(self, name: str, why: str) -> None:
        """Raise UserError where a setting is given that has no effect."""
        if self._is_given(name):
            raise UserError(f"{name} is {getattr(self, name)} without effect: {why}")

    def _is_given(self, name: str) -> bool:
        """Return whether a setting is not at its default; flows pass all settings on, so that no more can be known."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)


class PersonalSettings(_TrainingSettings):
    """What to train in this process, or in NVFlare's simulator."""

    data: str = Field(default="digits", description="A data set with classes, or a file.")
    partition: str = Field(default="iid", description="How the rows are assigned to devices.")
    devices: int = Field(default=10, ge=1, description="Number of devices.")
    k_local: int = Field(default=1, ge=1, description="k', clusters of a device, for kfed and pow-d-kfed.")
    scale: Annotated[str, OneOf(_SCALES)] = Field(
        default="none", description="How columns are scaled over all devices first: standard, or none."
    )
    averaging: Annotated[str, OneOf(AVERAGING)] = Field(default="models", description="Of ifca: models or gradients.")
    engine: Annotated[str, OneOf(_ENGINES)] = Field(
        default="inprocess", description="inprocess, or simulator for NVFlare jobs, of all methods but local."
    )

    @model_validator(mode="after")
    def _used(self) -> "PersonalSettings":
        by_clusters = self.select == POW_D_KFED
        if self.k is None and (self.method == "kfed" or by_clusters):
            raise UserError(f"{self.select if by_clusters else self.method} needs k, the number of clusters")
        if self.method != "kfed" and not by_clusters:
            self._refuse("k_local", "only kfed has clusters of a device; leave it out, or use method=kfed")
        if self.method != "ifca":
            self._refuse("averaging", "only ifca has this choice; leave it out, or use method=ifca")
        if self.averaging == "gradients":
            why = "gradients are of all rows, one update a round; leave it out, or use averaging=models"
            for name in ("updates", "batch"):
                self._refuse(name, why)
        return self

    @model_validator(mode="after")
    def _rows_split(self) -> "PersonalSettings":
        name, _, _ = self.partition.strip().partition(":")
        if name not in _PARTITIONS:
            raise UserError(
                f"partition must be one of {usages(_PARTITIONS)}; got {self.partition!r}{did_you_mean(name, _PARTITIONS)}"
            )
        if SPECS[parse(self.partition).name].fixes_sites:
            why = f"partition '{self.partition}' has a device per owner; leave it out, or use another"
            self._refuse("devices", why)
        return self

    @model_validator(mode="after")
    def _engine_fits(self) -> "PersonalSettings":
        if self.engine == "simulator" and self.method == "local":
            raise UserError("local runs in this process only; leave out the engine, or use another method")
        if self.engine == "simulator" and self.method == "ifca" and self.averaging == "gradients":
            raise UserError("gradients are averaged in this process only; leave engine out, or use averaging=models")
        if self.engine == "inprocess" and self.min_sites is not None:
            raise UserError("min_sites is for jobs, whose sites can be lost; leave it out, or use engine=simulator")
        return self

    @property
    def name(self) -> str:
        """Return the name of its run: `personal-kfed-mlp-s0`."""
        return f"personal-{self.method}-{self.model}-s{self.seed}"

    def learner(self, split: Split) -> Learner[Any]:
        """Return the kind of model, for the devices' rows."""
        how: dict[str, Any] = {name: getattr(self, name) for name in TRAINED_BY}
        return make_learner(self.model, split.columns, split.classes, **how)


#: Why jobs for provisioned sites do not take some settings.
_OWN_ROWS = "each site trains with its own rows, which its local/flareclust.yaml names"
_NOT_EXPORTED = {
    "data": _OWN_ROWS,
    "partition": _OWN_ROWS,
    "devices": _OWN_ROWS,
    "k_local": "a site trains one model, with all of its rows",
    "scale": "jobs train with the columns as they are in the sites' files; scale these by constants that all agree on",
    "averaging": "jobs average models",
    "engine": "the jobs run at provisioned sites",
}


class ExportSettings(_TrainingSettings):
    """What jobs for provisioned sites train, and at which sites; `label` is the column of their rows with the class."""

    clusters: str | None = Field(
        default=None,
        description="Of kfed, and of select=pow-d-kfed: folder with the result of `flareclust run kfed` at the sites.",
    )
    sites: tuple[str, ...] | None = Field(
        default=None, description="Of ifca and global: names of the sites; None for all that are connected."
    )
    classes: int | None = Field(
        default=None,
        ge=2,
        le=MOST_CLASSES,
        description="Number of classes; None for the largest that a job's sites have.",
    )

    def _is_given(self, name: str) -> bool:
        """Return whether a setting is given, at its default or not."""
        return name in self.model_fields_set and getattr(self, name) is not None

    @model_validator(mode="before")
    @classmethod
    def _trains_at_sites(cls, values: Any) -> Any:
        for name, why in _NOT_EXPORTED.items():
            if name in values:
                raise UserError(f"{name} does not go with export: {why}; leave it out")
        return values

    @model_validator(mode="after")
    def _sites_of_the_method(self) -> "ExportSettings":
        if self.method == "local":
            raise UserError("local trains at each site by itself and needs no job; use the method kfed, ifca or global")
        user = self.select if self.select == POW_D_KFED else self.method if self.method == "kfed" else None
        if user is None:
            why = f"{self.method} is one job, to all sites or to those that sites names; leave it out"
            self._refuse("clusters", why)
        elif self.clusters is None:
            other = "select=pow-d" if user == POW_D_KFED else "the method ifca or global"
            raise UserError(
                f"{user} needs clusters, the folder with the result of `flareclust run kfed` at the sites; or use {other}"
            )
        else:
            self._refuse("k", "the clusters are those found; leave it out")
            if self.sites is not None and user == self.method:
                raise UserError("sites is without effect: each job goes to the sites of its cluster; leave it out")
        return self

    @model_validator(mode="after")
    def _enough_sites(self) -> "ExportSettings":
        if self.sites is None:
            return self
        for name in self.sites:
            site_name(name)
        count = len(self.sites)
        if not count or len(set(self.sites)) < count:
            raise UserError(f"sites must be different names, at least one; got {', '.join(self.sites) or 'none'}")
        check_fewer(self.per_round, self.candidates, [count])
        for setting, value in (("k", self.k), ("min_sites", self.min_sites)):
            if value is not None and value > count:
                raise UserError(f"{setting} is {value}, more than the {count} sites named; lower it, or name more")
        return self
