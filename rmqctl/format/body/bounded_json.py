"""A JSON parser that uses bounded memory, for documents of any content.

A document is accepted if and only if

- it is JSON without NaN and Infinity;
- it has at most `signs_max` of the signs `, : [ { "`;
- it is nested at most DEPTH_MAX deep;
- integers fit in 64 bits, and other numbers are finite.
"""

from __future__ import annotations

import json
import math
from typing import Any

DEPTH_MAX = 100
SIGNS = ',:[{"'
_INTEGER_CHARACTERS_MAX = 20  # the length of -9223372036854775808
_LEAST, _LARGEST = -(2**63), 2**63 - 1


def check_signs(text: str, signs_max: int) -> None:
    """Raise ValueError if a document has more than `signs_max` of `, : [ { "`.

    Real documents have fewer. A parsed document needs at most 100 bytes of memory for each of these signs.
    """
    if sum(map(text.count, SIGNS)) > signs_max:
        raise ValueError(f"more than {signs_max} commas, colons, quotes and opening brackets")


def loads(text: str, signs_max: int) -> Any:
    """Parse a document.

    Raises ValueError, with the reason in one line, if it is not accepted.
    """
    check_signs(text, signs_max)
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_depth(value)
    return value


def _integer(text: str) -> int:
    if len(text) <= _INTEGER_CHARACTERS_MAX and _LEAST <= (number := int(text)) <= _LARGEST:
        return number
    raise ValueError(f"the integer {text[:_INTEGER_CHARACTERS_MAX]}... has more than 64 bits")


def _number(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    raise ValueError(f"the number {text[:_INTEGER_CHARACTERS_MAX]} is too large")


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _check_depth(value: Any) -> None:
    """Raise ValueError for a value that is nested too deeply for recursive code."""
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise ValueError("nested too deeply")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
