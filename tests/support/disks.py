"""Disks that are half full, whatever the machine's disks are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rmqctl.logfile.system.storage import DiskSpace, Storage

HALF_FULL = DiskSpace(total=2_000_000_000, free=1_000_000_000, usable=1_000_000_000, device=1)


@contextmanager
def half_full_disks() -> Iterator[None]:
    """Let each disk seem half full: then no disk makes a broker delete files."""
    with patch.object(Storage, "disk_space", return_value=HALF_FULL):
        yield
