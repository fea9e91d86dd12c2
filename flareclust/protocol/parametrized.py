"""The constructor of executors and aggregators, which follows from their parameters: `k`, `seed` and those that the side reads."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_type_hints

from flareclust.protocol.params import GENERAL, Params


class Parametrized:
    """A side of an algorithm whose constructor follows from its parameters.

    A subclass declares `params: ItsParams`. NVFlare writes those arguments of a constructor into a job that differ from their
    defaults, and finds their values in the object by the same names behind an underscore; all code reads them from `params`.
    """

    #: Which parameters the constructor takes.
    side: Literal["site", "both", "server"]

    params: Params
    _params_class: ClassVar[type[Params]] = Params

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Give the subclass the constructor of its parameters, unless it has one of its own."""
        super().__init_subclass__(**arguments)
        if "params" in (annotations := inspect.get_annotations(cls)):
            only = {"__annotations__": {"params": annotations["params"]}, "__module__": cls.__module__}
            cls._params_class = get_type_hints(type("Only", (), only))["params"]
            if "__init__" not in vars(cls):
                cls.__init__ = _constructor(cls)  # type: ignore[method-assign]

    @classmethod
    def params_class(cls) -> type[Params]:
        """Return the class that the nearest `params: ...` of the class and its bases names."""
        return cls._params_class

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the import paths that the settings name; who runs the job must have allowed them (`class_allow_list`)."""
        extras = {name: field.json_schema_extra for name, field in self.params.own().items()}
        named = [name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("imports")]
        return tuple(path for name in named if "." in (path := str(getattr(self.params, name))))

    def configure(self, k: int, seed: int = 0, **settings: Any) -> None:
        """Check and take the settings of this side."""
        self.params = self.params_class()(k=k, seed=seed, **settings)
        own = (*GENERAL, *self.params.own(self.side))
        if taken := [name for name in own if hasattr(self, f"_{name}")]:
            raise TypeError(
                f"{type(self).__name__}._{taken[0]} is where NVFlare finds the parameter {taken[0]}; call it otherwise"
            )
        vars(self).update({f"_{name}": getattr(self.params, name) for name in own})


def _constructor(cls: type[Parametrized]) -> Callable[..., None]:
    def construct(self: Parametrized, k: int, seed: int = 0, **settings: Any) -> None:
        super(cls, self).__init__(k, seed, **settings)  # type: ignore[call-arg]

    params = cls.params_class()
    fields = {name: params.model_fields[name] for name in GENERAL} | params.own(cls.side)
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, field in fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.default
        parameters.append(parameters[0].replace(name=name, default=default, annotation=field.annotation))
    construct.__name__, construct.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
    construct.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    return construct
