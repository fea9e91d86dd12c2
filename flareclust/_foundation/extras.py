"""Optional packages: which extra brings them, and what to say where one is missing."""

from importlib.util import find_spec

from flareclust._foundation.errors import UserError

#: The packages of each extra that the code imports.
_EXTRAS = {
    "tracking": ("mlflow", "pandas"),
    "flows": ("prefect",),
    "dask": ("prefect", "prefect_dask"),
    "ray": ("prefect", "prefect_ray"),
    "compute": ("distributed",),
    "sql": ("sqlalchemy",),
    "plots": ("matplotlib",),
    "export": ("skops", "onnx"),
    "deep": ("torch", "monai", "kornia", "PIL"),
}


def installed(extra: str) -> bool:
    """Return whether all packages of an extra are installed."""
    return not _missing(extra)


def require(extra: str, what: str) -> None:
    """Raise UserError, about `what` needs them, unless the packages of an extra are installed."""
    if missing := _missing(extra):
        names = " and ".join(missing)
        raise UserError(f"{what} needs {names}; install the extra: python -m pip install 'flareclust[{extra}]'")


def require_part(name: str, what: str) -> None:
    """Raise UserError, about `what` needs it, where flareclust was installed without the folder of a part that can be left out."""
    if find_spec(f"flareclust.{name}") is None:
        raise UserError(f"{what} needs the folder flareclust/{name}, without which flareclust was installed here")


def require_posix(what: str) -> None:
    """Raise UserError, about `what` needs them, on a system without the locks and accounts of Linux and macOS."""
    if find_spec("fcntl") is None:
        raise UserError(f"{what} needs Linux or macOS; on Windows use WSL2, or the engine inprocess")


def _missing(extra: str) -> list[str]:
    return [name for name in _EXTRAS[extra] if find_spec(name) is None]
