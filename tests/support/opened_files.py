"""Watch the files that a Storage opens."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def replace_open(monkeypatch: pytest.MonkeyPatch, opening: Callable[[Storage, Path], int]) -> None:
    """Open each file by `opening`, however the Storage is asked for it."""
    monkeypatch.setattr(Storage, "plain_folders", lambda *_: repeat(None))  # it opens files itself
    monkeypatch.setattr(Storage, "open", lambda storage, path: opening(storage, Path(path)))
