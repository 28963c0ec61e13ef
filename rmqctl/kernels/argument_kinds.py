"""The kinds of arguments for which a kernel is compiled, each for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

# kinds of arguments; the kind of an array is (dtype, number of dimensions, flags of its layout), and the kind of a
# NamedTuple of arrays is (its class, the kinds of the arrays)
INTEGER, BOOLEAN = "integer", "boolean"
Kinds = tuple[Any, ...]
CONTIGUOUS, ALIGNED = 0x1, 0x100  # numpy's flags


def kinds_of(arguments: tuple[Any, ...]) -> Kinds:
    """Return the kinds of a kernel's arguments.

    Raises TypeError for an argument that no kernel can have.
    """
    return tuple(map(_kind_of, arguments))


def _kind_of(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num & (CONTIGUOUS | ALIGNED)
    if isinstance(argument, tuple):
        return type(argument), kinds_of(argument)
    if isinstance(argument, bool | np.bool_):
        return BOOLEAN
    if isinstance(argument, int | np.integer):
        return INTEGER
    raise TypeError(f"a kernel has no argument of type {type(argument).__name__}")
