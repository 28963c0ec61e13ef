"""Databases are shown as the files of a default store, whatever they contain; the store stays as it is."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.forensics.audit.databases.database_audit import audit_databases
from rmqctl.logfile.system.rocksdb import Database
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.store_path import StorePath
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.rocksdb.config_files import TOPICS, V1, ConfigFiles
from tests.conftest import tree_hash
from tests.support.databases import Rows, offset_row, unit_row, write_database
from tests.support.file_edits import write_at

PER_FILE = 8
CONF = BrokerConf(consumequeue_file_size=PER_FILE * 20, commitlog_file_size=4096)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    return tmp_path / "store"


def write_queues(root: Path, units: Mapping[tuple[str, int, int], int], more: Rows | None = None) -> None:
    """Write units of 100 bytes, by place; their value is the physical offset."""
    lasts: dict[tuple[str, int], int] = {}
    for topic, queue_id, queue_offset in units:
        lasts[topic, queue_id] = max(queue_offset, lasts.get((topic, queue_id), 0))
    rows = dict(unit_row(*place, (at, 100, 7)) for place, at in units.items())
    offsets = dict(offset_row(*key, last) for key, last in lasts.items())
    write_database(root / "consumequeue", {"default": rows, "offset": {**offsets, **(more or {})}})


PLACES = st.dictionaries(
    st.tuples(st.sampled_from(["orders", "%RETRY%g", "ß"]), st.sampled_from([0, 3]), st.integers(0, 40)),
    st.integers(0, 4000),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLACES)
def test_each_unit_is_at_its_queue_offset(root: Path, units: dict[tuple[str, int, int], int]) -> None:
    """Also where a queue begins in the middle of a file, has a gap, or spans files."""
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    write_queues(root, units)
    before = tree_hash(root)
    store = ReadOnlyStore(root, CONF)
    found = {
        (*key, unit.queue_offset): unit.physical_offset
        for key, queue in store.queues.items()
        for unit in queue.units(0, queue.max_offset)
        if not unit.is_pre_blank
    }
    assert found == units
    for (topic, queue_id), queue in store.queues.items():
        offsets = [at for name, number, at in units if (name, number) == (topic, queue_id)]
        assert queue.max_offset == max(offsets) + 1
        if len(offsets) == max(offsets) + 1 - min(offsets):
            assert queue.min_offset(0) == min(offsets)
    assert store.foreign == []
    store.close()
    assert tree_hash(root) == before


def test_only_what_a_broker_serves_is_shown(root: Path) -> None:
    """Neither units above `max`, nor a queue that was only asked for, nor a name that leads out of the folder."""
    more = dict(
        [
            offset_row("orders", 0, 2),
            offset_row("asked", 0, 0, "min"),
            offset_row("CHECKPOINT_TOPIC", 0, 9),
            offset_row("../../out", 0, 0),
            offset_row("..", 0, 0),
            (b"\0\0\0\6\1orders\1max\1\0", b"short"),
        ]
    )
    write_queues(root, {("orders", 0, at): 100 * at for at in range(5)}, more)
    store = ReadOnlyStore(root, CONF)
    assert {key: queue.max_offset for key, queue in store.queues.items()} == {("orders", 0): 3}
    assert not (root / "consumequeue" / "orders").exists()
    store.close()


def test_the_empty_folder_beside_a_database_may_be_missing(root: Path) -> None:
    """The real 5.5.0 serves all of such a copy."""
    write_queues(root, {("orders", 0, 0): 0})
    (root / "consumequeue").rename(root / "consumequeue_rocksdb")
    store = ReadOnlyStore(root, CONF)
    assert set(store.queues) == {("orders", 0)}
    store.close()


def test_a_damaged_database_is_named(root: Path) -> None:
    write_queues(root, {("orders", 0, at): 100 * at for at in range(5)})
    (table, *_) = (root / "consumequeue").glob("*.sst")
    write_at(table, 20, bytes(100))
    store = ReadOnlyStore(root, CONF)
    assert dict(store.queues) == {}
    (damage,) = store.foreign
    assert (damage.code, damage.path) == ("unreadable", "consumequeue")
    assert "RocksDB: Corruption: block checksum mismatch" in damage.detail
    assert "/tmp" not in damage.detail
    store.close()


def test_a_link_out_of_the_store_is_not_followed(root: Path, tmp_path: Path) -> None:
    write_queues(root, {("orders", 0, 0): 0})
    (table, *_) = (root / "consumequeue").glob("*.sst")
    shutil.move(table, tmp_path / "out.sst")
    table.symlink_to(tmp_path / "out.sst")
    store = ReadOnlyStore(root, CONF)
    assert dict(store.queues) == {}
    assert [damage.code for damage in store.foreign] == ["unreadable"]
    store.close()


TOPIC, GROUP = b'{"topicName":"T","perm":6}', b'{"groupName":"g"}'


def v2_key(table: int, *parts: bytes) -> bytes:
    return b"\1" + struct.pack(">H", table) + b"\2" + b"".join(parts)


def v2_text(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def write_v1(config: Path) -> None:
    version = {b"kvDataVersionKey": b'{"counter":1}'}
    write_database(config / "topics", {"default": {b"T": TOPIC}, "kvDataVersion": version})
    write_database(config / "subscriptionGroups", {"default": {b"g": GROUP}, "kvDataVersion": version})
    write_database(config / "consumerOffsets", {"default": {b"T@g": b'{"offsetTable":{"0":5,"12":1}}'}})


def write_single(config: Path) -> None:
    offsets = {b"T@g": b'{"offsetTable":{"0":5,"12":1}}'}
    write_database(
        config / "metadata", {"topic": {b"T": TOPIC}, "subscriptionGroup": {b"g": GROUP}, "consumerOffset": offsets}
    )


def write_v2(config: Path) -> None:
    place = v2_text(b"g") + b"\1" + v2_text(b"T") + b"\1"
    rows = {
        v2_key(1, place, struct.pack(">I", queue_id)): struct.pack(">q", offset)
        for queue_id, offset in ((0, 5), (12, 1))
    }
    rows[v2_key(3, v2_text(b"T"))] = b"\1" + TOPIC
    rows[v2_key(4, v2_text(b"g"))] = b"\1" + GROUP
    rows[v2_key(3, v2_text(b"protobuf"))] = b"\2..."
    rows[b"\1\0\1\1data_version"] = bytes(24)
    write_database(config / "rdb", {"default": rows})


WRITERS = {"v1": write_v1, "single": write_single, "v2": write_v2}


@pytest.mark.parametrize("layout", WRITERS)
def test_config_in_databases_is_read_as_json(layout: str, root: Path) -> None:
    WRITERS[layout](root / "config")
    if layout != "v2":
        write_queues(root, {})
    store = ReadOnlyStore(root)
    assert store.listed_topics == {"T": {"topicName": "T", "perm": 6}}
    assert store.config("subscriptionGroup.json").content == {"subscriptionGroupTable": {"g": {"groupName": "g"}}}
    assert store.config("consumerOffset.json").content == {"offsetTable": {"T@g": {"0": 5, "12": 1}}}
    store.close()


def test_broker_conf_says_which_configuration_counts_else_the_newest(root: Path) -> None:
    config = root / "config"
    write_v2(config)
    json = config / "topics.json"
    json.write_text("{}")
    said = BrokerConf(path="broker.conf")
    assert StorePath(root, said).config_databases == ()
    assert StorePath(root, said._replace(config_in_v2=True)).config_databases == ("rdb",)
    assert StorePath(root, said._replace(queues_in_rocksdb=True)).config_databases == ()
    for file in (config / "rdb").iterdir():
        os.utime(file, (2_000_000_000, 2_000_000_000))
    assert StorePath(root, BrokerConf()).config_databases == ("rdb",)
    os.utime(json, (2_000_000_001, 2_000_000_001))
    assert StorePath(root, BrokerConf()).config_databases == ()
    write_queues(root, {})
    write_v1(config)
    assert StorePath(root, BrokerConf()).config_databases == ("rdb",)


def test_a_damaged_config_database_is_a_problem_of_the_file(root: Path) -> None:
    write_v2(root / "config")
    (table, *_) = (root / "config" / "rdb").glob("*.sst")
    write_at(table, 20, bytes(100))
    store = ReadOnlyStore(root)
    config = store.config("topics.json")
    assert (config.content, "RocksDB: Corruption" in config.problem) == (None, True)
    store.close()


def test_a_damaged_config_database_is_opened_once() -> None:
    opened: list[str] = []

    def fail(name: str) -> Database:
        opened.append(name)
        raise OSError(errno.EIO, "damaged")

    files = ConfigFiles(fail, V1)
    for _ in range(3):
        with pytest.raises(OSError, match="damaged"):
            files.content((TOPICS,))
    assert opened == ["topics"]


def test_tables_that_a_cut_manifest_does_not_name_are_a_finding(root: Path) -> None:
    """5.5.0 started on such databases, and had no offset."""
    write_v2(root / "config")
    (manifest,) = (root / "config" / "rdb").glob("MANIFEST-*")
    (log,) = (root / "config" / "rdb").glob("*.log")
    store = ReadOnlyStore(root)
    assert list(audit_databases(store)) == []
    log.rename(root / log.name)
    (found,) = audit_databases(store)
    assert (found.code, found.path, "no write-ahead log" in found.detail) == ("database-log", "config/rdb", True)
    (root / log.name).rename(log)
    os.truncate(manifest, manifest.stat().st_size // 2)
    (found,) = audit_databases(store)
    assert (found.code, found.path, ".sst: a broker starts without" in found.detail) == (
        "database-log",
        "config/rdb",
        True,
    )
    store.close()


def test_damage_to_a_family_that_nobody_else_reads_is_a_finding(root: Path) -> None:
    """5.5.0 did not start on damage to the data version of the groups."""
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-1")
    for name in V1:
        write_database(root / "config" / name, {"default": {b"orders": b"{}"}, "kvDataVersion": {b"v": bytes(900)}})
    store = ReadOnlyStore(root)
    assert list(audit_databases(store)) == []
    for table in (root / "config" / "topics").glob("*.sst"):
        if b"kvDataVersion" in table.read_bytes():
            write_at(table, 3, b"damage")
    assert [(one.code, one.path) for one in audit_databases(store)] == [("unreadable", "config/topics")]
    assert store.config("topics.json").problem == ""
    store.close()


@pytest.mark.parametrize("target", [None, "../commitlog/00000000000000000000", "out"])
def test_rocksdict_writes_to_no_file_of_the_store(target: str | None, root: Path, tmp_path: Path) -> None:
    """It has a file of its own beside a database, which a store may have, or a link in its place."""
    write_queues(root, {("orders", 0, 0): 0})
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    (tmp_path / "out").write_text("precious")
    own = root / "consumequeue" / "rocksdict-config.json"
    if target is None:
        own.write_text("precious")
    else:
        own.symlink_to(tmp_path / "out" if target == "out" else target)
    before = tree_hash(root)
    store = ReadOnlyStore(root, CONF, follow_links=True)
    assert set(store.queues) == {("orders", 0)}
    store.close()
    assert (tree_hash(root), (tmp_path / "out").read_text()) == (before, "precious")


@pytest.mark.parametrize("last", [30_000_000_000, 2**62, 2**63 - 1, -5])
def test_an_absurd_end_of_a_queue_is_not_believed(last: int, root: Path) -> None:
    write_queues(root, {("orders", 0, at): 100 * at for at in range(5)}, dict([offset_row("orders", 0, last)]))
    store = ReadOnlyStore(root, CONF)
    assert [queue.max_offset for queue in store.queues.values()] in ([PER_FILE], [])
    store.close()


def test_a_row_cannot_pass_for_another_one(root: Path) -> None:
    write_queues(root, {})
    write_v1(root / "config")
    forged = b'{"offsetTable":{"0":5}},"T@g":{"0":999}'
    shutil.rmtree(root / "config" / "consumerOffsets")
    write_database(root / "config" / "consumerOffsets", {"default": {b"a@b": forged}})
    store = ReadOnlyStore(root)
    config = store.config("consumerOffset.json")
    assert (config.content, "the row b'a@b' of consumerOffset is no JSON object" in config.problem) == (None, True)
    store.close()
