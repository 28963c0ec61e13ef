"""Kernels: functions over numpy arrays, compiled by numba or run as plain Python.

numba is imported (`rmqctl.kernels.native`) when the first kernel is compiled or loaded from the cache: small inputs run
without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from rmqctl.kernels.argument_kinds import Kinds, kinds_of
from rmqctl.kernels.kernel_cache import KernelCache, kernel_name

KERNELS: list[Kernel] = []
_LOCK = threading.RLock()
_CACHE: list[KernelCache] = []


class Part:
    """A function that kernels call, in a Python form and in a compiled form.

    `plain` is the Python form; `make_native` makes `native`, the one that numba compiles.
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

    If `has_plain_form` is set, it can run as plain Python, and does so while `is_plain` is set. `is_compiled_here` is
    set when this process begins to compile it.
    """

    def __init__(self, function: Callable[..., Any], *, has_plain_form: bool) -> None:
        self.has_plain_form = has_plain_form
        self.is_plain = False
        self.is_compiled_here = False
        self._function = function
        self._loaded: dict[Kinds, Callable[..., Any]] = {}
        KERNELS.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        if self.is_plain:
            return call_with_plain_rows(self._function, arguments)
        kinds = kinds_of(arguments)
        return (self._loaded.get(kinds) or self._load(kinds))(*arguments)

    @property
    def module(self) -> str:
        """Return the name of the kernel's module."""
        return self._function.__module__

    def _load(self, kinds: Kinds) -> Callable[..., Any]:
        with _LOCK:
            if kinds not in self._loaded:
                cache = _CACHE[0] if _CACHE else None
                self.is_compiled_here = cache is None or not cache.has([kernel_name(self._function)])
                from rmqctl.kernels.native import compile_kernel

                self._loaded[kinds] = compile_kernel(with_native_parts(self._function), kinds, cache)
            return self._loaded[kinds]


def kernel(function: Callable[..., Any]) -> Any:
    """Decorate a kernel that numba compiles at its first call.

    Its arguments are arrays, NamedTuples of arrays, integers of int64 and booleans. It must not allocate an array, and
    returns None, a number, or a tuple of numbers. Arrays that it writes must be writable, which nothing checks.
    """
    return Kernel(function, has_plain_form=False)


def kernel_or_plain(function: Callable[..., Any]) -> Any:
    """Decorate a kernel that runs either compiled by numba or as plain Python.

    The rules of `kernel` apply, too, and both must give the same results. In plain Python, numbers do not overflow, and
    numpy's unsigned types do not accept negative numbers.
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


def with_native_parts(function: Callable[..., Any]) -> FunctionType:
    """Return a copy of `function` that calls native forms instead of Parts."""
    names = function.__globals__
    used = {name: names[name] for name in function.__code__.co_names if name in names}
    native = {name: found.native for name, found in used.items() if isinstance(found, Part)}
    linked = FunctionType(function.__code__, {**names, **native}, function.__name__, function.__defaults__)
    linked.__qualname__, linked.__module__ = function.__qualname__, function.__module__
    return linked


def keep_compiled(cache: KernelCache | None) -> None:
    """Use this cache of compiled kernels from now on; None: no cache."""
    _CACHE[:] = [] if cache is None else [cache]


def compiling() -> bool:
    """Return whether this process compiled a kernel, or is compiling one.

    Kernels loaded from the cache do not count.
    """
    return any(each.is_compiled_here for each in KERNELS)


class PlainRows:
    """The rows of a structured numpy array, as Python objects.

    A kernel reads and writes the fields of rows as attributes, which are faster in small Python objects than in numpy's
    rows. A row becomes one when a kernel reads it for the first time; after the call, changed rows are written back to
    their array.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self._rows: dict[int, tuple[Any, SimpleNamespace]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._array)

    def __getitem__(self, number: int) -> SimpleNamespace:
        """Return a row as a Python object. There is one object for each row."""
        found = self._rows.get(number)
        if found is None:
            values = self._array[number].item()
            found = self._rows[number] = (
                values,
                SimpleNamespace(**dict(zip(self._array.dtype.names, values, strict=True))),
            )
        return found[1]

    def write_back(self) -> None:
        """Write the changed rows to the array."""
        for number, (before, row) in self._rows.items():
            values = tuple(vars(row).values())
            if values != before:
                self._array[number] = values


def call_with_plain_rows(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a kernel's function as plain Python.

    Each argument that is a structured array is replaced by PlainRows.
    """
    given = [PlainRows(argument) if _has_fields(argument) else argument for argument in arguments]
    try:
        return function(*given)
    finally:
        for rows in given:
            if isinstance(rows, PlainRows):
                rows.write_back()


def _has_fields(argument: Any) -> bool:
    return isinstance(argument, np.ndarray) and argument.dtype.names is not None
