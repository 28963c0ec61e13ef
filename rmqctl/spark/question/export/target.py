"""Choose how the files of an export get to their folder.

The folder is a path of this host, or a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.system.remote_storage import is_remote
from rmqctl.spark.question.export import local_target, remote_target
from rmqctl.spark.question.export.earlier_files import Mode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rmqctl.spark.question.export.earlier_files import Leftovers
    from rmqctl.spark.question.export.local_target import LocalTarget
    from rmqctl.spark.question.export.remote_target import RemoteTarget


def remove_leftovers(target: Path) -> Leftovers:
    """Remove what killed exports to a folder have left.

    Raises BadRequest if an export to the folder is still running, or if pyarrow does not know the URL. Raises OSError.
    """
    if is_remote(target):
        return remote_target.remove_leftovers(target)
    return local_target.remove_leftovers(target)


def target_of(target: Path, mode: Mode, suffix: str) -> AbstractContextManager[LocalTarget | RemoteTarget]:
    """Return the folder of an export, as a block in which the export is written.

    `suffix` is the end of the names of files. The block raises BadRequest if `mode` does not allow the export, and
    OSError.
    """
    if is_remote(target):
        return remote_target.remote_target(target, mode, suffix)
    return local_target.local_target(target, mode, suffix)
