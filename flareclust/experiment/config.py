"""What an experiment is: everything that decides its result, checked before anything starts."""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.options import COMMANDS
from flareclust._foundation.settings import setting
from flareclust._foundation.validation import beside_schema, check_choice
from flareclust.data.partition_specs import parse
from flareclust.data.sql_tables import PREFIX, Query
from flareclust.data.tables import File
from flareclust.engines.options import ExpectedSites, RunSettings
from flareclust.evaluation import criteria, selection
from flareclust.privacy.policy import DP, PER_ID, Policy, read_policy
from flareclust.protocol import registry

Engine = Literal["inprocess", "devices", "simulator", "poc", "production"]

#: The engines whose sites read their tables themselves, and may have policies of their own.
REMOTE: Sequence[Engine] = ("poc", "production")

#: The engines with sites that are drawn for a round, or drop out of it.
_SAMPLING_ENGINES = ("inprocess", "devices")

#: What stands for the data of sites that have their own.
OWN_ROWS = "sites"

#: What stands for the kit of who submitted a job, where that is not here.
NO_KIT = "that of who submitted it"


@dataclass(frozen=True)
class RowsAsked:
    """Which rows a source is asked for: by an experiment, or by a POC, whose algorithm is not known yet.

    Attributes:
        data, query, password, partition, n_sites, seed, engine, columns, table_schema, id_column, truth: as of an experiment.
        by_name: whether sites may have different columns, so that rows come with the names of theirs.
        gaps: whether cells may be missing.
        with_ids: whether sites need the ids of their rows.
        class_column: the column with classes that the algorithm evaluates with; None for none.
        algorithm: its name, for texts.
    """

    data: str
    partition: str
    n_sites: int
    seed: int
    engine: str = "inprocess"
    columns: tuple[str, ...] | None = None
    table_schema: str | None = None
    id_column: str | None = None
    truth: str | None = None
    query: str | None = None
    password: str | None = None
    by_name: bool = False
    gaps: bool = False
    with_ids: bool = False
    class_column: str | None = None
    algorithm: str = ""

    @property
    def in_database(self) -> Query | None:
        """Return the query that gives the rows, None where they are in no database; UserError as `query_of`."""
        return query_of(self.data, self.query, self.password)

    @property
    def table(self) -> Path | File:
        """Return the file with the rows, or what stands for it where a query gives them."""
        query = self.in_database
        return Path(self.data) if query is None else query.file()

    @property
    def typed(self) -> bool:
        """Return whether the data are tables that are read column by column, by a schema or the names of ids and classes."""
        return any(value is not None for value in (self.table_schema, self.id_column, self.truth))


def _in_order(k_range: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if k_range is None else selection.parse_k(f"{k_range[0]}..{k_range[1]}")[1]


def _known_rule(criterion: str) -> str:
    return check_choice("criterion", criteria.current_rule(criterion), criteria.RULES)


def _known_partition(partition: str) -> str:
    parse(partition)
    return partition


def _checked_policy(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if policy is None else Policy.of(policy).to_json()


def _in_one_line(text: str | None) -> str | None:
    if text is not None and not (text.strip() and text.isprintable()):
        raise ValueError(f"expected text in one line, got {text!r}")
    return text


def _name_for_mlflow(name: str | None) -> str | None:
    if name is not None and (not name.strip() or set(name) & set("/:.%\"'`\\")):
        raise ValueError(f"a model's name may not be empty or hold any of / : . % quotes and backslashes, got {name!r}")
    return name


class Experiment(RunSettings, ExpectedSites):
    """One federated clustering of one data set."""

    renamed: ClassVar[Mapping[str, str]] = {"schema": "table_schema"}  # pydantic keeps `schema` for itself

    algorithm: Annotated[str, AfterValidator(lambda name: registry.get(name).name)] = Field(
        description="A name of the registry."
    )
    data: str = setting("data", "digits")
    k: int | None = setting("k", ge=1)
    k_range: Annotated[tuple[int, int] | None, AfterValidator(_in_order)] = Field(
        default=None, strict=False, description="The smallest and the largest k to try, in place of k."
    )
    criterion: Annotated[str, AfterValidator(_known_rule)] = setting("criterion", criteria.USUAL)
    partition: Annotated[str, AfterValidator(_known_partition)] = setting("partition", "iid")
    n_sites: int = setting("n_sites", 10, ge=1)
    engine: Engine = setting("engine", "simulator")
    kit: str | None = setting("kit")
    columns: tuple[str, ...] | None = setting("columns", min_length=1, strict=False)
    table_schema: str | None = setting("table_schema")
    id_column: str | None = setting("id_column")
    truth: str | None = setting("truth")
    query: str | None = setting("query", min_length=1)
    password: str | None = setting("password", min_length=1)
    profile: bool | None = setting("profile")
    cohort: int | None = setting("cohort", ge=1)
    dropout: float = setting("dropout", ge=0, lt=1)
    params: dict[str, Any] = Field(default_factory=dict, description="The algorithm's own parameters.")
    policy: Annotated[dict[str, Any] | None, AfterValidator(_checked_policy)] = setting("policy")
    policy_file: str | None = Field(default=None, description="The file that the policy was read from.")
    match_to: str | None = setting("match_to", min_length=1)
    title: Annotated[str | None, AfterValidator(_in_one_line)] = setting("title", min_length=1, max_length=120)
    row_name: Annotated[str, AfterValidator(_in_one_line)] = setting("row_name", min_length=1, max_length=30)
    start_from: str | None = setting("start_from", min_length=1)
    retries: int = Field(
        default=1, ge=0, description="How often a job starts again that ended for a reason outside of it."
    )
    tracking_uri: str | None = Field(
        default=None, description="MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db."
    )
    mlflow_experiment: str = Field(
        default_factory=lambda: usual_experiment(), min_length=1, description="Name of the MLflow experiment."
    )
    register_as: Annotated[str | None, AfterValidator(_name_for_mlflow)] = setting("register_as")

    @model_validator(mode="before")
    @classmethod
    def _own_rows(cls, values: Any) -> Any:
        """Fill in what provisioned sites leave no choice about, and refuse what they decide themselves."""
        if not isinstance(values, dict):
            return values
        provisioned = values.get("engine") in ("poc", "production")
        if values.get("kit") and not provisioned:
            raise ValueError("a kit is for the engine production (or poc); say --engine production, or engine=")
        if values.get("policy") and provisioned:
            raise ValueError(
                "the sites of a provisioned federation have policies of their own (flareclust site policy KIT); leave out policy"
            )
        if values.get("engine") != "production":
            return values
        own = {"data": OWN_ROWS, "partition": "none"}
        for name, only in {
            **own,
            "columns": None,
            "id_column": None,
            "truth": None,
            "query": None,
            "password": None,
        }.items():
            if values.get(name, only) != only:
                raise ValueError(
                    f"the sites of a provisioned federation say themselves which rows they bring; leave out {name}"
                )
        if not values.get("kit"):
            raise ValueError(
                "the engine production needs the kit of the admin who submits the job, such as "
                "kits/clinics/prod_00/lead@hub.org (--kit, or kit=)"
            )
        return values | own

    @model_validator(mode="after")
    def _known_parameters(self) -> "Experiment":
        own = (
            name
            for name, option in COMMANDS["run"].items()
            if name in type(self).model_fields and option.flag(name) == f"--{name.replace('_', '-')}"
        )
        registry.get(self.algorithm).check_names(self.params, ("schema", "out", "track", *own))
        for problem in _conflicts(self):
            raise ValueError(problem)
        return self

    @property
    def protects_ids(self) -> bool:
        """Return whether the algorithm protects ids with all of their rows, and not single rows."""
        return self.params.get("unit") == PER_ID

    @property
    def rows(self) -> RowsAsked:
        """Return which rows it runs on."""
        own = {field.name for field in fields(RowsAsked)} & type(self).model_fields.keys()
        return RowsAsked(
            **{name: getattr(self, name) for name in own},
            by_name=registry.get(self.algorithm).partial,
            gaps=self.params.get("missing", "refuse") != "refuse",
            with_ids=self.protects_ids,
            class_column=self.params.get("class_column"),
        )

    @property
    def samples(self) -> bool:
        """Return whether rounds have some of the sites only."""
        return self.cohort is not None or self.dropout > 0

    @property
    def name(self) -> str:
        """Return the name of the run: `feca/iris/k3/dirichlet:0.3/s0`, without k where the data decide it later."""
        k = "" if self.k is None else f"k{self.k}"
        k = k if self.k_range is None else f"k{self.k_range[0]}..{self.k_range[1]}"
        data = Path(self.data).name or self.data
        return "/".join(part for part in (self.algorithm, data, k, self.partition, f"s{self.seed}") if part)

    def key(self, *more: str) -> str:
        """Return a fingerprint of the experiment and `more`: equal for a retry, different for another run."""
        text = json.dumps([self.model_dump(mode="json"), *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _conflicts(e: Experiment) -> Iterator[str]:
    """Give what does not go together in an experiment, and what to do about it."""
    a = registry.get(e.algorithm)
    private, here = "differentially-private" in a.promises, e.engine in ("inprocess", "simulator")
    if not a.federated:
        if e.engine != "inprocess":
            yield f"{a.name} is not federated: use the engine inprocess, not {e.engine}"
        if e.policy or e.secure_sums:
            yield f"{a.name} is not federated: there are no sites with a policy or with sums"
        if e.k_range:
            yield f"{a.name} is not federated and takes one k, not a range"
    if private and e.k_range:
        yield f"{a.name} takes one k, not a range: what chooses is not differentially private"
    if private and here and not (e.policy and e.policy.get(DP)):
        yield (
            f"{a.name} needs what sites state: bounds of the columns and a budget under {DP} in a policy "
            "(--policy FILE, or policy=); docs/differential-privacy.md has an example"
        )
    if e.engine == "devices" and (private or e.policy or e.secure_sums):
        yield (
            "the engine devices has sites without policies, whose sums are not masked; use the engine inprocess, or leave out "
            "policy and secure_sums"
        )
    if e.engine == "devices" and a.partial:
        yield f"{a.name} is for sites with different columns: use the engine inprocess, not devices"
    if e.engine != "production" and (e.expect_sites or e.wait_for or e.wait_seconds):
        yield (
            "expect_sites, wait_for and wait_seconds (--for) are for sites that connect by themselves, those of the engine "
            f"production; leave them out with the engine {e.engine}"
        )
    if e.wait_for and not e.wait_seconds:
        yield "wait_for (--wait-for) needs wait_seconds (--for): how many seconds to wait for so many sites at most"
    if e.samples and e.engine not in _SAMPLING_ENGINES:
        yield f"cohort and dropout are for the engines {' and '.join(_SAMPLING_ENGINES)}, not {e.engine}"
    if e.samples and (private or a.partial or e.secure_sums or not a.federated):
        own = f"{a.name}{' with secure_sums' if e.secure_sums else ''}"
        yield f"{own} needs the same sites in all rounds; leave out cohort and dropout"
    if e.profile and (problem := a.why_no_profile(e.params, secure_sums=e.secure_sums)):
        yield f"{problem}; leave out profile (--profile)"
    if e.k_range and a.partial:
        yield (
            f"{a.name} takes one k, not a range: what chooses needs the same columns at every site"
            f"{'; proxy chooses one up to k with choose_k=true' if a.name == 'proxy' else ''}"
        )
    if parse(e.partition).splits_columns and a.federated and not a.partial:
        yield (
            f"{a.name} needs the same columns at every site, and partition {e.partition} assigns out columns as well; "
            f"algorithms for different columns are {', '.join(name for name, one in registry.algorithms().items() if one.partial)}"
        )
    if e.k_range and "k_min" in e.params:
        yield "a range of k says k_min already; leave out one of them"
    if e.k_range and "criterion" in e.params:
        yield "with a range of k the criterion is an option of its own: --criterion, or criterion="
    if not e.k_range and e.criterion != criteria.USUAL and "criterion" not in e.params and "k_min" in e.params:
        yield (
            f"--criterion is for a range of k, such as --k {e.params['k_min']}..{e.k}; with k_min give --set "
            f"criterion={e.criterion}"
        )
    yield from _of_database(e)
    if e.table_schema is not None and (problem := beside_schema(columns=e.columns, id_column=e.id_column)):
        yield problem
    if e.rows.typed and e.columns is not None:
        yield "columns cannot be chosen beside id_column and truth; a schema says what each column is"
    if e.rows.typed and e.engine == "devices":
        yield (
            "the engine devices takes rows of numbers; leave out table_schema (--schema), id_column (--id) and truth, or use the engine "
            "inprocess, which has outcomes, too"
        )
    if e.engine == "poc" and (e.id_column or e.truth):
        yield "the sites of a POC read their rows themselves; leave out id_column and truth"


def _of_database(e: Experiment) -> Iterator[str]:
    """Give what does not go together of the settings of rows in a database."""
    try:
        query = e.rows.in_database
    except UserError as error:
        yield str(error)
    else:
        if query is not None and e.partition == "none":
            yield (
                "a query gives one table, whose rows are assigned to sites; leave out the partition none, or give the rows of each site "
                "from Python, a data frame by the site's name"
            )


def query_of(place: str, query: str | None, password: str | None) -> Query | None:
    """Return the query of rows at a place that begins with sql+, None for a file; UserError where the settings do not go together."""
    if not place.startswith(PREFIX):
        if query is not None or password is not None:
            raise UserError(
                "--query and --password are for a database, which begins with sql+, as in sql+sqlite:///clinic.db"
            )
        return None
    require("sql", "a database (sql+...)")
    if query is None:
        raise UserError("a database needs a query; give the SELECT, or the file NAME.sql with it (--query, or query=)")
    try:
        return Query.of(place, query, Path(), password)
    except UserError as error:
        raise UserError(f"the database's {error}") from None


def new_folder(experiment: Experiment) -> Path:
    """Return where a run's files go unless the user says so: `flareclust-runs/feca-iid-s0-<time>-<random>`."""
    partition = experiment.partition.replace(":", "-").replace(",", "-")
    unique = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    return Path("flareclust-runs") / f"{experiment.algorithm}-{partition}-s{experiment.seed}-{unique}"


def make_experiment(**settings: Any) -> Experiment:
    """Return the Experiment of settings as users give them, or raise UserError with what is wrong in plain words.

    k may be a range "5..25", the policy a file, kit, match_to and start_from paths; None stands for what is left out.
    """
    may_lack = {name for name, option in COMMANDS["run"].items() if option.default is None}
    settings = {name: value for name, value in settings.items() if value is not None or name not in may_lack}
    for name in settings.keys() & {"kit", "match_to", "start_from"}:
        settings[name] = str(settings[name])
    for name in settings.keys() & {"columns", "expect_sites"}:
        settings[name] = tuple(settings[name])
    if "policy" in settings:
        if isinstance(settings["policy"], str | Path):
            settings["policy_file"] = str(Path(settings["policy"]).absolute())
        settings["policy"] = read_policy(settings["policy"]).to_json()
    if settings.get("engine") == "poc":
        settings |= _of_poc(settings)
    if isinstance(settings.get("k"), str | tuple | list | range):
        settings["k"], settings["k_range"] = selection.parse_k(settings["k"])
    if own := selection.own_criterion(str(settings.get("algorithm")), settings.get("criterion")):
        settings = {**settings, "params": {**settings.get("params", {}), **own}}
        del settings["criterion"]
    return Experiment(**settings)


def _of_poc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the running POC's sites have; raise UserError where something else was asked for."""
    from flareclust.platform.poc import federation as poc

    federation = poc.find(Path(settings.get("kit") or poc.DEFAULT))
    own: dict[str, Any] = {name: getattr(federation, name) for name in ("data", "partition", "n_sites")}
    own["table_schema"] = federation.schema
    for name, value in own.items():
        if settings.get(name) not in (None, value):
            raise UserError(
                f"the POC's sites have {name.removeprefix('table_')} {value}, not {settings[name]}; leave it out, or start another POC "
                "(flareclust poc down, flareclust poc up)"
            )
    return own


def usual_experiment() -> str:
    """Return the name of the MLflow experiment where none is given: MLFLOW_EXPERIMENT_NAME, else flareclust."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or "flareclust"
