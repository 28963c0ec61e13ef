"""Log against the index in rocksdbstore/: of a real broker of 5.5.0, and changed."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from rmqctl.forensics.live_writer import verify_beside_writer
from rmqctl.forensics.search import Question, Search
from rmqctl.forensics.verify import LEVEL_ALL, Verification, verify
from rmqctl.format.message import Message
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.rocksdb.message_rows import LAST_OFFSET
from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.databases import change_database
from tests.support.file_edits import write_at
from tests.support.lock_holder import lock_held

IN_USE = BrokerConf(index_in_database=True)
ROWS = 503


@pytest.fixture
def root(golden: Golden) -> Path:
    return golden("broker-550-rdbidx")


@pytest.fixture
def without_files(root: Path) -> Path:
    for file in (root / "index").iterdir():
        file.unlink()
    return root


def found(root: Path, conf: BrokerConf | None = None) -> list[tuple[str, int]]:
    store = ReadOnlyStore(root, conf)
    report = verify(store)
    store.close()
    return [(finding.code, finding.count) for finding in report.findings]


def causes(root: Path, rmqctl: Rmqctl) -> list[str]:
    return [cause["code"] for cause in rmqctl("doctor", root, "-o", "json").document()["causes"]]


def keys_of(root: Path) -> list[bytes]:
    store = ReadOnlyStore(root)
    database = store.path.message_database
    assert database is not None
    return [key for key, _ in database.rows() if not key.startswith(b"last")]


def places(root: Path, conf: BrokerConf | None = None, **asked: str) -> list[int]:
    return [row["physicalOffset"] for row in Search(ReadOnlyStore(root, conf), Question(**asked)).rows()]  # type: ignore[arg-type]


def test_a_real_index_agrees_with_the_log(root: Path) -> None:
    before = tree_hash(root)
    assert len(keys_of(root)) == ROWS
    assert found(root) == found(root, IN_USE) == []
    assert tree_hash(root) == before


def test_without_files_the_database_is_the_index(without_files: Path, rmqctl: Rmqctl) -> None:
    """It is neither a finding nor a cause that index/ is empty."""
    assert found(without_files) == []
    assert causes(without_files, rmqctl) == []


def test_the_database_finds_what_the_files_find(root: Path) -> None:
    store = ReadOnlyStore(root)
    asked: dict[tuple[str, str], list[int]] = {}
    for message in (item for item in store.commit_log.scan() if isinstance(item, Message)):
        for key in (message.properties.get("UNIQ_KEY", ""), *message.properties.get("KEYS", "").split()):
            asked[message.topic, key] = places(root, topic=message.topic, key=key)
    assert len(asked) > 150
    for (topic, key), offsets in asked.items():
        assert places(root, IN_USE, topic=topic, key=key) == offsets


def test_rows_without_a_message(root: Path) -> None:
    """They lead behind the log, into a message, and to a message without the key."""
    first, second = keys_of(root)[:2]
    stored = struct.pack(">q", 1)
    rows = {first[:-8] + struct.pack(">q", offset): stored for offset in (1 << 40, 3)}
    other = first[:8] + b"@orders@K@no such key@ABC@" + second[-8:]
    change_database(root / "rocksdbstore", "default", {**rows, other: stored})
    assert sorted(found(root)) == [("index-database-dangling", 1)] * 3


def test_messages_without_a_row_count_where_the_broker_asks_the_database(root: Path, rmqctl: Rmqctl) -> None:
    keys = sorted(keys_of(root), key=lambda key: key[-8:])
    change_database(root / "rocksdbstore", "default", dict.fromkeys(keys[100:120]))
    of_messages = len({key[-8:] for key in keys[100:120]})
    assert found(root) == []
    assert found(root, IN_USE) == [("index-database-missing", of_messages)]
    for file in (root / "index").iterdir():
        file.unlink()
    assert causes(root, rmqctl) == ["index-database-wrong"]


def test_messages_before_the_first_row_are_a_note(root: Path) -> None:
    keys = sorted(keys_of(root), key=lambda key: key[-8:])
    offset = keys[200][-8:]
    before = [key for key in keys if key[-8:] < offset]
    change_database(root / "rocksdbstore", "default", dict.fromkeys(before))
    report = verify(ReadOnlyStore(root, IN_USE))
    assert report.findings == []
    count = len({key[-8:] for key in before})
    assert f"the index in rocksdbstore begins after {count} messages with keys: --scan finds them" in report.notes


def test_a_running_broker_writes_its_last_rows_later(root: Path) -> None:
    """It flushes them after minutes: until then they are on no disk."""
    keys = sorted(keys_of(root), key=lambda key: key[-8:])
    offset = keys[400][-8:]
    rows: dict[bytes, bytes | None] = dict.fromkeys(key for key in keys if key[-8:] > offset)
    change_database(root / "rocksdbstore", "default", {**rows, LAST_OFFSET: offset})
    assert [code for code, _ in found(root, IN_USE)] == ["index-database-missing"]
    with lock_held(root):
        store = ReadOnlyStore(root, IN_USE)
        verification = Verification(store)
        verify_beside_writer(verification, store, LEVEL_ALL, 1)
        assert verification.report.findings == []


def test_an_empty_database_has_no_message(root: Path) -> None:
    """As after a crash: a database has nothing of the last minutes. The files are not asked."""
    with_unique_key = sum(
        "UNIQ_KEY" in one.properties for one in ReadOnlyStore(root).commit_log.scan() if isinstance(one, Message)
    )
    shutil.rmtree(root / "rocksdbstore")
    assert found(root) == []
    assert sum(count for _, count in found(root, IN_USE)) == with_unique_key
    assert {code for code, _ in found(root, IN_USE)} == {"index-database-missing"}


def test_recover_builds_no_index_that_nobody_asks(without_files: Path, rmqctl: Rmqctl) -> None:
    (without_files / "abort").touch()
    assert rmqctl("recover", without_files, "--yes").code == 3
    assert list((without_files / "index").iterdir()) == []
    assert found(without_files) == []


def test_a_key_and_a_unique_key_can_have_the_same_letters_as_the_marks(root: Path) -> None:
    """As acknowledgements of POP, whose UNIQ_KEY has @."""
    store = ReadOnlyStore(root)
    assert store.path.message_database is not None
    hour, offset = keys_of(root)[0][:8], struct.pack(">q", 7)
    rows = {b"@t@K@a@b@c@": b"1" * 8, b"@t@U@b@c@": b"1" * 8, b"@t@T@x@y@z@": b"1" * 8}
    change_database(root / "rocksdbstore", "default", {hour + key + offset: value for key, value in rows.items()})
    database = ReadOnlyStore(root, IN_USE).index.database
    assert database is not None
    assert {(row.kind, row.text) for row in database.rows() if row.topic == "t"} == {
        ("K", "a"),
        ("U", "b@c"),
        ("T", "x@y"),
    }
    assert [row.text for row in database.of_key("t", "a")] == ["a"]
    assert not list(database.of_key("t", "a@b"))
    assert len(list(database.of_key("t", "b@c"))) == 1


def test_a_damaged_database_is_named(root: Path) -> None:
    (table, *_) = (root / "rocksdbstore").glob("*.sst")
    write_at(table, 20, bytes(100))
    assert found(root) == [("unreadable", 1)]
    assert ("unreadable", 1) in found(root, IN_USE)


def test_an_unreadable_database_is_told_once(root: Path, tmp_path: Path) -> None:
    (manifest,) = (root / "rocksdbstore").glob("MANIFEST-*")
    manifest.rename(tmp_path / "outside")
    manifest.symlink_to(tmp_path / "outside")
    assert found(root) == [("unreadable", 1)]
