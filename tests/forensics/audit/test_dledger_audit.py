"""A DLedger log that lost entries of its group is not healthy."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.support.file_edits import write_at


@pytest.mark.parametrize(("cut", "missing"), [(25610, 28), (0, 83)])
def test_entries_that_the_group_agreed_on_are_missing(cut: int, missing: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """DLedger's issue 285: zeros where entries were."""
    store = unpack("broker-550-dledger", tmp_path)
    log = store / "dledger-n0" / "data" / f"{0:020d}"
    raw = log.read_bytes()
    log.write_bytes(raw[:cut] + bytes(len(raw) - cut))
    (finding,) = rmqctl("verify", store, "--level", 1, "-o", "json").document()["findings"]
    assert (finding["code"], finding["physicalOffset"], finding["count"]) == ("entries-missing", cut, missing)
    result = rmqctl("doctor", store, "-o", "json")
    assert (result.code, [cause["code"] for cause in result.document()["causes"]]) == (1, ["committed-gone"])


@pytest.mark.parametrize("text", ["committedIndex=82\nendIndex=82\n", "committedIndex=-1\n", "", "x"])
def test_entries_after_the_committed_index_are_no_fault(text: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-550-dledger", tmp_path)
    (store / "dledger-n0" / "checkpoint").write_text(text)
    assert rmqctl("doctor", store).code == 0


def test_an_entry_that_does_not_follow_is_not_missing(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """DLedger ends its log there; the entries behind it are on the disk all the same."""
    store = unpack("broker-550-dledger", tmp_path)
    write_at(store / "dledger-n0" / "data" / f"{0:020d}", 312 + 16, struct.pack(">q", 9))
    found = rmqctl("verify", store, "--level", 1, "-o", "json").document()
    assert [finding["code"] for finding in found["findings"]] == ["bad-entry"]
    assert found["restartNow"]["records"] == 81
    result = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert [cause["code"] for cause in result] == ["record-damaged"]
    assert result[0]["restart"]["lost"]["records"] == 81
    shown = rmqctl("recover", store, "--dry-run")
    assert (shown.code, "81 messages" in shown.out, "ends because     term 0 after 9" in shown.out) == (1, True, True)
    assert f"from dledger-n0/data/{0:020d}: the log has at most three files\n" in shown.out
    assert "copy the store from another member" in shown.out + shown.err
    assert "--dry-run` shows the queues after that start" in rmqctl("verify", store, "--level", 1).err


def test_a_file_of_dledger_with_which_no_broker_starts(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-550-dledger", tmp_path)
    (store / "dledger-n0" / "index" / f"{0:020d}").write_bytes(b"")
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert (cause["code"], "has 0 bytes" in cause["restart"]["refused"]) == ("dledger-file-wrong", True)
    shown = rmqctl("recover", store, "--dry-run", "-o", "json")
    assert (shown.code, "has 0 bytes" in shown.document()["startProblem"]) == (1, True)
    (note,) = shown.document()["notes"]
    assert note.startswith("move dledger-ID/index or dledger-ID/checkpoint away")
    assert note in cause["then"]
    (store / "dledger-n0" / "index" / f"{0:020d}").unlink()
    assert rmqctl("doctor", store).out.startswith("healthy: 83 messages")
    verified = rmqctl("verify", store)
    assert (verified.code, "for 83 entries, first for entry 0" in verified.err) == (0, True)


def test_a_single_log_file_of_another_length(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Asked of 5.5.0 with mappedFileSizeCommitLog=262144: it starts on neither."""
    store = unpack("broker-550-dledger", tmp_path)
    log = store / "dledger-n0" / "data" / f"{0:020d}"
    with log.open("r+b") as opened:
        opened.truncate(100_000)
    assert "mappedFileSizeCommitLog=100000, as long as the log's only file" in rmqctl("doctor", store).out
    log.write_bytes(b"")
    found = rmqctl("doctor", store, "-o", "json").document()
    refused = f"dledger-n0/data/{0:020d} has 0 bytes, every file there must have mappedFileSizeCommitLog"
    assert (found["causes"][0]["code"], found["causes"][0]["restart"]["refused"]) == ("log-file-length", refused)
    assert not any("mappedFileSizeCommitLog" in one for one in found["assumed"])


def test_units_that_a_start_drops(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-550-dledger", tmp_path)
    (store / "abort").touch()
    (cause,) = rmqctl("doctor", store, "--broker-version", "5.4.0", "-o", "json").document()["causes"]
    assert (cause["code"], cause["restart"]["lost"]["records"]) == ("broker-died", 6)
    assert "delete the file `abort`" in cause["then"]
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert cause["restart"]["lost"]["records"] == 0


def test_a_last_header_that_is_damaged(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-550-dledger", tmp_path)
    index = struct.unpack(">iqiqq", (store / "dledger-n0" / "index" / f"{0:020d}").read_bytes()[82 * 32 : 83 * 32])
    write_at(store / "dledger-n0" / "data" / f"{0:020d}", index[1], bytes(48))
    found = rmqctl("verify", store, "--level", 1, "-o", "json").document()
    assert [finding["code"] for finding in found["findings"]] == ["bad-entry", "entries-missing"]
    assert found["restartNow"]["records"] == 1


def test_damaged_bodies_side_by_side(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The last entry is found behind them."""
    store = unpack("broker-550-dledger", tmp_path)
    for at in (312, 662):
        write_at(store / "dledger-n0" / "data" / f"{0:020d}", at + 48 + 88, b"\xff\xff")
    found = rmqctl("verify", store, "--level", 1, "-o", "json").document()
    assert [finding["code"] for finding in found["findings"]] == ["bad-body-crc"] * 2
    assert found["restartNow"] is None
