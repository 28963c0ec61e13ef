"""Rows of half messages, users and acls."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.forensics.verify import verify
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, Rmqctl
from tests.support.databases import change_database, write_database
from tests.support.file_edits import write_at
from tests.support.log_maker import Record, placed, write_log

HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
PROPERTIES = b"UNIQ_KEY\x01AB@1\x02REAL_TOPIC\x01payments\x02"


def half_row(at: int, size: int, topic: bytes = b"payments", key: bytes = b"AB@1") -> tuple[bytes, bytes]:
    return struct.pack(">q", at) + b"@" + topic + b"@" + key, struct.pack(">ii", 0, size)


def found(root: Path) -> list[tuple[str, str, int]]:
    store = ReadOnlyStore(root)
    report = verify(store)
    store.close()
    ours = ("half-database-dangling", "unreadable")
    return [(one.code, one.path, one.count) for one in report.findings if one.code in ours]


@pytest.fixture
def halves(tmp_path: Path) -> tuple[Path, list[tuple[int, int]]]:
    """Returns a store with two half messages, and their offsets and sizes."""
    root = tmp_path / "store"
    records = [Record(topic=HALF, queue_id=0, queue_offset=i, properties=PROPERTIES) for i in range(2)]
    write_log(root, records, file_size=4096)
    return root, [(at, size) for _, at, size in placed(records)]


def test_rows_of_half_messages_are_compared_with_the_log(halves: tuple[Path, list[tuple[int, int]]]) -> None:
    root, ((first, size), (second, _)) = halves
    folder, good = root / "rocksdbstore", half_row(first, size)
    write_database(folder, {"default": {}, "trans": dict([good, half_row(second, size)])})
    assert found(root) == []
    for wrong in (half_row(second, size, b"orders"), half_row(second, size, key=b"C"), half_row(1, 9)):
        change_database(folder, "trans", dict([wrong]))
    assert found(root) == [("half-database-dangling", "rocksdbstore", 3)]
    change_database(folder, "trans", {good[0]: struct.pack(">ii", 0, size + 1)})
    assert found(root) == [("half-database-dangling", "rocksdbstore", 4)]


def test_doctor_says_what_comes_of_them(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550-rdbidx")
    change_database(root / "rocksdbstore", "trans", dict([half_row(0, 100)]))
    (cause,) = rmqctl("doctor", root, "-o", "json").document()["causes"]
    assert (cause["code"], cause["next"]) == ("half-rows-wrong", f"rmqctl verify {root}")


@pytest.mark.parametrize("name", ["users", "acls"])
def test_users_and_acls_are_read_and_never_shown(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    folder = root / "config" / name
    write_database(folder, {"default": {b"bob": b'{"password":"secret"}'}})
    assert found(root) == []
    change_database(folder, "default", {b"eve": b"secret"})
    assert found(root) == [("unreadable", f"config/{name}", 1)]
    change_database(folder, "default", {b"eve": None})
    table = next(folder.glob("*.sst"))
    write_at(table, 5, b"\xff\xff")
    result = rmqctl("verify", root)
    assert (result.code, f"config/{name}" in result.out, "secret" in result.out + result.err) == (4, True, False)
