"""Whether a table fits a terminal."""

from __future__ import annotations

import pytest

from rmqctl.cli.output.layout import PROSE_MIN, aligned, record_head, wrapped_columns

OFFSETS = ["4611686018427387904", "17"]
PROSE = ["one two three four five six seven eight nine ten", "short"]


def test_a_table_that_fits_stays_as_it_is() -> None:
    assert wrapped_columns(["A", "B"], [list(row) for row in zip(OFFSETS, PROSE, strict=True)], 80, len) == {}


def test_prose_is_folded_where_enough_is_left_for_it() -> None:
    rows = [list(row) for row in zip(OFFSETS, PROSE, strict=True)]
    assert wrapped_columns(["A", "B"], rows, 19 + 2 + PROSE_MIN, len) == {1: PROSE_MIN}
    assert wrapped_columns(["A", "B"], rows, 19 + 2 + PROSE_MIN - 1, len) is None


@pytest.mark.parametrize("word", ["x" * 56, "commitlog/" + "0" * 46])
def test_prose_with_a_long_word_needs_room_for_it(word: str) -> None:
    assert wrapped_columns(["A"], [[f"UNIQ_KEY {word}"]], 56, len) == {0: 56}
    assert wrapped_columns(["A"], [[f"UNIQ_KEY {word}"]], 55, len) is None


def test_numbers_are_never_folded() -> None:
    assert wrapped_columns(["A", "B"], [OFFSETS], 20, len) is None


def test_a_line_ends_without_blanks() -> None:
    assert aligned(["a", "b", ""], [3, 2, 5], len) == "a    b"


def test_records_are_numbered() -> None:
    assert record_head(3, 80) == "-[ 3 ]" + "-" * 34
    assert record_head(3, 8) == "-[ 3 ]--"
