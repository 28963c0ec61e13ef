"""`rmqctl rebuild`: shown, confirmed, carried out, taken back."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest

from rmqctl.format.message import Blank, Damage
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.store.config import store_path
from rmqctl.store.journal.transaction import undo_last
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import GOLDEN_NAMES, Rmqctl, tree_hash, unpack
from tests.support.dispatched import index_content, queue_bytes
from tests.support.file_edits import flip_bits, overwrite
from tests.support.lock_holder import lock_held
from tests.support.log_maker import Record, write_log

Golden = Callable[[str], Path]


@pytest.mark.parametrize("what", ["queues", "index", "all"])
def test_made_and_taken_back(what: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-basic")
    before, queues, index = tree_hash(store), queue_bytes(store), index_content(store)
    looked = rmqctl("rebuild", store, what, "--dry-run", "-o", "json")
    assert looked.code == 0
    assert tree_hash(store) == before
    made = rmqctl("rebuild", store, what, "--yes", "-o", "json")
    assert made.code == 0
    assert {**made.document(), "seconds": 0} == {**looked.document(), "seconds": 0}
    assert made.document()["unitsDiffer"] == 0
    assert (queue_bytes(store), index_content(store)) == (queues, index)
    assert rmqctl("verify", store).code == 0
    assert undo_last(store, WritableStorage(store)) is not None
    assert tree_hash(store) == before


def test_a_message_keeps_the_unit_and_the_keys_by_which_brokers_serve_it(golden: Golden, rmqctl: Rmqctl) -> None:
    """The record's PHYSICALOFFSET is wrong: a broker's own rebuild would lead elsewhere."""
    store = golden("broker-497")
    queues, index = queue_bytes(store), index_content(store)
    overwrite(store, 412109 + 35, b"\0")
    (finding,) = rmqctl("verify", store, "-o", "json").document()["findings"]
    assert finding["code"] == "bad-physical-offset"
    assert rmqctl("recover", store, "--dry-run").code == 0
    flip_bits(max((store / "index").iterdir()), 4060)
    assert rmqctl("rebuild", store, "all", "--yes").code == 3
    assert (queue_bytes(store), index_content(store)) == (queues, index)


def test_damaged_queues_and_index_are_whole_again(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = queue_bytes(store), index_content(store)
    topic = next(path for path in sorted((store / "consumequeue").iterdir()) if path.name.startswith("orders"))
    (topic / "0" / f"{0:020d}").write_bytes(bytes(6000))
    shutil.rmtree(topic / "1")
    (topic / "90").mkdir()
    (topic / "90" / f"{0:020d}").write_bytes((b"\0" * 4 + b"\0\1\0\0" + b"\0\0\1\0" + bytes(8)).ljust(6000, b"\0"))
    first = min((store / "index").iterdir())
    first.write_bytes(first.read_bytes()[:5000] + bytes(first.stat().st_size - 5000))
    assert rmqctl("verify", store).code == 1
    assert "the index differs from what the log gives" in rmqctl("rebuild", store, "index", "--dry-run").err
    made = rmqctl("rebuild", store, "all", "--yes", "-o", "json")
    assert made.code == 3
    assert made.document()["unitsDiffer"] > 0
    assert {"action": "delete", "path": f"consumequeue/{topic.name}/90"} in made.document()["actions"]
    assert rmqctl("verify", store).code == 0
    assert (queue_bytes(store), index_content(store)) == before


def test_a_deleted_topics_queues_go_if_it_is_named(golden: Golden, rmqctl: Rmqctl) -> None:
    """Its entry in topics.json may be lost, and its queues are then the only trace of the topic."""
    store = golden("497-basic")
    (store / "config").mkdir(exist_ok=True)
    listed = {topic: {"topicName": topic} for topic, _ in ReadOnlyStore(store).queues if topic != "OrderPaid"}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": listed}))
    kept = rmqctl("rebuild", store, "queues", "--yes", "-o", "json")
    assert (kept.code, kept.document()["deletedTopics"]) == (0, [{"topic": "OrderPaid", "messages": 154}])
    assert (store / "consumequeue" / "OrderPaid" / "3").is_dir()
    made = rmqctl("rebuild", store, "queues", "--topic", "OrderPaid", "--yes", "-o", "json")
    assert [action["path"] for action in made.document()["actions"] if action["action"] == "delete"] == [
        "consumequeue/OrderPaid"
    ]
    assert made.document()["deletedTopics"] == [{"topic": "OrderPaid", "messages": 154}]
    assert not (store / "consumequeue" / "OrderPaid").exists()
    assert rmqctl("rebuild", store, "queues", "--all-topics", "--yes").code == 3
    assert (store / "consumequeue" / "OrderPaid" / "3").is_dir()


def test_the_checkpoints_index_time_is_put_right(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    path = store / "checkpoint"
    right = path.read_bytes()
    path.write_bytes(right[:16] + b"\x7f" * 8 + right[24:])
    looked = rmqctl("rebuild", store, "all", "--dry-run", "-o", "json").document()
    assert {"action": "write", "path": "checkpoint", "fileOffset": 16, "bytes": 8} in looked["actions"]
    assert rmqctl("rebuild", store, "queues", "--yes").code == 0
    assert path.read_bytes() != right
    assert rmqctl("rebuild", store, "index", "--yes").code == 3
    assert path.read_bytes() == right


def test_not_confirmed(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    assert rmqctl("rebuild", store, "all").code == 12
    monkeypatch.setattr("rmqctl.cli.verbs.change.rebuild.check_can_ask", lambda **_: None)
    monkeypatch.setattr("rmqctl.cli.shared.confirm.check_can_ask", lambda **_: None)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert rmqctl("rebuild", store, "all").code == 12
    assert tree_hash(store) == before
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert rmqctl("rebuild", store, "all").code == 0


def test_of_a_store_in_use_nothing_is_planned(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    with lock_held(store):
        assert rmqctl("rebuild", store, "all", "--dry-run").code == 11
    assert tree_hash(store) == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["queues", "--queue", "1"], 2, "--queue needs --topic"),
        (["all", "--topic", "OrderPaid"], 2, "the index covers all topics"),
        (["queues", "--yes", "--resume"], 2, "no rebuild was interrupted"),
        (["everything"], 2, "everything"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], code: int, said: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    result = rmqctl("rebuild", store, *arguments)
    assert result.code == code
    assert said in result.err
    assert tree_hash(store) == before


def test_queues_in_both_need_the_extra_for_databases(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    store = golden("550-combined-samedir")
    before = tree_hash(store)
    result = rmqctl("rebuild", store, "all", "--yes")
    assert (result.code, "install the extra `rocksdb`" in result.err) == (13, True)
    assert tree_hash(store) == before


def test_a_store_without_a_log(tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "commitlog").mkdir()
    result = rmqctl("rebuild", tmp_path, "all", "--yes")
    assert result.code == 2
    assert "no commit log file" in result.err


def test_sizes_that_nothing_shows(tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(tmp_path, [Record()])
    result = rmqctl("rebuild", tmp_path, "all", "--dry-run")
    assert result.code == 1
    assert "6000000 bytes" in result.err
    assert "5000000 slots" in result.err
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=10\nmaxIndexNum=40\n")
    assert rmqctl("rebuild", tmp_path, "all", "--yes", "--broker-conf", conf).code == 3
    assert (tmp_path / "consumequeue" / "OrderPaid" / "1" / f"{0:020d}").stat().st_size == 2000
    assert [path.stat().st_size for path in (tmp_path / "index").iterdir()] == [40 + 10 * 4 + 40 * 20]


@pytest.mark.parametrize("spare", [6, 16])
def test_many_queues_need_few_open_files(spare: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A rebuild of 200 queues needs 16 descriptors; where they are not there, it says so and leaves nothing."""
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    write_log(store, [Record(queue_id=number) for number in range(200)])
    conf.write_text("mappedFileSizeConsumeQueue=2000\n")
    arguments = ("rebuild", store, "queues", "--yes", "--broker-conf", conf)
    rmqctl(*arguments), rmqctl("undo", store, "--yes")  # imports and kernels open files too
    before, modified = tree_hash(store), store.stat().st_mtime_ns
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(each.name) for each in Path("/proc/self/fd").iterdir()}
    free = islice((number for number in count() if number not in taken), spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, limits[1]))
    try:
        made = rmqctl(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    if spare == 16:
        assert made.code == 3
        assert rmqctl("undo", store, "--yes").code == 0
    else:
        assert made.code == 4
        assert "try again after `ulimit -n 1024`" in made.err.splitlines()[-1]
    assert (tree_hash(store), store.stat().st_mtime_ns) == (before, modified)


def test_ctrl_c_leaves_the_old_store_and_resume_makes_the_new(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("broker-533")
    queues, index, before = queue_bytes(store), index_content(store), tree_hash(store)
    on_messages = Rebuild._see

    def and_then_ctrl_c(self: Rebuild, item: Blank | Damage | RecordRun) -> None:
        on_messages(self, item)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Rebuild, "_see", and_then_ctrl_c)
        result = rmqctl("rebuild", store, "all", "--yes", "--threads", "1")
    assert result.code == 130
    assert "--resume" in result.err
    assert (queue_bytes(store), index_content(store)) == (queues, index)
    result = rmqctl("rebuild", store, "all", "--yes", "--resume", "-o", "json")
    assert result.code == 3
    assert re.search(
        r"resuming at step 1 of 2, reading the log, at offset [1-9]\d* of \d+: \d+ queues and \d+ keys in the",
        result.err,
    )
    assert result.document()["unitsDiffer"] == 0
    assert (queue_bytes(store), index_content(store)) == (queues, index)
    assert undo_last(store, WritableStorage(store)) is not None
    assert tree_hash(store) == before


def test_an_interrupted_rebuild_is_no_obstacle(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    with monkeypatch.context() as patched:
        patched.setattr(Rebuild, "_see", lambda *_: signal.raise_signal(signal.SIGINT))
        assert rmqctl("rebuild", store, "all", "--yes").code == 130
    assert rmqctl("verify", store).code == 0
    assert rmqctl("rebuild", store, "index", "--yes").code == 0
    assert undo_last(store, WritableStorage(store)) is not None
    assert tree_hash(store) == before


def test_a_queue_of_lmq_alone_is_made_wholly(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-lmq")
    before = rmqctl("queue", store, "%LMQ%dev1", 0, "-o", "jsonl").rows()
    assert rmqctl("rebuild", store, "queues", "--topic", "%LMQ%dev1", "--yes").code == 0
    assert rmqctl("queue", store, "%LMQ%dev1", 0, "-o", "jsonl").rows() == before


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if not re.search("^326|crash|kill", name)])
def test_nothing_differs_in_what_a_broker_left(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    looked = rmqctl("rebuild", golden(name), "all", "--dry-run", "-o", "json")
    assert (looked.code, looked.document()["unitsDiffer"]) == (0, 0)


def damage_index(store: Path) -> None:
    """An entry leads elsewhere; the counts stay."""
    first = min((store / "index").iterdir())
    flip_bits(first, 40 + 4 * 100 + 20 + 11)


def damage_length(store: Path) -> None:
    """A file of a queue is longer than brokers load; each unit is right."""
    with (store / "consumequeue" / "OrderPaid" / "0" / f"{0:020d}").open("ab") as file:
        file.write(bytes(20))


@pytest.mark.parametrize(
    ("damage", "what", "other"), [(damage_index, "index", "queues"), (damage_length, "queues", "index")]
)
def test_what_differs_is_told_without_a_wrong_unit(
    damage: Callable[[Path], None], what: str, other: str, golden: Golden, rmqctl: Rmqctl
) -> None:
    store = golden("497-basic")
    damage(store)
    assert [rmqctl("rebuild", store, each, "--dry-run").code for each in (what, other, "all")] == [1, 0, 1]
    assert rmqctl("rebuild", store, what, "--yes").code == 3
    assert rmqctl("rebuild", store, "all", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(("--topic", "nope"), "topic nope"), (("--topic", "OrderPaid", "--queue", "99"), "queue OrderPaid/99")],
)
@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_what_the_store_has_not_is_told(
    how: str, arguments: tuple[str, ...], name: str, golden: Golden, rmqctl: Rmqctl
) -> None:
    store = golden("497-basic")
    before = tree_hash(store)
    result = rmqctl("rebuild", store, "queues", *arguments, how)
    assert (result.code, result.out) == (2, "")
    assert f"no {name}: there are neither queues nor messages of it" in result.err
    assert tree_hash(store) == before


def test_a_deleted_topic_is_told(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"other": {}}}))
    shutil.rmtree(store / "consumequeue" / "OrderPaid")
    result = rmqctl("rebuild", store, "queues", "--topic", "OrderPaid", "--yes")
    assert (result.code, "it was deleted (--all-topics rebuilds it" in result.err) == (2, True)
    assert rmqctl("rebuild", store, "queues", "--topic", "OrderPaid", "--all-topics", "--yes").code == 3


def test_a_store_that_changes_under_it_is_left_alone(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting broker does not mind the lock."""
    store = golden("497-basic")
    on_messages = Rebuild._see

    def and_a_broker_starts(self: Rebuild, item: Blank | Damage | RecordRun) -> None:
        on_messages(self, item)
        (store / "abort").touch()

    monkeypatch.setattr(Rebuild, "_see", and_a_broker_starts)
    before = queue_bytes(store)
    result = rmqctl("rebuild", store, "queues", "--yes")
    assert (result.code, "the store was changed while it was looked at" in result.err) == (1, True)
    assert queue_bytes(store) == before
    assert not (store / ".rmqctl").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_among_the_changes_does_not_end_them(
    number: int, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one after them: the exit status says what was done."""
    store = golden("497-basic")
    shutil.rmtree(store / "consumequeue" / "OrderPaid" / "0")
    rename = WritableStorage.rename

    def and_a_signal(self: WritableStorage, path: Path, target: Path) -> bool:
        signal.raise_signal(number)
        signal.raise_signal(number)
        return rename(self, path, target)

    monkeypatch.setattr(WritableStorage, "rename", and_a_signal)

    def hint_and_a_signal(_: Path) -> str:
        signal.raise_signal(number)
        return "hint"

    monkeypatch.setattr("rmqctl.cli.views.change.rebuild_run.undo_hint", hint_and_a_signal)
    result = rmqctl("rebuild", store, "queues", "--yes")
    assert (result.code, result.err.splitlines()[-1]) == (3, "done; hint")
    assert rmqctl("verify", store).code == 0


# a moment of a rebuild (a method that it comes to), and what is left: the verb that goes on, what it says, and its exit
# code
KILLED_AT = {
    "the log is read": (
        "rmqctl.operations.rebuild.rebuild.Rebuild._see",
        2,
        "nothing to resume: the interrupted rebuild was killed before",
    ),
    "how far it came is written": (
        "rmqctl.store.journal.transaction.Journal.suspend",
        3,
        "resuming at step 1 of 2, reading the log, at offset",
    ),
    "all is built": (
        "rmqctl.operations.rebuild.rebuild.Rebuild.check",
        2,
        "nothing to resume: the interrupted rebuild was killed before",
    ),
    "the store is half changed": (
        "rmqctl.store.journal.transaction._apply",
        1,
        "rmqctl rebuild was interrupted: the store is half changed",
    ),
    "it is done": (
        "rmqctl.cli.views.change.rebuild_run.undo_hint",
        2,
        "nothing to resume: no rebuild was interrupted here",
    ),
}
KILLED_REBUILD = """
import os, pkgutil, signal, sys
from rmqctl.cli.main import run
from rmqctl.operations.rebuild.rebuild import Rebuild
owner, _, name = sys.argv[2].rpartition(".")
see = Rebuild._see
def see_and_then_ctrl_c(self, item):
    see(self, item)
    signal.raise_signal(signal.SIGINT)
if name == "suspend":
    Rebuild._see = see_and_then_ctrl_c
setattr(pkgutil.resolve_name(owner), name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
run(["rebuild", sys.argv[1], "all", "--yes", "--threads", "1"])
"""


@pytest.mark.parametrize("moment", KILLED_AT)
def test_resume_says_what_a_killed_rebuild_left(moment: str, golden: Golden, rmqctl: Rmqctl) -> None:
    method, code, said = KILLED_AT[moment]
    store = golden("broker-533")
    before = tree_hash(store)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_REBUILD, store, method], capture_output=True, timeout=120, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    result = rmqctl("rebuild", store, "all", "--yes", "--resume")
    assert (result.code, said in result.err) == (code, True), result.err
    if code == 2 and moment != "it is done":
        assert tree_hash(store) == before
        assert rmqctl("rebuild", store, "all", "--yes").code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_what_the_next_start_serves_less_is_lost(golden: Golden, rmqctl: Rmqctl) -> None:
    """A topic that neither topics.json nor a group's offset names loses its queues if it is named: the next start
    serves nothing of it.
    """
    store = golden("broker-497")
    listed = json.loads((store / "config" / "topics.json").read_text())
    rows = [row for row in rmqctl("queue", store, "-o", "jsonl").rows() if row["topic"].startswith("events")]
    del listed["topicConfigTable"][rows[0]["topic"]]
    (store / "config" / "topics.json").write_text(json.dumps(listed))
    looked = rmqctl("rebuild", store, "queues", "--topic", rows[0]["topic"], "--dry-run", "-o", "json")
    gone = {
        (row["topic"], row["queueId"]): row["maxOffset"] - row["minOffset"]
        for row in rows
        if row["topic"] == rows[0]["topic"]
    }
    lost = {
        (queue["topic"], queue["queueId"]): queue.get("lostMessages", 0)
        for queue in looked.document()["queues"]
        if queue["unitCount"] == 0
    }
    assert {key: lost[key] for key in gone} == gone
    assert looked.document()["lost"]["records"] == sum(gone.values()) > 0
    assert "fewer than now" in looked.err


def test_messages_of_another_store_are_counted_and_named(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, other = golden("497-basic"), unpack("471-basic", tmp_path / "other")
    name = f"{65536:020d}"
    shutil.copy(other / "commitlog" / name, store / "commitlog" / name)
    looked = rmqctl("rebuild", store, "queues", "--dry-run", "-o", "json").document()
    again = {
        (queue["topic"], queue["queueId"]): queue["duplicates"]
        for queue in looked["queues"]
        if "duplicates" in queue and queue["differ"]
    }
    assert looked["lost"]["records"] == sum(again.values()) > 0
    assert looked["lost"]["bytes"] > looked["lost"]["records"] * 91
    assert {
        (queue["topic"], queue["queueId"]): queue["lostMessages"]
        for queue in looked["queues"]
        if "lostMessages" in queue
    } == again
    assert all(
        f"{topic}/{queue_id}: {count}" in " ".join(looked["notes"]) for (topic, queue_id), count in again.items()
    )
    assert sum(queue.get("moved", 0) for queue in looked["queues"]) > 0
    assert rmqctl("rebuild", store, "queues", "--yes", "-o", "json").document()["lost"] == looked["lost"]
    assert rmqctl("rebuild", store, "queues", "--dry-run", "-o", "json").document()["lost"]["records"] == 0
