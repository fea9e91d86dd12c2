"""The promise that what NVFlare calls, and what holds a job to a site's policy, is ours in every algorithm.

NVFlare does more with a component than to construct it: it notifies it of events, hands it tasks, copies it. At a site the
shell of all executors answers these, and so it is what reads the rows and sees to the policy. An algorithm is `local`,
`labels` and what else the base classes leave open.
"""

from inspect import getattr_static

from nvflare.app_common.abstract.aggregator import Aggregator

from flareclust.aggregators.base import ClusteringAggregator
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.nvflare_executor import ExecutorShell
from flareclust.protocol.registry import Algorithm
from flareclust.testing.tools import ensure

#: What Python calls by itself, at any time.
_UNASKED = frozenset({"__getattr__", "__del__", "__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__call__"})

#: What a class of every kind may say of itself.
_OPEN = frozenset({"__init__", "__doc__", "__module__", "__class__", "__repr__", "__str__", "__eq__", "__hash__"})

#: What makes an executor's reply what a site's policy lets out.
_POLICY = frozenset({"answer", "compute", "_stages", "_without_rows", "_key", "_placed"})

#: What keeps to the smallest cluster and to rounded numbers of rows, unless noise hides them; `assessed` is what may be overridden.
_FLOORED = frozenset({"assess", "place", "score"})


def check_nvflare_calls_ours(algorithm: Algorithm) -> None:
    """Neither side takes the place of what NVFlare calls, events among it, or of what holds a job to a site's policy."""
    executor, aggregator = algorithm.build(3)
    floored = set() if getattr(executor, "private", False) else _FLOORED
    sides = (
        (executor, ClusteringExecutor, _code(ExecutorShell) | _POLICY | floored),
        (aggregator, ClusteringAggregator, _code(Aggregator)),
    )
    for side, base, names in sides:
        kind = type(side)
        ensure(isinstance(side, base), algorithm, f"{kind.__name__} is no {base.__name__}")
        for name in sorted((names | _UNASKED) - _OPEN):
            own = name in vars(side) or getattr_static(kind, name, None) is not getattr_static(base, name, None)
            ensure(not own, algorithm, f"{kind.__name__} has its own {name} in the place of {base.__name__}'s")
        ensure(not vars(side).get("_event_handlers"), algorithm, f"{kind.__name__} listens to events")
    unheld = executor.private and "differentially-private" not in algorithm.promises
    ensure(not unheld, algorithm, "says that it is private, and does not promise to be differentially-private")


def _code(kind: type) -> set[str]:
    """Return the names of a class's functions and properties, and of those of the classes that it is made of."""
    members = ((name, value) for one in kind.__mro__ for name, value in vars(one).items())
    return {
        name for name, value in members if callable(value) or isinstance(value, property | classmethod | staticmethod)
    }
