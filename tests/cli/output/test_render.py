"""Tables on a terminal and elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from operator import itemgetter
from typing import Any
from unittest.mock import patch

import pytest

from examples.pictures import Terminal
from rmqctl.cli.output.render import (
    ROWS_OF_TABULATE,
    indented_json,
    print_fields,
    print_line_of_text,
    print_rows,
    print_table,
)
from rmqctl.cli.output.table import PROSE_MIN, aligned, record_head, wrapped_columns
from rmqctl.cli.output.tone import Tone, Toned

COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "OFFSET": itemgetter("offset"),
    "KEYS": itemgetter("keys"),
    "DAMAGE": lambda row: None,
}
ROWS = [{"offset": 7, "keys": "a"}, {"offset": 123456789, "keys": "o1 c2"}]
OFFSETS = ["4611686018427387904", "17"]
PROSE = ["one two three four five six seven eight nine ten", "short"]


def on_terminal(columns: int, show: Callable[[], None]) -> list[str]:
    """The lines that a terminal shows, without colours."""
    screen = Terminal()
    with redirect_stdout(screen), patch.dict(os.environ, {"TERM": "xterm", "COLUMNS": str(columns)}):
        show()
    return re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()


def live(rows: list[dict[str, Any]]) -> None:
    print_rows("dump", "items", iter(rows), "table", (), COLUMNS, head={}, live=True)


def test_a_long_table_is_laid_out_as_a_short_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[f"  topic-{number} ", number, None, Toned("good", Tone.GOOD)] for number in range(ROWS_OF_TABULATE)]
    headings = ["TOPIC", "N", "NOTHING", "TONE"]
    print_table(headings, rows)
    short = capsys.readouterr().out.splitlines()
    print_table(headings, [*rows, rows[-1]])
    assert capsys.readouterr().out.splitlines() == [*short, short[-1]]
    print_table(headings[:1], [["wide" * 9]] * (ROWS_OF_TABULATE + 1))
    assert capsys.readouterr().out.splitlines()[1:3] == ["-" * 36, "wide" * 9]


def test_live_rows_are_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    live(ROWS * 2)
    assert capsys.readouterr().out.splitlines() == [
        "OFFSET  KEYS  DAMAGE",
        "------  ----  ------",
        "7       a",
        "123456789  o1 c2",
        "7          a",
        "123456789  o1 c2",
    ]


def test_live_rows_are_records_on_a_narrow_terminal() -> None:
    lines = on_terminal(10, lambda: live(ROWS))
    assert [line for line in lines if "OFFSET" in line] == ["OFFSET  7", "OFFSET  123456789"]
    assert [line for line in lines if "[ 2 ]" in line]


def test_records_have_only_fields_with_a_value() -> None:
    rows: list[list[Any]] = [[1, "k" * 30, None], [2, None, Toned("hole", Tone.BAD)]]
    lines = on_terminal(30, lambda: print_table(["OFFSET", "KEYS", "DAMAGE"], rows))
    fields = [line.split() for line in lines if "[" not in line]
    assert fields == [["OFFSET", "1"], ["KEYS", "k" * 30], ["OFFSET", "2"], ["DAMAGE", "hole"]]


def test_a_column_without_a_value_is_left_out_on_a_terminal() -> None:
    lines = on_terminal(80, lambda: print_table(["CODE", "COUNT"], [["hole", None]]))
    assert [line.rstrip() for line in lines] == ["CODE", "hole"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("then", ["then  look for the file, and put it back"]),
        ("meaning", ["meaning  look for the file, and put it", "         back"]),
    ],
)
def test_a_long_value_goes_on_right_of_its_name(name: str, lines: list[str]) -> None:
    assert on_terminal(40, lambda: print_fields([(name, "look for the file, and put it back")])) == lines


def test_a_narrow_table_loses_the_day_then_columns_and_keeps_its_numbers() -> None:
    headings = ["PHYSICALOFFSET", "SIZE", "STORED", "TOPIC", "MESSAGES", "BORNHOST"]
    rows: list[list[Any]] = [[n, 9, f"2026-11-21T09:58:4{n}.123Z", "orders", 5000 + n, "10.0.0.1:4711"] for n in (1, 2)]
    shown = {width: on_terminal(width, lambda: print_table(headings, rows)) for width in (85, 65, 60, 20)}
    assert "2026-11-21T09:58:42.123Z" in shown[85][2]
    assert shown[85][2].split()[:2] == ["2", "9"]
    assert (" 09:58:42 " in shown[65][2], shown[65][3]) == (True, "times of 2026-11-21, UTC")
    assert shown[60][3] == "times of 2026-11-21, UTC; no room for BORNHOST"
    assert all("5,002" in shown[width][2] and "             2" in shown[width][2] for width in (85, 65, 60))
    assert shown[20][0].startswith("-[ 1 ]")
    assert {"PHYSICALOFFSET  1", "STORED          2026-"} <= {line[:21].rstrip() for line in shown[20]}


def test_the_users_own_topics_come_first_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[topic, 1] for topic in ("%DLQ%a", "RMQ_SYS_TRANS_HALF_TOPIC", "b", "a")]
    print_table(["TOPIC", "QUEUES"], rows)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["b", "a", "%DLQ%a", "RMQ_SYS_TRANS_HALF_TOPIC"]
    print_table(["PHYSICALOFFSET", "TOPIC"], [[at, topic] for at, (topic, _) in enumerate(rows)])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["0", "1", "2", "3"]


def test_a_line_wraps_at_words_and_never_in_a_command() -> None:
    text = "12345 messages at 12345, 2048 bytes: `rmqctl recover a/store --dry-run` shows them"
    assert on_terminal(40, lambda: print_line_of_text(text)) == [
        "12,345 messages at 12345, 2.0 KiB:",
        "`rmqctl recover a/store --dry-run` shows",
        "them",
    ]


def test_a_tone_is_only_text_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["CODE", "AT"], [[Toned("hole", Tone.BAD), 3]])
    assert capsys.readouterr().out.splitlines() == ["CODE    AT", "------  ----", "hole    3"]


@pytest.mark.parametrize("topic", ['\u00e9\u009b\\"\n{}[],: ', "\udcff", "\\udcff"])
def test_a_large_document_is_indented_as_a_small_one(topic: str) -> None:
    document = {"a": [], "b": {}, "rows": [{topic: topic, "n": 2**70, "f": -1.5e-7, "x": None}]}
    with patch("rmqctl.cli.output.render.LARGE_DOCUMENT", 0):
        large = indented_json(document)
    assert large == indented_json(document)


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


@pytest.mark.parametrize(("heading", "keeps_order"), [("TIME", False), ("FIRST", True)])
def test_rows_in_an_order_of_their_own_stay_in_it(
    heading: str, keeps_order: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"topic": "SCHEDULE_TOPIC_XXXX", "at": "1"}, {"topic": "orders", "at": "2"}]
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {"TOPIC": itemgetter("topic"), heading: itemgetter("at")}
    print_rows("job.sql", "rows", rows, "table", (), columns, head={}, keeps_order=keeps_order)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:]] == ["1", "2"]
