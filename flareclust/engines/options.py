"""What a job is told beside its algorithm's own settings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import check_bool, check_int
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES


@dataclass(frozen=True)
class JobOptions:
    """Settings of one job that every algorithm and every engine has.

    Attributes:
        k: number of clusters.
        seed: all random choices follow from it, the round and the site's name.
        min_sites: quorum of a round; None for more than half of the sites.
        task_timeout: seconds a site has for one task.
        assess: whether to compute the label-free metrics and the labels at the end.
        deadline: seconds after which an engine gives up on the whole job.
        secure_sums: whether sites send sums masked, so that the server learns their total only.
        secure_min_sites: these sums are of at least so many sites, which every site checks; None for `min_sites`.
        secure_sites: the names of all sites that may be among them; None for any of the federation.
    """

    k: int
    seed: int = 0
    min_sites: int | None = None
    task_timeout: int = 600
    assess: bool = True
    deadline: int = 3600
    secure_sums: bool = False
    secure_min_sites: int | None = None
    secure_sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_int("k", self.k, minimum=1)
        check_int("seed", self.seed, minimum=0)
        if self.min_sites is not None:
            check_int("min_sites", self.min_sites, minimum=1)
        check_int("task_timeout", self.task_timeout, minimum=1)
        check_bool("assess", self.assess)
        check_int("deadline", self.deadline, minimum=1)
        check_bool("secure_sums", self.secure_sums)
        if not self.secure_sums and (self.secure_min_sites is not None or self.secure_sites is not None):
            raise UserError("secure_min_sites and secure_sites are settings of secure_sums, which is off")

    def among(self, sites: Sequence[str]) -> "JobOptions":
        """Return these settings for a job of sites that are known: secure sums are of all of them, unless the settings ask
        for fewer, and of no others.
        """
        if not self.secure_sums:
            return self
        if len(sites) < LEAST_SITES:
            raise UserError(
                f"secure_sums needs at least {LEAST_SITES} sites, got {len(sites)}: of two, each would know the other's sums"
            )
        minimum = self.secure_min_sites or self.min_sites or len(sites)
        return replace(self, secure_min_sites=max(minimum, LEAST_SITES), secure_sites=self.secure_sites or tuple(sites))

    def sums(self) -> SecureSums | None:
        """Return what the job holds its sites to; None without secure sums.

        Raises:
            UserError: nobody has said of how many sites a sum is at least.
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
