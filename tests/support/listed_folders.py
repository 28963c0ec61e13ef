"""Watch the folders that a Storage lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def watch_listings(monkeypatch: pytest.MonkeyPatch, on_folder: Callable[[Path], None]) -> None:
    """Call `on_folder` with each folder before it is listed; an error of `on_folder` is the listing's."""
    for name in ("listing", "kinds"):
        real = getattr(Storage, name)

        def watched(self: Storage, folder: Path, real: Callable[[Storage, Path], Any] = real) -> Any:
            on_folder(folder)
            return real(self, folder)

        monkeypatch.setattr(Storage, name, watched)
