from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import Unreadable
from rmqctl.format.message import Damage, Message
from rmqctl.format.properties import hash_code
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore, has_key
from tests.conftest import expected, tree_hash
from tests.support.cqext_store import SMALL_NAMES
from tests.support.file_edits import write_at
from tests.support.listed_folders import watch_listings
from tests.support.lock_holder import lock_held
from tests.support.log_maker import BLANK, Record, encode, log_bytes, write_log

RECORD = Record()
SIZE = 1000


def closed(base: int) -> bytes:
    data = log_bytes([RECORD] * 2, base)
    return data + struct.pack(">iI", SIZE - len(data), BLANK).ljust(SIZE - len(data), b"\0")


def put(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def codes(store: ReadOnlyStore) -> dict[str, str]:
    """Path -> code of what does not belong into the store."""
    return {found.path: found.code for found in store.foreign}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one record."""
    store = tmp_path / "store"
    write_log(store, [RECORD], file_size=SIZE)
    return store


def test_a_fresh_store_has_a_log_and_nothing_else(root: Path) -> None:
    store = ReadOnlyStore(root)
    assert (len(list(store.commit_log.scan())), store.queues, store.extensions, store.index.files) == (1, {}, {}, [])
    assert (store.checkpoint(), store.config("topics.json").content, store.lock_holder(), store.foreign) == (
        None,
        {},
        None,
        [],
    )
    store.close()


def test_several_log_folders_interleave(tmp_path: Path) -> None:
    for disk, base in (("disk1", 0), ("disk2", 1000), ("disk1", 2000), ("disk3", 3000)):
        put(tmp_path / disk / f"{base:020d}", closed(base))
    (tmp_path / "store").mkdir()
    roots = tuple(str(tmp_path / disk) for disk in ("disk1", "disk2", "disk3", "not-mounted"))
    store = ReadOnlyStore(tmp_path / "store", BrokerConf(commitlog_paths=roots))
    items = list(store.commit_log.scan())
    assert not any(isinstance(item, Damage) for item in items)
    assert [item.physical_offset for item in items[::3]] == [0, 1000, 2000, 3000]
    store.close()


def test_a_log_folder_that_the_user_named_may_be_a_link(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root / "commitlog")
    (tmp_path / "other").mkdir()
    store = ReadOnlyStore(tmp_path / "other", BrokerConf(commitlog_paths=(str(tmp_path / "link"),)))
    assert len(list(store.commit_log.scan())) == 1
    store.close()


def test_the_configured_file_size_is_believed(root: Path) -> None:
    store = ReadOnlyStore(root, BrokerConf(commitlog_file_size=SIZE + 24))
    assert [found.code for found in store.commit_log.queue.anomalies] == ["file-length"]


def test_a_fifo_in_the_log_is_told_and_does_not_hang_the_scan(root: Path) -> None:
    os.mkfifo(root / "commitlog" / f"{SIZE:020d}")
    store = ReadOnlyStore(root)
    assert len(list(store.commit_log.scan())) == 1
    assert codes(store) == {f"commitlog/{SIZE:020d}": "foreign-file"}


def test_fifos_everywhere_do_not_hang(root: Path) -> None:
    (root / "consumequeue" / "T" / "0").mkdir(parents=True)
    (root / "config").mkdir()
    (root / "index").mkdir()
    for path in (
        "lock",
        "checkpoint",
        "config/topics.json",
        f"consumequeue/T/0/{0:020d}",
        f"index/{0:017d}",
        "consumequeue/fifo",
    ):
        os.mkfifo(root / path)
    store = ReadOnlyStore(root)
    assert (store.checkpoint(), store.lock_holder(), store.config("topics.json").content) == (None, None, None)
    assert [queue.max_offset for queue in store.queues.values()] == [0]
    assert store.index.phy_offsets("T", "k") == []
    assert set(codes(store)) == {
        "lock",
        "checkpoint",
        f"consumequeue/T/0/{0:020d}",
        f"index/{0:017d}",
        "consumequeue/fifo",
    }


def linked(root: Path, part: str) -> Path:
    """Move a part of the store out of it and leave a link."""
    outside = root.parent / "outside"
    (root / part).rename(outside)
    (root / part).symlink_to(outside)
    return root


@pytest.mark.parametrize("part", ["commitlog", f"commitlog/{0:020d}"])
def test_a_log_that_is_a_link_out_of_the_store_is_not_read_unless_asked(root: Path, part: str) -> None:
    store = ReadOnlyStore(linked(root, part))
    assert (list(store.commit_log.scan()), codes(store)) == ([], {part: "link-not-followed"})
    following = ReadOnlyStore(root, follow_links=True)
    assert (len(list(following.commit_log.scan())), codes(following)) == (1, {})


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue/T", "consumequeue/T/0", f"consumequeue/T/0/{0:020d}"])
def test_a_queue_that_is_a_link_out_of_the_store_is_not_read_unless_asked(root: Path, part: str) -> None:
    put(root / "consumequeue" / "T" / "0" / f"{0:020d}", struct.pack(">qiq", 0, 126, 0).ljust(100, b"\0"))
    store = ReadOnlyStore(linked(root, part))
    assert [queue.max_offset for queue in store.queues.values() if queue.max_offset] == []
    assert codes(store) == {part: "link-not-followed"}
    following = ReadOnlyStore(root, follow_links=True)
    assert [queue.max_offset for queue in following.queues.values()] == [1]
    assert codes(following) == {}


def test_an_index_that_is_a_link_out_of_the_store_is_told(root: Path) -> None:
    put(root / "index" / f"{0:017d}")
    store = ReadOnlyStore(linked(root, "index"))
    assert (store.index.files, codes(store)) == ([], {"index": "link-not-followed"})


def test_what_does_not_belong_among_the_queues_is_told(root: Path) -> None:
    put(root / "consumequeue" / "file")
    put(root / "consumequeue" / "T" / "file")
    put(root / "consumequeue" / "T" / "0" / "file")
    (root / "consumequeue" / "T" / "x").mkdir()
    (root / "consumequeue" / "T" / "12345678901").mkdir()
    store = ReadOnlyStore(root)
    assert list(store.queues) == [("T", 0)]
    assert set(codes(store).values()) == {"foreign-file"}
    assert set(codes(store)) == {
        f"consumequeue/{path}" for path in ("file", "T/file", "T/0/file", "T/x", "T/12345678901")
    }


def test_a_batch_queue_is_found_in_its_own_folder(root: Path) -> None:
    unit = struct.pack(">qiqqqhii", 0, 126, 7, 0, 5, 3, -1, 0)
    put(root / "batchconsumequeue" / "Batched" / "0" / f"{0:020d}", unit.ljust(460, b"\0"))
    queue = ReadOnlyStore(root).queues["Batched", 0]
    assert isinstance(queue, BatchConsumeQueue)
    assert (queue.min_offset(0), queue.max_offset) == (5, 8)


def test_consume_queues_are_listed_before_batch_queues(root: Path) -> None:
    for folder, topic, queue_id in (
        ("batch", "A", 0),
        ("batch", "A", 1),
        ("batch", "B", 0),
        ("", "A", 0),
        ("", "C", 0),
    ):
        put(root / f"{folder}consumequeue" / topic / str(queue_id) / f"{0:020d}")
    store = ReadOnlyStore(root)
    assert list(store.queues) == [("A", 0), ("C", 0), ("A", 1), ("B", 0)]
    assert [type(store.queues[key]) for key in (("A", 0), ("A", 1))] == [ConsumeQueue, BatchConsumeQueue]
    assert sorted(store.conflicting_queues) == [("A", 0), ("A", 1)]


def test_what_does_not_belong_is_told_in_the_order_of_the_parts(root: Path) -> None:
    parts = ("consumequeue", "batchconsumequeue")
    for part in parts:
        put(root / part / "stray", b"x")
    store = ReadOnlyStore(root)
    assert not store.queues
    assert [*codes(store)] == [f"{part}/stray" for part in parts]


def test_a_folder_that_is_no_queue_is_not_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0", "007", "copy"):
        put(root / "consumequeue" / "T" / name / f"{0:020d}")
    listed: list[str] = []
    watch_listings(monkeypatch, lambda folder: listed.append(str(folder.relative_to(root))))
    store = ReadOnlyStore(root)
    assert list(store.queues) == [("T", 0)]
    assert {"consumequeue/T/007": "foreign-file", "consumequeue/T/copy": "foreign-file"}.items() <= codes(store).items()
    assert [name for name in listed if name.startswith("consumequeue/T/")] == ["consumequeue/T/0"]


def test_a_log_folder_that_cannot_be_listed_is_unreadable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: Path) -> None:
        if folder.name == "commitlog":
            raise PermissionError(13, "Permission denied", str(folder))

    watch_listings(monkeypatch, denied)
    with pytest.raises(Unreadable, match="Permission denied") as caught:
        ReadOnlyStore(root)
    assert caught.value.path == str(root / "commitlog")


@pytest.mark.parametrize("closed_folder", ["consumequeue", "T", "0"])
def test_a_queue_folder_that_cannot_be_listed_is_told_and_the_rest_is_read(
    root: Path, closed_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("T", "U"):
        put(
            root / "consumequeue" / topic / ("0" if topic == "T" else "1") / f"{0:020d}",
            struct.pack(">qiq", 0, 126, 0).ljust(100, b"\0"),
        )

    def refuse(folder: Path) -> None:
        if folder.name == closed_folder:
            raise PermissionError(13, "Permission denied", str(folder))

    watch_listings(monkeypatch, refuse)
    store = ReadOnlyStore(root)
    used = [key for key, queue in store.queues.items() if queue.max_offset]
    assert used == ([] if closed_folder == "consumequeue" else [("U", 1)])
    assert [code for path, code in codes(store).items() if path.endswith(closed_folder)] == ["unreadable"]


@pytest.mark.parametrize("closed_folder", ["consumequeue/T", "batchconsumequeue", "consumequeue_ext"])
def test_a_folder_that_can_only_be_listed_is_told_and_the_rest_is_read(
    root: Path, closed_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the mode r--: the names can be read, but nothing of the entries."""
    for folder in ("consumequeue/T/0", "consumequeue/T/1", "consumequeue/U/1", "batchconsumequeue/B/0"):
        put(root / folder / f"{0:020d}", struct.pack(">qiq", 0, 126, 0).ljust(100, b"\0"))
    put(root / "consumequeue_ext/U/1" / f"{0:020d}", bytes(100))
    real, real_by_name = Storage._status, os.stat

    def status(self: Storage, path: Path, *, follow: bool = False) -> os.stat_result:
        if path.is_relative_to(root / closed_folder) and path != root / closed_folder:
            raise PermissionError(13, "Permission denied", str(path))
        return real(self, path, follow=follow)

    def status_by_name(path: Path | str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if dir_fd is not None and Path(f"/proc/self/fd/{dir_fd}").readlink().is_relative_to(root / closed_folder):
            raise PermissionError(13, "Permission denied", str(path))
        return real_by_name(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Storage, "_status", status)
    monkeypatch.setattr(os, "stat", status_by_name)
    store = ReadOnlyStore(root)
    store.list_all()
    assert [path for path, code in codes(store).items() if code == "unreadable"] == [closed_folder]
    used = {key for key, queue in store.queues.items() if isinstance(queue, ConsumeQueue) and queue.max_offset}
    assert used == {("U", 1)} | (set() if closed_folder == "consumequeue/T" else {("T", 0), ("T", 1)})
    assert store.has_unreadable


def test_an_index_folder_that_cannot_be_listed_is_unreadable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "index").mkdir()
    store = ReadOnlyStore(root)

    def denied(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(Unreadable, match="Permission denied"):
        store.index.phy_offsets("T", "k")


def test_the_checkpoint_is_read(root: Path) -> None:
    put(root / "checkpoint", struct.pack(">6q", 1, 2, 3, 4, 5, 6).ljust(4096, b"\0"))
    assert ReadOnlyStore(root).checkpoint() == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("size", [0, 24])
def test_a_checkpoint_that_is_too_short_is_none(root: Path, size: int) -> None:
    put(root / "checkpoint", bytes(size))
    assert ReadOnlyStore(root).checkpoint() is None


def test_config_files_are_read_from_the_config_folder(root: Path) -> None:
    put(root / "config" / "topics.json", b'{"topicConfigTable":{}}')
    assert ReadOnlyStore(root).config("topics.json").content == {"topicConfigTable": {}}


def test_the_broker_that_holds_the_lock_is_known_by_its_pid(root: Path) -> None:
    put(root / "lock", b"lock")
    store = ReadOnlyStore(root)
    assert store.lock_holder() is None
    with lock_held(root) as pid:
        assert store.lock_holder() == pid
    assert store.lock_holder() is None


def test_a_unit_is_found_by_topic_queue_and_offset(golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden("471-basic"))
    unit = store.unit("%RETRY%billing", 0, 3)
    assert unit is not None
    assert (unit.physical_offset, unit.size) == (57583, 173)
    assert store.unit("%RETRY%billing", 0, 15) is None
    assert store.unit("no such topic", 0, 0) is None
    assert store.unit("../commitlog", 0, 0) is None


@pytest.mark.parametrize("name", ["471-basic", "533-batch", "broker-497"])
def test_the_tags_code_of_every_message_is_that_of_its_unit(name: str, golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden(name))
    for queue in store.queues.values():
        for unit in queue.units(0, queue.max_offset):
            found = store.commit_log.at(unit.physical_offset)
            assert isinstance(found, Message)
            assert store.tags_code(found) == unit.tags_code


def test_a_scheduled_message_has_its_delivery_time_for_a_tags_code(golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden("471-delay"))
    scheduled = [item for item in store.commit_log.scan() if isinstance(item, Message) and item.topic == SCHEDULE_TOPIC]
    assert scheduled
    assert all(store.tags_code(found) > found.store_timestamp for found in scheduled)


def test_a_scheduled_message_without_its_queue_has_the_hash_of_its_tags(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(topic=SCHEDULE_TOPIC)])
    store = ReadOnlyStore(tmp_path)
    found = store.commit_log.at(0)
    assert isinstance(found, Message)
    assert store.tags_code(found) == hash_code("TagA")


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_a_time_leads_to_the_first_message_stored_then_or_later(name: str, golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden(name))
    for wanted in expected(name)["queues"]:
        if not wanted["entries"]:
            continue
        queue = store.queues[wanted["topic"], wanted["queueId"]]
        found = store.by_time(queue, wanted["midTimestamp"])
        assert found is not None
        assert (
            found.queue_offset <= wanted["offsetByMidTimestamp"]
        )  # the broker gives any of that time, or, by file times, a later one
        message = store.commit_log.message_at(found.physical_offset)
        assert message is not None
        assert message.store_timestamp == wanted["midTimestamp"]
        before = queue.find(found.queue_offset - 1)
        earlier = store.commit_log.message_at(before.physical_offset) if before else None
        assert earlier is None or earlier.store_timestamp < wanted["midTimestamp"]


def test_a_time_before_the_log_leads_to_the_first_unit_and_one_behind_it_to_none(golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden("471-basic"))
    queue = store.queues["%RETRY%billing", 0]
    first = store.by_time(queue, 0)
    assert first is not None
    assert first.queue_offset == 0
    assert store.by_time(queue, 2**62) is None


def test_a_key_leads_to_messages_that_really_have_it(golden: Callable[[str], Path]) -> None:
    store = ReadOnlyStore(golden("471-basic"))
    found = list(store.by_key("%RETRY%billing", "dup-key"))
    assert found
    assert all(
        isinstance(item, Message) and item.topic == "%RETRY%billing" and has_key(item, "dup-key") for item in found
    )
    assert list(store.by_key("%RETRY%billing", "dup")) == []
    assert list(store.by_key("no such topic", "dup-key")) == []


def test_a_key_leads_to_a_message_with_a_broken_body_as_damage(golden: Callable[[str], Path]) -> None:
    root = golden("471-basic")
    write_at(root / "commitlog" / f"{0:020d}", 10997 + 88, b"\0\xff\0\xff")
    store = ReadOnlyStore(root)
    found = next(store.by_key("%RETRY%billing", "dup-key"))
    assert isinstance(found, Damage)
    assert (found.code, found.physical_offset) == ("bad-body-crc", 10997)


@pytest.mark.parametrize(
    ("key", "has"),
    [("k1", True), ("k2", True), ("k", False), ("k1 k2", False), ("U", True), ("TagA", False), ("", False)],
)
def test_a_message_has_the_words_of_its_keys_and_its_unique_key(tmp_path: Path, key: str, has: bool) -> None:
    write_log(tmp_path, [Record(properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02")])
    found = ReadOnlyStore(tmp_path).commit_log.message_at(0)
    assert found is not None
    assert has_key(found, key) is has


def test_a_store_that_was_closed_can_be_read_again(root: Path) -> None:
    store = ReadOnlyStore(root)
    first = store.commit_log.at(0)
    store.close()
    assert store.commit_log.at(0) == first
    assert isinstance(first, Message)
    assert first.size == len(encode(RECORD, 0))


def test_reading_a_store_changes_nothing(golden: Callable[[str], Path]) -> None:
    root = golden("broker-533-kill")
    before = tree_hash(root)
    store = ReadOnlyStore(root)
    list(store.commit_log.scan())
    for queue in store.queues.values():
        list(queue.units(0, queue.max_offset))
        store.by_time(queue, 0)
    list(store.by_key("orders", "c0"))
    store.checkpoint()
    store.lock_holder()
    store.config("topics.json")
    store.close()
    assert tree_hash(root) == before


def test_a_look_up_lists_only_the_folders_of_its_topic(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden("broker-533")
    whole, store = ReadOnlyStore(root).queues, ReadOnlyStore(root)
    listed: list[Path] = []
    watch_listings(monkeypatch, listed.append)
    key = ("orders", 2)
    found = store.queue(*key)
    assert found is not None
    assert found.max_offset == whole[key].max_offset
    assert {path.relative_to(store.path.root).parts[:2] for path in listed} == {
        ("consumequeue",), ("batchconsumequeue",), ("consumequeue", "orders")
    }  # fmt: skip
    assert store.queue("orders", 4711) is None
    assert store.topic_queues("orders").keys() == {name for name in whole if name[0] == "orders"}
    assert store.queues.keys() == whole.keys()
    assert store.topic_queues("orders") == {name: store.queues[name] for name in whole if name[0] == "orders"}
