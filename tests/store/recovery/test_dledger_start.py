"""What a start of DLedger makes of a log, byte by byte; `tests/interop/test_dledger_stores.py` asks a real broker."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.forensics.audit.state_audit import audit_dledger, notes_of_entry_index
from rmqctl.format.profile import profile_of
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.dledger_start import plan_group_start, recover_entries
from tests.support.file_edits import write_at
from tests.support.log_maker import write_entries

FILE_SIZE, INDEX_SIZE = 2048, 5 * 1024 * 1024 * 32
COUNTS = [4, 4, 4, 4, 3]
STARTS_AT = 2 * FILE_SIZE  # the third file from the end


def write_store(root: Path) -> list[list[int]]:
    """A log of five files with its index; where the entries begin."""
    starts = write_entries(root, COUNTS, file_size=FILE_SIZE)
    index = root / "dledger-n0" / "index" / f"{0:020d}"
    index.parent.mkdir()
    units = b""
    for file in starts:
        raw = (root / "dledger-n0" / "data" / f"{file[0]:020d}").read_bytes()
        for at in file:
            magic, size, number, term, pos = struct.unpack_from(">iiqqq", raw, at - file[0])
            units += struct.pack(">iqiqq", magic, pos, size, number, term)
    index.write_bytes(units)
    with index.open("r+b") as opened:
        opened.truncate(INDEX_SIZE)
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=18\nendIndex=18\n")
    return starts


def write(root: Path, at: int, data: bytes) -> None:
    write_at(root / "dledger-n0" / "data" / f"{at // FILE_SIZE * FILE_SIZE:020d}", at % FILE_SIZE, data)


def zeroed(file: int) -> Callable[[Path, list[list[int]]], int]:
    def change(root: Path, starts: list[list[int]]) -> int:
        write(root, starts[file][1], bytes(48))
        return starts[file][1]

    return change


def of_field(offset: int, data: bytes, *, behind: int = 0) -> Callable[[Path, list[list[int]]], int]:
    def change(root: Path, starts: list[list[int]]) -> int:
        write(root, starts[4][1] + offset, data)
        return starts[4][1 + behind]

    return change


CUT = {
    "zeros": zeroed(4),
    "zeros in the file before": zeroed(3),
    "magic code": of_field(0, struct.pack(">i", 2)),
    "size": of_field(4, struct.pack(">i", 5000)),
    "body size": of_field(44, struct.pack(">i", 60)),
    "index": of_field(8, struct.pack(">q", 1)),
    "term back": of_field(16, struct.pack(">q", -1)),
    "term ahead": of_field(16, struct.pack(">q", 9), behind=1),
    "pos": of_field(24, bytes(8)),
}


@pytest.mark.parametrize("name", CUT)
def test_the_log_ends_at_a_wrong_header(name: str, tmp_path: Path) -> None:
    starts = write_store(tmp_path)
    end = CUT[name](tmp_path, starts)
    store = ReadOnlyStore(tmp_path)
    restart = plan_group_start(store, profile_of("5.5.0"))
    lost = sum(at >= end for file in starts for at in file)
    assert (restart.refused, restart.max_phy_offset, restart.lost.records) == (None, end, lost)
    assert restart.start_file_path == f"dledger-n0/data/{STARTS_AT:020d}"
    assert restart.end is not None
    assert restart.end.why


def blank_size(root: Path, starts: list[list[int]]) -> None:
    size = len((root / "dledger-n0" / "data" / f"{starts[3][0]:020d}").read_bytes().rstrip(b"\0"))
    raw = (root / "dledger-n0" / "data" / f"{starts[3][0]:020d}").read_bytes()
    at = raw.index(struct.pack(">i", -1) + struct.pack(">i", FILE_SIZE - raw.index(b"\xff\xff\xff\xff")))
    assert at < size
    write(root, starts[3][0] + at + 4, struct.pack(">i", 9))


KEPT: dict[str, Callable[[Path, list[list[int]]], None]] = {
    "whole": lambda root, starts: None,
    "body": lambda root, starts: write(root, starts[4][1] + 48 + 88, b"H"),
    "record of zeros": lambda root, starts: write(root, starts[4][1] + 48, bytes(60)),
    "channel and CRCs": lambda root, starts: write(root, starts[4][1] + 32, b"\1" * 12),
    "before the third file from the end": lambda root, starts: write(root, starts[0][1], bytes(48)),
    "size of a blank": blank_size,
    "checkpoint": lambda root, starts: (root / "dledger-n0" / "checkpoint").unlink(),
    "committed index behind": lambda root, starts: put_text(root, "committedIndex=1\n"),
    "committed index ahead": lambda root, starts: put_text(root, "committedIndex=99\n"),
    "a setting that another follows": lambda root, starts: put_text(root, "committedIndex=x\ncommittedIndex 18\n"),
    "no properties file": lambda root, starts: put_text(root, "committedIndex=\\uzzzz\n"),
}


def put_text(root: Path, text: str) -> None:
    (root / "dledger-n0" / "checkpoint").write_text(text)


@pytest.mark.parametrize("name", KEPT)
def test_what_dledger_does_not_care_about(name: str, tmp_path: Path) -> None:
    starts = write_store(tmp_path)
    end = plan_group_start(ReadOnlyStore(tmp_path), profile_of("5.5.0")).max_phy_offset
    KEPT[name](tmp_path, starts)
    store = ReadOnlyStore(tmp_path)
    restart = plan_group_start(store, profile_of("5.5.0"))
    assert (restart.refused, restart.max_phy_offset, restart.lost.records) == (None, end, 0)
    assert list(audit_dledger(store)) == []
    assert list(notes_of_entry_index(store)) == []


INDEX: list[tuple[int | None, int | None]] = [(1, None), (8, 8), (17, 17), (None, 0)]


@pytest.mark.parametrize(("unit", "rewritten_from"), INDEX)
def test_a_wrong_index_is_a_note(unit: int | None, rewritten_from: int | None, tmp_path: Path) -> None:
    """DLedger looks at the units of the files that it reads, and writes them anew."""
    write_store(tmp_path)
    index = tmp_path / "dledger-n0" / "index" / f"{0:020d}"
    if unit is None:
        index.unlink()
    else:
        write_at(index, unit * 32 + 5, b"\xff")
    store = ReadOnlyStore(tmp_path)
    found = recover_entries(store)
    assert (found.refused, found.rewritten_from) == (None, rewritten_from)
    begin = {8: FILE_SIZE, None: 0}.get(unit, STARTS_AT)
    assert found.start_file.file_from_offset == begin
    start_file = plan_group_start(store, profile_of("5.5.0")).start_file
    whys = {0: "no later file agrees", FILE_SIZE: "the last file before", STARTS_AT: "the third file from the end"}
    assert start_file is not None
    assert start_file.why.startswith(whys[begin])
    (note,) = notes_of_entry_index(store)
    assert f"first for entry {unit or 0}:" in note
    assert ("no start writes it anew" in note) == (rewritten_from is None)


REFUSED: dict[str, tuple[Callable[[Path, list[list[int]]], object], str, bool]] = {
    "far from the end": (zeroed(2), "more than a file before the last file", False),
    "a foreign file of the log": (
        lambda root, _: (root / "dledger-n0" / "data" / "x").write_bytes(b"x"), "data/x has 1 bytes", False
    ),
    "a file of another name": (
        lambda root, _: (root / "dledger-n0" / "data" / f"{4 * FILE_SIZE:020d}").rename(
            root / "dledger-n0" / "data" / f"{4 * FILE_SIZE:020d}x"
        ),
        "x is no offset", False,
    ),
    "a missing file": (
        lambda root, _: (root / "dledger-n0" / "data" / f"{FILE_SIZE:020d}").unlink(), "does not follow", False
    ),
    "an empty index file": (
        lambda root, _: (root / "dledger-n0" / "index" / f"{0:020d}").write_bytes(b""), "has 0 bytes", True
    ),
    "a foreign file of the index": (
        lambda root, _: (root / "dledger-n0" / "index" / "x").write_bytes(b""), "index/x has 0 bytes", True
    ),
    "no number in the last setting": (
        lambda root, _: put_text(root, "committedIndex=18\n committedIndex : x\n"), "which is no number", True
    ),
    "no number": (lambda root, _: put_text(root, "committedIndex=x\n"), "which is no number", True),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_that_does_not_start(name: str, tmp_path: Path) -> None:
    starts = write_store(tmp_path)
    change, words, is_finding = REFUSED[name]
    change(tmp_path, starts)
    store = ReadOnlyStore(tmp_path)
    refused = plan_group_start(store, profile_of("5.5.0")).refused
    assert refused is not None
    assert words in refused
    findings = list(audit_dledger(store))
    assert [finding.code for finding in findings] == (["dledger-refused"] if is_finding else [])


def test_units_behind_the_end_are_cut(tmp_path: Path) -> None:
    starts = write_store(tmp_path)
    end = zeroed(4)(tmp_path, starts)
    queue = tmp_path / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(
        b"".join(struct.pack(">qiq", at + 48, 100, 0) for file in starts for at in file).ljust(600, b"\0")
    )
    restart = plan_group_start(ReadOnlyStore(tmp_path), profile_of("5.5.0"))
    (found,) = restart.queues
    assert (found.max_offset, found.cut_from, found.lost) == (sum(at < end for file in starts for at in file), 19, 2)


def test_an_abnormal_recovery_of_5_3_cuts_queues_too_early(tmp_path: Path) -> None:
    """The units between the end without headers and the entry that the group has agreed on."""
    starts = write_store(tmp_path)
    (tmp_path / "abort").touch()
    for version, committed, lost in (("5.3.3", 18, 1), ("5.3.3", 17, 0), ("5.5.0", 18, 0), ("5.1.4", 18, 0)):
        put_text(tmp_path, f"committedIndex=0\n committedIndex : {committed}\n")
        restart = plan_group_start(ReadOnlyStore(tmp_path), profile_of(version))
        assert (restart.lost.records, restart.refused) == (lost, None), version
        assert restart.max_phy_offset > starts[4][2]
