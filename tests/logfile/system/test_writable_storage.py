"""Files and folders that could not be made are made the next time, durably, and leave no descriptor behind."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl.logfile.system import writable_storage
from rmqctl.logfile.system.storage import Kind, Stamp
from rmqctl.logfile.system.writable_storage import WRITE_SIZE_MAX, WritableStorage
from tests.support.faulty_system import Fault, FaultySystem, every_fault, open_descriptors


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.IO_ERROR])
def test_what_could_not_be_made_is_made_the_next_time(fault: Fault, tmp_path: Path) -> None:
    before = open_descriptors()
    for system in every_fault(tmp_path, fault):
        system.root.mkdir()
        storage = WritableStorage(system.root)
        path = system.root / "topic" / "0" / "file"
        with system:
            try:
                descriptor = storage.create(path, 1000)
            except OSError:
                descriptor = storage.create(path, 1000)
        storage.close(descriptor)
        assert open_descriptors() <= before
        left = tmp_path / f"left-{system.at}"
        system.after_power_failure(left)
        assert (left / "topic" / "0" / "file").read_bytes() == bytes(1000)


def test_a_file_beside_is_not_written_through_a_hard_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"someone's")
    (tmp_path / "file.tmp").hardlink_to(tmp_path / "other")
    WritableStorage(tmp_path).replace_file(tmp_path / "file", b"new")
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "other").read_bytes()) == (b"new", b"someone's")


@pytest.mark.skipif(os.geteuid() != 0, reason="others write by their own rights alone")
def test_root_changes_no_file_in_place_that_has_another_name(tmp_path: Path) -> None:
    other, linked = tmp_path / "other", tmp_path / "store" / "linked"
    linked.parent.mkdir()
    other.write_bytes(b"someone's")
    linked.hardlink_to(other)
    storage, before = WritableStorage(linked.parent), other.stat()
    for change in (
        storage.open_for_writing,
        storage.check_may_change,
        storage.lock,
        lambda path: storage.set_mode(path, 0o777),
        lambda path: storage.set_owner(path, Stamp(Kind.FILE, 0, 0, 0o644, 1000, 1000, 0)),
    ):
        with pytest.raises(PermissionError, match="several names"):
            change(linked)
    assert (other.stat(), other.read_bytes()) == (before, b"someone's")
    os.mkfifo(tmp_path / "store" / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        storage.open_for_writing(tmp_path / "store" / "fifo")


@pytest.mark.parametrize(("fault", "call"), [(Fault.TORN_WRITE, 1), (Fault.NO_SPACE, 2), (Fault.NO_SPACE, 3)])
def test_a_full_disk_names_the_file(fault: Fault, call: int, tmp_path: Path) -> None:
    with FaultySystem(tmp_path, fault, call), pytest.raises(OSError, match="No space left on device") as raised:
        WritableStorage(tmp_path).replace_file(tmp_path / "file", b"new")
    assert raised.value.filename == str(tmp_path / "file")


def test_much_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, sizes = os.pwrite, []

    def noted(descriptor: int, data: memoryview, position: int) -> int:
        sizes.append(len(data))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", noted)
    data = os.urandom(2 * WRITE_SIZE_MAX + 1)
    storage = WritableStorage(tmp_path)
    descriptor = storage.create(tmp_path / "file", len(data) + 1)
    storage.write(descriptor, 1, data)
    storage.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"\0" + data
    assert sizes == [WRITE_SIZE_MAX, WRITE_SIZE_MAX, 1]


CALLS_ON_A_DESCRIPTOR: dict[str, tuple[Any, ...]] = {
    "write": (0, b"x"),
    "resize": (9,),
    "allocate": (0, 9),
    "sync": (),
    "set_modified": (1,),
    "map": (4096,),
    "read": (0, 1),
    "read_into": (0, memoryview(bytearray(1))),
    "next_data": (0,),
    "duplicate": (),
}


def fails(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", CALLS_ON_A_DESCRIPTOR)
def test_what_fails_on_an_open_file_names_the_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, path = WritableStorage(tmp_path), tmp_path / "file"
    descriptor = storage.make_file(path)
    for name in ("pwrite", "ftruncate", "posix_fallocate", "fdatasync", "utime", "pread", "preadv", "lseek", "dup"):
        monkeypatch.setattr(os, name, fails)
    monkeypatch.setattr(mmap, "mmap", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as raised:
        getattr(storage, call)(descriptor, *CALLS_ON_A_DESCRIPTOR[call])
    assert raised.value.filename == str(path)
    os.close(descriptor)


def test_pages_that_cannot_be_had_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, path = WritableStorage(tmp_path), tmp_path / "file"
    descriptor = storage.create(path, 4096)
    mapping = storage.map(descriptor, 4096)
    monkeypatch.setattr(
        writable_storage, "_LIBC", SimpleNamespace(madvise=lambda *_: ctypes.set_errno(errno.ENOMEM) or 1)
    )
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)) as raised:
        storage.populate(descriptor, mapping, 0, 4096)
    assert raised.value.filename == str(path)
    os.close(descriptor)


@pytest.mark.parametrize("call", ["sync_file", "sync_folder", "set_mode", "names"])
def test_what_fails_on_a_file_opened_for_it_names_the_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "path"
    path.touch() if call == "sync_file" else path.mkdir()
    for name in ("fsync", "fchmod", "listdir"):
        monkeypatch.setattr(os, name, fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as raised:
        getattr(WritableStorage(tmp_path), call)(path, *((0o700,) if call == "set_mode" else ()))
    assert raised.value.filename == str(path)
