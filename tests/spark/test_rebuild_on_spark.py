"""`rmqctl job rebuild` by a real Spark: the tree that `rmqctl rebuild` leaves; and several stores, one
after the other.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.operations.rebuild import rebuild_in_task
from rmqctl.spark.scan import store_tasks
from rmqctl.spark.scan.store_tasks import StoreTask
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, Result, Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.support.journaled_store import files_of
from tests.support.other_owner import OWNER, owned, owners
from tests.support.spark_process import JOB_SECONDS, QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = damage_cases()
DAMAGED = [name for number, name in enumerate(sorted(CASES)) if number % 12 == 0]
WRITABLE = [name for name in READABLE_NAMES if not name.startswith("326")]
NEWEST_OF_EACH_KIND = sorted({name.removeprefix("broker-").partition("-")[2]: name for name in WRITABLE}.values())


@pytest.fixture(autouse=True)
def _jobs_find_the_session(spark: SparkSession) -> None:
    """A job without --master takes the existing session."""


def plan_of(result: Result) -> dict[str, Any]:
    return {**result.document(), "seconds": 0, "store": ""}


def same_as_here(root: Path, folder: Path, run: Rmqctl) -> None:
    """Rebuilds a store by Spark and a copy of it here; what is there, planned, said and undone is the same."""
    copy = folder / "copy"
    shutil.copytree(root, copy, symlinks=True)
    before = tree_hash(root)
    looked = run("job", "rebuild", root, "--dry-run", "-o", "json")
    assert tree_hash(root) == before
    here = run("rebuild", copy, "all", "--yes", "-o", "json")
    there = run("job", "rebuild", root, "--yes", "-o", "json")
    assert there.code == here.code
    assert looked.code == {0: 0, 3: 1}[there.code]
    assert plan_of(there) == plan_of(here) == plan_of(looked)
    assert files_of(root) == files_of(copy)
    assert run("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


@pytest.mark.parametrize("name", NEWEST_OF_EACH_KIND)
def test_a_golden_store(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    same_as_here(unpack(name, tmp_path), tmp_path, rmqctl)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damage_case(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    same_as_here(root, tmp_path, rmqctl)


def test_several_stores(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """What is wrong with one does not stop the others; each has its own plan, and its own undo."""
    good, broken = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    shutil.rmtree(broken / "consumequeue")
    none, rocks = tmp_path / "none", unpack("broker-533-rocksdb", tmp_path / "c")
    before = [tree_hash(root) for root in (good, broken, rocks)]
    result = rmqctl("job", "rebuild", none, good, rocks, broken, "--yes", "-o", "jsonl")
    assert result.code == 13
    assert [(row["schema"], row["store"], row["unitsDiffer"] > 0) for row in result.rows()] == [
        ("rmqctl.rebuild/1", str(good), False),
        ("rmqctl.rebuild/1", str(broken), True),
    ]
    assert f"{none}: no such folder" in result.err
    assert "RocksDB" in result.err
    assert rmqctl("verify", broken).code == 0
    assert all(rmqctl("undo", root, "--yes").code == 0 for root in (good, broken))
    assert [tree_hash(root) for root in (good, broken, rocks)] == before


def test_several_stores_as_tables(tmp_path: Path, rmqctl: Rmqctl) -> None:
    first, second = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    shutil.rmtree(second / "index")
    result = rmqctl("job", "rebuild", first, second, "--dry-run", "--what", "index")
    assert result.code == 1
    headings = [line for line in result.out.splitlines() if line.endswith(":")]
    assert headings == [f"{first}:", f"{second}:"]
    assert "TOPIC" not in result.out


def test_a_task_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives up: one line, and the next store has its turn."""
    first, second = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    before = tree_hash(first)
    real = store_tasks.task_of

    def failing(store: ReadOnlyStore) -> StoreTask:
        task = real(store)
        if task.root == str(first) and task.first is not None:
            return task._replace(first=task.first._replace(path=task.first.path.replace("/a/", "/b/")))
        return task

    monkeypatch.setattr(store_tasks, "task_of", failing)
    result = rmqctl("job", "rebuild", first, second, "--yes")
    assert result.code == 4
    assert f"rmqctl: {second}/commitlog/" in result.err
    assert (
        ": an executor finds there: another file than the driver sees (every executor must see the store under the "
        "same path)\n" in result.err
    )
    assert tree_hash(first) == before
    assert f"`rmqctl undo {second}` takes it back" in result.err


def test_ctrl_c_while_tasks_run(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store was changed, and the tasks of both are stopped; what was built for the first is removed."""
    first, second = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    before = tree_hash(first), tree_hash(second)
    real, stopped = store_tasks.task_of, threading.Event()

    def interrupt(store: ReadOnlyStore) -> StoreTask:
        if store.path.root != first:
            os.kill(os.getpid(), signal.SIGINT)
            assert stopped.wait(60)
        return real(store)

    monkeypatch.setattr(store_tasks, "task_of", interrupt)
    monkeypatch.setattr("rmqctl.spark.session.session.cancel_jobs", lambda _: stopped.set())
    result = rmqctl("job", "rebuild", first, second, "--yes")
    assert (result.code, result.err.split("\n")) == (130, ["nothing was changed", "", "rmqctl: interrupted", ""])
    assert (tree_hash(first), tree_hash(second)) == before


def test_ctrl_c_after_the_first_change(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first store is changed, and can be undone; the second is as it was."""
    first, second = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    before = tree_hash(second)
    shutil.rmtree(first / "consumequeue")

    def hint_and_a_signal(root: Path) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return f"changed {root}"

    monkeypatch.setattr("rmqctl.cli.views.change.rebuild_run.undo_hint", hint_and_a_signal)
    result = rmqctl("job", "rebuild", first, second, "--yes")
    assert result.code == 130
    assert f"changed {first}" in result.err
    assert str(second) not in result.err
    assert rmqctl("verify", first).code == 0
    assert tree_hash(second) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_the_right_to_write_the_driver_writes(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors may only read the store: the driver builds the same files, and says so."""
    root = unpack("533-basic", tmp_path)
    shutil.rmtree(root / "consumequeue")
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    assert rmqctl("rebuild", copy, "all", "--yes").code == 3
    refused = rebuild_in_task.Refused(errno.EROFS, "Read-only file system", str(root))
    monkeypatch.setattr("rmqctl.cli.job.rebuild._in_task", lambda *_: refused)
    result = rmqctl("job", "rebuild", root, "--yes")
    assert result.code == 3
    assert "a task could not write to " in result.err
    assert ": this machine wrote the new files instead\n" in result.err
    assert files_of(root) == files_of(copy)
    assert not list(root.rglob("tasks"))


def test_what_makes_no_sense(tmp_path: Path, rmqctl: Rmqctl) -> None:
    first, second = unpack("533-basic", tmp_path / "a"), unpack("471-basic", tmp_path / "b")
    (tmp_path / "broker.conf").write_text("")
    link = tmp_path / "link"
    link.symlink_to(first)
    for options in (
        ["-o", "json"],
        ["--broker-conf", tmp_path / "broker.conf"],
        [link],
        ["--master", "local[2]", "--remote", "sc://localhost"],
    ):
        assert rmqctl("job", "rebuild", first, second, "--dry-run", *options).code == 2
    assert rmqctl("job", "rebuild", first, second).code == 12


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_goes_on_as_the_owner_of_the_store(tmp_path: Path) -> None:
    """Or says why not, where that user may not read the Python that this runs in."""
    root = owned(unpack("471-basic", tmp_path))
    shutil.rmtree(root / "index")
    imports = ["/bin/sh", "-c", '"$0" -c "import rmqctl, pyspark"', sys.executable]
    may_read = subprocess.run(imports, user=OWNER, group=OWNER, env={}, cwd="/", check=False).returncode == 0
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JVM}
    line = [
        sys.executable,
        "-m",
        "rmqctl",
        "job",
        "rebuild",
        str(root),
        "--master",
        "local[1]",
        "--what",
        "queues",
        "--yes",
    ]
    result = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    assert f"running as nobody (uid {OWNER}), the owner of the store" in result.stderr
    assert owners(root) == {(OWNER, OWNER)}
    if may_read:
        assert result.returncode == 0, result.stderr
    else:
        assert (result.returncode, "the owner of the store cannot read it" in result.stderr) == (4, True), result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can stay root")
def test_with_as_root_files_of_several_users_are_changed(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = owned(unpack("471-basic", tmp_path))
    shutil.rmtree(root / "consumequeue" / "OrderPaid")
    os.chown(root / "checkpoint", 0, 0)
    assert rmqctl("job", "rebuild", root, "--yes").code == 4
    assert rmqctl("job", "rebuild", root, "--as-root", "--yes").code == 3
    assert owners(root / "consumequeue") == {(OWNER, OWNER)}
