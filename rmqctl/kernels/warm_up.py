"""Warm-up, which compiles or loads kernels before they are needed."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Protocol

from rmqctl.kernels.compile import keep_compiled, keep_nothing
from rmqctl.kernels.safe_numba import config

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class KernelModule(Protocol):
    """A module of kernels."""

    def warm_up(self) -> None:
        """Call each kernel with empty input, to compile or load it."""


_LOCK = threading.Lock()
_READY: set[str] = set()
_FOLDER: list[Path] = []
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
    _FOLDER[:] = [] if folder is None else [folder]


def warm_up(*modules: KernelModule) -> None:
    """Compile or load the kernels of these modules.

    A cache that cannot be used costs time, but does not end the run.
    """
    names = {str(module) for module in modules}
    with _LOCK:
        if names <= _READY:
            return
        try:
            if _FOLDER:
                setattr(config, "CACHE_DIR", str(_FOLDER[0]))  # noqa: B010 -- its names are made at run time
                keep_compiled()
            _warm_up(modules)
        except _CACHE_ERRORS:
            keep_nothing()
            _warm_up(modules)
        _READY.update(names)


def _warm_up(modules: Iterable[KernelModule]) -> None:
    for module in modules:
        module.warm_up()
