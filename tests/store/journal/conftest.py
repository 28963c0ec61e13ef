from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faulty system decides what is on the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
