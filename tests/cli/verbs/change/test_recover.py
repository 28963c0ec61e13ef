"""recover: what a restart would come to, as the real brokers say; a repair that leaves nothing to do; and all of it
taken back.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.views.change.repair_view import check_writable
from rmqctl.errors import ExitCode
from rmqctl.format.message import PHYSICALOFFSET_OFFSET, PLACEHOLDER_SIGN, Message
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import GOLDEN_NAMES, Rmqctl, each_damage, expected, tree_hash, unpack
from tests.support.file_edits import edit_json, flip_bits, get_unit, overwrite, poke, set_unit, write_at
from tests.support.golden_store import CASES, SILENT, damaged, profile_of, ranges
from tests.support.lock_holder import lock_held
from tests.support.log_maker import BLANK, encode, log_bytes, sample_records, write_log
from tests.support.repair import plan_of, repaired


@each_damage()
def test_the_plan_says_what_the_real_broker_comes_to(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    store = damaged(name, tmp_path)
    before = tree_hash(store)
    result = rmqctl("recover", store, "--profile", profile_of(case["base"]), "--dry-run", "-o", "json")
    assert result.code in (0, 1)
    assert tree_hash(store) == before
    restart = result.document()["restart"]
    load, real = case["expected"]["load"], case["expected"]["restart"]
    if not load.get("load"):
        assert restart["refused"]
        return
    if "error" in real:
        if restart.get("hangs"):
            return
        real = load
    assert (restart["minPhyOffset"], restart["maxPhyOffset"]) == (real["minPhyOffset"], real["maxPhyOffset"])
    assert ranges(restart["queues"]) == ranges(real["queues"])
    plan = result.document()
    if plan["maxPhyOffset"] == restart["maxPhyOffset"]:
        assert plan["lost"] == restart["lost"]


@each_damage()
def test_a_repair_leaves_nothing_to_do_and_can_be_taken_back(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    with repaired(rmqctl, damaged(name, tmp_path), "--profile", profile_of(case["base"])) as plan:
        assert kept(plan) >= served(case["expected"])
    if case["case"] != SILENT:
        leaves = {"log-start-missing"} if case["case"] == "first-file-expired" else set()
        assert {left["code"] for left in plan["leaves"]} <= leaves


def kept(plan: dict[str, Any]) -> int:
    return sum(queue["maxOffset"] - queue["minOffset"] for queue in plan["queues"])


def served(expected: dict[str, Any]) -> int:
    """Units of messages that the broker's own restart has left."""
    if not expected["load"].get("load") or "error" in expected["restart"]:
        return 0
    return sum(isinstance(entry, list) for queue in expected["restart"]["queues"] for entry in queue["entries"])


@pytest.mark.parametrize(
    "name", [name for name in GOLDEN_NAMES if "crash" not in name and "kill" not in name and name[:3] != "326"]
)
def test_a_store_that_was_shut_down_in_order_needs_nothing(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    result = rmqctl("recover", store)
    assert result.code == 0
    assert "nothing to do" in result.out
    assert not (store / ".rmqctl").exists()


@pytest.mark.parametrize(("backup", "refused"), [(b"", False), (b"{", True)])
def test_a_broker_starts_with_an_empty_backup(
    backup: bytes, refused: bool, golden: Callable[[str], Path], rmqctl: Rmqctl
) -> None:
    """tests/interop/test_changed_configuration.py asks real brokers."""
    store = golden("broker-497")
    (store / "config" / "topics.json").write_bytes(b"")
    (store / "config" / "topics.json.bak").write_bytes(backup)
    assert ("refused" in plan_of(rmqctl, store)["restart"]) == refused


def test_a_store_of_3x_is_read_only(tmp_path: Path, rmqctl: Rmqctl) -> None:
    refused = rmqctl("recover", unpack("326-basic", tmp_path), "--dry-run")
    assert (refused.code, refused.out) == (13, "")
    assert "read-only" in refused.err


CHANGES = (
    ("recover",),
    ("truncate", "--to", "2180"),
    ("rebuild", "all"),
    ("config", "set-offset", "billing", "orders", "--to", "earliest"),
    ("config", "restore", "topics.json"),
)


@pytest.mark.parametrize("verb", CHANGES)
def test_nothing_is_done_in_a_store_in_use_nor_without_a_yes(
    verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("broker-497", tmp_path)
    shutil.rmtree(store / "consumequeue" / "events" / "2")
    (store / "config" / "topics.json").write_bytes(b"{")
    before = tree_hash(store)
    words = 2 if verb[0] == "config" else 1
    line = (*verb[:words], store, *verb[words:])
    asked = rmqctl(*line)
    assert (asked.code, "--yes" in asked.err) == (12, True)
    with lock_held(store):
        assert rmqctl(*line, "--yes").code == 11
    assert tree_hash(store) == before


def test_the_table_says_what_is_lost_and_what_a_restart_would_lose(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("497-basic--body-flip-last-abnormal", tmp_path)
    result = rmqctl("recover", store, "--dry-run")
    assert result.code == 1
    assert "bad-body-crc at" in result.out
    assert "a plain restart" in result.out
    plan = plan_of(rmqctl, store)
    assert plan["schema"] == "rmqctl.recover/1"
    assert plan["lost"]["records"] == sum(queue.get("lostMessages", 0) for queue in plan["queues"])
    assert f"{plan['lost']['records']} messages" in result.out


def pass_over_damage(store: Path) -> int:
    """Flip a bit in the third file from the end of a store that died; its checkpoint says that all before the last file
    is whole.
    """
    last, third = (file.physical_offset for file in (_record(store, -1, 0), _record(store, -3, 20)))
    flip = store / "commitlog" / f"{third // 65536 * 65536:020d}"
    flip_bits(flip, third % 65536 + 88, 4)
    stored = ReadOnlyStore(store).commit_log.message_at(last)
    assert stored is not None
    (store / "abort").touch()
    with (store / "checkpoint").open("r+b") as checkpoint:
        checkpoint.write((stored.store_timestamp + 4000).to_bytes(8, "big") * 2)
    return third


def _record(store: Path, file: int, number: int) -> Message:
    log = ReadOnlyStore(store).commit_log
    messages = log.scan(start=log.files_in_use()[file].file_from_offset)
    return next(islice((item for item in messages if isinstance(item, Message) and len(item.body) > 20), number, None))


@pytest.mark.parametrize("base", ["471-basic", "497-basic", "533-basic"])
def test_what_the_next_start_would_stop_at_gets_a_mark(base: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A broker of 4.x begins an abnormal recovery at the last file here, and a normal one at the third from the end."""
    store = unpack(base, tmp_path)
    damaged_at = pass_over_damage(store)
    with repaired(rmqctl, store) as plan:
        assert (plan["restart"]["lost"]["records"], plan["lost"]["records"], plan["leaves"]) == (0, 1, [])
        assert plan["maxPhyOffset"] == plan["restart"]["maxPhyOffset"]
        placeholder = ReadOnlyStore(store).commit_log.message_at(damaged_at)
        assert placeholder is not None
        assert placeholder.prepared_transaction_offset == PLACEHOLDER_SIGN


def test_a_file_that_goes_brings_the_next_start_no_nearer_to_damage(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A broker of 4.x counts the pre-allocated file, which recover deletes: the next normal start begins one file
    earlier.
    """
    store = unpack("497-tx", tmp_path)
    overwrite(store, 54300, bytes(range(1, 200)))
    (store / "commitlog" / f"{3 * 65536:020d}").write_bytes(bytes(65536))
    with repaired(rmqctl, store) as plan:
        assert (plan["restart"]["lost"]["records"], plan["lost"]["records"]) == (0, 1)
        assert plan["maxPhyOffset"] == plan["restart"]["maxPhyOffset"]


@pytest.mark.parametrize("base", ["471-basic", "497-basic"])
def test_a_broker_starts_on_what_was_repaired(base: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Without queues a broker of 4.x waits for ever at a gap of the log: the log ends there, unless placeholders fill
    the gap.
    """
    store = unpack(base, tmp_path)
    (store / "commitlog" / f"{3 * 65536:020d}").rename(store / "commitlog" / f"{5 * 65536:020d}")
    for path in (store / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    with repaired(rmqctl, store) as plan:
        assert "which no file has" in plan["restart"]["hangs"]
        gone = len(expected(base)["messages"]) - plan["records"]
        assert plan["lost"]["records"] == sum(queue.get("lostMessages", 0) for queue in plan["queues"]) == gone > 0
        assert plan["maxPhyOffset"] <= 3 * 65536
        assert ranges(plan_of(rmqctl, store)["restart"]["queues"]) == ranges(plan["queues"])
    notes = plan_of(rmqctl, store, "--keep-going")["notes"]
    assert [note for note in notes if f"{gone} messages with another PHYSICALOFFSET" in note]


def test_what_a_start_after_another_crash_would_drop_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    flip_a_body(rmqctl, store, 10)
    (store / "consumequeue" / "OrderPaid" / "0" / f"{0:020d}").unlink()
    plan = plan_of(rmqctl, store)
    assert [note for note in plan["notes"] if "if the broker dies before its checkpoint moves on" in note]
    assert plan["lost"]["records"] == 0


@pytest.mark.parametrize(("old", "new"), [("OrderPaid/0", "OrderPaid/4"), ("OrderPaid", "OrderPaie")])
def test_a_queue_folder_one_bit_off_is_no_folder_of_strays(old: str, new: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    (store / "consumequeue" / old).rename(store / "consumequeue" / new)
    with repaired(rmqctl, store) as plan:
        assert (bool(plan["actions"]), plan["leaves"]) == (True, [])
        assert not [path for path in (store / "consumequeue" / new).rglob("*") if path.is_file()]


def test_a_record_with_a_wrong_crc_and_a_wrong_offset_is_settled_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    log = store / "commitlog" / f"{0:020d}"
    flip_bits(log, 13921 + 8)  # BODYCRC
    flip_bits(log, 13921 + 30)  # PHYSICALOFFSET
    assert "13921" in rmqctl("verify", store).out
    with repaired(rmqctl, store) as plan:
        assert plan["actions"] == []  # the real 4.9.7 serves it by its unit and by its key


def test_a_plan_that_changes_nothing_says_what_a_crash_would_lose(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The damage is before the place where a normal recovery begins, and an abnormal recovery reads it."""
    store = unpack("533-ipv6", tmp_path)
    overwrite(store, 82850 + 4, b"\0")
    plan = plan_of(rmqctl, store, "--profile", "5.3")
    assert (plan["actions"], plan["lost"]["records"]) == ([], 0)
    note = "its next start ends the log at 82850, and serves 114 messages of 16 queues fewer than now"
    assert [note in one for one in plan["notes"]].count(True) == 1


@pytest.mark.parametrize("output", ["table", "json"])
def test_explain_lists_each_step(output: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    paths = [step["path"] for step in plan_of(rmqctl, store)["actions"] if "path" in step]
    shown = rmqctl("recover", store, "--dry-run", "--explain", "-o", output).out
    assert paths
    assert all(path in shown for path in paths)


def test_a_mode_can_be_asked_for(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("497-basic--body-flip-first-normal", tmp_path)
    normal, abnormal = plan_of(rmqctl, store), plan_of(rmqctl, store, "--mode", "abnormal")
    assert (normal["mode"], abnormal["mode"]) == ("normal", "abnormal")
    assert abnormal["maxPhyOffset"] < normal["maxPhyOffset"]
    assert abnormal["restart"] != normal["restart"]


@pytest.mark.parametrize("verb", [("recover",), ("truncate", "--dirty"), ("rebuild", "queues")])
@pytest.mark.parametrize("linked", [True, False])
def test_a_log_that_was_not_read_is_not_an_empty_one(
    verb: tuple[str, ...], linked: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("533-basic", tmp_path)
    (store / "commitlog").rename(tmp_path / "elsewhere")
    if linked:
        (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    before = tree_hash(store)
    assert rmqctl(verb[0], store, *verb[1:], "--yes").code in (2, 4)
    assert tree_hash(store) == before


def test_a_short_checkpoint_is_made_anew(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    (store / "abort").touch()
    os.truncate(store / "checkpoint", 100)
    poke(store / "checkpoint", 16, "q", 5)
    with repaired(rmqctl, store) as plan:
        assert ((store / "checkpoint").stat().st_size, plan["leaves"]) == (4096, [])


def test_a_record_that_brokers_serve_is_not_the_logs_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The last record's properties end in zeros: brokers do not look, and serve it."""
    store = unpack("497-delay", tmp_path)
    last = max((store / "commitlog").iterdir())
    end = len(last.read_bytes().rstrip(b"\0"))
    write_at(last, end - 30, bytes(30))
    (store / "abort").touch()
    with repaired(rmqctl, store) as plan:
        assert plan["actions"]
        assert (plan["maxPhyOffset"], plan["lost"]["records"]) == (plan["restart"]["maxPhyOffset"], 0)


def flip_a_body(rmqctl: Rmqctl, store: Path, number: int) -> None:
    """Flip a bit in the body of a message."""
    row = [row for row in rmqctl("dump", store, "-o", "jsonl").rows() if row["bodyLength"] > 20][number]
    at = row["physicalOffset"]
    flip_bits(store / "commitlog" / f"{at // 65536 * 65536:020d}", at % 65536 + 88, 4)


def test_what_keep_going_would_keep(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    flip_a_body(rmqctl, store, 100)
    (store / "abort").touch()
    plain, going = plan_of(rmqctl, store), plan_of(rmqctl, store, "--keep-going")
    assert plain["keepable"] == going["records"] - plain["records"] - 1 > 100
    assert plain["keepable"] == plain["lost"]["records"] - going["lost"]["records"]
    assert f"--keep-going would keep {plain['keepable']} of them" in rmqctl("recover", store, "--dry-run").out
    assert (going["keepable"], going["placeholders"], plain["placeholders"]) == (0, 1, 0)
    assert "consumers get them" in rmqctl("recover", store, "--keep-going", "--dry-run").out


def test_damage_that_is_passed_over_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    flip_a_body(rmqctl, store, 10)
    result = rmqctl("recover", store)
    assert (result.code, "nothing to do" in result.out) == (0, True)
    assert "damage remains: 1 damaged place before" in result.err
    assert f"`rmqctl verify {store}`" in result.err
    assert f"`rmqctl recover {store} --keep-going`" in result.err


@pytest.mark.parametrize("abort", [False, True])
def test_a_file_that_is_missing_is_told(abort: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The real brokers start, and serve what is left: they find files by their names."""
    store = unpack("533-basic", tmp_path)
    gone = [row for row in rmqctl("dump", store, "-o", "jsonl").rows() if 65536 <= row["physicalOffset"] < 131072]
    (store / "commitlog" / f"{65536:020d}").unlink()
    if abort:
        (store / "abort").touch()
    result = rmqctl("recover", store, "--dry-run")
    assert f"the log lacks 1 file from {65536:020d} on, and with that {len(gone)} messages" in result.err
    assert "--keep-going" in result.err


def test_abort_that_is_a_folder_goes(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    (store / "abort").mkdir()
    (store / "abort" / "x").write_text("y")
    with repaired(rmqctl, store) as plan:
        assert (plan["mode"], plan["profile"], plan["leaves"]) == ("abnormal", "4.7", [])
        assert not (store / "abort").exists()


@pytest.mark.parametrize("base", ["471-basic", "533-basic"])
@pytest.mark.parametrize("case", ["last", "keep-going", "short"])
def test_what_was_gone_before_is_told_apart_from_what_the_repair_loses(
    case: str, base: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack(base, tmp_path)
    log = sorted((store / "commitlog").iterdir())
    file = log[-1] if case == "last" else log[1]
    begin, end = int(file.name) + (30000 if case == "short" else 0), int(file.name) + 65536
    gone = sum(begin <= row["physicalOffset"] < end for row in rmqctl("dump", store, "-o", "jsonl").rows())
    if case == "short":
        os.truncate(file, 30000)
    else:
        file.unlink()
    words = ["--keep-going"] if case == "keep-going" else []
    plan = plan_of(rmqctl, store, *words)
    assert plan["missing"] == {"records": gone}
    assert gone > 0
    rest = plan["lost"]["records"] - gone
    assert rest == 0 if case != "short" else rest > 0
    said = f"{gone} of them: no file of the log has their bytes; this repair loses {rest}"
    assert said in rmqctl("recover", store, *words, "--dry-run").out


def test_nothing_is_gone_before_a_repair_that_cuts_whole_files(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    overwrite(store, 65536, bytes(1000))
    plan = plan_of(rmqctl, store, "--mode", "abnormal")
    assert (plan["lost"]["records"] > 0, plan["missing"]) == (True, {"records": 0})
    assert "already gone" not in rmqctl("recover", store, "--mode", "abnormal", "--dry-run").out


@pytest.mark.parametrize("base", ["471-basic", "497-basic", "533-basic"])
@pytest.mark.parametrize("points_to", [2**20, 0x7F7F7F7F7F7F7F7F])
def test_a_unit_that_points_behind_the_log_loses_no_message(
    base: str, points_to: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The real brokers drop all of its queue, abort or not; the messages are in the log, from which the queue is
    rebuilt.
    """
    store = unpack(base, tmp_path)
    units = rmqctl("queue", store, "%RETRY%billing", 1, "-o", "jsonl").rows()
    poke(store / "consumequeue" / "%RETRY%billing" / "1" / f"{0:020d}", 0, "q", points_to)
    with repaired(rmqctl, store) as plan:
        assert plan["lost"] == {"records": 0, "bytes": 0}
        assert plan["restart"]["lost"] == {"records": len(units), "bytes": 0}
        assert ("%RETRY%billing", 1) not in ranges(plan["restart"]["queues"])
        assert rmqctl("queue", store, "%RETRY%billing", 1, "-o", "jsonl").rows() == units


def test_units_without_a_message_are_lost_ones(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One that points after the log, in the place of a message, and two after the queue's end, whose messages the log
    has no more.
    """
    store = unpack("497-basic", tmp_path)
    queue = store / "consumequeue" / "%RETRY%billing" / "1" / f"{0:020d}"
    end = plan_of(rmqctl, store)["maxPhyOffset"]
    poke(queue, 0, "q", end)
    for number in (0, 1):
        poke(queue, (16 + number) * 20, "qiq", end + number * 100, 100, 0)
    plan = plan_of(rmqctl, store)
    assert plan["lost"] == {"records": 2, "bytes": 0}
    assert [row["lostMessages"] for row in plan["queues"] if "lostMessages" in row] == [2]


@pytest.mark.parametrize(
    "content", [None, b"", b"\0" * 100, b"\0" * 4096, b"\x7f" * 40 + bytes(4056), b"\xd2" * 24 + bytes(4072)]
)
def test_a_checkpoint_that_verify_minds_is_set(content: bytes | None, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    (store / "checkpoint").unlink()
    if content is not None:
        (store / "checkpoint").write_bytes(content)
    assert rmqctl("verify", store).code == 1
    with repaired(rmqctl, store) as plan:
        assert ([action["action"] for action in plan["actions"]], plan["leaves"]) == (["set-checkpoint"], [])


@pytest.mark.parametrize("base", ["471-basic", "497-basic", "533-basic"])
@pytest.mark.parametrize(
    ("vouched", "lacks_file", "made_anew"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_an_index_that_the_checkpoint_vouches_for_stays(
    base: str, vouched: bool, lacks_file: bool, made_anew: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """As the real brokers keep its files after an abnormal end, but they go on after the last of them."""
    store = unpack(base, tmp_path)
    (store / "abort").touch()
    if vouched:
        write_at(store / "checkpoint", 16, (store / "checkpoint").read_bytes()[8:16])
    if lacks_file:
        max((store / "index").iterdir()).unlink()
    with repaired(rmqctl, store) as plan:
        assert ("rebuild-index" in [action["action"] for action in plan["actions"]]) is made_anew
        assert plan["leaves"] == []


@pytest.mark.parametrize("has_backup", [False, True])
def test_a_version_that_only_abort_tells_is_told(has_backup: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """abort.bak lies beside it where 5.x ran, but not in every copy."""
    store = unpack("533-crash", tmp_path)
    if not has_backup:
        (store / "abort.bak").unlink()
    (store / "abort").write_bytes(b"4711")
    plan = plan_of(rmqctl, store)
    assert plan["profile"] == "5.3"
    assert (plan["notes"] == []) is has_backup
    assert rmqctl("recover", store, "--yes").code == 3
    assert (plan_of(rmqctl, store)["profile"] == "5.3") is has_backup
    assert ("give `--profile 5.3`" in "".join(plan["notes"])) is not has_backup


def test_sizes_that_nothing_tells_are_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    for path in [*(store / "consumequeue").rglob("*"), *(store / "index").iterdir()]:
        if path.is_file():
            path.unlink()
    result = rmqctl("recover", store, "--profile", "5.3", "--dry-run")
    assert "6000000 bytes (override with --broker-conf)" in result.err
    assert "5000000 slots" in result.err
    assert "rebuild 4 queues of OrderPaid\n" in result.out
    assert "rebuild the index: there is none\n" in result.out


def test_a_cut_extension_keeps_a_store_from_loading_until_it_is_mended(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """As the real 4.7.1 does, in the random starts of tests/interop (ConsumeQueue.load)."""
    root, conf = unpack("471-cqext", tmp_path), tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\nenableConsumeQueueExt=true\n")
    os.truncate(root / "consumequeue_ext/OrderPaid/0" / f"{0:020d}", 1000)
    words = ("recover", root, "--broker-conf", conf, "-o", "json")
    plan = rmqctl(*words, "--yes").document()
    assert plan["restart"]["refused"].startswith("consumequeue_ext/OrderPaid/0: ")
    assert plan["lost"] == {"records": 0, "bytes": 0}
    again = rmqctl(*words, "--dry-run").document()
    assert "refused" not in again["restart"]
    assert not again["actions"]


def test_a_script_reads_why_no_broker_would_start(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    recover = ("recover", store, "--yes", "-o", "json")
    (store / "config").mkdir(exist_ok=True)
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_text("{")
    for code in (4, 1):
        found = rmqctl(*recover)
        assert found.code == code
        assert "config/topics.json and its .bak cannot be read" in found.document()["startProblem"]
    (store / "config" / "topics.json.bak").unlink()
    found = rmqctl(*recover)
    assert (found.code, found.document()["startProblem"]) == (0, None)


def test_a_lock_that_cannot_be_opened_is_named_once(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)

    def lock(_: WritableStorage, path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(WritableStorage, "lock", lock)
    result = rmqctl("recover", store, "--yes")
    assert result.code == 4
    assert f"rmqctl: {store / 'lock'}: Permission denied; nothing was changed" in result.err


@pytest.mark.parametrize("stray", [".00000000000000000000.Xy7Q2f", "lost+found"])
def test_a_stray_file_goes_with_the_queue_that_is_made_anew(stray: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    queue = store / "consumequeue" / "OrderPaid" / "0"
    write_at(queue / f"{0:020d}", 0, bytes(40))
    if "." in stray:
        (queue / stray).write_bytes(b"half a copy")
    else:
        (queue / stray).mkdir()
    with repaired(rmqctl, store) as plan:
        assert ((queue / stray).exists(), plan["leaves"]) == (False, [])


@pytest.mark.parametrize("right", range(3))
@pytest.mark.parametrize("wrong", [lambda name: name[1:], lambda name: "0" + name, lambda name: name[:-1]])
def test_a_log_file_whose_name_lost_or_got_a_digit_is_not_deleted(
    right: int, wrong: Callable[[str], str], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A broker still serves its messages; behind others, or before them."""
    store = unpack("533-basic", tmp_path)
    file = sorted((store / "commitlog").iterdir())[right]
    renamed = file.rename(file.with_name(wrong(file.name)))
    before = tree_hash(store)
    result = rmqctl("recover", store, "--yes")
    assert (result.code, tree_hash(store)) == (4, before)
    assert f"mv -n {renamed} {file}" in result.err


def test_a_file_that_a_broker_takes_for_the_last_of_the_log_is_deleted(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """5.3.3 sorts files by name, and begins at the last one after a clean shutdown."""
    store = unpack("533-basic", tmp_path)
    (store / "commitlog" / "123").write_bytes(bytes(65536))
    records = len(rmqctl("dump", store, "-o", "jsonl").rows())
    with repaired(rmqctl, store, "--broker-version", "5.3.3") as plan:
        assert (plan["lost"]["records"], plan["restart"]["lost"]["records"]) == (0, records - 1)
        assert [path for path in (store / "commitlog").iterdir() if len(path.name) < 20] == []
        assert plan_of(rmqctl, store, "--broker-version", "5.3.3")["restart"]["lost"]["records"] == 0


@pytest.mark.parametrize("keep_going", [(), ("--keep-going",)])
@pytest.mark.parametrize("behind", ["zeros", "the next file", "the next file, which is gone"])
@pytest.mark.parametrize("number", [0, 2])
def test_a_log_file_of_double_length(
    number: int, behind: str, keep_going: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """It is cut; messages that no other file has are counted and named."""
    store = unpack("533-basic", tmp_path)
    file, following = (store / "commitlog" / f"{65536 * at:020d}" for at in (number, number + 1))
    wanted = [row for row in rmqctl("dump", store, "-o", "jsonl").rows() if Path(row["path"]).name == following.name]
    with file.open("ab") as opened:
        opened.write(bytes(65536) if behind == "zeros" else following.read_bytes())
    if "gone" in behind:
        following.unlink()
    with repaired(rmqctl, store, *keep_going) as plan:
        assert (plan["lost"]["records"] >= len(wanted)) == ("gone" in behind)
        named = [note for note in plan["notes"] if f"{len(wanted)} messages after that are lost" in note]
        assert (bool(named), file.stat().st_size) == ("gone" in behind, 65536)


def test_a_queue_file_that_is_there_twice_goes(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    queue = store / "consumequeue" / "audit-log" / "1"
    served = rmqctl("queue", store, "audit-log", "-o", "jsonl").rows()
    shutil.copy2(queue / f"{0:020d}", queue / f"{1000:020d}")
    assert rmqctl("queue", store, "audit-log", "-o", "jsonl").rows() != served
    with repaired(rmqctl, store) as plan:
        assert rmqctl("queue", store, "audit-log", "-o", "jsonl").rows() == served
        assert plan["leaves"] == []


@pytest.mark.parametrize("letter", [b"\xff", b"/"])
def test_a_topic_that_can_be_no_folder_is_not_rebuilt_again_and_again(
    letter: bytes, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The index is; the unit stays in its queue, as brokers serve the message."""
    store = unpack("533-basic", tmp_path)
    first = store / "commitlog" / f"{0:020d}"
    write_at(first, first.read_bytes().index(b"%RETRY%billing"), letter)
    with repaired(rmqctl, store) as plan:
        assert plan["actions"]
        again = rmqctl("recover", store, "--dry-run").err
        assert again.count("2 queues do not agree with the log, and no repair can change that") == 1


@pytest.mark.parametrize(("base", "number"), [("broker-533-kill", 2), ("471-tx", 1)])
def test_units_follow_the_marks_of_a_recovery_that_was_not_asked_for_any(
    base: str, number: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A placeholder without a frame to take over has no tags: its unit's tags code is 0."""
    store = unpack(base, tmp_path)
    write_at(sorted((store / "commitlog").iterdir())[number], 0, bytes(60))
    (store / "abort").touch()
    with repaired(rmqctl, store) as plan:
        assert plan["leaves"] == []


@pytest.mark.parametrize("position", [8, 40 + 4 * 30, 40 + 400 + 20 * 30, None])
def test_a_broken_index_is_made_anew(position: int | None, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Also in a store that was shut down cleanly; None: its last file is gone."""
    store = unpack("471-tx", tmp_path)
    newest = max((store / "index").iterdir())
    if position is None:
        newest.unlink()
    else:
        write_at(newest, position, b"\x11" * 100)
    with repaired(rmqctl, store) as plan:
        assert (plan["actions"][0]["action"], plan["leaves"]) == ("rebuild-index", [])


@pytest.mark.parametrize("gap", [0, 3])
def test_bytes_behind_a_queues_end_go(gap: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-tx", tmp_path)
    queue = store / "consumequeue" / "OrderPaid" / "2" / f"{0:020d}"
    write_at(queue, len(queue.read_bytes().rstrip(b"\0")) // 20 * 20 + 20 + gap, b"\xf1" * 50)
    with repaired(rmqctl, store) as plan:
        assert (len(plan["actions"]), plan["leaves"]) == (2, [])


@pytest.mark.parametrize(
    ("queue_id", "why"), [(0, "the same queue is in consumequeue/"), (9, "the topic has other queues in consumequeue/")]
)
def test_a_topic_with_queues_in_both_folders_is_told_and_refused(
    queue_id: int, why: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """5.x loads no queue in a folder of another type than the topic has (ConsumeQueueStore.queueTypeShouldBe)."""
    root = unpack("533-basic", tmp_path)
    (root / "batchconsumequeue" / "OrderPaid" / str(queue_id)).mkdir(parents=True)
    found = rmqctl("verify", root, "-o", "json").document()["findings"]
    assert [(row["code"], row["path"]) for row in found] == [
        ("queue-in-both-folders", f"batchconsumequeue/OrderPaid/{queue_id}")
    ]
    assert found[0]["detail"].startswith(why)
    for words in (["recover"], ["rebuild", "all"], ["append"]):
        source = ["--from", root.parent / "none"] if words == ["append"] else ["--yes"]
        (root.parent / "none").touch()
        refused = rmqctl(words[0], root, *words[1:], *source)
        assert (refused.code, refused.err.count("topic OrderPaid has queues in both")) == (13, 1)


LEFT: dict[str, tuple[str, Callable[[Path], object]]] = {
    "file-gap": ("533-basic", lambda store: (store / "commitlog" / f"{65536:020d}").unlink()),
    "bad-property-crc": ("533-propcrc", lambda store: write_at(store / "commitlog" / f"{0:020d}", 44, b"\x11")),
    "bad-body-crc": ("broker-533", lambda store: write_at(store / "commitlog" / f"{0:020d}", 8, b"\x11")),
    "log-start-missing": ("497-basic", lambda store: (store / "commitlog" / f"{0:020d}").unlink()),
    "offset-beyond-queue": ("497-delay", lambda store: write_at(store / "commitlog" / f"{65536:020d}", 0, bytes(60))),
}


@pytest.mark.parametrize("code", LEFT)
def test_the_plan_says_what_verify_finds_afterwards(code: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    base, damage = LEFT[code]
    store = unpack(base, tmp_path)
    damage(store)
    with repaired(rmqctl, store) as plan:
        (count,) = (left["count"] for left in plan["leaves"] if left["code"] == code)
        assert f"{count} {code}" in plan["notes"][-1]


def twice_the_same(store: Path, first: int) -> tuple[Path, int, bytes]:
    """A store with the same nine messages in both files of its log; the bytes that they take, and the fourth's body."""
    records = sample_records(9)
    for record in records:
        record.queue_offset += first
    write_log(store, records, file_size=4096, blank=True)
    (store / "commitlog" / f"{4096:020d}").write_bytes(log_bytes(records, 4096).ljust(4096, b"\0"))
    return store, sum(len(log_bytes([record])) for record in records), records[3].body


@pytest.mark.parametrize("first", [0, 5])
def test_messages_whose_queue_offsets_others_have_count_as_lost(first: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Two files of the log from two stores, which both have these queue offsets."""
    store, size, _ = twice_the_same(tmp_path / "store", first)
    plan = plan_of(rmqctl, store, "--profile", "4.9")
    assert plan["lost"] == {"records": 9, "bytes": size}
    lost = {
        (queue["topic"], queue["queueId"]): queue["lostMessages"] for queue in plan["queues"] if "lostMessages" in queue
    }
    assert sum(lost.values()) == 9
    note = next(note for note in plan["notes"] if note.startswith("9 messages have a queue offset that another"))
    assert all(f"{topic}/{queue_id}: {count}" in note for (topic, queue_id), count in lost.items())


@pytest.mark.parametrize("gone", [(), ("consumequeue",), ("consumequeue", "index")])
def test_messages_behind_a_record_of_another_place_stay(gone: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    """No broker stops at such a record: it dispatches the place that the record says, and then, without queues, serves
    nothing after it.

    As the real 4.9.7 does: 282 messages of this store without its queues, 300 after recover, after a crash as well.
    """
    store = unpack("497-basic", tmp_path)
    row = next(
        row for row in rmqctl("dump", store, "-o", "jsonl").rows() if (row["topic"], row["queueId"]) == ("audit-log", 2)
    )
    poke(store / "commitlog" / f"{0:020d}", row["physicalOffset"] + PHYSICALOFFSET_OFFSET, "q", 1 << 40)
    (store / "abort").touch()
    for folder in gone:
        shutil.rmtree(store / folder)
    with repaired(rmqctl, store) as plan:
        served = {
            (queue["topic"], queue["queueId"]): queue["maxOffset"] - queue["minOffset"]
            for queue in plan["restart"]["queues"]
        }
        assert (served["audit-log", 2], sum(served.values())) == (
            (1, 283) if gone else (18, 300)
        )  # the one leads nowhere
        assert plan["restart"]["lost"] == plan["lost"] == {"records": 0, "bytes": 0}
        assert not [note for note in plan["notes"] if "fewer" in note]
        assert any("another PHYSICALOFFSET" in note for note in plan["notes"]) == ("index" in gone)
        (store / "abort").touch()
        again = plan_of(rmqctl, store)["restart"]
        assert (kept(again), again["lost"]["records"]) == (300, 0)
        (store / "abort").unlink()


@pytest.mark.parametrize("base", ["471-basic", "533-basic"])
@pytest.mark.parametrize(("number", "distance"), [(1, 1), (2, 4096), (3, 20), (3, 2 * 65536), (3, 10 * 1024**4 + 20)])
@pytest.mark.parametrize("has_abort", [False, True])
def test_a_file_of_the_log_that_was_renamed_is_told_its_name(
    base: str, number: int, distance: int, has_abort: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """Brokers look at no PHYSICALOFFSET; what they dispatch from such a file leads elsewhere. With a name off the grid,
    they serve what a repair would lose: of 497-batch with the second file at 65556 and the third one gone, the real
    4.9.7 serves 274 messages, after a repair 222.
    """
    store = unpack(base, tmp_path)
    if has_abort:
        (store / "abort").touch()
    whole = plan_of(rmqctl, store)
    right = store / "commitlog" / f"{number * 65536:020d}"
    renamed = right.rename(right.with_name(f"{number * 65536 + distance:020d}"))
    before = tree_hash(store)
    if distance % 65536:
        for words in (("--dry-run",), ("--yes",), ("--keep-going", "--yes")):  # no placeholders for a wrong name
            result = rmqctl("recover", store, *words)
            assert (result.code, tree_hash(store)) == (ExitCode.PARTIAL, before)
        assert f"records say the offsets of {right.name}: it was renamed; nothing was changed" in result.err
        assert f"mv -n {renamed} {right}" in result.err
    else:
        (note,) = [note for note in plan_of(rmqctl, store)["notes"] if "was renamed" in note]
        assert note.startswith(f"commitlog/{renamed.name} was renamed: all its ")
        assert note.endswith(f"records say the offsets of {right.name}; rename it back and run recover again")
    renamed.rename(right)
    assert plan_of(rmqctl, store)["lost"] == whole["lost"]


def test_a_message_with_another_physical_offset_keeps_its_unit(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Brokers serve it where a unit leads (4.7.1, n45-4.7.1/177), but would dispatch it elsewhere."""
    store = unpack("471-basic", tmp_path)
    record, unit = 97431, 4  # of audit-log/2
    overwrite(store, record + PHYSICALOFFSET_OFFSET, bytes.fromhex("00004000"))
    name = f"consumequeue/audit-log/2/{0:020d}"
    whole, units = (store / name).read_bytes(), [get_unit(store, number, name) for number in (unit - 1, unit)]
    for number, swapped in zip((unit, unit - 1), units, strict=True):
        set_unit(store, number, swapped, name)
    with repaired(rmqctl, store) as plan:
        assert ((store / name).read_bytes(), plan["lost"]["records"]) == (whole, 0)
        assert not [note for note in plan["notes"] if "PHYSICALOFFSET" in note]


def test_files_that_were_swapped_are_named(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    one, other = (store / "commitlog" / f"{number * 65536:020d}" for number in (1, 2))
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    notes = [note for note in plan_of(rmqctl, store)["notes"] if "was renamed" in note]
    assert [(note.split()[0], right in note) for note, right in zip(notes, (other.name, one.name), strict=True)] == [
        (f"commitlog/{one.name}", True), (f"commitlog/{other.name}", True),
    ]  # fmt: skip


def test_a_damaged_message_whose_queue_offset_another_has_counts_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A placeholder takes its place in the log, and gets none in the queue: it is one of the nine, and the other eight
    are named.
    """
    store, size, fourth = twice_the_same(tmp_path / "store", 5)
    second = store / "commitlog" / f"{4096:020d}"
    flip_bits(second, second.read_bytes().index(fourth, second.read_bytes().index(b"key-2")))
    plan = plan_of(rmqctl, store, "--profile", "4.9", "--keep-going")
    assert plan["lost"] == {"records": 9, "bytes": size}
    assert [queue["lostMessages"] for queue in plan["queues"]] == [3, 3, 3]
    assert any(note.startswith("8 messages have a queue offset that another") for note in plan["notes"])


OVERLAP = 1024  # physical offset at which the second file begins, inside the first


@pytest.mark.parametrize(("number", "hurt"), [(0, 6), (1, 0), (1, 2)])
def test_damage_where_files_overlap_is_mended_in_its_own_file(
    number: int, hurt: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The offsets alone do not tell the file: a placeholder must not go over good messages of the other one, and has
    its unit. No broker gets ready on such a log, also afterwards.
    """
    store = tmp_path / "store"
    records = [sample_records(9), sample_records(9)]
    for n, record in enumerate([*records[0], *records[1]]):
        record.queue_offset, record.body = n // 3, bytes([65 + n]) * 60
    write_log(store, records[0], file_size=4096, blank=True)
    files = [store / "commitlog" / f"{base:020d}" for base in (0, OVERLAP)]
    files[1].write_bytes(log_bytes(records[1], OVERLAP).ljust(4096, b"\0"))
    write_at(files[number], files[number].read_bytes().index(records[number][hurt].body), b"\0")
    before = [file.read_bytes() for file in files]
    asked = ("--profile", "4.9", "--keep-going")
    plan = rmqctl("recover", store, *asked, "--yes", "-o", "json").document()
    written = [action["path"] for action in plan["actions"] if action["action"] == "write"]
    assert written == [f"commitlog/{files[number].name}"]
    assert files[1 - number].read_bytes() == before[1 - number]
    assert [(queue["minOffset"], queue["maxOffset"]) for queue in plan["queues"]] == [(0, 6)] * 3
    for queue_id in range(3):
        rows = rmqctl("queue", store, "OrderPaid", queue_id, "-o", "jsonl").rows()
        assert [row["queueOffset"] for row in rows] == [*range(6)]
    assert [row["code"] for row in rmqctl("verify", store, "-o", "json").document()["findings"]] == ["file-overlap"]
    assert plan_of(rmqctl, store, *asked)["actions"] == []
    assert rmqctl("undo", store, "--yes").code == 0
    assert [file.read_bytes() for file in files] == before


# empty; in the middle of a record, and where one ends
@pytest.mark.parametrize(
    ("base", "number", "cut"), [("533-basic", 1, 0), ("497-basic", 0, 4096), ("497-basic", 0, 4178)]
)
def test_a_file_that_was_short_ends_the_log_at_no_later_start(
    base: str, number: int, cut: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A start in order begins after it, one after a crash at it: what is filled up there gets placeholders."""
    store = unpack(base, tmp_path)
    end = rmqctl("verify", store, "-o", "json").document()["maxPhyOffset"]
    os.truncate(store / "commitlog" / f"{number * 65536:020d}", cut)
    with repaired(rmqctl, store) as plan:
        assert "refused" in plan["restart"]
        assert (plan["maxPhyOffset"], plan["leaves"]) == (end, [])
        (store / "abort").touch()
        assert plan_of(rmqctl, store)["restart"]["maxPhyOffset"] == end
        (store / "abort").unlink()


@pytest.mark.parametrize(
    ("kind", "codes"), [("flip-queue-id", set()), ("flip-topic", {"rebuild-index", "set-checkpoint"})]
)
def test_a_record_of_a_queue_one_bit_off_makes_no_queue(
    kind: str, codes: set[str], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A real 4.9.7 that starts with `abort` makes it, and serves the message twice; the queue that leads to it is
    enough.
    """
    store = unpack("497-basic", tmp_path)
    row = next(row for row in rmqctl("dump", store, "-o", "jsonl").rows() if row["queueOffset"] == 13)
    at = row["physicalOffset"] % 65536
    file = store / "commitlog" / f"{row['physicalOffset'] - at:020d}"
    write_at(
        file,
        at + 13 if kind == "flip-queue-id" else file.read_bytes().index(row["topic"].encode(), at),
        b"\1" if "id" in kind else b"N",
    )
    told = f"the record at {row['physicalOffset']} says that it is of queue"
    plan = plan_of(rmqctl, store)
    assert {action["action"] for action in plan["actions"]} == codes
    assert [note for note in plan["notes"] if told in note]
    made = rmqctl("rebuild", store, "queues", "--yes")
    assert (told in made.err, made.code) == (True, 0)
    (store / "abort").touch()
    plan = plan_of(rmqctl, store)
    assert (plan["lost"]["records"], [note for note in plan["notes"] if "fewer" in note]) == (0, [])


@pytest.mark.parametrize("number", [5, 20, 38])
@pytest.mark.parametrize("has_abort", [False, True])
def test_a_record_that_names_another_queue_of_the_store_stays_in_its_own(
    number: int, has_abort: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A rebuild would take it out of its queue, and put it in the place of another message."""
    store = unpack("497-basic", tmp_path)
    rows = rmqctl("dump", store, "--topic", "OrderPaid", "-o", "jsonl").rows()
    at = next(row["physicalOffset"] for row in rows if (row["queueId"], row["queueOffset"]) == (0, number))
    overwrite(store, at + 15, b"\1")
    queues = tree_hash(store / "consumequeue")
    if has_abort:
        (store / "abort").touch()
    with repaired(rmqctl, store) as plan:
        assert plan["lost"]["records"] == 0
        assert [f"the record at {at} says" in note for note in plan["notes"]].count(True) == 1
        assert tree_hash(store / "consumequeue") == queues


@pytest.mark.parametrize("gone", ["all", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "orders"])
@pytest.mark.parametrize("abort", [False, True])
def test_topics_of_the_broker_and_of_groups_are_not_taken_for_deleted(
    gone: str, abort: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """4.9.7 writes RMQ_SYS_TRANS_OP_HALF_TOPIC into no file, and serves its 60 messages after a start without the
    folder as before.
    """
    store = unpack("broker-497", tmp_path)
    served = ranges(rmqctl("queue", store, "-o", "jsonl").rows())
    assert served["RMQ_SYS_TRANS_OP_HALF_TOPIC", 0] == (0, 60)
    shutil.rmtree(store / "consumequeue" / ("" if gone == "all" else gone))
    if gone == "orders":  # billing has offsets in it
        edit_json(store / "config/topics.json", lambda topics: topics["topicConfigTable"].pop("orders"))
    if abort:
        (store / "abort").touch()
    with repaired(rmqctl, store) as plan:
        assert plan["actions"]
        assert ranges(plan["restart"]["queues"]).keys() <= served.keys()
        assert not [note for note in plan["notes"] if "fewer" in note]
        assert ranges(rmqctl("queue", store, "-o", "jsonl").rows()) == ranges(plan["queues"]) == served


def test_messages_of_a_deleted_topic_are_not_served(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A start may make its queues again: the plan, which does not, gives no client less."""
    store = unpack("broker-497", tmp_path)
    shutil.rmtree(store / "consumequeue")
    edit_json(store / "config/topics.json", lambda topics: topics["topicConfigTable"].pop("events"))
    plan = plan_of(rmqctl, store)
    assert ranges(plan["restart"]["queues"]).keys() - ranges(plan["queues"]).keys() == {
        ("events", queue_id) for queue_id in range(4)
    }
    assert plan["lost"]["records"] == 0
    assert not [note for note in plan["notes"] if "fewer" in note]


def test_a_broker_that_starts_after_the_queues_were_listed_is_noticed(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = damaged("452-crash--cq-dirty-normal", tmp_path)

    def started(opened: ReadOnlyStore, *, refills: bool) -> None:
        check_writable(opened, refills=refills)
        (store / "abort").touch()

    monkeypatch.setattr("rmqctl.cli.verbs.change.recover.check_writable", started)
    (store / "abort").unlink(missing_ok=True)
    queues = tree_hash(store / "consumequeue")
    result = rmqctl("recover", store, "--yes")
    assert (result.code, "the store was changed while it was looked at" in result.err) == (1, True)
    assert tree_hash(store / "consumequeue") == queues


@pytest.mark.parametrize("is_another", [True, False])
def test_a_few_bytes_between_records_cost_no_others_where_a_damaged_one_is_before(
    is_another: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """Four bytes are too few for a placeholder. The empty file, which the repair deletes, makes the next start read
    where no start of now reads: without a placeholder, that start ends the log there.

    Brokers serve the record before the four bytes, which says another place; it is replaced with them. A good record
    is not, and the plan counts what the next start loses.
    """
    store = tmp_path / "store"
    records = sample_records(36)
    for record in records:
        record.body = b"b" * 60
    records[3].body = b"s" * 56
    write_log(store, records[:9], file_size=4096, blank=True)
    for number in (1, 2, 3):
        data = log_bytes(records[9 * number : 9 * number + 9], 4096 * number)
        room = 4096 - len(data)
        closed = data + struct.pack(">iI", room, BLANK) + bytes(room - 8)
        (store / "commitlog" / f"{4096 * number:020d}").write_bytes(closed if number < 3 else data.ljust(4096, b"\0"))
    assert rmqctl("rebuild", store, "all", "--yes").code == 3
    assert rmqctl("undo", store, "--drop", "--yes").code == 0
    end = plan_of(rmqctl, store, "--profile", "4.9")["maxPhyOffset"]
    victim = len(log_bytes(records[9:13]))
    shorter = replace(records[13], body=b"s" * 56)
    write_at(
        store / "commitlog" / f"{4096:020d}",
        victim,
        log_bytes(records[3:4]) if is_another else encode(shorter, 4096 + victim),
    )
    (store / "commitlog" / f"{4 * 4096:020d}").touch()
    plan = rmqctl("recover", store, "--profile", "4.9", "--yes", "-o", "json").document()
    assert plan["maxPhyOffset"] == end
    again = plan_of(rmqctl, store, "--profile", "4.9")
    left = [action["action"] for action in again["actions"]]
    if is_another:
        assert plan["lost"]["records"] <= 2  # what the queue lost, and the copy of another message
        assert (left, again["lost"]["records"], again["maxPhyOffset"]) == ([], 0, end)
    else:
        assert plan["lost"]["records"] == again["lost"]["records"] == 22  # 4 of this file, 18 of the next two
        assert any(note.endswith("22 messages of 3 queues fewer than the log has") for note in plan["notes"])
