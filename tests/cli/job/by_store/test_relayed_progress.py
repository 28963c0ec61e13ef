"""Progress of a thread: what was counted before it is shown counts, and what comes after it is not shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmqctl.cli.job.by_store.relayed_progress import RelayedProgress

if TYPE_CHECKING:
    import pytest


def test_bytes_before_and_while_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RelayedProgress()
    progress.advance(30)
    progress.advance(10)
    assert capsys.readouterr().err == ""
    with progress.shown("json", 100, "verify"):
        progress.advance(60)
    progress.advance(5)
    shown = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["progress"], line["bytes"], line["totalBytes"]) for line in shown] == [
        ("verify", 40, 100),
        ("verify", 100, 100),
    ]
