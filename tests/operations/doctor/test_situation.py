"""The expired files that `doctor` shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.operations.doctor.situation import ExpiredFiles, situation_of
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import guess_profile
from tests.support.disks import half_full_disks

if TYPE_CHECKING:
    import pytest

Golden = Callable[[str], Path]
HOUR_NS = 3_600_000_000_000


def expired_files(root: Path, settings: ExpirySettings) -> ExpiredFiles | None:
    with closing(ReadOnlyStore(root)) as store, half_full_disks():
        store.conf = store.conf._replace(expiry=settings)
        return situation_of(store, guess_profile(store)).expired


def test_the_same_files_are_expired_at_each_hour(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden("497-basic")
    found = set()
    for hour in range(24):
        with monkeypatch.context() as patched:
            now = time.time_ns() + (10_000 + hour) * HOUR_NS
            patched.setattr("rmqctl.operations.doctor.situation.time.time_ns", lambda now=now: now)
            found.add(expired_files(root, ExpirySettings()))
    assert [each is not None and each.files > 0 for each in found] == [True]


def test_no_file_expires_if_the_broker_never_deletes(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns() + 10_000 * HOUR_NS
    monkeypatch.setattr("rmqctl.operations.doctor.situation.time.time_ns", lambda: now)
    found = expired_files(golden("497-basic"), ExpirySettings(delete_when=(24,)))
    assert found is not None
    assert found.files == 0
