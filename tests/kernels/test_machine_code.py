"""Kernels are called as machine code: what they may be given, what they give back, and what a damaged file does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from rmqctl.format.columns import row_type
from rmqctl.kernels import machine_code
from rmqctl.kernels.kernel import kernel
from rmqctl.kernels.machine_code import MachineCode, kinds_of
from rmqctl.kernels.native import compile_kernel

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
    assert _nothing(numbers) is None
    assert numbers[0] == 7


def test_an_exception_of_a_kernel_is_raised() -> None:
    with pytest.raises(ArithmeticError, match="_ratio"):
        _ratio(np.array([1, 0], np.int64))


def test_what_is_no_argument() -> None:
    with pytest.raises(TypeError, match="str"):
        _ratio("12")


def test_a_damaged_file_has_no_code() -> None:
    raw = MachineCode("name", "qq", b"code\nwith lines").to_bytes("file.o")
    assert MachineCode.from_bytes("file.o", raw) == ("name", "qq", b"code\nwith lines")
    damaged = [raw[:length] for length in range(len(raw))]
    damaged += [bytes((*raw[:at], raw[at] ^ 1, *raw[at + 1 :])) for at in range(len(raw))]
    assert not any(MachineCode.from_bytes("file.o", one) for one in damaged)
    assert MachineCode.from_bytes("other.o", raw) is None


def test_kernels_with_the_same_symbol_do_not_mix() -> None:
    """Symbols contain the numbers of record types, which are others in a process that compiles other kernels."""

    def first(numbers: Any) -> Any:
        return numbers[0]

    def other(numbers: Any) -> Any:
        return numbers[1]

    numbers = np.array([3, 4], np.int64)
    kinds = kinds_of((numbers,))
    one, two = (compile_kernel(function, kinds) for function in (first, other))
    object_file = two.object_file.replace(two.symbol.encode(), one.symbol.encode())
    assert object_file != two.object_file
    assert len(one.symbol) == len(two.symbol)
    callers = [
        machine_code.load(code, kinds) for code in (one, two._replace(symbol=one.symbol, object_file=object_file))
    ]
    assert [call((numbers,)) for call in callers] == [3, 4]
