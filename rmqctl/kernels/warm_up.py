"""Warm-up, which compiles or loads kernels before they are needed."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Protocol

from rmqctl.kernels.kernel import KERNELS, keep_compiled, keep_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


class KernelModule(Protocol):
    """A module of kernels."""

    __name__: str

    def warm_up(self) -> None:
        """Call each kernel with empty input, to compile or load it."""


_LOCK = threading.Lock()
_READY: set[str] = set()
_PLAIN: set[str] = set()
_FIND_FOLDER: list[Callable[[], Path | None]] = []
# bytes; to load kernels takes as long as 2 MiB of small messages as plain Python, to compile them as long as 16 MiB
SMALL_INPUT, SMALL_FIRST_INPUT = 2 * 1024 * 1024, 8 * 1024 * 1024
# what numba lets through when the folder is full or goes away, or a file there is torn
_CACHE_ERRORS = (
    OSError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    AttributeError,
    ImportError,
)


def cache_in(folder: Path | None) -> None:
    """Use a folder as the cache of compiled kernels from now on.

    If `folder` is None, no cache is used. Anyone who can write to the folder can run code in this process.
    """
    cache_where(lambda: folder)


def cache_where(find_folder: Callable[[], Path | None]) -> None:
    """Call `find_folder` for the cache's folder when kernels are compiled or loaded."""
    _FIND_FOLDER[:] = [find_folder]


def runs_plain(module: KernelModule) -> bool:
    """Return whether the kernels of a module run as plain Python for now."""
    return module.__name__ in _PLAIN


def warm_up(*modules: KernelModule, size: int | None = None) -> None:
    """Compile or load the kernels of these modules.

    A cache that cannot be used costs time, but does not end the run.

    `size` is the size of the input in bytes. For a small input, it takes longer to compile or load the kernels than to
    work without them. So the kernels then run as plain Python. A caller gives a size only if all kernels that the
    caller uses have a plain form.
    """
    names = {module.__name__ for module in modules}
    with _LOCK:
        if names <= _READY:
            return
        if size is not None and _is_small(size, names):
            _run_plain(_PLAIN | (names - _READY))
            return
        _run_plain(_PLAIN - names)
        try:
            folder = _folder()
            if folder is not None:
                keep_compiled(str(folder))
            _warm_up(modules)
        except _CACHE_ERRORS:
            keep_nothing()
            _warm_up(modules)
        _READY.update(names)


def _is_small(size: int, names: set[str]) -> bool:
    if size >= SMALL_FIRST_INPUT:
        return False
    return size < SMALL_INPUT or not is_cached(_folder(), names)


def is_cached(folder: Path | None, names: Iterable[str]) -> bool:
    """Return whether a cache has kernels of each of these modules."""
    return folder is not None and all(any(folder.glob(f"{name.rpartition('.')[2]}.*.nbi")) for name in names)


def _folder() -> Path | None:
    return _FIND_FOLDER[0]() if _FIND_FOLDER else None


def _run_plain(names: set[str]) -> None:
    """Make the kernels of these modules, and no others, run as plain Python."""
    _PLAIN.clear()
    _PLAIN.update(names)
    for kernel in KERNELS:
        kernel.is_plain = kernel.has_plain_form and kernel.module in names


def _warm_up(modules: Iterable[KernelModule]) -> None:
    for module in modules:
        module.warm_up()
