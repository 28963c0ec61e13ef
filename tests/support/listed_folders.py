"""Watch the folders that a Storage lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def watch_listings(monkeypatch: pytest.MonkeyPatch, on_folder: Callable[[Path], None]) -> None:
    """Call `on_folder` with each folder before it is listed; an error of `on_folder` is the listing's."""
    for name in ("listing", "kinds", "plain_files"):
        real = getattr(Storage, name)

        def watched(self: Storage, folder: Path | str, real: Callable[[Storage, Any], Any] = real) -> Any:
            on_folder(Path(folder))
            return real(self, folder)

        monkeypatch.setattr(Storage, name, watched)
