"""Who waits for what, in files that may go."""

from __future__ import annotations

import errno
import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import Unreadable
from rmqctl.logfile.system.storage import Storage
from rmqctl.operations.clean.missing_queues import files_without_proof
from rmqctl.operations.clean.pending_messages import Outstanding
from rmqctl.operations.clean.plan_types import PendingCounts
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.expiring_store import (
    FILE_SIZE,
    OLD,
    RECORDS_A_FILE,
    TIME,
    first_left,
    log_files,
    ms,
    plan,
    removed,
    write_aged,
    write_store,
)
from tests.support.log_maker import Record
from tests.support.opened_files import replace_open

HALF, OP_HALF, GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"


def write_config(root: Path, name: str, content: dict[str, Any]) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps(content), encoding="ascii")


def write_offsets(root: Path, offsets: dict[str, dict[int, int]], name: str = "consumerOffset.json") -> None:
    write_config(root, name, {"offsetTable": offsets})


def write_groups(root: Path, *names: str) -> None:
    write_config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {name: {} for name in names}})


def waiting(root: Path) -> list[tuple[int, int, int]]:
    """What waits in each file but the last."""
    store = ReadOnlyStore(root)
    files = store.commit_log.queue.files[:-1]
    found = Outstanding(store, files)
    return [(one.unconsumed, one.scheduled, one.half) for one in map(found.of, range(len(files)))]


def unconsumed(root: Path) -> list[int]:
    return [found[0] for found in waiting(root)]


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ({}, [0, 0, 0, 0]),
        ({"g": 0}, [4, 4, 4, 4]),
        ({"g": 1}, [3, 4, 4, 4]),
        ({"g": 6}, [0, 2, 4, 4]),
        ({"g": 16}, [0, 0, 0, 0]),  # only in the last file
        ({"g": 20}, [0, 0, 0, 0]),
        ({"g": 1000}, [0, 0, 0, 0]),  # beyond the queue's end
        ({"g": 15, "h": 9}, [0, 0, 3, 4]),  # the group that is farthest behind counts
    ],
)
def test_messages_behind_a_groups_offset_wait(offsets: dict[str, int], found: list[int], tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {f"OrderPaid@{group}": {1: offset} for group, offset in offsets.items()})
    assert unconsumed(root) == found


def test_offsets_of_topics_that_are_not_there_say_nothing(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {"Other@g": {1: 0}, "OrderPaid@": {1: 0}, "@g": {1: 0}, "no group": {1: 0}})
    assert unconsumed(root) == [0] * 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("consumerOffset.json", {"offsetTable": {"OrderPaid@g": {0: 9, 7: 9}}}),  # not of queue 1
        ("consumerOffset.json", {"offsetTable": {"OrderPaid@g": {}, "OrderPaid@h": {1: 19}}}),
        ("consumerOffset.json", {"offsetTable": {}, "pullOffsetTable": {"OrderPaid@g": {1: 19}}}),
        ("consumerOffset.json", {"offsetTable": {}, "groupTopicMap": {"g": ["OrderPaid"]}}),
        (
            "subscriptionGroup.json",
            {"subscriptionGroupTable": {"g": {"subscriptionDataSet": [{"topic": "OrderPaid"}]}}},
        ),
        (
            "subscriptionGroup.json",
            {"subscriptionGroupTable": {"g": {"groupName": "g"}}},
        ),  # it may read what no other group does
        ("consumerFilter.json", {"filterDataByTopic": {"OrderPaid": {"groupFilterData": {"g": {}}}}}),
        ("consumerOrderInfo.json", {"table": {"OrderPaid@g": {}}}),
    ],
)
def test_all_of_a_queue_waits_for_a_group_without_an_offset_in_it(
    name: str, content: dict[str, Any], tmp_path: Path
) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_config(root, name, content)
    found = plan(root, protect_unconsumed=True, **TIME)
    assert (unconsumed(root), removed(found)) == ([4] * 4, 0)
    assert first_left(found) == "messages in it wait for someone: 4 not consumed (farthest behind: g)"


@pytest.mark.parametrize(
    ("topic", "offsets", "reader"),
    [
        ("%RETRY%billing", {}, "billing"),
        ("%RETRY%billing", {"orders@billing": {0: 7}, "%RETRY%billing@billing": {0: 7}}, "billing"),
        ("%RETRY%my_group_orders", {"orders@my_group": {0: 7}, "orders@my": {0: 7}}, "my_group"),
        ("%RETRY%billing+orders", {"orders@billing": {0: 7}}, "billing"),
    ],
)
def test_retries_wait_for_the_group_of_their_topics_name(
    topic: str, offsets: dict[str, dict[int, int]], reader: str, tmp_path: Path
) -> None:
    root = write_aged(tmp_path / "store", OLD, topic=topic)
    write_offsets(root, offsets)
    assert first_left(plan(root, protect_unconsumed=True, **TIME)).endswith(
        f"4 not consumed (farthest behind: {reader})"
    )


def test_dead_letters_wait_until_a_group_has_read_them(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD, topic="%DLQ%billing")
    found = plan(root, protect_unconsumed=True, **TIME)
    assert first_left(found) == "messages in it wait for someone: 4 dead letters that no group reads (%DLQ%billing)"
    found = plan(root, **TIME)
    assert (found.waiting, found.unread) == (PendingCounts(dead=12), (("%DLQ%billing", 12),))
    write_offsets(root, {"%DLQ%billing@resend": {1: 20}})
    found = plan(root, protect_unconsumed=True, **TIME)
    assert (removed(found), found.unread) == (3, ())


def test_groups_of_which_no_topic_is_known_are_named(tmp_path: Path) -> None:
    """They may read a topic that others read as well; nothing says so."""
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {"OrderPaid@g": {1: 20}})
    write_groups(root, "g", "new", "newer", "TOOLS_CONSUMER")
    warning = (
        "config/ does not say which topics new, newer will read: of topics that other groups read nothing is "
        "kept for them"
    )
    assert warning in plan(root, protect_unconsumed=True, **TIME).warnings
    assert not [found for found in plan(root, **TIME).warnings if "will read" in found]


def test_topics_that_no_group_reads_go_and_are_named(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {"Other@g": {0: 1}})
    write_groups(root, "g", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS")
    found = plan(root, protect_unconsumed=True, **TIME)
    assert (removed(found), found.unread) == (3, (("OrderPaid", 12),))


class TestPoppedMessages:
    """The group's offset is past all of a queue; checkpoints in the last file but one lead back."""

    @staticmethod
    def store(root: Path, *checkpoints: bytes, revived: int = 0) -> Path:
        revive = [Record(topic="rmq_sys_REVIVE_LOG_c", body=body, properties=b"TAGS\x01ck\x02") for body in checkpoints]
        write_store(root, [[Record()] * 4, [Record()] * 4, revive or [Record()], [Record()]], 16 * FILE_SIZE)
        write_offsets(root, {"OrderPaid@g": {1: 10}, "rmq_sys_REVIVE_LOG_c@CID_RMQ_SYS_REVIVE_GROUP": {1: revived}})
        return root

    def test_what_a_checkpoint_leads_to_waits(self, tmp_path: Path) -> None:
        checkpoints = [b'{"c":"g","t":"OrderPaid","q":1,"so":%d,"bm":0}' % offset for offset in (6, 7, 3)]
        assert unconsumed(self.store(tmp_path / "all", *checkpoints)) == [1, 4, 3]
        assert unconsumed(self.store(tmp_path / "first_done", *checkpoints[:2], revived=1)) == [0, 1, 1]

    @pytest.mark.parametrize(
        ("check", "found"),
        [
            (None, [4, 4]),
            (b"torn", [4, 4]),
            (struct.pack(">qqq", 5000, 0, 3), [0, 2]),  # the first was delivered
            (struct.pack(">qqq", 5000, 0, 0), [4, 4]),  # but the timer had not seen it
            (struct.pack(">qqq", 9001, 0, 3), [0, 0]),
        ],
    )
    def test_a_checkpoint_that_waits_in_the_timer(self, check: bytes | None, found: list[int], tmp_path: Path) -> None:
        root = tmp_path / "store"
        bodies = (b'{"c":"g","t":"OrderPaid","q":1,"so":0}', b'{"c":"g","t":"OrderPaid","q":1,"so":6}', b"a user's")
        named = ((b"rmq_sys_REVIVE_LOG_c", 4000), (b"rmq_sys_REVIVE_LOG_c", 9000), (b"OrderPaid", 9000))
        timed = [
            Record(
                topic="rmq_sys_wheel_timer",
                queue_id=0,
                queue_offset=at,
                body=body,
                properties=b"TAGS\x01ck\x02REAL_TOPIC\x01%s\x02TIMER_OUT_MS\x01%d\x02" % names,
            )
            for at, (body, names) in enumerate(zip(bodies, named, strict=True))
        ]
        write_store(root, [[Record()] * 4, [Record()] * 4, timed, [Record()]])
        write_offsets(root, {"OrderPaid@g": {1: 10}})
        if check is not None:
            (root / "config" / "timercheck").write_bytes(check)
        assert unconsumed(root)[:2] == found

    def test_pop_in_rocksdb_is_said(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store")
        (root / "kvStore").mkdir()
        (root / "kvStore" / "000004.log").write_bytes(b"popped")
        with pytest.raises(Unreadable, match="kvStore/ says which messages were popped"):
            plan(root, protect_unconsumed=True, keep_files=1)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"c":"g","t":"OrderPaid"}',
            b'{"x":' + b"[" * 5000,
            b'{"c":"g","t":"OrderPaid","q":1,"so":0,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
            b'{"c":"g","t":"OrderPaid","q":1,"so":1%s}' % (b"0" * 23),
            b'{"c":"g","t":"OrderPaid","q":1,"so":-1}',
            b"\xff",
        ],
        ids=["without so", "deep and torn", "deep", "large", "negative", "no text"],
    )
    def test_a_checkpoint_that_is_none_protects_everything(self, body: bytes, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store", body)
        with pytest.raises(Unreadable, match="a checkpoint of POP cannot be understood"):
            plan(root, protect_unconsumed=True, keep_files=1)


def test_messages_without_a_unit_wait_for_who_knows_whom(tmp_path: Path) -> None:
    """An operator deleted the queues, to have them rebuilt."""
    root = write_aged(tmp_path / "store", OLD)
    shutil.rmtree(root / "consumequeue")
    with pytest.raises(Unreadable, match="no queue leads to a message from offset 0 on"):
        plan(root, protect_unconsumed=True, **TIME)


@pytest.mark.parametrize("says", ["consumerOffset.json", "topics.json", "nothing"])
def test_one_queue_without_a_folder_among_others(says: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_store(root, [[Record(queue_id=number % 2)] * 4 for number in range(4)])
    read = {"OrderPaid@g": {0: 100, 1: 0} if says == "consumerOffset.json" else {0: 100}}
    write_offsets(root, read)
    if says == "topics.json":
        write_config(root, says, {"topicConfigTable": {"OrderPaid": {"writeQueueNums": 4}}})
    shutil.rmtree(root / "consumequeue" / "OrderPaid" / "1")
    assert removed(plan(root, protect_unconsumed=True, keep_files=3)) == 1  # has none of its messages
    assert removed(plan(root, keep_files=2)) == 2
    with pytest.raises(
        Unreadable, match=f"queue OrderPaid 1 does not exist, and the log has messages of it at offset {FILE_SIZE}"
    ):
        plan(root, protect_unconsumed=True, keep_files=2)


DELETED: dict[str, Any] = {"topics.json": {"topicConfigTable": {"Other": {}}}}


def reads(topic: str) -> dict[str, Any]:
    """A group `g` that reads the topic."""
    group = {"subscriptionDataSet": [{"topic": topic}]}
    return {"subscriptionGroup.json": {"subscriptionGroupTable": {"g": group}}}


@pytest.mark.parametrize(
    ("topic", "config", "refused"),
    [
        ("OrderPaid", {"consumerOffset.json": {"offsetTable": {"OrderPaid@g": {"0": 100}}}}, True),
        ("OrderPaid", {"topics.json": {"topicConfigTable": {"OrderPaid": {"writeQueueNums": 1}}}}, True),
        ("OrderPaid", DELETED, False),
        ("OrderPaid", DELETED | reads("OrderPaid"), True),
        ("%RETRY%g", DELETED | reads("Third"), True),
        ("%RETRY%g", DELETED, False),
    ],
)
def test_all_queues_of_a_topic_without_a_folder(
    topic: str, config: dict[str, Any], *, refused: bool, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    write_store(root, [[Record(topic="Other"), Record(topic=topic)] * 2] * 4)
    write_offsets(root, {})
    for name, content in config.items():
        write_config(root, name, content)
    shutil.rmtree(root / "consumequeue" / topic)
    if not refused:
        assert removed(plan(root, protect_unconsumed=True, keep_files=2)) == 2
        return
    with pytest.raises(Unreadable, match=f"queue {topic} 1 does not exist, and the log has messages of it"):
        plan(root, protect_unconsumed=True, keep_files=2)


def test_files_that_units_lead_through_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    write_store(root, [[Record(queue_id=queue_id) for queue_id in (0, 1, 0, 2)] for _ in range(4)])
    store = ReadOnlyStore(root)
    assert files_without_proof(store, store.commit_log.queue.files[:3]) == []
    shutil.rmtree(root / "consumequeue" / "OrderPaid" / "2")
    (root / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}").write_bytes(b"")
    store = ReadOnlyStore(root)
    assert files_without_proof(store, store.commit_log.queue.files[:3]) == store.commit_log.queue.files[:3]


def test_units_in_front_of_the_log_do_not_wait(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {"OrderPaid@g": {1: 0}})
    for path in log_files(root)[:2]:
        path.unlink()
    assert unconsumed(root) == [4, 4]
    (root / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}").unlink()  # its first five units, too
    assert unconsumed(root) == [4, 4]


def test_a_batch_queue_counts_the_messages_of_its_units(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_store(root, [[Record()] * 2] * 3)
    folder = root / "batchconsumequeue" / "Batches" / "0"
    folder.mkdir(parents=True)
    units = [(number * FILE_SIZE, 100, 0, 0, number * 10, 10, -1, 0) for number in range(3)]
    (folder / f"{0:020d}").write_bytes(b"".join(struct.pack(">qiqqqhii", *unit) for unit in units))
    for offset, found in [(0, [10, 10]), (4, [6, 10]), (10, [0, 10]), (17, [0, 3]), (20, [0, 0])]:
        write_offsets(root, {"Batches@g": {0: offset}})
        assert unconsumed(root) == found


@pytest.mark.parametrize(
    ("delivered", "found"), [(None, [2, 2]), ({3: 0}, [2, 2]), ({3: 3}, [0, 1]), ({3: 6}, [0, 0]), ({2: 6}, [2, 2])]
)
def test_scheduled_messages_wait_behind_their_levels_offset(
    delivered: dict[int, int] | None, found: list[int], tmp_path: Path
) -> None:
    """Level 3 is queue 2."""
    root = write_store(tmp_path / "store", [[Record(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)] * 2] * 3)
    if delivered is not None:
        write_config(root, "delayOffset.json", {"offsetTable": delivered})
    assert [tuple(counts) for counts in waiting(root)] == [(0, count, 0) for count in found]


class TestHalfMessages:
    """Two in each of three files, the first of them in the log's second; op messages in the last file."""

    @staticmethod
    def store(root: Path, *bodies: bytes) -> Path:
        half = [Record(topic=HALF, queue_id=0, body=b"")] * 2
        ops = [Record(topic=OP_HALF, queue_id=0, body=body, properties=b"TAGS\x01d\x02") for body in bodies]
        return write_store(root, [[Record()], half, half, half, ops or [Record()]], 16 * FILE_SIZE)

    @pytest.mark.parametrize(
        ("bodies", "found"),
        [
            ((), [0, 2, 2, 2]),
            ((b"0", b"1", b"3"), [0, 0, 1, 2]),  # 4.x
            ((b"0,1,2,", b"5,"), [0, 0, 1, 1]),  # 5.x
            ((b"not a number", b""), [0, 2, 2, 2]),
        ],
    )
    def test_op_messages_decide(self, bodies: tuple[bytes, ...], found: list[int], tmp_path: Path) -> None:
        assert waiting(self.store(tmp_path / "store", *bodies)) == [(0, 0, count) for count in found]

    @pytest.mark.parametrize("word", [b"9" * 5000, b"1" + b"0" * 19, b"not a number"])
    def test_what_is_no_queue_offset_is_told_once(self, word: bytes, tmp_path: Path) -> None:
        store = ReadOnlyStore(self.store(tmp_path / "store", b"0," + word, word))
        found = Outstanding(store, store.commit_log.queue.files[:-1])
        assert [found.of(number).half for number in range(4)] == [0, 1, 2, 2]
        assert found.problems == [f"queue {OP_HALF} 0: the op message at queue offset 0 names what is no queue offset"]

    def test_what_the_broker_has_checked_does_not_wait(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store")
        write_offsets(root, {f"{HALF}@{GROUP}": {0: 3}, f"{OP_HALF}@{GROUP}": {0: 0}})
        assert waiting(root) == [(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 2)]

    def test_op_messages_are_read_from_where_the_check_is(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store", b"3", b"4")
        write_offsets(root, {f"{HALF}@{GROUP}": {0: 2}, f"{OP_HALF}@{GROUP}": {0: 1}})
        assert waiting(root) == [(0, 0, 0), (0, 0, 0), (0, 0, 2), (0, 0, 1)]


def aged_store_with(root: Path, offsets: dict[str, dict[int, int]]) -> Path:
    write_aged(root, OLD)
    write_offsets(root, offsets)
    return root


def test_the_plan_tells_what_waits_in_files_that_go(tmp_path: Path) -> None:
    root = aged_store_with(tmp_path / "store", {"OrderPaid@slow": {1: 5}, "OrderPaid@fast": {1: 19}})
    found = plan(root, **TIME)
    assert removed(found) == 3
    # the first that stays has its count, too
    assert [file.waiting.unconsumed for file in found.files[:4]] == [0, 3, 4, 4]
    assert found.waiting == PendingCounts(unconsumed=7)
    assert found.warnings == (
        (
            "messages in files that go wait for someone: 7 not consumed (farthest behind: slow); --protect-unconsumed "
            "keeps them"
        ),
    )


@pytest.mark.parametrize("settings", [TIME, {"keep_files": 1}, {"manual": True}])
def test_protected_files_stay_and_all_behind_them(settings: dict[str, Any], tmp_path: Path) -> None:
    root = aged_store_with(tmp_path / "store", {"OrderPaid@slow": {1: 5}})
    found = plan(root, protect_unconsumed=True, **settings)
    assert removed(found) == 1
    assert first_left(found) == "messages in it wait for someone: 3 not consumed (farthest behind: slow)"
    assert (found.waiting, found.warnings) == (PendingCounts(), ())


def test_protected_files_stay_even_when_the_disk_forces(tmp_path: Path) -> None:
    root = aged_store_with(tmp_path / "store", {"OrderPaid@slow": {1: 5}})
    assert removed(plan(root, protect_unconsumed=True, disks=(99,))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "consumerOffset.json",
        "delayOffset.json",
        "subscriptionGroup.json",
        "consumerFilter.json",
        "consumerOrderInfo.json",
    ],
)
def test_where_it_is_not_known_what_waits_nothing_can_be_protected(name: str, tmp_path: Path) -> None:
    root = aged_store_with(tmp_path / "store", {})
    (root / "config" / name).write_text("{", encoding="ascii")
    found = plan(root, **TIME)
    assert any("not sure which messages still wait for a consumer" in warning for warning in found.warnings)
    with pytest.raises(Unreadable, match="cannot protect them"):
        plan(root, protect_unconsumed=True, **TIME)


@pytest.mark.parametrize("topic", ["OrderPaid", "SCHEDULE_TOPIC_XXXX"])
def test_a_queue_that_cannot_be_read_is_told_and_stays(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_aged(tmp_path / "store", OLD, topic=topic)
    write_offsets(root, {"OrderPaid@g": {1: 0}})
    real_open = Storage.open

    def failing(storage: Storage, path: Path) -> int:
        if topic in path.parts:
            raise OSError(errno.EIO, "a bad sector", str(path))
        return real_open(storage, path)

    replace_open(monkeypatch, failing)
    found = plan(root, **TIME)
    assert removed(found) == 3
    assert all(topic not in file.path for file in found.going)
    assert found.warnings == (
        f"not sure which messages still wait for a consumer: queue {topic} 1: a bad sector",
        f"queue {topic} 1 stays as it is, it cannot be read: a bad sector",
    )
    with pytest.raises(Unreadable, match="a bad sector"):
        plan(root, protect_unconsumed=True, **TIME)


def test_timer_messages_that_go_are_told(tmp_path: Path) -> None:
    root = write_store(
        tmp_path / "store",
        [[Record(topic="rmq_sys_wheel_timer", queue_id=0, store_timestamp=ms(100))] * RECORDS_A_FILE] * 3,
    )
    found = plan(root, keep_files=1)
    assert any(warning.startswith("8 timer messages") for warning in found.warnings)


def test_light_queues_have_offsets_of_their_own(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD, topic="%LMQ%all")
    (root / "consumequeue" / "%LMQ%all" / "1").rename(root / "consumequeue" / "%LMQ%all" / "0")
    write_config(root, "lmqConsumerOffset.json", {"lmqOffsetTable": {"%LMQ%all@%LMQ%g": 6}})
    assert unconsumed(root) == [0, 2, 4, 4]


def test_timer_messages_stay_since_nobody_knows(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD, topic="rmq_sys_wheel_timer")
    assert removed(plan(root, **TIME)) == 3
    found = plan(root, protect_unconsumed=True, **TIME)
    assert (removed(found), first_left(found)) == (
        0,
        "4 timer messages are in it, and whether they were delivered is not known",
    )


def test_without_offsets_nothing_can_be_protected(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    (root / "config" / "consumerOffset.json").unlink()
    missing = r"config/consumerOffset\.json is missing"
    assert re.search(missing, plan(root, **TIME).warnings[0])
    with pytest.raises(Unreadable, match=missing):
        plan(root, protect_unconsumed=True, **TIME)


def test_older_offsets_that_count_are_told(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    write_offsets(root, {"OrderPaid@g": {1: 6}}, "consumerOffset.json.bak")
    (root / "config" / "consumerOffset.json").write_text("{", encoding="ascii")
    assert any("the offsets of consumerOffset.json.bak count" in warning for warning in plan(root, **TIME).warnings)
    assert unconsumed(root) == [0, 2, 4, 4]
