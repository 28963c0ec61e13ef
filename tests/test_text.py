"""Words of a command line, as the user's shell reads them, and cells, as a spreadsheet does."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.text import no_formula, quoted


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1, max_size=8))
def test_a_quoted_word_is_one_word_in_one_line(words: list[str]) -> None:
    line = " ".join(map(quoted, words))
    assert line.splitlines() == [line]
    got = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert got.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "a=1", ""])
def test_formulas(text: str) -> None:
    assert no_formula(text) == (text if text in ("a=1", "") else f"'{text}")
