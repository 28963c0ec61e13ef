"""The engine, writing: every status, every kind of message, files that roll, and stores that may not be appended to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import LayoutNotSupported, NeedsRecovery, StoreInUse
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.message import Blank
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.put_message import PutMessageStatus
from tests.conftest import tree_hash, unpack
from tests.support.file_edits import flip_bits
from tests.support.lock_holder import lock_held
from tests.support.small_store import IPV6, SMALL, created, findings, message, stored


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_what_is_written_is_whole(profile: Profile, tmp_path: Path) -> None:
    store = created(tmp_path / "s", profile)
    results = [store.put_message(message(number)) for number in range(300)]
    store.close()
    assert all(result.status is PutMessageStatus.PUT_OK for result in results)
    assert findings(tmp_path / "s") == []
    assert len(stored(tmp_path / "s")) == 300
    assert [m.msg_id for m in stored(tmp_path / "s")] == [result.append.msg_id for result in results if result.append]
    assert not (tmp_path / "s" / "abort").exists()


def test_a_store_is_gone_on_with(tmp_path: Path) -> None:
    created(tmp_path / "s").close()
    for start in range(0, 120, 7):
        store = MessageStore(tmp_path / "s", geometry=SMALL)
        for number in range(start, min(start + 7, 120)):
            assert store.put_message(message(number)).is_ok
        store.close()
        assert findings(tmp_path / "s") == []
    numbers = [m.queue_offset for m in stored(tmp_path / "s") if m.queue_id == 0]
    assert numbers == list(range(40))


def test_queues_that_lag_are_caught_up_before_offsets_are_given(tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    lost = [m for m in stored(root) if (m.topic, m.queue_id) == ("OrderPaid", 0)]
    shutil.rmtree(root / "consumequeue")
    store = MessageStore(root)
    result = store.put_message(message(topic="OrderPaid", queue_id=0))
    store.close()
    assert result.append is not None
    assert result.append.logics_offset == len(lost) > 0
    assert findings(root) == []


def test_a_file_is_closed_by_a_blank_and_the_next_begins_where_it_ends(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    for number in range(100):
        store.put_message(message(number))
    store.close()
    items = list(ReadOnlyStore(tmp_path / "s").commit_log.scan())
    blanks = [item for item in items if isinstance(item, Blank)]
    assert len(blanks) > 3
    assert all(blank.end % 4096 == 0 and blank.size >= 8 for blank in blanks)
    assert sorted(path.stat().st_size for path in (tmp_path / "s" / "commitlog").iterdir()) == [4096] * (
        len(blanks) + 1
    )


@pytest.mark.parametrize("room", range(6, 13))
def test_a_record_needs_eight_bytes_behind_it(room: int, tmp_path: Path) -> None:
    """The last record of a file ends at least eight bytes before the file does: there goes the blank."""
    store = created(tmp_path / "s", geometry=Geometry(4096, 200, 10, 40))
    empty = len(stored_record(message(0, body=b"", properties={})))
    assert store.put_message(message(0, body=bytes(4096 - 2 * empty - room), properties={})).is_ok
    second = store.put_message(message(0, body=b"", properties={}))
    store.close()
    assert second.append is not None
    assert second.append.wrote_offset == (4096 if room < 8 else 4096 - empty - room)
    assert findings(tmp_path / "s") == []


def stored_record(put: MessageExtBrokerInner) -> bytes:
    from rmqctl.format.encode import encode, topic_field

    field = topic_field(put.topic, long_topics=True)
    assert field is not None
    return encode(put, b"", field).placed(0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "profile", "status"),
    [
        ({"topic": ""}, PROFILE_4_9, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"topic": "../../x"}, PROFILE_4_9, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"topic": "a/b"}, PROFILE_5_3, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"topic": "t" * 127}, PROFILE_4_7, PutMessageStatus.PUT_OK),
        ({"topic": "t" * 128}, PROFILE_4_9, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"topic": "t" * 128}, PROFILE_5_3, PutMessageStatus.PUT_OK),
        (
            {"properties": {"a": "b" * 32_763}},
            PROFILE_4_9,
            PutMessageStatus.MESSAGE_ILLEGAL,
        ),  # it fits a record, not this file
        ({"properties": {"a": "b" * 32_766}}, PROFILE_4_9, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"body": bytes(4096)}, PROFILE_4_9, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, PROFILE_4_9, PutMessageStatus.MESSAGE_ILLEGAL),
        ({"born_host": IPV6, "store_host": IPV6}, PROFILE_4_7, PutMessageStatus.PUT_OK),
    ],
)
def test_statuses(changes: dict[str, Any], profile: Profile, status: PutMessageStatus, tmp_path: Path) -> None:
    store = created(tmp_path / "s", profile)
    result = store.put_message(message(1, **changes))
    store.close()
    assert (result.status, result.is_ok) == (status, status is PutMessageStatus.PUT_OK)
    assert bool(result.remark) != result.is_ok
    assert len(stored(tmp_path / "s")) == (1 if result.is_ok else 0)
    assert findings(tmp_path / "s") == []


def test_a_delayed_message_goes_to_the_schedule(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    result = store.put_message(message(1, properties={"DELAY": "3"}))
    far = store.put_message(message(1, properties={"DELAY": "99"}))
    copied = store.put_message(message(1, properties={"DELAY": "3"}), as_it_is=True)
    store.close()
    assert [(r.append.topic, r.append.queue_id) for r in (result, far, copied) if r.append] == [
        (SCHEDULE_TOPIC, 2), (SCHEDULE_TOPIC, 17), ("OrderPaid", 1),
    ]  # fmt: skip
    first = stored(tmp_path / "s")[0]
    assert first.properties == {"DELAY": "3", "REAL_TOPIC": "OrderPaid", "REAL_QID": "1"}
    unit = ReadOnlyStore(tmp_path / "s").queues[SCHEDULE_TOPIC, 2].find(0)
    assert unit is not None
    assert unit.tags_code == first.store_timestamp + 10_000
    assert findings(tmp_path / "s") == []


def test_prepared_and_rollback_take_no_offset(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    for sys_flag in (0, 4, 8, 12, 0):
        assert store.put_message(message(0, sys_flag=sys_flag)).is_ok
    store.close()
    assert [m.queue_offset for m in stored(tmp_path / "s")] == [0, 0, 1, 0, 2]
    assert ReadOnlyStore(tmp_path / "s").queues["OrderPaid", 0].max_offset == 3
    assert findings(tmp_path / "s") == []


def test_lmq_queues_get_units_too(tmp_path: Path) -> None:
    store = created(tmp_path / "s", multi_dispatch=True)
    for number in range(4):
        names = "%LMQ%a,%LMQ%b" if number % 2 else "%LMQ%a"
        assert store.put_message(message(0, properties={"INNER_MULTI_DISPATCH": names})).is_ok
    assert (
        store.put_message(message(0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a/b"})).status
        is PutMessageStatus.MESSAGE_ILLEGAL
    )
    store.close()
    queues = ReadOnlyStore(tmp_path / "s").queues
    assert {key: queue.max_offset for key, queue in queues.items()} == {
        ("OrderPaid", 0): 4,
        ("%LMQ%a", 0): 4,
        ("%LMQ%b", 0): 2,
    }
    assert stored(tmp_path / "s")[3].properties["INNER_MULTI_QUEUE_OFFSET"] == "3,1"
    assert findings(tmp_path / "s") == []


def test_a_batch_goes_whole_or_not_at_all(tmp_path: Path) -> None:
    store = created(tmp_path / "s", PROFILE_5_3, property_crc=True)
    batch = [message(0, body=bytes([number]) * 50) for number in range(6)]
    result = store.put_messages(batch)
    assert result.append is not None
    assert (result.append.msg_num, len(result.append.msg_id.split(","))) == (6, 6)
    assert store.put_messages([message(0), message(1)]).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_messages([message(0), message(0, sys_flag=4)]).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_messages([message(0, body=bytes(700))] * 6).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_messages([message(0, body=bytes(500))] * 4).is_ok  # rolls: not in parts
    store.close()
    offsets = [m.queue_offset for m in stored(tmp_path / "s")]
    assert offsets == list(range(10))
    assert stored(tmp_path / "s")[6].physical_offset == 4096
    assert findings(tmp_path / "s") == []


HOLD = (
    "import fcntl,os,sys; fcntl.lockf(os.open(sys.argv[1],os.O_RDWR),fcntl.LOCK_EX|fcntl.LOCK_NB,1,0); "
    "print(1,flush=True); input()"
)


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    created(tmp_path / "s").close()
    with lock_held(tmp_path / "s"):
        before = tree_hash(tmp_path / "s")
        with pytest.raises(StoreInUse):
            MessageStore(tmp_path / "s")
        assert tree_hash(tmp_path / "s") == before


def test_the_lock_is_rocketmqs(tmp_path: Path) -> None:
    """Another process cannot lock byte 0 while the store is open, and can afterwards."""
    store = created(tmp_path / "s")
    command = [sys.executable, "-c", HOLD, str(tmp_path / "s" / "lock")]
    store.put_message(message())
    store.dispatch()
    held = subprocess.run(command, input=b"\n", capture_output=True, check=False)
    store.close()
    free = subprocess.run(command, input=b"\n", capture_output=True, check=False)
    assert (held.stdout, free.stdout) == (b"", b"1\n")
    assert (tmp_path / "s" / "lock").read_bytes() == b"lock"


@pytest.mark.parametrize("profile", [PROFILE_4_9, PROFILE_5_3])
def test_abort_is_there_while_it_is_open(profile: Profile, tmp_path: Path) -> None:
    store = created(tmp_path / "s", profile)
    content = (tmp_path / "s" / "abort").read_bytes()
    assert content == (str(os.getpid()).encode() if profile is PROFILE_5_3 else b"")
    store.close()


def test_a_store_with_abort_needs_recovery(tmp_path: Path) -> None:
    root = unpack("497-crash", tmp_path)
    before = tree_hash(root)
    with pytest.raises(NeedsRecovery):
        MessageStore(root)
    assert tree_hash(root) == before


def test_a_damaged_end_needs_recovery(tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    path = max((root / "commitlog").iterdir())
    flip_bits(path, 100)
    with pytest.raises(NeedsRecovery):
        MessageStore(root)
    assert not (root / "abort").exists()


@pytest.mark.parametrize("name", ["broker-533-rocksdb", "326-basic"])
def test_what_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    with pytest.raises(LayoutNotSupported):
        MessageStore(root)


@pytest.mark.parametrize(
    "name", ["471-basic", "497-basic", "533-basic", "broker-497", "broker-533", "497-lmq", "471-delay"]
)
def test_a_brokers_store_is_gone_on_with(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before = len(stored(root))
    store = MessageStore(root)
    for number in range(500):
        assert store.put_message(message(number)).is_ok
    store.close()
    assert len(stored(root)) == before + 500
    assert findings(root) == []


def test_the_checkpoint_says_what_is_on_the_disk(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    last = [store.put_message(message(number)) for number in range(200)][-1]
    store.close()
    checkpoint = ReadOnlyStore(tmp_path / "s").checkpoint()
    assert checkpoint is not None
    assert last.append is not None
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == last.append.store_timestamp
    assert 0 < checkpoint.index_msg_timestamp <= last.append.store_timestamp
    assert (tmp_path / "s" / "checkpoint").stat().st_size == 4096


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    store.close()
    assert store.put_message(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.put_messages([message(), message()]).status is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_a_disk_that_is_full_when_queues_are_written_ends_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = created(tmp_path / "s")
    store.put_message(message())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.store.write.consume_queue_writer.ConsumeQueueWriter.put", full)
        with pytest.raises(OSError, match="No space left"):
            store.dispatch()
    assert store.put_message(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert (tmp_path / "s" / "abort").exists()


def test_a_disk_that_is_full_when_a_file_is_made_refuses_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = created(tmp_path / "s")
    assert store.put_message(message()).is_ok

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.logfile.writable_mapped_file_queue.WritableMappedFileQueue.last_with_room", full)
        patch.setattr("rmqctl.logfile.writable_mapped_file_queue.WritableMappedFileQueue.last", None)
        assert store.put_message(message()).status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert store.put_message(message()).is_ok
    store.close()
    assert len(stored(tmp_path / "s")) == 2
    assert findings(tmp_path / "s") == []
