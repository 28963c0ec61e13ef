from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Storage
from tests.support.memory_storage import FOLDER, MemoryStorage, memory_queue


def anomalies(queue: MappedFileQueue) -> list[tuple[str, int, int]]:
    return [(found.code, found.physical_offset, found.size) for found in queue.anomalies]


def foreign(queue: MappedFileQueue) -> list[tuple[str, str]]:
    return [(found.code, found.path) for found in queue.foreign]


def put(folder: Path, sizes: dict[int, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for base, size in sizes.items():
        (folder / f"{base:020d}").write_bytes(bytes(size))


def test_files_come_in_the_order_of_their_offsets() -> None:
    queue = memory_queue({200: bytes(100), 0: bytes(100), 100: bytes(100)})
    assert [file.file_from_offset for file in queue.files] == [0, 100, 200]
    assert (queue.file_size, queue.min_offset, anomalies(queue)) == (100, 0, [])


def test_a_log_may_begin_anywhere() -> None:
    queue = memory_queue({300: bytes(100), 400: bytes(100)})
    assert (queue.min_offset, anomalies(queue)) == (300, [])


def test_an_empty_folder_is_a_queue_without_files() -> None:
    queue = memory_queue({})
    assert (queue.files, queue.file_size, queue.min_offset, queue.find(0)) == ([], 0, 0, None)


def test_a_missing_folder_is_a_queue_without_files(tmp_path: Path) -> None:
    assert MappedFileQueue(Storage(tmp_path), [tmp_path / "commitlog"]).files == []


@pytest.mark.parametrize(("offset", "base"), [(100, 100), (199, 100), (200, 200), (299, 200)])
def test_a_file_holds_the_offsets_from_its_name_on(offset: int, base: int) -> None:
    file = memory_queue({100: bytes(100), 200: bytes(100)}).find(offset)
    assert file is not None
    assert file.file_from_offset == base


@pytest.mark.parametrize("offset", [-1, 0, 99, 300, 2**63])
def test_an_offset_outside_has_no_file(offset: int) -> None:
    assert memory_queue({100: bytes(100), 200: bytes(100)}).find(offset) is None


@pytest.mark.parametrize(
    ("sizes", "file_size"),
    [
        ({0: 50, 200: 100}, 100),
        ({0: 30, 100: 7}, 100),
        ({0: 100, 100: 100, 200: 40}, 100),
        ({0: 70, 100: 90, 300: 90, 400: 10}, 100),
    ],
)
def test_the_usual_size_is_one_that_the_names_allow(sizes: dict[int, int], file_size: int) -> None:
    """Also where few files are whole, and one is missing."""
    assert memory_queue({base: bytes(size) for base, size in sizes.items()}).file_size == file_size


def test_a_missing_file_is_a_gap() -> None:
    queue = memory_queue({0: bytes(100), 100: bytes(100), 400: bytes(100)})
    assert anomalies(queue) == [("file-gap", 200, 200)]
    assert queue.find(250) is None


def test_a_file_that_begins_inside_the_one_before_is_an_overlap() -> None:
    assert anomalies(memory_queue({0: bytes(100), 60: bytes(100)}, 100)) == [("file-overlap", 60, 40)]


def test_a_short_file_has_the_wrong_length() -> None:
    assert anomalies(memory_queue({0: bytes(100), 100: bytes(70), 200: bytes(100)})) == [("file-length", 170, 30)]


def test_a_long_file_has_the_wrong_length() -> None:
    assert anomalies(memory_queue({0: bytes(100), 100: bytes(100), 200: bytes(130)})) == [("file-length", 300, 30)]


def test_an_empty_last_file_has_the_wrong_length() -> None:
    assert anomalies(memory_queue({0: bytes(100), 100: b""})) == [("file-length", 100, 100)]


def test_the_length_is_told_by_the_distance_of_the_names_when_all_files_were_cut() -> None:
    queue = memory_queue({0: bytes(10), 100: bytes(20), 200: bytes(30)})
    assert queue.file_size == 100
    assert anomalies(queue) == [("file-length", 10, 90), ("file-length", 120, 80), ("file-length", 230, 70)]


def test_the_configured_length_is_believed() -> None:
    assert anomalies(memory_queue({0: bytes(100)}, 200)) == [("file-length", 100, 100)]


def test_files_of_several_folders_interleave(tmp_path: Path) -> None:
    put(tmp_path / "a", {0: 100, 200: 100})
    put(tmp_path / "b", {100: 100, 300: 100})
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path / "a", tmp_path / "b"])
    assert [file.name[:2] for file in queue.files] == ["a/", "b/", "a/", "b/"]
    assert anomalies(queue) == []


def test_the_same_offset_in_two_folders_is_an_overlap(tmp_path: Path) -> None:
    put(tmp_path / "a", {0: 100})
    put(tmp_path / "b", {0: 100, 100: 100})
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path / "a", tmp_path / "b"])
    assert anomalies(queue) == [("file-overlap", 0, 100)]
    assert queue.anomalies[0].path == f"b/{0:020d}"
    assert [file.name for file in queue.files] == [f"a/{0:020d}", f"b/{100:020d}"]


@pytest.mark.parametrize(
    "name", ["0", "readme.txt", f"{0:020d}.bak", f"{0:019d}", "-0000000000000000001", "99999999999999999999"]
)
def test_a_file_that_is_not_named_by_an_offset_is_foreign(name: str) -> None:
    queue = MappedFileQueue(MemoryStorage({name: b"x"}), [FOLDER])
    assert (queue.files, foreign(queue)) == ([], [("foreign-file", f"commitlog/{name}")])


def test_the_largest_offset_is_a_name() -> None:
    assert memory_queue({2**63 - 2: b"x"}).min_offset == 2**63 - 2


def test_a_folder_in_the_queue_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "commitlog" / f"{0:020d}").mkdir(parents=True)
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path / "commitlog"])
    assert (queue.files, foreign(queue)) == ([], [("foreign-file", f"commitlog/{0:020d}")])


def test_a_fifo_in_the_queue_is_foreign(tmp_path: Path) -> None:
    put(tmp_path / "commitlog", {100: 100})
    os.mkfifo(tmp_path / "commitlog" / f"{0:020d}")
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path / "commitlog"])
    assert [file.file_from_offset for file in queue.files] == [100]
    assert foreign(queue) == [("foreign-file", f"commitlog/{0:020d}")]


def linked_file(tmp_path: Path) -> Path:
    """A store whose log file is a link out of it."""
    put(tmp_path / "elsewhere", {0: 100})
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").symlink_to(tmp_path / "elsewhere" / f"{0:020d}")
    return folder


def test_a_file_that_is_a_link_out_of_the_store_is_left_alone(tmp_path: Path) -> None:
    folder = linked_file(tmp_path)
    queue = MappedFileQueue(Storage(folder.parent), [folder])
    assert (queue.files, foreign(queue)) == ([], [("link-not-followed", f"commitlog/{0:020d}")])


def test_a_file_that_is_a_link_out_of_the_store_is_read_when_asked(tmp_path: Path) -> None:
    folder = linked_file(tmp_path)
    queue = MappedFileQueue(Storage(folder.parent, follow_links=True), [folder])
    assert ([file.size for file in queue.files], foreign(queue)) == ([100], [])


def test_a_folder_that_is_a_link_out_of_the_store_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", {0: 100})
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "elsewhere")
    queue = MappedFileQueue(Storage(tmp_path / "store"), [tmp_path / "store" / "commitlog"])
    assert (queue.files, foreign(queue)) == ([], [("link-not-followed", "commitlog")])


def test_files_that_appear_are_seen_after_a_refresh(tmp_path: Path) -> None:
    put(tmp_path, {0: 100})
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path])
    put(tmp_path, {100: 100, 200: 50})
    queue.refresh()
    assert [file.size for file in queue.files] == [100, 100, 50]
    assert anomalies(queue) == [("file-length", 250, 50)]


def test_a_refresh_forgets_what_was_put_right(tmp_path: Path) -> None:
    put(tmp_path, {0: 100, 200: 100, 300: 100})
    queue = MappedFileQueue(Storage(tmp_path), [tmp_path])
    assert anomalies(queue) == [("file-gap", 100, 100)]
    put(tmp_path, {100: 100})
    queue.refresh()
    assert anomalies(queue) == []


def test_close_closes_every_file_that_was_read() -> None:
    storage = MemoryStorage({f"{base:020d}": bytes(100) for base in (0, 100, 200)})
    queue = MappedFileQueue(storage, [FOLDER])
    for file in queue.files[:2]:
        file.read(0, 1)
    queue.close()
    assert storage.closed == [f"{0:020d}", f"{100:020d}"]
