"""Everything that can go wrong for a user, as types.

Every message says what was expected, what came, from which site where one is concerned, and what to do.
"""

from collections.abc import Callable, Mapping, Sequence


class FlareclustError(Exception):
    """Base of all errors raised on purpose."""


class UserError(FlareclustError, ValueError):
    """The request cannot be carried out as stated; the command line exits with 2."""


class TableFaults(UserError):
    """Tables do not fit the schema of the federation; the text is one sentence.

    Attributes:
        faults: by table what is wrong with it, a clause each.
    """

    def __init__(self, faults: Mapping[str, Sequence[str]]) -> None:
        super().__init__(
            "; ".join(f"{place} does not fit the schema: {'; '.join(own)}" for place, own in faults.items())
        )
        self.faults = faults

    @property
    def lines(self) -> str:
        """Return the same for a terminal, a line for each fault."""
        return "\n".join(
            f"{place} does not fit the schema:\n" + "\n".join(f"  {fault}" for fault in own)
            for place, own in self.faults.items()
        )


class JobFailed(FlareclustError, RuntimeError):
    """The federation started and did not reach a result; the command line exits with 1.

    Attributes:
        transient: whether the job ended for no reason of its own, so that another try may succeed.
    """

    def __init__(self, reason: str, *, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


class Refusal(FlareclustError):
    """A site cannot take part. The text travels to the server, so it must hold no data value."""


class Aborted(FlareclustError):
    """The job was stopped while a site was computing."""


def stop_if(aborted: Callable[[], bool], when: str) -> None:
    """Raise Aborted where `aborted` says so; `when` is what follows "stopped"."""
    if aborted():
        raise Aborted(f"stopped {when}")


class BadMessage(FlareclustError, ValueError):
    """An array message does not match its schema."""
