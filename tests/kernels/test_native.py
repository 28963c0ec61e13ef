"""A version of numba with another calling convention is refused, before a kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rmqctl.errors import BadRequest
from rmqctl.kernels.machine_code import Kinds, MachineCode, kinds_of
from rmqctl.kernels.native import check_convention, check_words, compile_kernel

KINDS = kinds_of((np.zeros(1, np.uint8), 7, True))
WORDS = ["ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "i64", "i64", "i64", "i8"]


@pytest.mark.parametrize(
    "words", [WORDS, [*WORDS[:-1], "i1"], ["{ i8*, i64 }*" if word == "ptr" else word for word in WORDS]]
)
def test_the_words_that_the_caller_passes(words: list[str]) -> None:
    check_words(words, KINDS, "0.60")


@pytest.mark.parametrize("words", [WORDS[1:], [*WORDS, "i64"], [*WORDS[:-1], "i64"], [*WORDS[:4], "i32", *WORDS[5:]]])
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(BadRequest, match="what numba 99 compiles"):
        check_words(words, KINDS, "99")


def test_numba_of_today_is_known() -> None:
    check_convention(compile_kernel, "today")


def test_a_kernel_that_sees_something_else_is_refused() -> None:
    """As if numba had changed the order of the words of an array."""

    def compiled(report: Callable[..., Any], kinds: Kinds) -> MachineCode:
        def other(rows: Any, table: Any, is_set: bool, number: int, reported: Any) -> tuple[bool, int]:
            reported[0] = rows.itemsize
            return is_set, number

        return compile_kernel(other, kinds)

    with pytest.raises(BadRequest, match="what numba 99 compiles"):
        check_convention(compiled, "99")
