"""Watch the folders that a Storage lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

    from rmqctl.logfile.system.plain_folders import PlainFile


def watch_listings(monkeypatch: pytest.MonkeyPatch, on_folder: Callable[[Path], None]) -> None:
    """Call `on_folder` with each folder before it is listed; an error of `on_folder` is the listing's."""
    for name in ("listing", "kinds"):
        real = getattr(Storage, name)

        def watched(self: Storage, folder: Path | str, real: Callable[[Storage, Any], Any] = real) -> Any:
            on_folder(Path(folder))
            return real(self, folder)

        monkeypatch.setattr(Storage, name, watched)
    plain_folders = Storage.plain_folders

    def is_listed(folder: Path) -> bool:
        try:
            on_folder(folder)
        except OSError:
            return False
        return True

    def watched_plain(self: Storage, parent: str, names: Iterable[str]) -> Iterator[list[PlainFile] | None]:
        for name, plain in zip(names, plain_folders(self, parent, names), strict=False):
            yield plain if is_listed(Path(parent, name)) else None

    monkeypatch.setattr(Storage, "plain_folders", watched_plain)
