"""Rows of numpy arrays as Python objects, for kernels that run as plain Python.

A kernel reads and writes the fields of rows as attributes. A row becomes a small Python object when a kernel reads the
row for the first time. Small Python objects are faster than numpy's rows with attributes. After the call of a kernel,
changed rows are written back to their array.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


class PlainRows:
    """The rows of a structured numpy array, as Python objects."""

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
