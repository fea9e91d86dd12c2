"""Settings of a run beside the algorithm's own: those of every run, and those of a job."""

from collections.abc import Sequence

from pydantic import Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES, check_number_of_sites


class RunSettings(Settings):
    """The settings that a run has in Python, on the command line, in a job and in a recipe."""

    seed: int = Field(
        default=0, ge=0, lt=2**32, description="Seed of the partition and of every random choice of the job."
    )
    min_sites: int | None = Field(
        default=None, ge=1, description="Sites that a round needs; None for more than half of them."
    )
    task_timeout: int = Field(default=600, ge=1, description="Seconds that a site has for one task.")
    secure_sums: bool = Field(
        default=False, description="Secure aggregation: sites mask their sums, and the server learns their total only."
    )


class JobOptions(RunSettings):
    """The settings of one job that every algorithm and every engine has."""

    k: int = Field(ge=1, description="Number of clusters.")
    assess: bool = Field(default=True, description="Whether to compute the label-free metrics and the labels.")
    profile: bool = Field(
        default=False, description="Whether the clusters are described after the assessment, where the algorithm can."
    )
    deadline: int = Field(default=3600, ge=1, description="Seconds after which an engine gives up on the whole job.")
    secure_min_sites: int | None = Field(
        default=None, ge=1, description="Masked sums are of at least so many sites; None for min_sites."
    )
    secure_sites: tuple[str, ...] | None = Field(
        default=None, description="Names of the sites that may be among masked sums; None for any of the federation."
    )

    @model_validator(mode="after")
    def _sums_that_are_on(self) -> "JobOptions":
        if not self.secure_sums and (self.secure_min_sites is not None or self.secure_sites is not None):
            raise UserError("secure_min_sites and secure_sites are settings of secure_sums, which is off")
        return self

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
