"""Check that numba compiles kernels as `rmqctl.kernels.machine_code` calls them.

The calling convention is a matter of numba, and a new version of numba can change it. With a wrong convention, a kernel
would read and write wrong places in memory. So the words of the arguments of each kernel are compared with those that
the caller passes. And before the first kernel is compiled, a small kernel must report its arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.format.columns import row_type
from rmqctl.kernels.machine_code import Kinds, MachineCode, kinds_of, load, types_of

_NAMES: dict[Any, tuple[str, ...]] = {
    ctypes.c_void_p: ("ptr",),
    ctypes.c_int64: ("i64",),
    ctypes.c_bool: ("i8", "i1"),
}
_ROWS = row_type("i4 small", "i8 large")


def check_words(words: Sequence[str], kinds: Kinds, version: str) -> None:
    """Compare LLVM's types of a kernel's arguments with the passed words.

    Raises BadRequest with the `version` of numba if they differ.
    """
    expected = [ctypes.c_void_p, ctypes.c_void_p, *(each for kind in kinds for each in types_of(kind))]
    found = ["ptr" if word.endswith("*") else word for word in words]  # older LLVM says what a pointer leads to
    if len(found) != len(expected) or not all(word in _NAMES[each] for word, each in zip(found, expected, strict=True)):
        raise _unknown(version)


@cache
def check_convention(compile_kernel: Callable[[Callable[..., Any], Kinds], MachineCode], version: str) -> None:
    """Compile and call a small kernel, which reports its arguments.

    Raises BadRequest with the `version` of numba if the kernel reports other values.
    """
    rows = np.array([(3, 1 << 40), (-5, 1 << 50), (7, 11)], _ROWS)
    table = np.arange(24, dtype=np.int64).reshape(4, 6)[::2, ::3]  # [[0, 3], [12, 15]], with gaps in memory
    reported = np.zeros(6, np.int64)
    arguments = rows, table, True, -9, reported
    kinds = kinds_of(arguments)
    found = load(compile_kernel(_report, kinds), kinds)(arguments)
    if found != (True, -9) or reported.tolist() != [3, -5, 11, 2, 15, 3]:
        raise _unknown(version)


def _report(rows: Any, table: Any, is_set: bool, number: int, reported: Any) -> tuple[bool, int]:
    """Write what the kernel sees of its arguments into `reported`."""
    reported[0] = len(rows)
    reported[1] = rows[1].small
    reported[2] = rows[2].large
    reported[3] = table.shape[0]
    reported[4] = table[1, 1]
    reported[5] = table[0, 1]
    return is_set, number


def _unknown(version: str) -> BadRequest:
    return BadRequest(
        f"rmqctl cannot call what numba {version} compiles", hint="install another version of numba; 0.60 is the oldest"
    )
