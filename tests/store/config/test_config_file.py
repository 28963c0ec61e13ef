"""Texts that a broker's JSON parser takes as a configuration without entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILES
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.config.config_file import starts_empty

TOPICS, OFFSETS, GROUPS = "topics.json", "consumerOffset.json", "subscriptionGroup.json"
ALL, NONE, OF_1 = ("4.7", "4.9", "5.3", "5.4"), (), ("4.7", "4.9", "5.3")
# by ConfigManager.decode of 4.1.0, 4.5.2, 4.7.1, 4.9.0, 4.9.7, 5.0.0, 5.1.4, 5.3.3, 5.4.0 and 5.5.0
CASES = [
    (TOPICS, b"", ALL), (TOPICS, b"null", ALL), (TOPICS, b" null\n", ALL), (TOPICS, b"[]", OF_1),
    (TOPICS, b" \t\r\n", OF_1), (TOPICS, b"\x0b", NONE), (TOPICS, b"{", NONE), (TOPICS, b"[1]", NONE),
    (TOPICS, b"\0\0", NONE), (GROUPS, b"[]", OF_1), (GROUPS, b" ", ("5.3",)), (OFFSETS, b" ", ("4.7", "4.9")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "starting"), CASES)
def test_a_text_without_entries(name: str, text: bytes, starting: tuple[str, ...], tmp_path: Path) -> None:
    """In the .bak; in the main file, a broker takes it without a look at the .bak."""

    def found() -> list[str]:
        return [key for key, profile in PROFILES.items() if starts_empty(Storage(tmp_path), tmp_path, name, profile)]

    (tmp_path / name).write_bytes(b"{")
    (tmp_path / f"{name}.bak").write_bytes(text)
    assert found() == list(starting)
    if text:
        (tmp_path / name).write_bytes(text)
        (tmp_path / f"{name}.bak").write_bytes(b"{")
        assert found() == list(starting)


def test_a_backup_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / TOPICS).write_bytes(b"{")
    assert starts_empty(Storage(tmp_path), tmp_path, TOPICS, PROFILES["5.3"])
    (tmp_path / f"{TOPICS}.bak").write_bytes(b"[]")
    monkeypatch.setattr("rmqctl.store.config.config_file.CONFIG_SIZE_MAX", 1)
    assert not starts_empty(Storage(tmp_path), tmp_path, TOPICS, PROFILES["5.3"])
