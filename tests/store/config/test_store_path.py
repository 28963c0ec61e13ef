from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import ExitCode, LayoutNotSupported, NotAStore, Unreadable
from rmqctl.store.config import store_path
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.store_path import StorePath


def open_path(root: Path, conf: BrokerConf | None = None) -> StorePath:
    return StorePath(root, conf or BrokerConf())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    return root


def test_a_folder_with_a_commitlog_is_a_store(store: Path) -> None:
    path = open_path(store)
    assert path.commitlogs == [store / "commitlog"]
    assert path.part("index") == store / "index"
    assert (path.has_abort, path.has_lock_file, path.version_signs()) == (False, False, [])


def test_a_store_whose_log_was_lost_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "checkpoint").touch()
    assert open_path(tmp_path).root == tmp_path


def test_a_store_that_is_a_link_is_a_store(tmp_path: Path, store: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    assert open_path(tmp_path / "link").part("lock") == tmp_path / "link" / "lock"


def test_a_store_whose_log_is_on_other_disks_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "disk1").mkdir()
    roots = (str(tmp_path / "disk1"), str(tmp_path / "disk2"))
    assert open_path(tmp_path / "store", BrokerConf(commitlog_paths=roots)).commitlogs == [Path(root) for root in roots]


@pytest.mark.parametrize("made", ["nothing", "file"])
def test_what_is_no_folder_is_no_store(tmp_path: Path, made: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore) as caught:
        open_path(tmp_path / made)
    assert (caught.value.exit_code, caught.value.path) == (ExitCode.NOT_A_STORE, str(tmp_path / made))


def test_an_empty_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="the folder is empty"):
        open_path(tmp_path)


def test_a_folder_of_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotAStore, match="no commitlog folder"):
        open_path(tmp_path)


@pytest.mark.parametrize(
    "part", ["commitlog", "index", "consumequeue", "consumequeue/a/0", f"consumequeue/a/0/{0:020d}"]
)
def test_a_part_of_a_store_is_no_store_and_the_hint_names_the_store(part: str, store: Path) -> None:
    (store / "consumequeue" / "a" / "0").mkdir(parents=True)
    (store / "consumequeue" / "a" / "0" / f"{0:020d}").touch()
    (store / "index").mkdir()
    with pytest.raises(NotAStore) as caught:
        open_path(store / part)
    assert caught.value.hint == f"try {store}"


def test_the_folder_above_a_store_is_no_store_and_the_hint_names_the_store(store: Path) -> None:
    with pytest.raises(NotAStore) as caught:
        open_path(store.parent)
    assert caught.value.hint == f"try {store}"


def test_a_folder_that_cannot_be_listed_is_unreadable(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(Unreadable, match="Permission denied") as caught:
        open_path(store)
    assert caught.value.exit_code is ExitCode.PARTIAL


def test_queues_in_rocksdb_need_the_extra(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    with pytest.raises(LayoutNotSupported, match="RocksDB") as caught:
        open_path(golden("broker-533-rocksdb"))
    assert caught.value.exit_code is ExitCode.LAYOUT


def test_a_topic_named_current_is_not_rocksdb(store: Path) -> None:
    (store / "consumequeue" / "CURRENT").mkdir(parents=True)
    assert open_path(store).root == store


def test_a_dledger_store_is_not_changed(store: Path) -> None:
    (store / "dledger-n0").mkdir()
    with pytest.raises(LayoutNotSupported, match="DLedger"):
        open_path(store).check_can_be_changed()


def test_a_file_named_like_dledger_is_not_dledger(store: Path) -> None:
    (store / "dledger-notes.txt").touch()
    assert open_path(store).root == store


def test_abort_is_there_whatever_it_contains(store: Path) -> None:
    (store / "abort").touch()
    path = open_path(store)
    assert (path.has_abort, path.version_signs()) == (True, [])


def test_a_pid_in_abort_is_a_sign_of_5(store: Path) -> None:
    (store / "abort").write_bytes(b"4711")
    assert open_path(store).version_signs() == ["a PID in abort"]


@pytest.mark.parametrize(
    "sign", ["abort.bak", "timerwheel", "timerlog", "compaction", "config/timercheck", "config/consumerOrderInfo.json"]
)
def test_what_only_5_leaves_is_a_sign_of_it(store: Path, sign: str) -> None:
    (store / sign).mkdir(parents=True)
    assert open_path(store).version_signs() == [sign]


def test_a_folder_in_the_place_of_abort_is_no_sign_of_5(store: Path) -> None:
    (store / "abort").mkdir()
    path = open_path(store)
    assert (path.has_abort, path.version_signs()) == (True, [])


@pytest.mark.parametrize(
    ("name", "is_5", "has_lock"), [("326-basic", False, False), ("broker-497", False, True), ("broker-533", True, True)]
)
def test_golden_stores_show_the_signs_of_their_version(
    name: str, is_5: bool, has_lock: bool, golden: Callable[[str], Path]
) -> None:
    path = open_path(golden(name))
    assert (bool(path.version_signs()), path.has_lock_file) == (is_5, has_lock)


@pytest.mark.parametrize(("name", "died"), [("471-basic", False), ("471-crash", True), ("broker-533-kill", True)])
def test_golden_stores_of_dead_brokers_have_abort(name: str, died: bool, golden: Callable[[str], Path]) -> None:
    assert open_path(golden(name)).has_abort is died
