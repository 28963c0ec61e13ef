"""A rebuild by another process, such as a task of Spark.

It builds the new files in a folder of its own, below the staging folder, because Spark can run a task again while the
first run still writes. The driver moves the files of one run into the staging folder. If the process may not write
there, the driver rebuilds the store itself.
"""

from __future__ import annotations

import errno
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile import file_tree
from rmqctl.logfile.system.staging_storage import StagingStorage
from rmqctl.operations.rebuild.rebuild import Rebuild

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.operations.rebuild.rebuild import Rebuilt
    from rmqctl.operations.rebuild.selection import Selection
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    InTask = Callable[[Callable[[ReadOnlyStore], "BuiltInTask | Refused"]], "BuiltInTask | Refused"]

TASKS_FOLDER = "tasks"  # below the staging folder
# the errors of a process that does not have the store's folder, or may not write to it
CANNOT_WRITE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR))


class BuiltInTask(NamedTuple):
    """The result of a rebuild in another process."""

    result: Rebuilt
    folder: str | None  # where the new files are; None if none were written


class Refused(NamedTuple):
    """An error of the system that stopped a process."""

    errno: int
    strerror: str
    path: str


def rebuild_in_task(store: ReadOnlyStore, *, selection: Selection, staging: str | None) -> BuiltInTask | Refused:
    """Rebuild a store in this process, in a folder below `staging` (None: only look)."""
    try:
        folder = None if staging is None else _own_folder(staging, store)
        rebuild = Rebuild(store, selection, folder, compares_index=True)
        rebuild.run()
    except OSError as error:
        return Refused(error.errno or 0, error.strerror or str(error), str(error.filename or ""))
    return BuiltInTask(rebuild.result, None if folder is None else str(folder))


def let_build(rebuild: Rebuild, in_task: InTask) -> None:
    """Let another process do the rebuild, or do it here if that may not write.

    Raises RmqctlError and OSError.
    """
    storage = None if rebuild.staged is None else rebuild.staged.storage
    if storage is not None:
        storage.make_folder(storage.root / TASKS_FOLDER)
    staging = None if storage is None else str(storage.root.absolute())
    found = in_task(partial(rebuild_in_task, selection=rebuild.selection, staging=staging))
    if isinstance(found, BuiltInTask):
        rebuild.result = found.result
        if storage is not None and found.folder is not None:
            for name in storage.names(Path(found.folder)):
                storage.rename(Path(found.folder, name), storage.root / name)
    elif found.errno in CANNOT_WRITE:
        rebuild.run()
        rebuild.result.built_here = f"a task could not write to {found.path}: {found.strerror}"
    else:
        raise OSError(found.errno, found.strerror, found.path)
    if storage is not None:
        try:
            file_tree.remove(storage, storage.root / TASKS_FOLDER)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # a late task still writes: the folder goes with the staging folder
                raise


def _own_folder(staging: str, store: ReadOnlyStore) -> Path:
    # the driver has made TASKS_FOLDER; if the driver has ended, a late task must not make it again
    folder = Path(staging, TASKS_FOLDER, uuid.uuid4().hex)
    StagingStorage(Path(staging), beneath=store.path.root).add_folder(folder)
    return folder
