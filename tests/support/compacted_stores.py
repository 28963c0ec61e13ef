"""A store with compacted topics in small files, and kinds of damage to it.

`DAMAGES` has what the audit of compaction/ finds of each, by code. What consumers then get was asked of the real 5.5.0.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.support.file_edits import write_at

Damage = Callable[[Path], None]
LOG_SIZE, UNITS_SIZE, UNIT = 9200, 1840, 46
FIRST, LAST = f"{0:020d}", f"{LOG_SIZE:020d}"
LOG, UNITS, POSITIONS = (
    "compaction/compactionLog/cmpt/0", "compaction/compactionCq/cmpt/0", "compaction/position-checkpoint",
)  # fmt: skip
FILES, NOT_LOADED, RECORD, MISSING, BEYOND, POSITION = (
    "compaction-files", "compaction-not-loaded", "compaction-record", "compaction-missing", "compaction-beyond-queue",
    "compaction-position",
)  # fmt: skip
ALONE = 4  # messages of the last file


def in_two_files(root: Path) -> Path:
    """Lay the files of queue 0 out as a broker does with small ones; the other queue's become as short."""
    for part, size in (("Log", LOG_SIZE), ("Cq", UNITS_SIZE)):
        os.truncate(root / f"compaction/compaction{part}/cmpt/1/{FIRST}", size)
    log, units = (root / LOG / FIRST).read_bytes()[:LOG_SIZE], (root / UNITS / FIRST).read_bytes()[:UNITS_SIZE]
    found = [unit for unit in struct.iter_unpack(">qiqqqhii", units) if unit[1] > 0]
    at, first, last = 0, b"", b""
    shifted: list[tuple[int, ...]] = []
    for position, size, *rest in found:
        record = log[position : position + size]
        if len(shifted) < len(found) - ALONE:
            shifted.append((len(first), size, *rest))
            first += record
            continue
        at = LOG_SIZE + len(last)
        shifted.append((at, size, *rest))
        last += record[:28] + struct.pack(">q", at) + record[36:]
    ends = len(found) - ALONE
    first += struct.pack(">iI", LOG_SIZE - len(first), 0xCBD43194)
    packed = [struct.pack(">qiqqqhii", *unit) for unit in shifted]
    end_of_units = struct.pack(">qiqqqhii", -1, 0, 0, 0, 0, 0, -1, 0)
    for part, name, content, size in (
        (LOG, FIRST, first, LOG_SIZE),
        (LOG, LAST, last, LOG_SIZE),
        (UNITS, FIRST, b"".join(packed[:ends]) + end_of_units, UNITS_SIZE),
        (UNITS, LAST, b"".join(packed[ends:]), UNITS_SIZE),
    ):
        (root / part / name).write_bytes(content.ljust(size, b"\0"))
    return root


def inverted(name: str, at: int, size: int = 1) -> Damage:
    def damage(root: Path) -> None:
        found = (root / name).read_bytes()[at : at + size]
        write_at(root / name, at, bytes(255 - byte for byte in found))

    return damage


def cut(name: str, size: int) -> Damage:
    return lambda root: os.truncate(root / name, size)


def gone(*names: str) -> Damage:
    def damage(root: Path) -> None:
        for name in names:
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()

    return damage


def new(name: str, content: bytes = b"x") -> Damage:
    def damage(root: Path) -> None:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)

    return damage


def crashed(damage: Damage, *, checkpoint: bool = False) -> Damage:
    """Without a checkpoint, the next start copies messages from the whole log."""

    def both(root: Path) -> None:
        damage(root)
        (root / "abort").touch()
        if not checkpoint:
            (root / "checkpoint").unlink()

    return both


def no_damage(root: Path) -> None:
    assert root.is_dir()


def one_file(damage: Damage) -> Damage:
    def both(root: Path) -> None:
        gone(LOG, UNITS)(root)
        damage(root)

    return both


def compacted_up_to(position: int) -> Damage:
    return new(POSITIONS, json.dumps({"queueOffsetMap": {"cmpt_0": position}}).encode())


L, L2, U, U2 = f"{LOG}/{FIRST}", f"{LOG}/{LAST}", f"{UNITS}/{FIRST}", f"{UNITS}/{LAST}"
BEHIND = 33 - ALONE - 3  # messages of the first file from the fourth on
R, S = 754, 3 * UNIT  # the fourth record and the fourth unit
DAMAGES: dict[str, tuple[Damage, dict[str, int]]] = {
    "none": (no_damage, {}),
    "a record's magic code": (inverted(L, R + 4), {RECORD: 1}),
    "a record's size": (inverted(L, R + 3), {RECORD: 1}),
    "a record's body CRC": (inverted(L, R + 8), {RECORD: 1}),
    "a record's queueId": (inverted(L, R + 15), {RECORD: 1}),
    "a record's queue offset": (inverted(L, R + 27), {RECORD: 1}),
    "a record's physical offset": (inverted(L, R + 35), {RECORD: 1}),
    "a record's body": (inverted(L, R + 89), {RECORD: 1}),
    "a record's topic": (inverted(L, R + 104), {RECORD: 1}),
    "all of a record": (inverted(L, R, 252), {RECORD: 1}),
    "the start of the log's first file": (inverted(L, 0, 64), {RECORD: 1}),
    "a unit's physical offset": (inverted(U, S + 7), {RECORD: 1}),
    "a unit's physical offset, now negative": (inverted(U, S), {RECORD: BEHIND}),
    "a unit's size": (inverted(U, S + 11), {RECORD: 1}),
    "a unit's queue offset": (inverted(U, S + 35), {RECORD: 2}),
    "a unit's count": (inverted(U, S + 37), {RECORD: 1}),
    "all of a unit": (inverted(U, S, UNIT), {RECORD: BEHIND}),
    "the last unit": (inverted(U2, S), {RECORD: 1}),
    "the last unit, after a crash": (crashed(inverted(U2, S)), {}),
    "a unit's tagsCode and store time": (inverted(U, S + 12, 16), {}),  # no broker uses them
    "a unit's last two fields": (inverted(U, S + 38, 8), {}),
    "behind the last unit": (inverted(U, UNITS_SIZE - UNIT, UNIT - 1), {}),
    "log cut": (cut(L, 3000), {NOT_LOADED: 1}),
    "end of the log cut": (cut(L2, 3000), {NOT_LOADED: 1}),
    "log emptied": (cut(L, 0), {NOT_LOADED: 1}),
    "end of the log emptied": (cut(L2, 0), {FILES: 1}),
    "log's file gone": (gone(L), {FILES: 1}),
    "end of the log gone": (gone(L2), {FILES: 1}),
    "units cut": (cut(U, 500), {NOT_LOADED: 1}),
    "end of the units cut": (cut(U2, 500), {NOT_LOADED: 1}),
    "units emptied": (cut(U, 0), {NOT_LOADED: 1}),
    "end of the units emptied": (cut(U2, 0), {RECORD: ALONE}),
    "units' file gone": (gone(U), {FILES: 1}),
    "end of the units gone": (gone(U2), {RECORD: ALONE}),
    "units and log begin later": (gone(L, U), {MISSING: 3}),
    "units and log end earlier": (gone(L2, U2), {MISSING: 4}),
    "units and log end earlier, after a crash": (crashed(gone(L2, U2)), {}),
    "units and log begin later, after a crash": (crashed(gone(L, U)), {MISSING: 3}),
    "the only file cut": (one_file(cut("compaction/compactionLog/cmpt/1/" + FIRST, 9000)), {NOT_LOADED: 2, MISSING: 7}),
    "log's folder gone": (gone(LOG), {NOT_LOADED: 1}),
    "units' folder gone": (gone(UNITS), {NOT_LOADED: 1}),
    "both folders gone": (gone(LOG, UNITS), {MISSING: 7}),
    "all gone": (gone("compaction"), {MISSING: 14}),
    "all gone, after a crash": (crashed(gone("compaction")), {}),
    "all gone, after a crash with checkpoint": (crashed(gone("compaction"), checkpoint=True), {MISSING: 14}),
    "the last unit, after a crash with checkpoint": (crashed(inverted(U2, S), checkpoint=True), {RECORD: 1}),
    "all logs gone": (gone("compaction/compactionLog"), {NOT_LOADED: 2}),
    "all units gone": (gone("compaction/compactionCq"), {NOT_LOADED: 2}),
    "position-checkpoint gone": (gone(POSITIONS), {}),  # the broker compacts all again
    "position-checkpoint no JSON": (new(POSITIONS), {POSITION: 1}),
    "position-checkpoint empty": (new(POSITIONS, b""), {POSITION: 1}),
    "position-checkpoint behind": (compacted_up_to(32), {}),
    "position-checkpoint ahead": (compacted_up_to(33), {POSITION: 1}),
    "a small file in the log": (new(f"{LOG}/notes"), {NOT_LOADED: 1}),
    "a renamed file in the log": (new(f"{L}.delete", bytes(LOG_SIZE)), {FILES: 1}),
    "a renamed file in the units": (new(f"{U}.delete", bytes(UNITS_SIZE)), {FILES: 1}),
    "a folder that is no queue": (new("compaction/compactionLog/cmpt/x/notes"), {FILES: 1}),
    "a file that is no queue": (new("compaction/compactionLog/cmpt/notes"), {}),
    "a compaction that was not finished": (new(f"{LOG}/compacting/{FIRST}"), {}),
}
