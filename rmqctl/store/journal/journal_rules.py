"""The rules that say which changes a journal may contain.

A journal is a folder in the store, so a store from an unknown source may contain a forged one. rmqctl checks each
journal that it writes or reads.

| change | allowed paths |
|---|---|
| changed bytes or length of a file | `commitlog/FILE`, `QUEUES/TOPIC/QUEUEID/FILE`, `index/FILE`, `checkpoint`, LOGS |
| moved or installed path | paths below `commitlog`, QUEUES or `index`; `index`, `checkpoint`, `abort`; CONFIG; TIMER |
| made folder, or restored time of a folder | the folders above these paths |

QUEUES is consumequeue, consumequeue_ext or batchconsumequeue. FILE is a name of 20 digits, in `index` of any number of
digits. LOGS are `compaction/compactionLog/TOPIC/QUEUEID/FILE`. CONFIG is `config/NAME` or `config/NAME.bak`, where NAME
is a config file of a broker. TIMER is `timerlog`, `timerwheel`, its snapshot `timerwheel.N`, `config/timercheck` or a
path below `rocksdbstore`. Log files are also allowed in a log folder that the user named; outside the store, their path
is absolute. In the journal's folder, kept files are `kept/bytes-N` or `kept/moved-N`, and staged files are below
`staging`. A file of kept bytes has exactly the size that journal.json gives.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rmqctl.logfile.mapped_file_queue import is_file_name
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import BACKUP_SUFFIX, CONFIG_FILES, CONFIG_FILES_OF_5, TIMER_CHECK
from rmqctl.store.config.store_path import (
    ABORT,
    CHECKPOINT,
    COMMITLOG,
    COMPACTION,
    CONFIG,
    INDEX,
    QUEUE_PARTS,
    ROCKSDB_FOLDER,
    SIGN_OF_5_4,
    TIMER_LOG,
    TIMER_WHEEL,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.journal.manifest import Manifest, Moved, PreImage, Range

STAGING, KEPT = "staging", "kept"
_FOLDERS = (COMMITLOG, *QUEUE_PARTS, ROCKSDB_FOLDER, INDEX, SIGN_OF_5_4)
_CONFIG_FILES = frozenset(CONFIG_FILES + CONFIG_FILES_OF_5)
_TIMER_FILE = re.compile(rf"{TIMER_LOG}|{TIMER_WHEEL}(\.[0-9]{{1,19}})?|{CONFIG}/{TIMER_CHECK}")
_KEPT_BYTES = re.compile(rf"{KEPT}/bytes-[0-9]{{1,9}}")
_KEPT_PATH = re.compile(rf"{KEPT}/moved-[0-9]{{1,9}}")
COMPACTION_LOG = "compactionLog"
_QUEUE_FILE_PARTS = 4  # QUEUES, TOPIC, QUEUEID, FILE


def may_write(path: str, named: Collection[str]) -> bool:
    """Return whether a journal may change the file at `path` in place.

    `named` are the log folders that the user named.
    """
    if path == CHECKPOINT or _is_named_log_file(path, named):
        return True
    parts = _parts(path)
    if parts[:1] == (COMMITLOG,):
        return len(parts) == 2 and is_file_name(parts[1])
    if parts[:1] == (INDEX,):
        return len(parts) == 2 and _is_number(parts[1])
    if parts[:2] == (COMPACTION, COMPACTION_LOG):
        parts = parts[1:]
    return (
        bool(parts)
        and parts[0] in (*QUEUE_PARTS, COMPACTION_LOG)
        and len(parts) == _QUEUE_FILE_PARTS
        and _is_number(parts[2])
        and is_file_name(parts[3])
    )


def may_move(path: str, named: Collection[str]) -> bool:
    """Return whether a journal may delete, replace or install `path`.

    `named` are the log folders that the user named.
    """
    if path in (CHECKPOINT, ABORT, INDEX) or _is_named_log_file(path, named) or _TIMER_FILE.fullmatch(path):
        return True
    parts = _parts(path)
    if parts[:1] == (CONFIG,):
        return len(parts) == 2 and parts[1].removesuffix(BACKUP_SUFFIX) in _CONFIG_FILES
    return len(parts) > 1 and parts[0] in _FOLDERS


def fault_of(manifest: Manifest, named: Collection[str]) -> str:
    """Return the first fault of a journal, or "".

    A fault is an entry that rmqctl never writes.
    """
    return next(_faults(manifest, named), "")


def fault_on_disk(storage: Storage, folder: Path, manifest: Manifest) -> str:
    """Return the first file of a wrong type or size in a journal's folder, or "".

    Raises OSError.
    """
    for image in manifest.files:
        stamp = storage.stamp(folder / image.kept) if image.kept is not None else None
        if stamp is not None and (stamp.kind is not Kind.FILE or stamp.size != image.kept_bytes):
            return f"{image.kept} is not a file of {image.kept_bytes} bytes"
    for moved in manifest.moved:
        stamp = storage.stamp(folder / moved.kept) if moved.kept is not None else None
        if stamp is not None and stamp.kind is Kind.OTHER and not moved.is_link:
            return f"{moved.kept} is a link"
    return ""


def _faults(manifest: Manifest, named: Collection[str]) -> Iterator[str]:
    yield from (f"it changes {image.path!r}" for image in manifest.files if not may_write(image.path, named))
    yield from (f"it moves {moved.path!r}" for moved in manifest.moved if not may_move(moved.path, named))
    yield from (
        f"its sizes and ranges of {image.path!r} do not fit each other"
        for image in manifest.files
        if not _adds_up(image)
    )
    yield from (f"it keeps {moved.path!r} elsewhere" for moved in manifest.moved if not _is_ours(moved))
    above = {str(folder) for moved in manifest.moved for folder in Path(moved.path).parents}
    yield from (f"it makes {made!r}" for made in manifest.made if made not in above - {".", "/"})
    yield from (f"it changes the folder {name!r}" for name in manifest.folders if name not in above | {"."})
    if "." not in manifest.folders:
        yield "it does not say when the store's folder was changed"
    touched = manifest.touched
    moved_to = {Path(moved.path) for moved in manifest.moved}
    if len(set(touched)) < len(touched) or any(not moved_to.isdisjoint(Path(path).parents) for path in touched):
        yield "it changes the same path twice"
    kept = [
        name
        for name in (*(image.kept for image in manifest.files), *(moved.kept for moved in manifest.moved))
        if name is not None
    ]
    if len(set(kept)) < len(kept):
        yield "it keeps two things in one place"


def _is_named_log_file(path: str, named: Collection[str]) -> bool:
    found = PurePosixPath(path)
    return str(found) == path and is_file_name(found.name) and ".." not in found.parts and str(found.parent) in named


def _parts(path: str) -> tuple[str, ...]:
    """Return the names in a relative path; none if one of them is not allowed.

    Not allowed are an empty name, `.`, `..`, and a name with a zero byte.
    """
    parts = tuple(path.split("/"))
    return () if any(name in ("", ".", "..") or "\0" in name for name in parts) else parts


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _is_ours(moved: Moved) -> bool:
    kept = moved.kept is None or _KEPT_PATH.fullmatch(moved.kept) is not None
    staged = moved.staged is None or (_parts(moved.staged)[:1] == (STAGING,) and "/" in moved.staged)
    return kept and staged and (moved.kept is not None or moved.staged is not None)


def _adds_up(image: PreImage) -> bool:
    """Return whether the ranges, the pieces and `kept` of a file fit together.

    Ranges and pieces must lie in the file, in order, and each piece in a range. With pieces, `kept` must be
    `kept/bytes-N`, otherwise None.
    """
    in_order = _is_in_order(image.ranges, image.size) and _is_in_order(image.pieces, image.size)
    inside = all(any(begin <= first and last <= end for begin, end in image.ranges) for first, last in image.pieces)
    kept = (
        image.kept is None
        if not image.pieces
        else image.kept is not None and _KEPT_BYTES.fullmatch(image.kept) is not None
    )
    return in_order and inside and kept


def _is_in_order(ranges: Iterable[Range], size: int) -> bool:
    at = 0
    for begin, end in ranges:
        if not at <= begin < end <= size:
            return False
        at = end
    return True
