"""The state that an interrupted rebuild leaves in the staging folder.

The rebuild goes on there only if the log and the settings have not changed, and if files of the log do not overlap.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.logfile import file_tree
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.rebuild.built_queue import QueueCounts
from rmqctl.operations.rebuild.index_builder import IndexCounts
from rmqctl.operations.rebuild.repaired_log import LogCounts
from rmqctl.operations.rebuild.selection import is_folder_name
from rmqctl.store.config.json_file import read_json
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.commit_log import FILE_OVERLAP

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.staging_storage import StagingStorage
    from rmqctl.operations.rebuild.repaired_log import RepairedLog
    from rmqctl.operations.rebuild.selection import WantedQueues

REBUILD_FILE = "rebuild.json"
BEGIN_ANEW_HINT = "run it without --resume: it begins at the start of the log"


class Interrupted(msgspec.Struct):
    """The content of REBUILD_FILE."""

    of: str  # the identity of the rebuild: the log files and the settings
    log: LogCounts
    queues: list[QueueCounts]
    batch_queues: list[QueueCounts]
    index: IndexCounts
    left_out: dict[str, int]
    lost: list[tuple[int, int]]
    disordered: list[QueueKey]


def save(found: Interrupted, folder: Path, beneath: Path) -> None:
    """Flush the staging folder to disk, then write REBUILD_FILE. Raises OSError."""
    on_disk = WritableStorage(folder, beneath=beneath)
    file_tree.sync(on_disk, folder)
    on_disk.replace_file(folder / REBUILD_FILE, msgspec.json.encode(found))


def load(storage: StagingStorage, log: RepairedLog, wanted: WantedQueues, of: str) -> Interrupted:
    """Read REBUILD_FILE.

    Raises BadRequest if the rebuild `of` this identity cannot go on with it.
    """
    root, path = log.store.path.root, storage.root / REBUILD_FILE
    if any(damage.code == FILE_OVERLAP for damage in log.store.commit_log.queue.anomalies):
        raise _refusal(
            "files of the log overlap: the position of the interrupted rebuild does not show what it read of both", root
        )
    if storage.entry(path).kind is not Kind.FILE:
        what = "the interrupted rebuild was killed before it recorded how far it came; the store is not changed"
        raise _refusal(f"nothing to resume: {what}", root)
    try:
        found: Interrupted = read_json(storage, path, Interrupted, "what the interrupted rebuild left")
    except Unreadable as error:
        raise BadRequest(error.what, path=error.path, hint=BEGIN_ANEW_HINT) from error
    if found.of != of:
        raise _refusal("the log, or what is to be rebuilt, is not what it was when the rebuild was interrupted", root)
    if not _is_right(found, wanted, log.range):
        raise _refusal("what the interrupted rebuild left is not as rmqctl writes it; the store is not changed", path)
    return found


def _refusal(what: str, path: Path) -> BadRequest:
    return BadRequest(what, path=str(path), hint=BEGIN_ANEW_HINT)


def _is_right(found: Interrupted, wanted: WantedQueues, log: range) -> bool:
    """Return whether `found` can be of this rebuild.

    Another program may have written REBUILD_FILE, because it is in the store. Its names become paths of folders, and
    its numbers become positions in files.
    """
    counted = [*found.queues, *found.batch_queues]
    batches, disordered = [counts.key for counts in found.batch_queues], [(*key,) for key in found.disordered]
    numbers = chain(*map(msgspec.structs.astuple, [*counted, found.log, found.index]), *found.lost)
    return (
        all(map(wanted.builds, (*(counts.key for counts in found.queues), *disordered)))
        and all(wanted.is_batch(key) and is_folder_name(key) for key in batches)
        and len({*disordered, *(counts.key for counts in counted)}) == len(counted) + len(disordered)
        and found.log.position in range(log.start, log.stop + 1)
        and all(0 <= counts.min_offset <= counts.max_offset < PLACES_MAX for counts in counted)
        and all(-2 <= number <= OFFSET_MAX for number in numbers if isinstance(number, int))
    )
