from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the disk is the faulty system's to say."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
