"""When the disk is full, what goes when, and who has not read it: by a store and a disk that are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.forensics.groups.lag import Lag
from rmqctl.forensics.space.unread import unread
from rmqctl.format.profile import PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.operations.clean.disk_use import DiskUse
from rmqctl.operations.clean.forecast import Forecast, forecast, losses
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.expiring_store import HOUR_MS, NOW, OLD, write_aged

GIB = 1 << 30
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def store(tmp_path: Path) -> ReadOnlyStore:
    write_aged(tmp_path, OLD)
    return ReadOnlyStore(tmp_path, BrokerConf(expiry=ExpirySettings(delete_when=(4,))))


def forecast_at(store: ReadOnlyStore, profile: Profile, growth: int, used: int) -> Forecast:
    """The forecast on one disk of 100 GiB; GiB a day, and GiB."""
    disks = [
        DiskUse(path, used, used * GIB, 100 * GIB, 100 * GIB, 77)
        for path in (store.path.commitlogs[0], store.path.part("consumequeue"))
    ]
    return forecast(store, profile, growth * GIB, NOW, disks[:1], disks[1])


@pytest.mark.parametrize(
    ("used", "growth", "days"),
    [
        (50, 5, 7),  # 85 GiB after 7 days, and nothing of it has expired: fileReservedTime is too long
        (50, 1, None),  # 72 h are 3 GiB
        (84, 40, 0),
        (20, 20, None),  # 80 GiB after 3 days: over 75 %, what has expired goes at any hour
        (20, 30, 65 / 30),
    ],
)
def test_full_within_a_day_of_what_is_known(store: ReadOnlyStore, used: int, growth: int, days: float | None) -> None:
    reserved = ExpirySettings(reserved_ms=30 * DAY_MS, delete_when=(4,))
    store.conf = store.conf._replace(expiry=reserved if growth == 5 else ExpirySettings(delete_when=(4,)))
    found = forecast_at(store, PROFILE_4_9, growth, used)
    in_days = None if found.full is None else (found.full - NOW) / DAY_MS
    assert in_days == (None if days is None else pytest.approx(days, abs=0.1))
    assert found.kept is not None
    assert found.kept // GIB == growth * (31 if growth == 5 else 4)  # fileReservedTime, and up to a day until 4 o'clock


def test_a_disk_without_forced_deletion_stops_the_broker(store: ReadOnlyStore) -> None:
    store.conf = store.conf._replace(expiry=ExpirySettings(reserved_ms=30 * DAY_MS, clean_forcibly=False))
    found = forecast_at(store, PROFILE_5_3, 5, 50)
    assert found.full is not None
    assert (found.full - NOW) / DAY_MS == pytest.approx(8, abs=0.1)  # 90 %
    assert not found.deletes_early


def test_what_a_group_has_not_read_goes_with_its_file(tmp_path: Path) -> None:
    root = write_aged(tmp_path, OLD)
    offsets = {"offsetTable": {"OrderPaid@billing": {"1": 6}, "OrderPaid@audit": {"1": 20}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    store = ReadOnlyStore(root, BrokerConf(expiry=ExpirySettings(delete_when=(4,))))
    found = forecast_at(store, PROFILE_4_9, 0, 10)
    names = [file.name for file in store.commit_log.queue.files]
    first, *_ = sorted(set(found.deleted.values()))
    assert [found.deleted[name] for name in names[:3]] == [first] * 3  # older than 72 h, at the next 4 o'clock
    assert 0 < first - NOW <= DAY_MS
    assert found.deleted[names[3]] - NOW > 71 * HOUR_MS
    assert names[4] not in found.deleted  # the last one, which nobody fills
    lost = losses(store, found.deleted, unread(store, Lag(store)))
    assert [(one.group, one.at, one.messages) for one in lost] == [
        ("billing", first, 6),  # of 12
        ("billing", found.deleted[names[3]], 4),
    ]
