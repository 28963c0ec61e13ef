"""getMessage: every status, where a consumer goes on, and when a batch is full. tests/interop asks the real brokers the
same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from rmqctl.errors import Unreadable
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.serve.get_message import GetMessageResult, GetMessageStatus, TransferLimits
from rmqctl.store.serve.message_reader import MessageReader
from rmqctl.store.serve.subscription import Subscription
from tests.conftest import READABLE_NAMES, expected, unpack
from tests.support.file_edits import write_at
from tests.support.reading_store import HALF_EXPIRED, LARGE, NO_FIRST, NO_MIDDLE, RAISED, SMALL, WHOLE, damage, write

STATUS = GetMessageStatus
ORDER_PAID = 855


Opened = Callable[[Profile, Geometry, str], MessageReader]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Profile, Geometry], Path]:
    """Stores that are written once and copied."""

    @cache
    def once(profile: Profile, geometry: Geometry) -> Path:
        root = tmp_path_factory.mktemp("written") / "s"
        write(root, profile, geometry)
        return root

    return once


@pytest.fixture
def reader(written: Callable[[Profile, Geometry], Path], tmp_path: Path) -> Opened:
    def opened(profile: Profile, geometry: Geometry, how: str) -> MessageReader:
        shutil.copytree(written(profile, geometry), tmp_path / "s")
        damage(tmp_path / "s", how)
        conf = BrokerConf(consumequeue_file_size=geometry.consumequeue_file_size)
        return MessageReader(ReadOnlyStore(tmp_path / "s", conf), profile)

    return opened


def told(result: GetMessageResult) -> tuple[GetMessageStatus, int, int]:
    return result.status, result.next_begin_offset, len(result.messages)


@pytest.mark.parametrize(
    ("how", "profile", "topic", "offset", "answer"),
    [
        (WHOLE, PROFILE_4_9, "OrderPaid", 13, (STATUS.FOUND, 20, 7)),  # to the end of its file of ten units
        (WHOLE, PROFILE_4_9, "OrderPaid", ORDER_PAID - 1, (STATUS.FOUND, ORDER_PAID, 1)),
        (WHOLE, PROFILE_4_9, "OrderPaid", -1, (STATUS.OFFSET_TOO_SMALL, 0, 0)),
        (WHOLE, PROFILE_4_9, "OrderPaid", ORDER_PAID, (STATUS.OFFSET_OVERFLOW_ONE, ORDER_PAID, 0)),
        (WHOLE, PROFILE_4_9, "OrderPaid", 10**12, (STATUS.OFFSET_OVERFLOW_BADLY, ORDER_PAID, 0)),
        (WHOLE, PROFILE_4_7, "OrderPaid", 10**12, (STATUS.OFFSET_OVERFLOW_BADLY, 0, 0)),
        (NO_FIRST, PROFILE_4_7, "OrderPaid", 10**12, (STATUS.OFFSET_OVERFLOW_BADLY, ORDER_PAID, 0)),
        (NO_FIRST, PROFILE_5_3, "OrderPaid", 19, (STATUS.OFFSET_TOO_SMALL, 20, 0)),
        (HALF_EXPIRED, PROFILE_4_9, "OrderPaid", 0, (STATUS.OFFSET_FOUND_NULL, 10, 0)),
        (NO_MIDDLE, PROFILE_5_3, "OrderPaid", 431, (STATUS.OFFSET_FOUND_NULL, 440, 0)),
        (RAISED, PROFILE_4_9, "Old", 2, (STATUS.MESSAGE_WAS_REMOVING, 10, 0)),
        (RAISED, PROFILE_5_3, "Old", 2, (STATUS.OFFSET_TOO_SMALL, 15, 0)),
        (WHOLE, PROFILE_4_9, "Empty", 3, (STATUS.NO_MESSAGE_IN_QUEUE, 0, 0)),
        (WHOLE, PROFILE_4_9, "Unknown", 3, (STATUS.NO_MESSAGE_IN_QUEUE, 0, 0)),
    ],
)
def test_statuses(
    how: str,
    profile: Profile,
    topic: str,
    offset: int,
    answer: tuple[GetMessageStatus, int, int],
    reader: Opened,
) -> None:
    assert told(reader(profile, SMALL, how).get_message(topic, 0, offset, 32)) == answer


def test_tags(reader: Opened) -> None:
    read = reader(PROFILE_4_9, LARGE, WHOLE)
    found = read.get_message("OrderPaid", 0, 5, 4, Subscription("Tag0 || Tag2"))
    assert [m.properties["TAGS"] for m in found.messages] == ["Tag0", "Tag2", "Tag0", "Tag2"]
    assert [m.queue_offset for m in found.messages] == [5, 7, 8, 9]
    assert found.next_begin_offset == 10
    nothing = read.get_message("OrderPaid", 0, 5, 4, Subscription("TagX"))
    assert told(nothing) == (STATUS.NO_MATCHED_MESSAGE, 805, 0)  # 800 units a call


@pytest.mark.parametrize(
    ("topic", "most", "limits", "count"),
    [
        ("OrderPaid", 0, TransferLimits(), 1),
        ("OrderPaid", 7, TransferLimits(), 7),
        ("OrderPaid", 1000, TransferLimits(), 32),
        ("OrderPaid", 1000, TransferLimits(count_in_memory=1000, bytes_in_memory=3000), 17),
        ("OrderPaid", 1000, TransferLimits(memory_bytes=0), 8),
        ("Big", 1000, TransferLimits(memory_bytes=0), 8),
        ("Big", 1000, TransferLimits(memory_bytes=0, count_in_disk=100), 20),
        ("Big", 1000, TransferLimits(bytes_in_memory=1), 1),  # the first one always goes through
    ],
)
def test_limits(topic: str, most: int, limits: TransferLimits, count: int, reader: Opened) -> None:
    read = reader(PROFILE_5_3, LARGE, WHOLE)
    found = read.get_message(topic, 0, 1, most, limits=limits)
    assert told(found) == (STATUS.FOUND, 1 + count, count)


def test_a_damaged_record_is_passed_over_and_what_follows_is_not(reader: Opened, tmp_path: Path) -> None:
    read = reader(PROFILE_4_9, LARGE, WHOLE)
    third = read.get_message("OrderPaid", 0, 3, 1).messages[0]
    write_at(tmp_path / "s" / "commitlog" / f"{0:020d}", third.physical_offset, b"\xff" * 8)
    assert [m.queue_offset for m in read.get_message("OrderPaid", 0, 2, 3).messages] == [2, 4, 5]
    assert told(read.get_message("OrderPaid", 0, 3, 1)) == (STATUS.FOUND, 5, 1)


def test_a_bad_sector_is_told(reader: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader(PROFILE_4_9, LARGE, WHOLE)
    assert told(read.get_message("OrderPaid", 0, 0, 1)) == (STATUS.FOUND, 1, 1)

    def bad(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rmqctl.logfile.record_reader.RecordReader.at", bad)
    with pytest.raises(Unreadable, match="Input/output error"):
        read.get_message("OrderPaid", 0, 0, 1)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_consumer_comes_to_the_end_from_anywhere(profile: Profile, reader: Opened) -> None:
    read = reader(profile, SMALL, NO_FIRST)
    offset, seen = 0, []
    while (result := read.get_message("OrderPaid", 0, offset, 32)).status is not STATUS.OFFSET_OVERFLOW_ONE:
        seen += [m.queue_offset for m in result.messages]
        offset = result.next_begin_offset
    assert seen == list(range(20, ORDER_PAID))


PROFILE_OF = {"3": PROFILE_4_7, "4": PROFILE_4_9, "5": PROFILE_5_3}


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if "crash" not in name and "kill" not in name])
def test_golden_stores_give_what_the_real_broker_gives(name: str, tmp_path: Path) -> None:
    """Every queue consumed, and looked up by time."""
    root = unpack(name, tmp_path)
    version = name.removeprefix("broker-")[:2]
    profile = PROFILE_4_7 if version in ("32", "47") else PROFILE_OF[version[0]]
    read = MessageReader(ReadOnlyStore(root), profile)
    for queue in expected(name)["queues"]:
        key = (queue["topic"], queue["queueId"])
        assert (read.get_min_offset_in_queue(*key), read.get_max_offset_in_queue(*key)) == (
            queue["minOffset"],
            queue["maxOffset"],
        )
        entries, offset = [], queue["minOffset"]
        while (result := read.get_message(*key, offset, 32)).status is STATUS.FOUND:
            entries += [[m.queue_offset, m.physical_offset, m.size] for m in result.messages]
            offset = result.next_begin_offset
        assert entries == queue["entries"]
        middle = queue["midTimestamp"]
        wanted = {0: queue["offsetByZero"], middle + 86_400_000: queue["offsetByFuture"]}
        if profile.finds_offset_by_store_time:  # in 4.x by the files' times, of which tar has the seconds
            wanted[middle] = queue["offsetByMidTimestamp"]
        assert {time: read.get_offset_in_queue_by_time(*key, time) for time in wanted} == wanted
    read.close()
