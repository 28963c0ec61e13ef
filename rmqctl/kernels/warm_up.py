"""Compile kernels, or load them from the cache, before they are needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from rmqctl.kernels.kernel import KERNELS, keep_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.kernels.kernel_cache import KernelCache


class KernelModule(Protocol):
    """A module that defines kernels."""

    __name__: str

    def warm_up(self) -> None:
        """Compile or load each kernel of this module, by a call with empty input."""


_LOCK = threading.Lock()
_READY: set[str] = set()
_PLAIN: set[str] = set()
_FIND_CACHE: list[Callable[[], KernelCache | None]] = []
# bytes on the disk, of which 1 MiB of a log may be zeros that are not used yet; loading kernels takes as long as
# 768 KiB of small messages in plain Python, compiling them as long as 16 MiB
SMALL_INPUT, SMALL_FIRST_INPUT = 1792 * 1024, 8 * 1024 * 1024


def cache_where(find_cache: Callable[[], KernelCache | None]) -> None:
    """Ask `find_cache` for the cache whenever kernels are compiled or loaded.

    None means that nothing is cached.
    """
    _FIND_CACHE[:] = [find_cache]


def runs_plain(module: KernelModule) -> bool:
    """Return whether the kernels of a module currently run as plain Python."""
    return module.__name__ in _PLAIN


def warm_up(*modules: KernelModule, size: int | None = None) -> None:
    """Compile or load the kernels of these modules, without a cache if need be.

    `size` is the size of the input in bytes. For a small one, the kernels run as plain Python, because compiling or
    loading would take more time. Pass it only if all kernels that you call can run as plain Python.
    """
    names = {module.__name__ for module in modules}
    with _LOCK:
        if names <= _READY:
            return
        if size is not None and _is_small(size, names):
            _run_plain(_PLAIN | (names - _READY))
            return
        _run_plain(_PLAIN - names)
        keep_compiled(_cache())
        for module in modules:
            module.warm_up()
        _READY.update(names)


def _is_small(size: int, names: set[str]) -> bool:
    if size >= SMALL_FIRST_INPUT:
        return False
    return size < SMALL_INPUT or not ((cache := _cache()) and cache.has(names))


def _cache() -> KernelCache | None:
    return _FIND_CACHE[0]() if _FIND_CACHE else None


def _run_plain(names: set[str]) -> None:
    """Run the kernels of these modules as plain Python, and other kernels compiled."""
    _PLAIN.clear()
    _PLAIN.update(names)
    for kernel in KERNELS:
        kernel.is_plain = kernel.has_plain_form and kernel.module in names
