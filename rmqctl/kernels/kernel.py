"""Kernels: functions over numpy arrays, compiled by numba or run as plain Python.

numba is imported when the first kernel is compiled (`rmqctl.kernels.native`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any

from rmqctl.kernels.plain_rows import call_with_plain_rows

KERNELS: list[Kernel] = []
_LOCK = threading.RLock()
_IS_KEPT = threading.Event()


class Part:
    """A function that kernels call, in a Python form and in a compiled form.

    `plain` is the Python form, and `native` is the form that numba compiles. `make_native` makes the native form.
    """

    def __init__(self, plain: Callable[..., Any], make_native: Callable[[], Any]) -> None:
        self.plain = plain
        self._make_native = make_native

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain Python form of the part."""
        return self.plain(*arguments)

    @cached_property
    def native(self) -> Any:
        """Return the form of the part that numba compiles."""
        return self._make_native()


class Kernel:
    """A function over numpy arrays, which numba compiles at the first call.

    If `has_plain_form` is set, the kernel can run as plain Python. The kernel runs as plain Python while `is_plain` is
    set.
    """

    def __init__(self, function: Callable[..., Any], *, has_plain_form: bool) -> None:
        self.has_plain_form = has_plain_form
        self.is_plain = False
        self._function = function
        self._native: Any = None
        KERNELS.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        if self.is_plain:
            return call_with_plain_rows(self._function, arguments)
        return (self._native or self.native)(*arguments)

    @property
    def module(self) -> str:
        """Return the name of the kernel's module."""
        return self._function.__module__

    @property
    def native(self) -> Any:
        """Return the form of the kernel that numba compiles."""
        with _LOCK:
            if self._native is None:
                from rmqctl.kernels.native import compile_kernel

                self._native = compile_kernel(with_native_parts(self._function))
                self.use_cache()
            return self._native

    def use_cache(self) -> None:
        """Use the current cache, unless the kernel is already compiled."""
        if self._native is not None and not self._native.overloads:
            from rmqctl.kernels.native import cache_of

            self._native._cache = cache_of(self._native.py_func, is_kept=_IS_KEPT.is_set())

    def is_compiled_here(self) -> bool:
        """Return whether this process compiled the kernel, or is compiling it."""
        return self._native is not None and sum(self._native.stats.cache_misses.values()) > 0


def kernel(function: Callable[..., Any]) -> Any:
    """Decorate a kernel that numba compiles at its first call."""
    return Kernel(function, has_plain_form=False)


def kernel_or_plain(function: Callable[..., Any]) -> Any:
    """Decorate a kernel that runs either compiled by numba or as plain Python.

    The results must be the same in plain Python and after compilation by numba. In plain Python, numbers do not
    overflow, and numpy's unsigned types do not accept negative numbers.
    """
    return Kernel(function, has_plain_form=True)


def inline_kernel(function: Callable[..., Any]) -> Any:
    """Decorate a function that is compiled as a part of each kernel that calls it."""
    return part_with_plain(function)(function)


def part_with_plain(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `inline_kernel`, with `plain` as the Python form."""

    def make(function: Callable[..., Any]) -> Any:
        def make_native() -> Any:
            from rmqctl.kernels.native import compile_part

            return compile_part(with_native_parts(function))

        return Part(plain, make_native)

    return make


def native_part(name: str, plain: Callable[..., Any]) -> Any:
    """Return a Part whose native form is `rmqctl.kernels.native.PARTS[name]`."""

    def make_native() -> Any:
        from rmqctl.kernels.native import PARTS

        return PARTS[name]

    return Part(plain, make_native)


def with_native_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of `function` that calls native forms instead of Parts."""
    names = function.__globals__
    used = {name: names[name] for name in function.__code__.co_names if name in names}
    native = {name: found.native for name, found in used.items() if isinstance(found, Part | Kernel)}
    linked = FunctionType(function.__code__, {**names, **native}, function.__name__, function.__defaults__)
    linked.__qualname__, linked.__module__ = function.__qualname__, function.__module__
    return linked


def keep_compiled(folder: str) -> None:
    """Use a folder as the cache of compiled kernels from now on."""
    from rmqctl.kernels.native import keep_in

    keep_in(folder)
    _IS_KEPT.set()
    for each in KERNELS:
        each.use_cache()


def keep_nothing() -> None:
    """Stop using the cache of compiled kernels."""
    _IS_KEPT.clear()
    for each in KERNELS:
        each.use_cache()


def compiling() -> bool:
    """Return whether this process compiled a kernel, or is compiling one.

    The result is False if this process only loaded kernels from the cache.
    """
    return any(each.is_compiled_here() for each in KERNELS)
