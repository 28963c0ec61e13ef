"""Changes in words, and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.journal.changes import Change, Delete, Install, Resize, Write, Zero


@pytest.mark.parametrize(
    ("change", "words", "document"),
    [
        (
            Write("f", 5, b"abc"),
            "write 3 bytes at byte 5 of f",
            {"action": "write", "path": "f", "fileOffset": 5, "bytes": 3},
        ),
        (Zero("f", 5, 9), "zero bytes 5 to 9 of f", {"action": "zero", "path": "f", "fileOffset": 5, "bytes": 4}),
        (Resize("f", 7), "make f 7 bytes long", {"action": "resize", "path": "f", "bytes": 7}),
        (Delete("f"), "delete f", {"action": "delete", "path": "f"}),
        (Install("f", Path(), "s"), "install f", {"action": "install", "path": "f"}),
    ],
)
def test_changes_are_told(change: Change, words: str, document: dict[str, object]) -> None:
    assert change.describe() == words
    assert change.to_json() == document
