"""A rebuild in another process: what crosses to it and back is packed, as Spark does."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.rebuild_in_task import TASKS_FOLDER, BuiltInTask, Refused, let_build
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import tree_hash, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.operations.rebuild.rebuild_in_task import InTask


def task_of(root: Path, *, runs: int = 1) -> InTask:
    """A process that runs its work so many times, and sends what the last run found."""

    def in_task(work: object) -> BuiltInTask | Refused:
        answers = [packed(unpacked(packed(work))(ReadOnlyStore(root))) for _ in range(runs)]
        found: BuiltInTask | Refused = unpacked(answers[-1])
        return found

    return in_task


def rebuilt(root: Path, staging: Path | None, in_task: InTask | None = None) -> Rebuild:
    rebuild = Rebuild(ReadOnlyStore(root), Selection(), staging, compares_index=True)
    if in_task is None:
        rebuild.run()
    else:
        let_build(rebuild, in_task)
    rebuild.result.seconds = 0
    return rebuild


@pytest.mark.parametrize("name", ["broker-533", "471-cqext", "533-batch"])
def test_the_files_and_the_result_are_those_of_a_rebuild_here(name: str, tmp_path: Path) -> None:
    """Also if a worker died, and the work was done twice."""
    root = unpack(name, tmp_path)
    next((root / "consumequeue").glob("*/*/*")).unlink()
    two = rebuilt(root, root / "there", task_of(root, runs=2))
    two.check()
    assert two.result == rebuilt(root, root / "here").result
    assert tree_hash(root / "there") == tree_hash(root / "here")
    assert rebuilt(root, None, task_of(root)).result == rebuilt(root, None).result


def test_a_process_that_may_not_write_leaves_the_work_here(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    one = rebuilt(root, root / "here")
    two = rebuilt(root, root / "there", lambda _: Refused(errno.EROFS, "Read-only file system", "/store"))
    assert two.result.built_here == "a task could not write to /store: Read-only file system"
    assert tree_hash(root / "there") == tree_hash(root / "here")
    two.result.built_here = ""
    assert two.result == one.result
    with pytest.raises(OSError, match="No space left on device"):
        rebuilt(root, root / "full", lambda _: Refused(errno.ENOSPC, "No space left on device", "/store"))


def test_a_late_task_makes_no_folder_again(tmp_path: Path) -> None:
    """Its driver has ended, and the staging folder is gone."""
    root = unpack("533-basic", tmp_path)

    def late(work: Callable[[ReadOnlyStore], BuiltInTask | Refused]) -> BuiltInTask | Refused:
        shutil.rmtree(root / "there" / TASKS_FOLDER)
        found = task_of(root)(work)
        assert isinstance(found, Refused)
        assert found.errno == errno.ENOENT
        assert not (root / "there" / TASKS_FOLDER).exists()
        return found

    rebuilt(root, root / "there", late).check()
