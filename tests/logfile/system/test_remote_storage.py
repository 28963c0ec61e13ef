"""A store by a URL reads as the same store by its path."""

from __future__ import annotations

import errno
import os
import random
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqctl.errors import BadRequest, NotAStore, Unreadable
from rmqctl.forensics.verify import verify
from rmqctl.logfile.system.remote_storage import (
    READ_SIZE,
    READ_SIZE_IN_ORDER,
    RETRY_SECONDS,
    RemoteStorage,
    _that_ends,
    root_path,
    storage_of,
)
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import apply_damage, damage_cases, unpack

pytestmark = pytest.mark.spark  # for pyarrow

CASES = damage_cases()
SOME_CASES = sorted(CASES)[::12]


def by_url(path: Path) -> Path:
    """The same place, as pyarrow reaches it by fsspec: a file system as any other that is not this host's."""
    return root_path(f"fsspec+local://{path}")


@pytest.mark.parametrize("name", ["497-basic", "471-cqext", "broker-533", "326-basic"])
def test_the_same_findings(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    with closing(ReadOnlyStore(root)) as here, closing(ReadOnlyStore(by_url(root))) as there:
        assert isinstance(there.storage, RemoteStorage)
        assert verify(there).findings == verify(here).findings
        assert sorted(there.queues) == sorted(here.queues)


@pytest.mark.parametrize("name", SOME_CASES)
def test_the_same_damage(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    with closing(ReadOnlyStore(root)) as here, closing(ReadOnlyStore(by_url(root))) as there:
        assert verify(there).findings == verify(here).findings


@pytest.mark.parametrize("folder", ["index", "consumequeue", "config"])
def test_a_file_where_a_folder_should_be(folder: str, tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    shutil.rmtree(root / folder)
    (root / folder).write_bytes(b"no folder")
    with closing(ReadOnlyStore(root)) as here, closing(ReadOnlyStore(by_url(root))) as there:
        assert verify(there).findings == verify(here).findings


def test_an_error_that_is_pyarrows_own_is_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import ArrowException

    def fail(*_: object) -> None:
        raise ArrowException("Unknown error: no login\nand more")

    storage = RemoteStorage(by_url(tmp_path))
    monkeypatch.setattr(storage, "_system", SimpleNamespace(get_file_info=fail))
    with pytest.raises(OSError, match="Unknown error: no login: 'fsspec"):
        storage.entry(storage.root / "file")


def test_a_name_that_is_no_utf8_is_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    (root / "consumequeue" / "OrderPaid" / os.fsdecode(b"\xff")).mkdir()
    with closing(ReadOnlyStore(by_url(root))) as there:
        codes = {finding.code for finding in verify(there).findings}
        assert codes <= {"unreadable", "dangling-unit"}
        assert "unreadable" in codes


def test_the_endpoint_that_a_url_names_is_asked() -> None:
    storage = RemoteStorage(root_path("s3://bucket/store?endpoint_override=http://127.0.0.1:9&region=x"))
    assert "'endpoint_override': 'http://127.0.0.1:9'" in str(storage._system.__reduce__())


def test_googles_system_gives_up_where_nobody_answers() -> None:
    assert _that_ends("gs://b/store") == f"gs://b/store?retry_limit_seconds={RETRY_SECONDS}"
    assert _that_ends("gs://b/store?x=y") == f"gs://b/store?x=y&retry_limit_seconds={RETRY_SECONDS}"
    assert _that_ends("gs://b/store?retry_limit_seconds=3") == "gs://b/store?retry_limit_seconds=3"
    assert _that_ends("s3://b/store") == "s3://b/store"


def test_what_there_is(tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    here, there = Storage(root), storage_of(by_url(root), follow_links=False)
    assert [(entry.name, entry.kind) for entry in there.listing(there.root)] == [
        (entry.name, entry.kind) for entry in here.listing(root)
    ]
    assert there.names(there.root / "config") == here.names(root / "config")
    assert there.listing(there.root / "nowhere") == there.listing(root) == []
    assert there.entry(root / "commitlog").kind is there.entry(there.root / "nowhere").kind is Kind.MISSING
    assert there.stamp(there.root / "nowhere") is None
    stamp, real = there.stamp(there.root / "checkpoint"), here.stamp(root / "checkpoint")
    assert stamp is not None
    assert real is not None
    assert (stamp.kind, stamp.size) == (real.kind, real.size)
    assert there.display(there.root / "commitlog" / "x") == "commitlog/x"
    assert there.display(there.root.parent / "other") == f"fsspec+local://{root.parent / 'other'}"


def test_a_second_listing_is_new(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    storage = RemoteStorage(by_url(tmp_path))
    top, below = storage.root / "a", storage.root / "a" / "b"
    assert (storage.names(top), storage.names(below)) == (["b"], [])
    for name in ("c", "b/d", "b/e"):
        (tmp_path / "a" / name).touch()
    assert (storage.names(below), storage.names(top), storage.names(below)) == (["d", "e"], ["b", "c"], ["d", "e"])


@pytest.mark.parametrize("size", [1, 1000, READ_SIZE, READ_SIZE + 1, READ_SIZE_IN_ORDER, 2 * READ_SIZE_IN_ORDER])
def test_reads_ahead_give_the_same_bytes(size: int, tmp_path: Path) -> None:
    data = random.Random(size).randbytes(READ_SIZE_IN_ORDER + 2 * READ_SIZE)
    (tmp_path / "file").write_bytes(data)
    storage = RemoteStorage(by_url(tmp_path))
    number = storage.open(storage.root / "file")
    for position in (
        0,
        10,
        READ_SIZE - 1,
        READ_SIZE,
        READ_SIZE + 5,
        3,
        len(data) - 7,
        len(data) - READ_SIZE,
        len(data),
    ):
        assert storage.read(number, position, size) == data[position : position + size]


def test_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    storage = RemoteStorage(by_url(tmp_path))
    number = storage.open(storage.root / "file")
    other = storage.duplicate(number)
    storage.close(number)
    assert storage.read(other, 90, 20) == bytes(range(90, 100))
    assert storage.read(other, 100, 20) == b""
    buffer = bytearray(5)
    assert storage.read_into(other, 97, memoryview(buffer)) == 3
    assert buffer == bytes([97, 98, 99, 0, 0])
    assert (storage.next_data(other, 7), storage.next_data(other, 100)) == (7, None)
    assert storage.read_start(storage.root / "file", 3) == b"\0\1\2"
    with pytest.raises(OSError, match="nowhere") as raised:
        storage.open(storage.root / "nowhere")
    assert raised.value.errno == errno.ENOENT


@pytest.mark.parametrize("url", ["nothing://bucket/store", "fsspec+nothing://bucket/store"])
def test_a_url_that_nobody_knows(url: str) -> None:
    with pytest.raises(BadRequest, match=r"^nothing|^fsspec\+nothing"):
        ReadOnlyStore(root_path(url))


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match=rf"^fsspec\+local://{tmp_path}/nowhere: no such folder"):
        ReadOnlyStore(by_url(tmp_path / "nowhere"))


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unreadable, match=r"^s3://bucket/store: cannot be read: [^\n]+$"):
        ReadOnlyStore(root_path("s3://bucket/store"))
