"""What every algorithm promises, as functions that anyone can call on an algorithm of their own.

    from flareclust.testing import check_algorithm
    check_algorithm(my_algorithm)          # an Algorithm, as in the registry

`ALWAYS` hold for every federated algorithm, but for some that noise breaks on purpose (`NOT_OF_PRIVATE`); those of `PROMISES` for the algorithms that name them in their registry
line. A check raises `ContractViolation`, which says what was promised and what happened.
"""

from collections.abc import Callable, Iterator

from flareclust.protocol.registry import Algorithm
from flareclust.testing.always import ALWAYS, NOT_OF_PRIVATE
from flareclust.testing.promised import PROMISES
from flareclust.testing.tools import ContractViolation, blobs, iid_sites

__all__ = [
    "ALWAYS",
    "PROMISES",
    "ContractViolation",
    "always",
    "blobs",
    "check_algorithm",
    "checks_for",
    "differential_privacy",
    "iid_sites",
    "policies",
    "processes",
    "promised",
    "tools",
]


def check_algorithm(algorithm: Algorithm) -> None:
    """Check every promise of an algorithm; raise `ContractViolation` at the first that does not hold."""
    for _, check in checks_for(algorithm):
        check(algorithm)


def checks_for(algorithm: Algorithm) -> Iterator[tuple[str, Callable[[Algorithm], None]]]:
    """Yield the name and the function of every check that applies to an algorithm."""
    if not algorithm.federated:
        return
    left_out = NOT_OF_PRIVATE if algorithm.executor_class().private else ()
    yield from ((check.__name__.partition("check_")[2], check) for check in ALWAYS if check not in left_out)
    for promise in sorted(algorithm.promises):
        if promise not in PROMISES:
            raise ContractViolation(f"{algorithm.name} promises {promise!r}, which no check knows: {sorted(PROMISES)}")
        yield promise, PROMISES[promise]
