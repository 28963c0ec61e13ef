"""Counts what is asked of pyarrow's file systems."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rmqctl.logfile.system import remote_storage

if TYPE_CHECKING:
    import pytest


def counted_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts from now on: list, entry, open, read."""
    asked: Counter[str] = Counter()
    system_of = remote_storage._system_of

    class CountedFile:
        def __init__(self, file: Any) -> None:
            self._file = file

        def size(self) -> int:
            return int(self._file.size())

        def read_at(self, size: int, position: int) -> Any:
            asked["read"] += 1
            return self._file.read_at(size, position)

    class CountedSystem:
        def __init__(self, system: Any) -> None:
            self._system = system

        def get_file_info(self, place: Any) -> Any:
            asked["entry" if isinstance(place, str) else "list"] += 1
            return self._system.get_file_info(place)

        def open_input_file(self, path: str) -> CountedFile:
            asked["open"] += 1
            return CountedFile(self._system.open_input_file(path))

    def counted(url: str) -> tuple[Any, str]:
        system, path = system_of(url)
        return CountedSystem(system), path

    monkeypatch.setattr(remote_storage, "_system_of", counted)
    return asked
