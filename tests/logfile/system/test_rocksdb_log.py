"""Flipped bits in what RocksDB appends to, and what a damaged record of its log hides."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from rmqctl.logfile.system.rocksdb import Database
from rmqctl.logfile.system.rocksdb_log import endless_at, first_damage
from rmqctl.logfile.system.storage import Storage
from tests.conftest import Golden, Rmqctl

ROWS = {f"row {number:4}".encode(): b"value" * number for number in range(400)}  # in parts: the log has 13 blocks
FOLDER = "kvStore"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose rows are in its log alone."""
    running, folder = tmp_path_factory.mktemp("running"), tmp_path_factory.mktemp("written") / FOLDER
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(running), options)
    for key, value in ROWS.items():
        database[key] = value
    database.flush_wal(True)
    shutil.copytree(running, folder, ignore=shutil.ignore_patterns("LOCK", "*.json"))
    database.close()
    return folder


def log_of(folder: Path) -> Path:
    return next(file for file in folder.glob("*.log") if file.stat().st_size)


@settings(deadline=None)
@given(data=st.data())
def test_each_flipped_bit_is_found_where_it_is(written: Path, data: st.DataObject) -> None:
    whole = log_of(written).read_bytes()
    assert first_damage([(0, whole)]) is None
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(whole)
    flipped[at] ^= 1 << bit
    found = first_damage([(0, bytes(flipped))])
    is_padding = found is None and not any(whole[at : (at // 32768 + 1) * 32768])  # the rest of a block has no data
    assert is_padding or (found is not None and found <= at < found + 32768)


@settings(deadline=None)
@given(size=st.integers(0, 1_000_000))
def test_a_log_that_ends_inside_a_record_is_not_damaged(written: Path, size: int) -> None:
    assert first_damage([(0, log_of(written).read_bytes()[:size])]) is None


def test_a_kind_that_keeps_rocksdb_busy_for_ever_is_refused(written: Path, golden: Golden, rmqctl: Rmqctl) -> None:
    folder = golden("550-basic") / FOLDER
    shutil.copytree(written, folder)
    with log_of(folder).open("r+b") as file:
        file.seek(6)
        file.write(b"\5")
    assert endless_at([(0, log_of(folder).read_bytes())]) == 0
    with pytest.raises(OSError, match=r"\.log is damaged at byte 0"):
        Database(Storage(folder.parent), folder)

    found = rmqctl("verify", folder.parent, "--level", "3", "-o", "json")
    (finding,) = found.document()["findings"]
    assert (finding["code"], finding["path"], finding["fileOffset"]) == (
        "database-log",
        f"{FOLDER}/{log_of(folder).name}",
        0,
    )


def test_rows_behind_a_damaged_record_are_read_as_a_broker_reads_its_configuration(
    written: Path, tmp_path: Path
) -> None:
    folder = tmp_path / FOLDER
    shutil.copytree(written, folder)
    with log_of(folder).open("r+b") as file:
        file.seek(40_000)
        file.write(bytes([file.read(1)[0] ^ 1]))
    storage = Storage(tmp_path)
    before = len(list(Database(storage, folder).rows()))
    some = len(list(Database(storage, folder, skips_damaged=True).rows()))
    assert 0 < before < some < len(ROWS)
