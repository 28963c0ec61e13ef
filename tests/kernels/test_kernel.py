"""What kernels may be given, and what they give back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from rmqctl.format.columns import row_type
from rmqctl.kernels.kernel import kernel

ROWS = row_type("i4 small", "i8 large")


class Two(NamedTuple):
    one: Any
    other: Any


@kernel
def _totals(rows: Any, two: Any, add_one: bool, number: int) -> Any:
    large, small = np.int64(number), np.uint32(0)
    for i in range(len(rows)):
        large += rows[i].large + two.other[i, 1]
        small += np.uint32(rows[i].small)
        rows[i].large = two.one[i]
    return large + add_one, small, add_one


@kernel
def _ratio(numbers: Any) -> int:
    found: int = numbers[0] // numbers[1]
    return found


@kernel
def _nothing(numbers: Any) -> None:
    numbers[0] = 7


def test_every_kind_of_argument_and_result() -> None:
    rows = np.array([(1, 10), (2, 20)], ROWS)
    every_second = np.arange(8, dtype=np.int64)[::2]  # not contiguous: 0, 2, 4, 6
    two = Two(every_second, np.array([[0, 5], [0, 6]], np.int64))
    assert _totals(rows, two, True, np.int32(-100)) == (-100 + 30 + 11 + 1, 3, True)
    assert rows["large"].tolist() == [0, 2]
    contiguous = Two(every_second.copy(), two.other)
    assert _totals(rows[1:], contiguous, False, 0) == (2 + 5, 2, False)
    numbers = np.array([7, 2], np.int16)
    assert _ratio(numbers) == 3
    numbers.flags.writeable = False
    assert _ratio(numbers) == 3
    numbers.flags.writeable = True
    assert _nothing(numbers) is None
    assert numbers[0] == 7


def test_an_exception_of_a_kernel_is_raised() -> None:
    with pytest.raises(ArithmeticError):
        _ratio(np.array([1, 0], np.int64))


def test_what_is_no_argument() -> None:
    with pytest.raises(TypeError, match="str"):
        _ratio("12")
