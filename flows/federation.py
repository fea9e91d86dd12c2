"""A block of Prefect for a federation: where the kit of its lead is, and what its jobs wait for.

Prefect loads this module by itself, as it does those of its integrations (the entry point group `prefect.collections`), also in its
server; so it imports nothing of flareclust before a method needs it.
"""

from typing import TYPE_CHECKING, Any

from prefect.blocks.core import Block
from pydantic import Field

if TYPE_CHECKING:
    from flareclust.experiment.config import Experiment
    from flareclust.platform.status import FederationStatus

#: How the kit of an experiment begins where it is the name of such a block.
_REFERENCE = "flare-federation/"


class FlareFederation(Block):
    """An NVFlare federation, to which flows submit jobs with the kit of its lead or of an admin.

    Only the path of the kit is stored. The kit, which holds a private key, is on the machine of the worker, and has the address of
    the federation's server.

    Example:
        from flareclust.flows.experiment import experiment_flow
        from flareclust.flows.federation import FlareFederation

        clinics = FlareFederation.load("clinics")
        result = experiment_flow(clinics.experiment("feca", k=3))
    """

    _block_type_name = "Flare Federation"
    _block_type_slug = "flare-federation"

    kit: str = Field(min_length=1, description="Folder of the kit of the lead or an admin, on the worker's machine.")
    min_sites: int | None = Field(default=None, ge=1, description="The fewest sites that a job goes on with.")
    expect_sites: list[str] | None = Field(
        default=None, min_length=1, description="Names of the sites that should take part."
    )
    wait_for: int | None = Field(default=None, ge=1, description="How many sites a job waits for; needs wait_seconds.")
    wait_seconds: int | None = Field(default=None, ge=1, description="How many seconds a job waits for sites at most.")
    task_timeout: int | None = Field(default=None, ge=1, description="Seconds that sites have for one exchange.")
    retries: int | None = Field(
        default=None, ge=0, description="How often a job starts again that ended for a reason outside of it."
    )

    @property
    def server(self) -> str:
        """Return host and port of the federation's server, as the kit has them; UserError where it is no kit."""
        from pathlib import Path

        from flareclust.platform.session import admin_of

        about = admin_of(Path(self.kit))
        return f"{about['host']}:{about['port']}"

    def options(self) -> dict[str, Any]:
        """Return the settings of an experiment that this block decides."""
        own = {name: getattr(self, name) for name in FlareFederation.model_fields}
        return {"engine": "production", **{name: value for name, value in own.items() if value is not None}}

    def experiment(self, algorithm: str, **settings: Any) -> "Experiment":
        """Return an experiment on this federation; settings as of `flareclust.run`, which come before those of the block.

        Raises:
            UserError: a setting is wrong.
        """
        from flareclust.experiment.config import make_experiment

        return make_experiment(algorithm=algorithm, **{**self.options(), **settings})

    def status(self) -> "FederationStatus":
        """Return which sites are connected or missing, and how the last jobs ended, as `flareclust status` says it.

        Raises:
            UserError: the folder is no such kit, or the server does not permit the questions.
            JobFailed: it does not answer.
        """
        from pathlib import Path

        from flareclust.platform.status import federation_status

        return federation_status(Path(self.kit), self.expect_sites)


def with_kit(experiment: "Experiment") -> "Experiment":
    """Return an experiment with the kit and the settings of the block that its kit names, as `flare-federation/NAME`; others as they are.

    Raises:
        UserError: Prefect has no such block.
    """
    from flareclust._foundation.errors import UserError

    if not (experiment.kit or "").startswith(_REFERENCE):
        return experiment
    name = str(experiment.kit).removeprefix(_REFERENCE)
    try:
        block = FlareFederation.load(name)
    except ValueError as error:
        raise UserError(
            f"Prefect has no block {experiment.kit}; make it on Prefect's pages (Blocks) or with FlareFederation(kit=...).save({name!r})"
        ) from error
    assert isinstance(block, FlareFederation)  # it is a coroutine only where this runs in one, which no flow here does
    own = experiment.model_dump(exclude_unset=True)
    return type(experiment).model_validate({**block.options(), **own, "kit": block.kit})
