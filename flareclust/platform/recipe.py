"""A Recipe for NVFlare's own environments: `flareclust.recipe("feca", k=15).run(ProdEnv(...))`.

A module of its own because importing `nvflare.recipe` takes `--export` out of the program's arguments.
"""

from collections.abc import Sequence
from pathlib import Path

from nvflare.job_config.api import FedJob
from nvflare.recipe.sim_env import SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from flareclust._foundation.errors import UserError
from flareclust.data.schema.columns import read_schema
from flareclust.engines.options import JobOptions
from flareclust.federation.executor import ClusteringExecutor
from flareclust.platform.job import build_job, installed_plugin
from flareclust.platform.kit import allow_classes
from flareclust.platform.session import guard
from flareclust.protocol import registry
from flareclust.sites.config import write_config


class _ClusteringRecipe(Recipe):
    """An NVFlare Recipe around a clustering job.

    Args:
        executor: the class of the sites' side, compiled before a simulator starts.
        rows: for NVFlare's simulator, where the simulated sites' rows are: a path with `{site}` in it. Real sites
            say so themselves, in `local/flareclust.yaml`.
        plugins: the algorithm's name where another package has registered it.
    """

    def __init__(
        self, job: FedJob, executor: type[ClusteringExecutor], rows: str | None = None, plugins: Sequence[str] = ()
    ) -> None:
        super().__init__(job)
        guard()  # NVFlare's environments open a session in this process
        self._plugins = plugins
        self._executor = executor
        self.rows = rows

    def process_env(self, env: ExecEnv) -> None:
        """Give a simulator's workspace what real sites have of their own: data and permission for our classes."""
        if isinstance(env, SimEnv):
            if self.rows is None:
                raise UserError('in the simulator a recipe must say where the rows are: rows="/folder/{site}.npy"')
            if "{site}" not in self.rows:
                raise UserError(f"rows must have {{site}} in it, or all sites would read the same file: {self.rows!r}")
            local = Path(env.workspace_root) / self.name / "local"
            write_config(local, str(Path(self.rows).absolute()))
            allow_classes(local, self._plugins)
            self._executor.warm_up()


def recipe(
    algorithm: str,
    k: int,
    *,
    seed: int = 0,
    min_sites: int | None = None,
    task_timeout: int = 600,
    assess: bool = True,
    profile: bool = False,
    outcomes: str | Path | None = None,
    rows: str | None = None,
    packaged: bool = True,
    secure_sums: bool = False,
    secure_sites: Sequence[str] | None = None,
    **params: object,
) -> _ClusteringRecipe:
    """Return an NVFlare Recipe of an algorithm, for `recipe.run(SimEnv(...))`, `ProdEnv` and `recipe.export(...)`.

    Args:
        algorithm: its name in the registry.
        k: number of clusters.
        seed: all random choices follow from it.
        min_sites: quorum of a round; None for more than half of the sites.
        task_timeout: seconds a site has for one task.
        assess: whether to compute the label-free metrics and the labels at the end.
        profile: whether the clusters are described after that (docs/profiles.md).
        outcomes: the schema by which the sites read their tables, whose outcome they are asked for last (docs/outcomes.md); None for
            no outcomes. NVFlare's simulator reads rows without a schema, so it has none.
        rows: see `_ClusteringRecipe`.
        packaged: False copies the classes into the job instead of expecting flareclust at the sites.
        secure_sums: whether sites send sums masked, so that the server learns their total only. It needs `min_sites`: the sums
            are of at least so many sites, which every site checks.
        secure_sites: the names of all sites that may be among them; None for any of the federation.
        **params: the algorithm's own settings.

    Raises:
        UserError: for an unknown algorithm or setting, with the nearest known one, or a value out of range; for a schema that cannot be
            read or names no outcome.
    """
    asked = locals()
    asked["outcomes"] = None if outcomes is None else _form_in(outcomes)
    options = JobOptions(**{name: value for name, value in asked.items() if name in JobOptions.model_fields})
    options.check_outcomes(params, options.outcomes)
    line = registry.get(algorithm)
    job = build_job(line, params, options, packaged=packaged)
    return _ClusteringRecipe(job, line.executor_class(), rows, installed_plugin(line) if packaged else ())


def _form_in(schema: str | Path) -> tuple[float, ...]:
    """Return the form of the outcome that a schema names, in numbers; UserError where it names none."""
    form = read_schema(schema).outcome_form
    if form is None:
        raise UserError(
            f"{schema} names no outcome, as outcome: {{time: days, event: died=yes, until: 1800}}; name one, or leave out outcomes"
        )
    return tuple(form.numbers.tolist())
