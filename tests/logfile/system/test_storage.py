from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.small_files import SMALL_FILE
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.logfile.system.writable_storage import WritableStorage
from tests.support.lock_holder import lock_held


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    return path


@pytest.fixture
def broker_pid(lock_file: Path) -> Iterator[int]:
    """A process that holds the lock as a running broker does."""
    with lock_held(lock_file.parent) as pid:
        yield pid


def test_a_lock_that_another_process_holds_has_its_pid(lock_file: Path, broker_pid: int) -> None:
    assert Storage(lock_file.parent).lock_holder(lock_file) == broker_pid


def test_asking_for_the_holder_does_not_take_the_lock(lock_file: Path, broker_pid: int) -> None:
    storage = Storage(lock_file.parent)
    assert storage.lock_holder(lock_file) == storage.lock_holder(lock_file) == broker_pid


def test_a_lock_file_alone_is_held_by_nobody(lock_file: Path) -> None:
    assert Storage(lock_file.parent).lock_holder(lock_file) is None


def test_without_a_lock_file_nobody_holds_it(tmp_path: Path) -> None:
    assert Storage(tmp_path).lock_holder(tmp_path / "lock") is None


def test_a_fifo_named_lock_is_held_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert Storage(tmp_path).lock_holder(tmp_path / "lock") is None


def test_an_entry_tells_kind_and_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    storage = Storage(tmp_path)
    assert (storage.entry(tmp_path / "file").kind, storage.entry(tmp_path / "file").size) == (Kind.FILE, 5)
    assert storage.entry(tmp_path / "folder").kind is Kind.DIRECTORY
    assert storage.entry(tmp_path / "fifo").kind is Kind.OTHER
    assert storage.entry(tmp_path / "nothing").kind is Kind.MISSING


def test_an_entry_tells_its_mtime_in_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", ns=(0, 1_795_252_516_848_999_999))
    assert Storage(tmp_path).entry(tmp_path / "file").mtime == 1_795_252_516_848


def test_a_path_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert Storage(tmp_path).entry(tmp_path / "file" / "below").kind is Kind.MISSING


def test_a_link_inside_the_store_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    entry = Storage(tmp_path).entry(tmp_path / "link")
    assert (entry.kind, entry.size, entry.name) == (Kind.FILE, 5, "link")


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "secret").write_bytes(b"12345")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "secret")
    entry = Storage(tmp_path / "store").entry(tmp_path / "store" / "link")
    assert (entry.kind, entry.size) == (Kind.LINK_OUT, 0)


def test_a_link_to_a_folder_whose_name_only_begins_like_the_store_leads_out(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store-2").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "store-2")
    assert Storage(tmp_path / "store").entry(tmp_path / "store" / "link").kind is Kind.LINK_OUT


def test_a_link_out_of_the_store_is_followed_when_asked(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "other").write_bytes(b"12345")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "other")
    entry = Storage(tmp_path / "store", follow_links=True).entry(tmp_path / "store" / "link")
    assert (entry.kind, entry.size) == (Kind.FILE, 5)


def test_a_link_into_a_trusted_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "disk2").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "disk2")
    storage = Storage(tmp_path / "store")
    storage.trust(tmp_path / "disk2")
    assert storage.entry(tmp_path / "store" / "link").kind is Kind.DIRECTORY


def test_a_store_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "store").symlink_to("real")
    storage = Storage(tmp_path / "store")
    assert [entry.kind for entry in storage.listing(tmp_path / "store")] == [Kind.FILE]


def test_a_link_to_nothing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    assert Storage(tmp_path).entry(tmp_path / "link").kind is Kind.MISSING


def test_links_in_a_circle_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert Storage(tmp_path).entry(tmp_path / "a").kind is Kind.OTHER


def test_a_listing_is_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b", "a", "C"):
        (tmp_path / name).touch()
    assert [entry.name for entry in Storage(tmp_path).listing(tmp_path)] == ["C", "a", "b"]


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("follow_links", [False, True])
def test_the_kinds_of_a_folder_are_those_of_its_listing(tmp_path: Path, *, follow_links: bool, writable: bool) -> None:
    root, other = tmp_path / "store", tmp_path / "other"
    (root / "folder").mkdir(parents=True)
    other.mkdir()
    (root / "file").write_bytes(b"")
    os.mkfifo(root / "fifo")
    for name, target in (
        ("in", root / "folder"),
        ("out", other),
        ("nowhere", root / "none"),
        ("circle", root / "circle"),
    ):
        (root / name).symlink_to(target)
    storage = (WritableStorage if writable else Storage)(root, follow_links=follow_links)
    kinds = storage.kinds(str(root))
    assert kinds == [(entry.name, entry.kind) for entry in storage.listing(root)]
    assert dict(kinds)["folder"] is Kind.DIRECTORY
    assert storage.kinds(str(root / "file")) == storage.kinds(str(root / "none")) == []


@pytest.mark.parametrize("writable", [False, True])
def test_plain_folders_have_the_files_of_the_listing(tmp_path: Path, *, writable: bool) -> None:
    root, other = tmp_path / "store", tmp_path / "other"
    for folder in (root / "files", root / "mixed" / "folder", other):
        folder.mkdir(parents=True)
    for path in (root / "files" / "b", root / "files" / "a", root / "mixed" / "a", other / "a"):
        path.write_bytes(b"1234")
    (root / "out").symlink_to(other)
    (root / "in").symlink_to(root / "files")
    storage = (WritableStorage if writable else Storage)(root)
    listed = [(entry.name, entry.size, entry.allocated, None) for entry in storage.listing(root / "files")]
    names = ["files", "mixed", "out", "in", "none", "files/a"]
    found = list(zip(names, storage.plain_folders(str(root), names), strict=False))
    assert found == list(zip(names, [None if writable else listed, *[None] * 5], strict=True))


def test_plain_folders_are_not_reached_through_a_link(tmp_path: Path) -> None:
    for link in ("store/topic", "queues"):
        target = tmp_path / "other" / link / "0"
        target.mkdir(parents=True)
        (target / "file").write_bytes(b"1234")
    root = tmp_path / "store"
    root.mkdir()
    (root / "topic").symlink_to(tmp_path / "other/store/topic")
    (root / "queues").symlink_to(tmp_path / "other/queues")
    storage = Storage(root)
    assert storage.kinds(str(root / "topic")) == []
    assert next(storage.plain_folders(str(root / "topic"), ["0"])) is None
    assert storage.kinds(str(root / "queues/0")) == []
    assert next(storage.plain_folders(str(root / "queues/0"), ["file"])) is None


def test_small_files_are_read_with_their_folder(tmp_path: Path) -> None:
    contents = {
        "empty": b"",
        "small": b"ab\0c",
        "zeros": bytes(5000),
        "ends in zeros": b"ab".ljust(SMALL_FILE, b"\0"),
        "full": b"x" * SMALL_FILE,
        "longer": b"x" * (SMALL_FILE + 1),
    }
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(content)
    (tmp_path / "sparse").mkdir()
    with (tmp_path / "sparse" / "file").open("wb") as file:
        file.write(b"abc")
        file.truncate(1 << 22)
    storage, names = Storage(tmp_path), [*contents, "sparse"]

    def read() -> list[bytes | None]:
        folders = zip(names, storage.plain_folders(str(tmp_path), names), strict=True)
        return [file.content for _, files in folders for file in files or ()]

    assert read() == [None] * len(names)
    with storage.keeping_small_files():
        found = read()
    assert found == [b"", b"ab\0c", b"", b"ab", b"x" * SMALL_FILE, None, b"abc"]
    paths = [tmp_path / name / "file" for name in names]
    assert found == [MappedFile(storage, path, 0, path.stat().st_size).read_small() for path in paths]


def test_only_the_only_file_of_a_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one/file", "two/a", "two/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "file")
    real, opened = os.open, []

    def watched(path: Path | str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", watched)
    storage, names = Storage(tmp_path), ["one", "two", "pipe"]
    with storage.keeping_small_files():
        found = [*storage.plain_folders(str(tmp_path), names)]
    assert [files if files is None else [file.content for file in files] for files in found] == [
        [b"x"],
        [None, None],
        None,
    ]
    assert opened == [str(tmp_path), "one", "file", "two", "pipe"]


def test_the_kinds_are_those_of_a_folder_or_of_a_link_to_it(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "folders" / name).mkdir(parents=True)
    (tmp_path / "mixed" / "a").mkdir(parents=True)
    (tmp_path / "mixed" / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folders")
    storage = Storage(tmp_path)
    names = ("folders", "mixed", "empty", "link", "none", "mixed/file")
    a, b, file = ("a", Kind.DIRECTORY), ("b", Kind.DIRECTORY), ("file", Kind.FILE)
    assert [storage.kinds(str(tmp_path / name)) for name in names] == [[a, b], [a, file], [], [a, b], [], []]


def test_what_is_no_folder_has_an_empty_listing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = Storage(tmp_path)
    assert storage.listing(tmp_path / "file") == storage.listing(tmp_path / "nothing") == []


def test_a_path_inside_the_store_is_shown_relative_to_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    assert storage.display(tmp_path / "commitlog" / "0") == "commitlog/0"
    assert storage.display(Path("/elsewhere/0")) == "/elsewhere/0"


def test_a_read_gives_fewer_bytes_only_at_the_end_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    storage = Storage(tmp_path)
    descriptor = storage.open(tmp_path / "file")
    assert storage.read(descriptor, 2, 3) == b"234"
    assert storage.read(descriptor, 8, 5) == b"89"
    assert storage.read(descriptor, 10, 5) == b""
    storage.close(descriptor)


def test_a_short_read_of_the_system_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    storage = Storage(tmp_path)
    descriptor = storage.open(tmp_path / "file")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: real(fd, min(size, 3), position))
    assert storage.read(descriptor, 1, 8) == b"12345678"
    assert storage.read(descriptor, 5, 80) == b"56789"
    storage.close(descriptor)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_regular_files_are_opened(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "file")
    with pytest.raises(OSError, match="not a regular file"):
        Storage(tmp_path, follow_links=True).open(tmp_path / "file")


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    for folder in (tmp_path, root):
        (folder / "there").write_bytes(b"here")
    (root / "in").symlink_to("there")
    (root / "out").symlink_to("../there")
    assert Storage(root).read_file(root / "in", 4) == b"here"
    with pytest.raises(OSError, match="a symbolic link out of the store"):
        Storage(root).open(root / "out")


def test_reading_a_file_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert Storage(tmp_path).read_start(tmp_path / "file", 4) == b"0123"
    assert Storage(tmp_path).read_file(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 bytes"):
        Storage(tmp_path).read_file(tmp_path / "file", 9)


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Storage(tmp_path).read_file(tmp_path / "nothing", 4)


@pytest.mark.parametrize(("code", "answer"), [(errno.ENXIO, None), (errno.EINVAL, 7), (errno.ENOTSUP, 7)])
def test_a_file_system_without_holes_has_data_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, answer: int | None
) -> None:
    def fails(descriptor: int, position: int, whence: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "lseek", fails)
    assert Storage(tmp_path).next_data(0, 7) == answer


def test_a_failing_disk_is_not_taken_for_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int, position: int, whence: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "lseek", fails)
    with pytest.raises(OSError, match="Input/output"):
        Storage(tmp_path).next_data(0, 7)


def test_behind_the_end_of_a_file_there_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    storage = Storage(tmp_path)
    descriptor = storage.open(tmp_path / "file")
    assert (storage.next_data(descriptor, 3), storage.next_data(descriptor, 10)) == (3, None)
    storage.close(descriptor)
