"""Delayed messages and half messages that no broker passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.forensics.groups.waiting_audit import audit_waiting
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore

Golden = Callable[[str], Path]
DAY_MS = 86_400_000


def found(store: Path, after_ms: int) -> list[tuple[str, int | None, int]]:
    """The findings if the log's last message had been stored `after_ms` later."""
    opened = ReadOnlyStore(store, BrokerConf())
    last = opened.commit_log.end()[1]
    assert last is not None
    result = [(one.code, one.queue_offset, one.count) for one in audit_waiting(opened, last.store_timestamp + after_ms)]
    opened.close()
    return result


def test_levels_that_are_hours_late_stand_still(golden: Golden) -> None:
    """The golden store has levels 1 to 18 of 1 s to 2 h; level 1 is delivered."""
    store = golden("497-delay")
    assert found(store, 0) == []
    late = found(store, 2 * 3_600_000)
    assert len(late) == 14  # not 1 h and 2 h, which are due then
    assert late[0] == ("delay-overdue", 0, 4)
    assert len(found(store, DAY_MS)) == 16 - 1


@pytest.mark.parametrize("name", ["broker-497", "broker-533", "broker-550"])
def test_what_brokers_have_passed_on_is_not_late(name: str, golden: Golden) -> None:
    assert found(golden(name), 30 * DAY_MS) == []


def test_half_messages_without_an_end_for_a_day(golden: Golden) -> None:
    """A half message that was checked, and so stored again, has the end of its last copy."""
    store = golden("broker-497")
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("{0:80", "{0:0").replace("{0:60", "{0:0"))
    assert found(store, 2 * DAY_MS) == []
    offsets.write_text(
        offsets.read_text().replace(
            'RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:0',
            'RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:58',
        )
    )
    assert [code for code, _, _ in found(store, 2 * DAY_MS)] == ["half-overdue"]
    assert found(store, DAY_MS // 2) == []
