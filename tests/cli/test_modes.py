"""Who may read what rmqctl makes in a store: nobody who could not read what stood there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack

FILE, FOLDER = 0o600, 0o700


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A store that only its owner may read."""
    store = unpack("471-basic", tmp_path)
    for path in (store, *store.rglob("*")):
        path.chmod(FOLDER if path.is_dir() else FILE)
    return store


def modes(store: Path) -> dict[str, int]:
    return {str(path.relative_to(store)): stat.S_IMODE(path.lstat().st_mode) for path in store.rglob("*")}


def all_are_private(store: Path) -> bool:
    return all(mode == (FOLDER if (store / name).is_dir() else FILE) for name, mode in modes(store).items())


def test_what_is_kept_of_a_private_log_is_private(private: Path, rmqctl: Rmqctl) -> None:
    before = modes(private)
    assert rmqctl("truncate", private, "--to", "40404", "--yes").code == 3
    kept = [path for path in (private / ".rmqctl").rglob("*") if path.is_file()]
    assert any(path.name.startswith("bytes-") for path in kept)
    assert all_are_private(private)
    assert rmqctl("undo", private, "--yes").code == 0
    assert modes(private) == before


@pytest.mark.parametrize("verb", [("rebuild", "all"), ("recover", "--mode", "abnormal")])
def test_rebuilt_queues_and_index_follow_the_modes_of_those_before(
    verb: tuple[str, ...], private: Path, rmqctl: Rmqctl
) -> None:
    queue = next((private / "consumequeue").rglob("0" * 20))
    queue.write_bytes(bytes(queue.stat().st_size))
    assert rmqctl(verb[0], private, *verb[1:], "--yes").code == 3
    assert any(queue.read_bytes())
    assert all_are_private(private)


def test_queues_and_index_that_are_gone_follow_the_log(private: Path, rmqctl: Rmqctl) -> None:
    for folder in ("consumequeue", "index"):
        (private / folder).rename(private.with_name(folder))
    assert rmqctl("rebuild", private, "all", "--yes").code == 3
    assert (private / "consumequeue").is_dir()
    assert all_are_private(private)


def test_only_the_owner_may_look_into_the_journal_of_a_store_that_all_may_read(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    for path in (store, *store.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert rmqctl("rebuild", store, "all", "--yes").code in (0, 3)
    found = modes(store)
    assert {mode for name, mode in found.items() if name.split("/")[0] in ("consumequeue", "index")} == {0o755, 0o644}
    assert (found[".rmqctl"], found[".rmqctl/journal"]) == (FOLDER, FOLDER)
