"""Settings of a run beside the algorithm's own: those of every run, and those of a job."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings, setting
from flareclust.federation import quorum
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES, check_number_of_sites

#: Sites that must be connected for NVFlare to start a job that does not say how many it needs. A federation of one is
#: none, and nobody knows here how many there should be.
MIN_SITES = 2


class Quorum(Settings):
    """How many sites a round needs."""

    min_sites: int | None = setting("min_sites", ge=1)

    def for_sites(self, m: int) -> dict[str, int]:
        """Return what changes of this with m sites, at most all of which a round needs."""
        return {} if self.min_sites is None else {"min_sites": min(self.min_sites, m)}

    def check_enough(self, m: int, known: str = "") -> None:
        """Raise UserError where a round needs more sites than there are; `known` says what they are called."""
        if self.min_sites is not None and self.min_sites > m:
            raise UserError(f"min_sites={self.min_sites} is more than {known or f'the {m} sites that there are'}")


class RunSettings(Quorum):
    """The settings that a run has in Python, on the command line, in a job and in a recipe."""

    seed: int = setting("seed", ge=0, lt=2**32)
    task_timeout: int = setting("task_timeout", ge=1)
    secure_sums: bool = setting("secure_sums")


class ExpectedSites(Settings):
    """Which sites a job should have, and how long it is kept back for them; where the sites are there already."""

    expect_sites: tuple[Annotated[str, Field(min_length=1)], ...] | None = setting(
        "expect_sites", min_length=1, strict=False
    )
    wait_for: int | None = setting("wait_for", ge=1)
    wait_seconds: int | None = setting("wait_seconds", ge=1)


class JobOptions(RunSettings):
    """The settings of one job that every algorithm and every engine has."""

    k: int = Field(ge=1, description="Number of clusters.")
    assess: bool = Field(default=True, description="Whether to compute the label-free metrics and the labels.")
    profile: bool = Field(
        default=False, description="Whether the clusters are described after the assessment, where the algorithm can."
    )
    outcomes: tuple[float, ...] | None = Field(
        default=None,
        strict=False,
        description="The form of the outcomes that sites are asked for at the end (`OutcomeForm.numbers`); None for none.",
    )
    deadline: int = Field(default=3600, ge=1, description="Seconds after which an engine gives up on the whole job.")
    secure_min_sites: int | None = Field(
        default=None, ge=1, description="Masked sums are of at least so many sites; None for min_sites."
    )
    secure_sites: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="Names of the sites that may be among masked sums; None for any of the federation.",
    )

    @classmethod
    def of_any_site(cls, **settings: Any) -> "JobOptions":
        """Return the settings of a job that one site is enough for, and that assesses nothing."""
        return cls(min_sites=1, assess=False, **settings)

    @model_validator(mode="after")
    def _sums_that_are_on(self) -> "JobOptions":
        if not self.secure_sums and (self.secure_min_sites is not None or self.secure_sites is not None):
            raise UserError("secure_min_sites and secure_sites are settings of secure_sums, which is off")
        return self

    @staticmethod
    def check_outcomes(params: Mapping[str, object], outcomes: tuple[float, ...] | None) -> None:
        """Raise UserError where an algorithm's settings spend on outcomes, and the job asks for none."""
        if outcomes is None and (epsilon := params.get("outcome_epsilon")) is not None:
            raise UserError(
                f"outcome_epsilon={epsilon} is for the outcomes that a schema names, and there are none here; leave it out, or give a schema "
                "with an outcome"
            )

    def among(self, sites: Sequence[str]) -> "JobOptions":
        """Return these settings for a job of sites that are known: secure sums are of all of them, unless the settings ask
        for fewer, and of no others.
        """
        if not self.secure_sums:
            return self
        check_number_of_sites(len(sites))
        minimum = self.secure_min_sites or self.min_sites or len(sites)
        update = {"secure_min_sites": max(minimum, LEAST_SITES), "secure_sites": self.secure_sites or tuple(sites)}
        return self.model_copy(update=update)

    def simulated(self, sites: Sequence[str]) -> "JobOptions":
        """Return these settings for a job of sites that are all here, with the number that a round needs."""
        return self.among(sites).model_copy(update={"min_sites": quorum(len(sites), self.min_sites)})

    def needed(self) -> int:
        """Return how many sites must be connected for the job to start."""
        sums = self.sums()
        return self.min_sites or (MIN_SITES if sums is None else sums.min_sites)

    def of_controller(self) -> dict[str, Any]:
        """Return the arguments of the job's controller that follow from these settings."""
        sums = self.sums()
        own = self.model_dump(include={"min_sites", "task_timeout", "assess", "profile", "outcomes", "secure_sums"})
        return {**own, "secure_min_sites": None if sums is None else sums.min_sites}

    def sums(self) -> SecureSums | None:
        """Return what the job holds its sites to; None without secure sums.

        Raises:
            UserError: the least number of sites of a sum is missing.
        """
        if not self.secure_sums:
            return None
        minimum = self.secure_min_sites or self.min_sites
        if minimum is None:
            raise UserError(
                "secure_sums needs min_sites for sites that are not known here: a sum is of at least so many, and the server with "
                "accomplices among the others learns what they leave; give the number of sites that should take part"
            )
        return SecureSums(max(minimum, LEAST_SITES), self.secure_sites)
