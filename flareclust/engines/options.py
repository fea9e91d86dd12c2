"""What a job is told beside its algorithm's own settings."""

from dataclasses import dataclass

from flareclust.validation import check_bool, check_int


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
    """

    k: int
    seed: int = 0
    min_sites: int | None = None
    task_timeout: int = 600
    assess: bool = True
    deadline: int = 3600
    secure_sums: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        check_int("k", self.k, least=1)
        check_int("seed", self.seed, least=0)
        if self.min_sites is not None:
            check_int("min_sites", self.min_sites, least=1)
        check_int("task_timeout", self.task_timeout, least=1)
        check_bool("assess", self.assess)
        check_int("deadline", self.deadline, least=1)
        check_bool("secure_sums", self.secure_sums)
