"""Disks that are half full, whatever the machine's disks are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from examples.pictures import HALF_FULL
from rmqctl.logfile.system.storage import Storage


@contextmanager
def half_full_disks() -> Iterator[None]:
    """Let each disk seem half full: then no disk makes a broker delete files."""
    with patch.object(Storage, "disk_space", return_value=HALF_FULL):
        yield
