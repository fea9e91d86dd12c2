"""The steps of a flow run: tasks while Prefect answers, plain calls from when it does not."""

from collections.abc import Callable
from typing import Any

# First, because it sets Prefect's switches before that is imported.
import flareclust.flows.server  # noqa: F401

# isort: split

from prefect import task
from prefect.cache_policies import NO_CACHE

from flareclust._foundation.errors import JobFailed
from flareclust.flows.run import Calls, T


def _worth_another_try(task: Any, run: Any, state: Any) -> bool:
    """Return whether the job ended for no reason of its own; sites that refuse would refuse again."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, JobFailed) and error.transient


class Steps(Calls):
    """Runs functions as tasks of the flow in whose function this is used.

    Attributes:
        lost: what Prefect failed with; None while it answers.
    """

    lost: Exception | None = None

    def run(self, name: str, function: Callable[..., T], *args: Any, retries: int = 0) -> T:
        """Call a function as a task, as `Calls.run` does; what it returns or raises counts, whatever Prefect makes of it."""
        if self.lost is not None:
            return function(*args)
        returned: list[T] = []
        raised: list[Exception] = []

        def recorded() -> None:
            try:
                returned.append(function(*args))
            except Exception as error:
                raised.append(error)
                raise

        again: dict[str, Any] = {"retries": retries, "retry_delay_seconds": 1, "retry_condition_fn": _worth_another_try}
        try:
            task(name=name, cache_policy=NO_CACHE, **(again if retries else {}))(recorded)()
        except Exception as error:
            if raised and error is raised[-1]:
                raise
            self.lost = error
            if not returned:
                if raised:
                    raise raised[-1] from None
                return function(*args)
        return returned[-1]

    def report(self, call: Callable[[], object]) -> None:
        """Call what only informs Prefect, if it answers."""
        if self.lost is None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about Prefect's pages only
                self.lost = error
