"""clean: what goes is shown and told, what stays is untouched; whom it refuses; what cron needs."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from rmqctl.logfile.system.storage import Storage
from rmqctl.logfile.system.writable_storage import WritableStorage
from tests.conftest import Result, Rmqctl, tree_hash, unpack
from tests.support.disks import half_full_disks
from tests.support.faulty_system import Fault, every_fault
from tests.support.journaled_store import Tree, tree
from tests.support.lock_holder import lock_held
from tests.support.ran_command import failed, ran
from tests.support.sparse_log import FILES, GIB, watch_reads, write_sparse_log

EXAMPLES = Path(__file__).parents[4] / "examples"
KEEP_ONE = ("--keep-files", 1)
BROKER = "broker-497"
LOG_FILES = 4
FILE_SIZE = 262144
LAST = (LOG_FILES - 1) * FILE_SIZE


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four files of the log, queues of one file and of two, two index files."""
    return unpack(BROKER, tmp_path)


def log_files(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "commitlog").iterdir())


def stays(store: Path) -> Tree:
    """Content, mode and time of what a clean of all but the last file of the log leaves."""
    goes = {row["path"] for row in json.loads(ran("clean", store, *KEEP_ONE, "--dry-run", "-o", "json").out)["files"]}
    return {path: of for path, of in files(store).items() if path not in goes}


def files(store: Path) -> Tree:
    """Content, mode and time of each file, but for the receipts."""
    return {path: of for path, of in tree(store).items() if of[0] is not None and path != "rmqctl-clean.log"}


def test_a_dry_run_shows_each_file_and_changes_nothing(store: Path, rmqctl: Rmqctl) -> None:
    before = tree(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--dry-run", "-o", "json")
    document = result.document()
    assert result.code == 1
    assert [row["path"] for row in document["files"]][:3] == [
        f"commitlog/{number * FILE_SIZE:020d}" for number in range(3)
    ]
    assert {row["kind"] for row in document["files"]} == {"commitlog", "consumequeue", "index"}
    assert all(
        row["goes"] and row["why"] and row["bytes"] == (store / row["path"]).stat().st_size for row in document["files"]
    )
    assert document["bytes"] == sum(row["bytes"] for row in document["files"])
    assert [row["path"] for row in document["kept"] if row["kind"] == "commitlog"] == [f"commitlog/{LAST:020d}"]
    assert not any(row["goes"] for row in document["kept"])
    assert (document["trigger"], document["minPhyOffset"], document["newMinPhyOffset"]) == ("by hand", 0, LAST)
    assert all(row["lastStoreTimestamp"] > 0 for row in document["files"] if row["kind"] == "commitlog")
    table = rmqctl("clean", store, *KEEP_ONE, "--dry-run")
    assert table.code == 1
    assert f"commitlog/{0:020d}" in table.out
    assert "8 files to delete" in table.out.splitlines()[-1]
    assert tree(store) == before


def test_rows_for_scripts(store: Path, rmqctl: Rmqctl) -> None:
    rows = rmqctl("clean", store, *KEEP_ONE, "--dry-run", "-o", "jsonl").rows()
    assert sum(row["goes"] for row in rows) == 8
    table = list(csv.DictReader(io.StringIO(rmqctl("clean", store, *KEEP_ONE, "--dry-run", "-o", "csv").out)))
    assert [row["path"] for row in table] == [row["path"] for row in rows]


def test_one_line_says_what_was_done(store: Path, rmqctl: Rmqctl) -> None:
    left = stays(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes")
    assert (result.code, result.out.count("\n"), result.err) == (0, 1, "")
    assert result.out.startswith(f"{store}: 8 files deleted, ")
    assert f"log from {LAST}; the log may keep 1 file" in result.out
    assert files(store) == left
    assert len((store / "rmqctl-clean.log").read_text().splitlines()) == 8
    assert Storage(store).lock_holder(store / "lock") is None
    again = rmqctl("clean", store, *KEEP_ONE, "--yes")
    assert (again.code, again.out.count("\n")) == (0, 1)
    assert "nothing to delete" in again.out


def test_the_line_is_a_remark_beside_a_document(store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes", "-o", "json")
    assert result.code == 0
    assert len(result.document()["files"]) == 8
    assert "8 files deleted" in result.err


def test_what_is_left_answers_as_before(store: Path, rmqctl: Rmqctl) -> None:
    before = [row for row in rmqctl("dump", store, "-o", "jsonl").rows() if row["physicalOffset"] >= LAST]
    queues = {(row["topic"], row["queueId"]): row for row in rmqctl("queue", store, "-o", "jsonl").rows()}
    rises = rmqctl("clean", store, *KEEP_ONE, "--dry-run", "-o", "json").document()["queues"]
    assert rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes").code == 0
    assert rmqctl("dump", store, "-o", "jsonl").rows() == before
    after = {(row["topic"], row["queueId"]): row for row in rmqctl("queue", store, "-o", "jsonl").rows()}
    assert after.keys() == queues.keys()
    risen = {(row["topic"], row["queueId"]): (row["minOffset"], row["newMinOffset"]) for row in rises}
    assert risen
    for key, row in after.items():
        old, new = risen.get(key, (row["minOffset"], row["minOffset"]))
        assert (queues[key]["minOffset"], row["minOffset"]) == (old, new)
        assert row["maxOffset"] == queues[key]["maxOffset"]


def test_nothing_is_done_without_a_yes(store: Path, rmqctl: Rmqctl) -> None:
    before = tree(store)
    result = rmqctl("clean", store, *KEEP_ONE)
    assert (result.code, result.err.count("\n")) == (12, 2)
    assert "log files expire after 72 hours" in result.err
    assert "72 hours" not in rmqctl("clean", store, *KEEP_ONE, "--reserved-hours", "48", "--dry-run").err
    assert f"commitlog/{0:020d}" in result.out
    assert tree(store) == before


def test_a_store_in_use_gets_a_plan_only(store: Path, rmqctl: Rmqctl) -> None:
    before = tree(store)
    with lock_held(store) as holder:
        result = rmqctl("clean", store, *KEEP_ONE, "--lock-wait", 0.5, "--yes")
        dry = rmqctl("clean", store, *KEEP_ONE, "--dry-run")
    assert (result.code, dry.code) == (11, 1)
    assert "has the store open: without --dry-run nothing is deleted (exit 11)" in dry.err
    assert f"commitlog/{0:020d}" in dry.out
    assert (result.out, result.err.count("\n")) == ("", 1)
    assert (
        "nothing was deleted (a broker deletes its expired files itself, and keeps the space of those that others "
        "delete)" in result.err
    )
    assert f"(pid {holder})" in result.err
    assert tree(store) == before


def test_a_lock_is_waited_for(store: Path, rmqctl: Rmqctl) -> None:
    with lock_held(store, 1):
        result = rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--lock-wait", 60, "--yes")
    assert result.code == 0
    assert log_files(store) == [f"{LAST:020d}"]


def test_a_store_that_is_half_changed_is_told(store: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("truncate", store, "--to", LAST, "--yes").code == 3
    (done,) = (store / ".rmqctl/journal").glob("*/done")
    done.unlink()
    before = tree(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--yes")
    assert (result.code, result.out) == (1, "")
    assert f"rmqctl undo {store} brings it back" in result.err
    assert tree(store) == before


def test_an_undo_does_not_bring_a_hole(store: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("truncate", store, "--to", LAST, "--yes").code == 3
    assert f"`rmqctl undo {store} --drop` frees them" in rmqctl("clean", store, *KEEP_ONE, "--dry-run").err
    assert rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes").code == 0
    assert rmqctl("undo", store, "--yes").code == 1


def test_a_store_of_3x_is_read_only(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("clean", unpack("326-basic", tmp_path), *KEEP_ONE, "--yes").code == 13


def test_a_log_that_was_not_read_is_not_an_empty_one(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    (store / "commitlog").rename(tmp_path / "elsewhere")
    (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    before = tree_hash(store)
    assert rmqctl("clean", store, *KEEP_ONE, "--yes").code == 4
    assert tree_hash(store) == before
    assert rmqctl("clean", store, *KEEP_ONE, "--follow-links", "--interval", 0, "--yes").code == 0
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [f"{LAST:020d}"]


def test_a_commit_log_elsewhere(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    shutil.move(store / "commitlog", tmp_path / "log")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path / 'log'}\n")
    assert rmqctl("clean", store, *KEEP_ONE, "--broker-conf", conf, "--interval", 0, "--yes").code == 0
    assert [path.name for path in (tmp_path / "log").iterdir()] == [f"{LAST:020d}"]
    assert not (store / ".rmqctl").exists()


def test_a_commit_log_in_two_places(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The oldest go first, wherever they are."""
    other = tmp_path / "other"
    other.mkdir()
    for name in log_files(store)[::2]:
        (store / "commitlog" / name).rename(other / name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={store / 'commitlog'},{other}\n")
    run = partial(rmqctl, "clean", store, "--broker-conf", conf, "--interval", 0)
    assert run("--keep-files", 3, "--yes").code == 0
    assert [path.name for path in sorted(other.iterdir())] == [f"{2 * FILE_SIZE:020d}"]
    document = run(*KEEP_ONE, "--dry-run", "-o", "json").document()
    assert [Path(row["path"]).name for row in document["files"]][:2] == [
        f"{number * FILE_SIZE:020d}" for number in (1, 2)
    ]
    assert [disk["path"] for disk in document["disks"]] == [
        str(store / "commitlog"),
        str(other),
        str(store / "consumequeue"),
    ]
    assert run(*KEEP_ONE, "--yes").code == 0
    assert (list(other.iterdir()), log_files(store)) == ([], [f"{LAST:020d}"])


@pytest.mark.parametrize(
    ("conf", "options", "code"),
    [
        ("", (), 0),
        ("", ("--when", "99"), 0),
        ("deleteWhen=HOUR", (), 1),
        ("deleteWhen=99", ("--when", "HOUR"), 1),
        ("deleteWhen=HOUR\nfileReservedTime=876000", (), 0),
        ("deleteWhen=HOUR\nfileReservedTime=876000", ("--reserved-hours", 1), 1),
        ("deleteWhen=99", ("--manual",), 1),
        ("deleteWhen=99\ncleanFileForciblyEnable=false", ("--max-disk-percent", 10), 1),
        ("fileReservedTime=3d", ("--manual",), 2),  # a broker would take 72 h
    ],
)
def test_broker_conf_and_options(
    conf: str,
    options: tuple[str, ...],
    code: int,
    store: Path,
    tmp_path: Path,
    rmqctl: Rmqctl,
) -> None:
    """The files are old; an hour that is not now and a disk that is not full: nothing goes."""
    hour = str(time.localtime().tm_hour)
    for path in (store / "commitlog").iterdir():
        os.utime(path, (0, 0))
    (tmp_path / "broker.conf").write_text(f"{conf.replace('HOUR', hour)}\n")
    if not conf and not options:
        options = ("--when", "99")
    if "--max-disk-percent" not in options:
        options = (*options, "--max-disk-percent", "95", "--force-percent", "100")
    words = [hour if word == "HOUR" else word for word in options]
    with half_full_disks():
        assert rmqctl("clean", store, "--broker-conf", tmp_path / "broker.conf", *words, "--dry-run").code == code


@pytest.mark.parametrize("when", ["", "four", "4,5", "4 5"])
def test_what_is_no_hour_is_usage(when: str, store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("clean", store, "--when", when, "--yes")
    assert result.code == 2
    assert "--when" in result.err


def test_the_hour_is_this_hosts(store: Path, monkeypatch: pytest.MonkeyPatch, rmqctl: Rmqctl) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    found = []
    for now in ("2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"):  # between them the clocks go forward
        document = rmqctl("clean", store, "--now", now, "--dry-run", "-o", "json").document()
        found.append((document["nowTime"], document["localHour"], document["timeZone"]))
    monkeypatch.delenv("TZ")
    time.tzset()
    assert found == [
        ("2026-03-29T00:30:00.000Z", 1, "CET (UTC+0100)"),
        ("2026-03-29T01:30:00.000Z", 3, "CEST (UTC+0200)"),
    ]


@pytest.mark.parametrize("option", ["--metrics", "--log-json"])
@pytest.mark.parametrize("place", ["commitlog/00000000000001048576", "x.prom", "../log/x"])
def test_nothing_is_written_among_a_brokers_files(
    option: str, place: str, store: Path, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={store / 'commitlog'},{tmp_path / 'log'}\n")
    before = tree(store)
    result = rmqctl(
        "clean", store, *KEEP_ONE, "--broker-conf", tmp_path / "broker.conf", "--yes", option, store / place
    )
    assert result.code == 2
    assert option in result.err
    assert tree(store) == before
    assert not list((tmp_path / "log").iterdir())


def metrics_of(path: Path) -> dict[str, float]:
    """Name with its path label -> value; each has help and type."""
    found = {}
    lines = path.read_text().splitlines()
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0].removeprefix("rmqctl_clean_")] = float(value)
    assert sum(line.startswith("# TYPE") for line in lines) == len(found)
    return found


def test_metrics(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    path = tmp_path / "out/clean.prom"
    path.parent.mkdir()
    run = partial(rmqctl, "clean", store, "--interval", 0, "--metrics", path)
    assert run(*KEEP_ONE, "--dry-run").code == 1
    dry = metrics_of(path)
    assert (dry["exit_status"], dry["expired_files"], dry["log_min_offset_bytes"]) == (1, 8, 0)
    assert "deleted_files" not in dry
    assert run(*KEEP_ONE).code == 12
    assert metrics_of(path)["exit_status"] == 12
    assert run(*KEEP_ONE, "--yes").code == 0
    done = metrics_of(path)
    assert (done["exit_status"], done["deleted_files"], done["kept_files"], done["log_min_offset_bytes"]) == (
        0,
        8,
        1,
        LAST,
    )
    assert done["deleted_bytes"] > 0
    assert done["last_run_timestamp_seconds"] > dry["last_run_timestamp_seconds"] > 1.7e9
    assert rmqctl("clean", tmp_path / "no store", "--yes", "--metrics", path).code == 10
    assert metrics_of(path).keys() == {"exit_status", "last_run_timestamp_seconds", "duration_seconds"}
    assert [entry.name for entry in path.parent.iterdir()] == ["clean.prom"]


@pytest.mark.parametrize(
    ("conf", "code"),
    [
        (None, 2),  # there is no such file
        ("deleteWhen=4h\n", 2),
        ("storeType=defaultRocksDB\n", 13),
        ("storePathCommitLog=/no/where\n", 4),
    ],
)
def test_metrics_of_a_run_that_could_not_begin(
    conf: str | None, code: int, store: Path, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    if conf is not None:
        (tmp_path / "broker.conf").write_text(conf)
    words = ("--broker-conf", tmp_path / "broker.conf", "--metrics", tmp_path / "m.prom", "--yes")
    assert rmqctl("clean", store, *words).code == code
    assert metrics_of(tmp_path / "m.prom")["exit_status"] == code


def test_metrics_of_a_store_in_use(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """What would go is known all the same."""
    with lock_held(store):
        codes = [
            rmqctl("clean", store, *words, "--metrics", tmp_path / "m", "--yes").code
            for words in (("--when", 99), KEEP_ONE)
        ]
    assert codes == [11, 11]
    found = metrics_of(tmp_path / "m")
    assert (found["exit_status"], found["expired_files"], found["kept_files"]) == (11, 8, 1)
    assert "deleted_files" not in found


@pytest.mark.parametrize("option", ["--metrics", "--log-json"])
def test_folders_are_not_made(option: str, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    before = tree(tmp_path)
    result = rmqctl("clean", store, *KEEP_ONE, option, tmp_path / "no/where", "--yes")
    assert result.code == 2
    assert f"{option}: there is no folder {tmp_path / 'no'}" in result.err
    assert tree(tmp_path) == before


def test_labels_are_escaped(tmp_path: Path, rmqctl: Rmqctl) -> None:
    rmqctl("clean", tmp_path / 'a "\\\nb', "--yes", "--metrics", tmp_path / "m.prom")
    assert r"""a \"\\\nb"} """ in (tmp_path / "m.prom").read_text()


def test_receipts_elsewhere_are_in_the_store_too(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Without them verify would take the log's start for lost."""
    log = tmp_path / "receipts.jsonl"
    assert rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--log-json", log, "--yes").code == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["path"] for row in rows][:3] == [f"commitlog/{number * FILE_SIZE:020d}" for number in range(3)]
    assert (store / "rmqctl-clean.log").read_text() == log.read_text()
    assert rmqctl("verify", store).code == 0


def test_without_receipts_nothing_goes(store: Path, rmqctl: Rmqctl) -> None:
    (store / "rmqctl-clean.log").mkdir()
    before = tree(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert "0 of 8 files are deleted" in result.err
    assert tree(store) == before


def test_whom_the_system_does_not_let_is_told_what_to_do(
    store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_storage: Storage, path: Path, _mode: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(WritableStorage, "make_folder", refused)
    before = log_files(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert "Permission denied; 0 of 8 files are deleted" in result.err
    assert "(run it as the owner of the files)" in result.err
    assert log_files(store) == before


def test_a_full_disk_behind_stdout_is_told_and_what_was_done_too(store: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rmqctl", "clean", str(store), *map(str, KEEP_ONE), "--interval", "0", "--yes"]
    words += ["--metrics", str(tmp_path / "m")]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env)
    done, complaint = result.stderr.splitlines()
    assert (result.returncode, complaint) == (4, "rmqctl: stdout: No space left on device")
    assert done.startswith(f"{store}: 8 files deleted, ")
    assert metrics_of(tmp_path / "m")["exit_status"] == 4


def test_why_there_is_nothing_to_delete(store: Path, rmqctl: Rmqctl) -> None:
    hour = time.localtime().tm_hour
    line = rmqctl("clean", store, "--when", f"{hour};{(hour + 1) % 24}", "--reserved-hours", 10**6, "--yes").out
    assert f"is an hour of deleteWhen ({hour:02};" in line
    assert f", but commitlog/{0:020d} stays: last written to " in line
    calm = rmqctl("clean", store, "--when", 99, "--max-disk-percent", 95, "--yes")
    assert (calm.out.count("nothing asks for deletion"), calm.out.count("\n"), calm.err) == (1, 1, "")
    told = rmqctl("clean", store, "--when", 99, "--max-disk-percent", 95, "--dry-run")
    assert "note: deleteWhen (99) is no hour of a day: as for a broker, time alone never deletes anything" in told.err


def test_after_a_clean_verify_finds_nothing_missing(store: Path, rmqctl: Rmqctl) -> None:
    found = [{finding["code"] for finding in rmqctl("verify", store, "-o", "json").document()["findings"]}]
    assert rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes").code == 0
    after = rmqctl("verify", store, "-o", "json")
    found.append({finding["code"] for finding in after.document()["findings"]})
    assert found == [set(), set()]
    assert (
        "deleted by `rmqctl clean`, as a receipt in the store says (rmqctl-clean.log). The receipt came with the store"
        in after.err
    )
    assert rmqctl("recover", store, "--dry-run", "-o", "json").document()["leaves"] == []


def test_receipts_are_not_believed_where_that_is_asked_for(store: Path, rmqctl: Rmqctl) -> None:
    """Whoever copies a store can write one."""
    (store / "commitlog" / f"{0:020d}").unlink()
    (store / "rmqctl-clean.log").write_text(json.dumps({"path": f"commitlog/{0:020d}", "bytes": FILE_SIZE}))
    assert rmqctl("verify", store).code == 0
    assert rmqctl("verify", store, "--ignore-receipts").code == 1
    (store / "rmqctl-clean.log").unlink()
    assert rmqctl("verify", store).code == 1


def test_queues_follow_a_log_that_a_killed_clean_left_shorter(store: Path, rmqctl: Rmqctl) -> None:
    left = stays(store)
    for name in log_files(store)[:-1]:
        (store / "commitlog" / name).unlink()
    assert rmqctl("clean", store, "--when", 99, "--interval", 0, "--yes").code == 0
    assert files(store) == left


def test_folders_that_an_interrupted_clean_emptied(store: Path, rmqctl: Rmqctl) -> None:
    for name in ("Retired/0", "TopicTest/99"):
        (store / "consumequeue" / name).mkdir(parents=True)
    topics = store / "config/topics.json"
    topics.write_text(topics.read_text().replace('"topicConfigTable":{', '"topicConfigTable":{"TopicTest":{},', 1))
    assert rmqctl("clean", store, "--when", 99, "--yes").out.startswith(f"{store}: nothing to delete")
    dry = rmqctl("clean", store, "--when", 99, "--unused-topics", "--dry-run", "-o", "json")
    assert dry.code == 1
    assert dry.document()["folders"] == ["consumequeue/Retired/0", "consumequeue/Retired"]
    assert dry.document()["leftBehind"] == {"fileCount": 0, "bytes": 0, "allocatedBytes": 0}
    done = rmqctl("clean", store, "--when", 99, "--unused-topics", "--yes")
    assert (done.code, done.out.partition(",")[0]) == (0, f"{store}: 2 empty folders deleted")
    assert not (store / "consumequeue/Retired").exists()
    assert (store / "consumequeue/TopicTest/99").exists()


def test_what_an_interrupted_clean_left_counts(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    left = store / ".rmqctl/expired/commitlog:00000000000000000000"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 5000)
    allocated = left.stat().st_blocks * 512
    run = partial(rmqctl, "clean", store, "--when", 99, "--metrics", tmp_path / "m")
    assert run("--dry-run", "-o", "json").document()["leftBehind"] == {
        "fileCount": 1,
        "bytes": 5000,
        "allocatedBytes": allocated,
    }
    assert metrics_of(tmp_path / "m")["expired_bytes"] == allocated
    result = run("--yes")
    assert result.out.startswith(
        f"{store}: 1 file that an interrupted clean left deleted, {allocated} bytes on the disk; "
    )
    assert metrics_of(tmp_path / "m")["deleted_bytes"] == allocated
    (receipt,) = map(json.loads, (store / "rmqctl-clean.log").read_text().splitlines())
    assert (receipt["path"], receipt["bytes"], receipt["allocatedBytes"]) == (f"commitlog/{0:020d}", 5000, allocated)


def test_no_undo_takes_what_an_interrupted_clean_left(store: Path, rmqctl: Rmqctl) -> None:
    """There is no receipt of it yet: without one it would be missing."""
    left = store / ".rmqctl/expired/commitlog:00000000000000000000"
    left.parent.mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").rename(left)
    assert rmqctl("undo", store, "--yes").err.startswith("nothing to undo: no change by rmqctl is kept in this store; ")
    for taken_back in (("--yes",), ("--drop", "--yes")):
        assert rmqctl("checkpoint", store, "set", "--physic-msg-timestamp", 0, "--yes").code == 0
        assert rmqctl("undo", store, *taken_back).code == 0
        assert [path.name for path in (store / ".rmqctl").rglob("*")] == ["expired", left.name]
    assert rmqctl("clean", store, "--when", 99, "--yes").code == 0
    assert not (store / ".rmqctl").exists()
    assert "log-start-missing" not in rmqctl("verify", store, "-o", "json").out


STEPS = pytest.mark.parametrize(
    "step", [pytest.param(5, marks=pytest.mark.slow, id="many"), pytest.param(17, id="some")]
)


def cleaned(root: Path) -> Result:
    return ran("clean", root, *KEEP_ONE, "--interval", 0, "--yes")


@STEPS
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.IO_ERROR, Fault.DEAD_DISK, Fault.FULL_DISK])
def test_an_error_at_every_call_is_one_line(
    fault: Fault, step: int, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    left = stays(store)
    errors = 0
    for system in every_fault(tmp_path, fault, step):
        shutil.copytree(store, system.root)
        result = failed(system, cleaned, system.root)
        *receipts, told = result.err.splitlines() or [""]
        assert all(json.loads(line)["path"] for line in receipts)
        if result.code != 0:
            errors += 1
            assert result.code == 4
            assert told.startswith("rmqctl: ")
        assert cleaned(system.root).code == 0
        assert files(system.root) == left, str(system)
    assert errors > 0 or fault is Fault.NO_SPACE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_between_two_files(number: signal.Signals, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    left = stays(store)
    words = [sys.executable, "-m", "rmqctl", "clean", str(store), *map(str, KEEP_ONE), "--interval", "60000", "--yes"]
    words += ["--metrics", str(tmp_path / "m")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (store / "rmqctl-clean.log").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate()
    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert (process.returncode, err.split("\n")[-2]) == (130, "rmqctl: interrupted")
        assert out.startswith(f"{store}: 1 file deleted, ")
        found_metrics = metrics_of(tmp_path / "m")
        assert (found_metrics["exit_status"], found_metrics["deleted_files"], found_metrics["expired_files"]) == (
            130,
            1,
            8,
        )
        assert found_metrics["log_min_offset_bytes"] == FILE_SIZE
        assert not (store / ".rmqctl").exists()
    assert log_files(store)[0] == f"{FILE_SIZE:020d}"
    assert rmqctl("clean", store, *KEEP_ONE, "--interval", 0, "--yes").code == 0
    assert files(store) == left


def test_a_thousand_large_files_are_hardly_read(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, read = write_sparse_log(tmp_path / "store"), watch_reads(monkeypatch)
    document = rmqctl("clean", root, "--keep-files", 10, "--dry-run", "-o", "json").document()
    assert len(document["files"]) == FILES - 10
    assert document["newMinPhyOffset"] == (FILES - 10) * GIB
    assert len(read) < 10_000
    assert sum(read) < 20_000 * FILES


def test_a_signal_that_the_caller_ignores_does_not_end_it(store: Path) -> None:
    """As nohup does."""
    words = f"{shlex.quote(sys.executable)} -m rmqctl clean {store} --keep-files 1 --interval 200 --yes"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"trap '' HUP; exec {words}"], stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not (store / "rmqctl-clean.log").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate()
    assert (process.returncode, out.partition(",")[0]) == (0, f"{store}: 8 files deleted")


def example_commands() -> list[list[str]]:
    """The command lines of the crontab, also the one that is a comment, and of the systemd service."""
    crontab = (EXAMPLES / "clean.cron").read_text().splitlines()
    service = (EXAMPLES / "rmqctl-clean.service").read_text().splitlines()
    lines = [line.split(None, 6)[6] for line in crontab if " rmqctl clean " in line]
    lines += [line.partition("=")[2] for line in service if line.startswith("ExecStart=")]
    return [shlex.split(line.partition(">")[0]) for line in lines]


def test_the_examples_work(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"deleteWhen={(time.localtime().tm_hour + 12) % 24}\ndiskMaxUsedSpaceRatio=95\n")
    places = {
        "/data/rocketmq/store": store,
        "/etc/rocketmq/broker.conf": conf,
        "/var/lib/node_exporter/textfile/rmqctl_clean.prom": tmp_path / "m",
    }
    commands = example_commands()
    assert len(commands) == 3
    for program, *words in commands:
        assert Path(program).name == "rmqctl"
        result = rmqctl(*(places.get(word, word) for word in words))
        assert (result.code, result.err) == (0, "")
        assert "nothing to delete" in result.out
    assert "rmqctl_clean_exit_status" in (tmp_path / "m").read_text()
    assert "/data/rocketmq/store/rmqctl-clean.log {" in (EXAMPLES / "rmqctl-clean.logrotate").read_text()


@pytest.mark.parametrize("option", ["--metrics", "--log-json"])
def test_what_is_no_file_is_not_replaced(option: str, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """As /dev/null, which root could replace."""
    os.mkfifo(tmp_path / "fifo")
    before = tree_hash(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--yes", option, tmp_path / "fifo")
    assert (result.code, tree_hash(store), (tmp_path / "fifo").is_fifo()) == (2, before, True)
    assert f"{tmp_path / 'fifo'} is not a regular file" in result.err


@pytest.mark.skipif(os.geteuid() != 0, reason="others write by their own rights alone")
@pytest.mark.parametrize("option", ["--metrics", "--log-json"])
def test_root_writes_to_no_file_that_has_another_name(option: str, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "m.prom").hardlink_to(tmp_path / "victim")
    before = tree_hash(store)
    result = rmqctl("clean", store, *KEEP_ONE, "--yes", option, tmp_path / "m.prom")
    assert (result.code, tree_hash(store), (tmp_path / "victim").read_text()) == (2, before, "mine")
    assert "has several names (hard links)" in result.err
