"""What a job with secure sums holds its sites to, and a check of the sites with which a site adds up its numbers.

The server names these sites: it sends their keys. With two accomplices among them it would learn the numbers of the third. So
the job says of how many sites a sum is at least, and a site checks it before it masks anything; its policy can ask for more.
"""

from collections.abc import Iterable, Sequence

from flareclust._foundation.errors import Refusal
from flareclust.privacy.policy import Policy, check_sites_of_sums
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES

#: The id of `SecureSums` among the components of a job's sites.
SECURE_SUMS = "secure_sums"


class SecureSums:
    """Has the sites of a job send sums masked only. The job's sites carry it as a component.

    Args:
        min_sites: a sum is over at least so many sites.
        sites: the names of all sites that may be among them; None for any of the federation.
    """

    def __init__(self, min_sites: int = LEAST_SITES, sites: Sequence[str] | None = None) -> None:
        self.min_sites, names = check_sites_of_sums("min_sites", min_sites, "sites", sites)
        self.sites = None if names is None else list(names)  # plain JSON, under the argument's own name


def check_members(members: Iterable[str], job: SecureSums | None, policy: Policy | None) -> None:
    """Raise Refusal unless a site may add up its numbers with those of these sites, itself among them.

    Args:
        members: their names.
        job: what the job holds its sites to, if it does.
        policy: the site's, if it has one.
    """
    if job is not None:
        _check(list(members), job.min_sites, job.sites, "the job: min_sites", "the job: secure_sites")
    if policy is not None:
        minimum, names = policy.secure_min_sites, policy.secure_sites
        _check(list(members), minimum, names, "its policy: secure_min_sites", "its policy: secure_sites")


def _check(members: list[str], minimum: int, among: Sequence[str] | None, number: str, names: str) -> None:
    if len(members) < minimum:
        raise Refusal(
            f"adds up its numbers with those of at least {minimum - 1} other sites, and was asked to with {len(members) - 1} ({number})"
        )
    if among is not None and (others := sorted(set(members) - set(among))):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise Refusal(f"does not add up its numbers with those of {others[0][:80]!r}{more} ({names})")
