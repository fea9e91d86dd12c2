"""How numeric code runs: compiled kernels, which release Python's lock, and BLAS with one thread."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, update_wrapper
from importlib import import_module
from threading import RLock
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, get_cached_controller

from flareclust._foundation.interrupts import SharedChange

_R = TypeVar("_R")


def kernel(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Return what compiles a function with numba when it is first called; `options` are further ones of `numba.njit`."""

    def compiled(function: Callable[..., _R]) -> Callable[..., _R]:
        return update_wrapper(_Later(partial(_compile, function, options)), function)

    return compiled


def imported_later(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module that imports numba, for kernels to call; the module is imported with the first of them."""
    return _Later(partial(_imported, module, name))


class _Later:
    """A function that is made when it is first called: importing numba takes half a second and 30 MB, which only kernels need.

    Args:
        make: returns it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] = make
        self._made: Any = None

    def __call__(self, *args: Any) -> Any:
        return (self._made or self.made())(*args)

    def __getattr__(self, name: str) -> Any:
        if name in ("_make", "_made"):  # a copy that is being made has nothing yet
            raise AttributeError(name)
        return getattr(self.made(), name)

    def made(self) -> Any:
        """Return the function itself."""
        with _MAKING:
            if self._made is None:
                self._made = self._make()
            return self._made


#: Held while functions are made: numba looks up the kernels that a kernel calls, which must be there by then.
_MAKING = RLock()


def _compile(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Return the kernel of a function; the module's names for it, and for those that it calls, mean kernels from then on.

    A kernel that is called as a part of a module, such as `kernels.own_distances`, numba finds through `__getattr__`.
    """
    names = function.__globals__
    for name in function.__code__.co_names:
        if name != function.__name__ and isinstance(called := names.get(name), _Later):
            names[name] = called.made()
    made = _compiled(function, options)
    if isinstance(names.get(function.__name__), _Later):
        names[function.__name__] = made
    return made


def _compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    from numba import njit

    try:
        # Without a third entry, for C, which takes as long.
        return njit(nogil=True, cache=True, no_cfunc_wrapper=True, **options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        warnings.warn(
            "kernels are compiled anew in each process, since neither the folder of flareclust nor the home folder can be "
            "written to; set NUMBA_CACHE_DIR to a folder that only your account can write to",
            RuntimeWarning,
            stacklevel=1,
        )
        return njit(nogil=True, no_cfunc_wrapper=True, **options)(function)


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


@contextmanager
def _limited() -> Iterator[None]:
    """Limit BLAS, for the whole process."""
    # threadpoolctl lets one thread at a time change OpenBLAS's number of threads: this one now, and at the end again.
    OpenBLASController.clear_controlling_thread(force=True)
    limit = get_cached_controller().select(user_api="blas").limit(limits=1)
    try:
        yield
    finally:
        OpenBLASController.clear_controlling_thread(force=True)
        limit.restore_original_limits()
        OpenBLASController.clear_controlling_thread()


_SHARED = SharedChange(_limited)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and scikit-learn's OpenMP, to one thread; several threads may be inside at once, each on its own."""
    # Pools that count by calling thread, such as OpenMP's, are limited in each.
    with _SHARED.inside(), get_cached_controller().limit(limits=1):
        yield
