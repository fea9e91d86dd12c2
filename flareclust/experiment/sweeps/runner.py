"""Where the trials of a sweep run: in threads, in processes, or on a Dask or Ray cluster."""

from dataclasses import dataclass

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.validation import check_choice

#: The runners, each with the extra that it needs; threads need none.
RUNNERS = {"threads": None, "processes": "flows", "dask": "dask", "ray": "ray"}
CLUSTERS = ("dask", "ray")


@dataclass(frozen=True)
class SweepRunner:
    """A runner, and the address of the cluster that it uses; without one, a cluster on this machine is started."""

    name: str = "threads"
    address: str | None = None

    @property
    def local(self) -> bool:
        """Return whether trials run in threads of this process."""
        return self.name == "threads"

    def require(self) -> None:
        """Raise UserError where a package of the runner is missing."""
        if extra := RUNNERS[self.name]:
            require(extra, f"the runner {self.name!r}")


#: Threads of this process.
THREADS = SweepRunner()


def parse_runner(text: object) -> SweepRunner:
    """Return the runner that a text names: `threads`, `processes`, `dask`, `ray`, `dask:ADDRESS` or `ray:ADDRESS`.

    Raises:
        UserError: it is none of these.
    """
    if not isinstance(text, str):
        raise UserError(f"runner must be a text, got {text!r}")
    name, colon, address = text.partition(":")
    check_choice("runner", name, tuple(RUNNERS))
    if colon and name not in CLUSTERS:
        raise UserError(f"the runner {name!r} takes no address, got {text!r}; only {' and '.join(CLUSTERS)} do")
    if colon and not address:
        raise UserError(f"the address of the {name} cluster is missing in {text!r}, such as dask:tcp://127.0.0.1:8786")
    return SweepRunner(name, address or None)
