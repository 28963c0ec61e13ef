"""The stand-in for the system: it misses no call, fails where it is told to, and knows what a power failure leaves."""

from __future__ import annotations

import ast
import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.logfile.system import new_file, writable_storage
from rmqctl.logfile.system.writable_storage import WritableStorage
from tests.support.faulty_system import SECTOR_SIZE, Crashed, Fault, FaultySystem, every_fault

if TYPE_CHECKING:
    from types import ModuleType

# ctypes brings pages of a mapping in, which changes nothing; stat has names for numbers
HARMLESS_MODULES = {
    "ctypes",
    "errno",
    "stat",
    "contextlib",
    "pathlib",
    "typing",
    "collections.abc",
    "rmqctl.logfile",
    "rmqctl.logfile.access",
    "rmqctl.logfile.system.storage",
    "__future__",
}


def test_no_other_module_touches_the_system() -> None:
    assert imported_by(new_file) - HARMLESS_MODULES == {"os"}
    assert imported_by(writable_storage) - HARMLESS_MODULES - {new_file.__name__} == {"os", "fcntl", "mmap"}


def imported_by(module: ModuleType) -> set[str]:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return imported | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def replaced(root: Path) -> None:
    WritableStorage(root).replace_file(root / "folder" / "file", b"new content")


def test_every_call_fails_once(tmp_path: Path) -> None:
    struck = []
    for system in every_fault(tmp_path, Fault.NO_SPACE):
        system.root.mkdir()
        with system, pytest.raises(OSError, match="No space left") if system.at < 10 else nullcontext():
            replaced(system.root)
        struck.append(str(system).split(": ")[1].split("(")[0])
    assert struck == ["mkdir", "open", "fsync", "open", "pwrite", "fsync", "replace", "open", "fsync", ""]


def test_after_a_crash_nothing_is_carried_out(tmp_path: Path) -> None:
    system = FaultySystem(tmp_path, Fault.CRASH_BEFORE, 2)
    with system:
        for _ in range(2):
            with pytest.raises(Crashed):
                replaced(tmp_path)
    assert system.calls == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_a_torn_write_has_half_of_the_data(tmp_path: Path) -> None:
    with FaultySystem(tmp_path, Fault.TORN_WRITE, 1), pytest.raises(OSError, match="No space left"):
        replaced(tmp_path)
    assert (tmp_path / "folder" / "file.tmp").read_bytes() == b"new co"


def test_a_power_failure_leaves_what_was_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "before").write_bytes(b"old")
    storage = WritableStorage(root)
    system = FaultySystem(root)
    with system:
        file = storage.create(root / "folder" / "file", 4 * SECTOR_SIZE)
        storage.write(file, 0, b"a" * SECTOR_SIZE)
        storage.sync(file)
        storage.write(file, SECTOR_SIZE, b"b" * SECTOR_SIZE)
        before = storage.open_for_writing(root / "before")
        storage.write(before, 0, b"new")
    (root / "unsynced").write_bytes(b"")
    storage.close(file)
    storage.close(before)
    system.after_power_failure(tmp_path / "left")
    assert {path.name for path in (tmp_path / "left").iterdir()} == {"before", "folder"}
    assert (tmp_path / "left" / "before").read_bytes() == b"old"
    assert (tmp_path / "left" / "folder" / "file").read_bytes() == b"a" * SECTOR_SIZE + bytes(3 * SECTOR_SIZE)
    mixtures = set()
    for seed in range(30):
        system.after_power_failure(tmp_path / f"{seed}", random.Random(seed))
        left = tmp_path / f"{seed}"
        mixtures.add(
            (
                (left / "folder" / "file").read_bytes()[SECTOR_SIZE : 2 * SECTOR_SIZE],
                (left / "unsynced").exists(),
            )
        )
    assert mixtures == {(content * SECTOR_SIZE, is_there) for content in (b"b", b"\0") for is_there in (True, False)}
