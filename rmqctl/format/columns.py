"""The numpy dtypes of fixed layouts.

They are made from the same table of fields as the structs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_EXT_UNIT, CQ_UNIT
from rmqctl.format.index_entry import INDEX_ENTRY
from rmqctl.format.layout import BIG_ENDIAN, Layout

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.void]  # a dtype below, or a kernel's rows; the docstring of the function says which
    Bytes = npt.NDArray[np.uint8]
    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.number[Any]]  # integers or floats, of a size that the docstring says
    Int = int | np.integer[Any]  # what numba takes for an integer
    Row = Any  # one of Rows: numba's code reads its fields as attributes, numpy's by their names


def dtype_of(layout: Layout) -> np.dtype[Any]:
    """Return the layout's dtype, big-endian and packed as on disk.

    It has the names of the layout's fields, which must all be integers.
    """
    return np.dtype([(field.name, f"{BIG_ENDIAN}i{field.size}") for field in layout.fields])


UNITS = dtype_of(CQ_UNIT)
EXT_UNITS = dtype_of(CQ_EXT_UNIT)
BATCH_UNITS = dtype_of(BATCH_CQ_UNIT)
ENTRIES = dtype_of(INDEX_ENTRY)


def row_type(*fields: str) -> np.dtype[Any]:
    """Return a dtype for the rows or the state of a numba kernel.

    It is packed, in the machine's byte order. Each argument is a numpy type code, followed by the names of the fields
    with this type.

    >>> row_type("i8 position", "i4 size queue").itemsize
    16
    """
    return np.dtype([(name, code) for code, *names in map(str.split, fields) for name in names])
