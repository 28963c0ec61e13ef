"""recover: what a restart would come to, as the real brokers say; a repair that leaves nothing to do; and all of it taken back."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rmqctl.format.message import MARK, Message
from rmqctl.logfile.writable_storage import WritableStorage
from rmqctl.store.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, Rmqctl, apply_damage, damage_cases, tree_hash, unpack

CASES = damage_cases()
PROFILES = {"326": "4.7", "471": "4.7", "497": "4.9", "533": "5.3"}
SILENT = "body-flip-first-normal"  # a normal recovery does not look there


def profile_of(base: str) -> str:
    return PROFILES[base.removeprefix("broker-")[:3]]


def damaged(name: str, into: Path) -> Path:
    case = CASES[name]
    store = unpack(case["base"], into)
    apply_damage(store, case["ops"])
    return store


def ranges(queues: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"]) for queue in queues if queue["maxOffset"] > 0}


@pytest.mark.parametrize("name", sorted(CASES))
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


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_repair_leaves_nothing_to_do_and_can_be_taken_back(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    store = damaged(name, tmp_path)
    before = tree_hash(store)
    at = ("--profile", profile_of(case["base"]))
    plan = rmqctl("recover", store, *at, "--dry-run", "-o", "json").document()
    assert rmqctl("recover", store, *at, "--yes").code == (3 if plan["actions"] else 0)
    again = rmqctl("recover", store, *at, "--dry-run", "-o", "json")
    assert again.code == 0
    assert again.document()["actions"] == []
    assert again.document()["lost"] == {"records": 0, "bytes": 0}
    assert again.document()["maxPhyOffset"] == plan["maxPhyOffset"]
    assert ranges(again.document()["queues"]) == ranges(plan["queues"])
    if case["case"] != SILENT:
        findings = rmqctl("verify", store, "-o", "json").document()["findings"]
        assert {finding["code"] for finding in findings} <= ({"log-start-missing"} if case["case"] == "first-file-expired" else set())
    assert kept(again.document()) >= served(case["expected"])
    if plan["actions"]:
        assert rmqctl("undo", store, "--yes").code in (0, 3)
    assert tree_hash(store) == before


def kept(plan: dict[str, Any]) -> int:
    return sum(queue["maxOffset"] - queue["minOffset"] for queue in plan["queues"])


def served(expected: dict[str, Any]) -> int:
    """Units of messages that the broker's own restart has left."""
    if not expected["load"].get("load") or "error" in expected["restart"]:
        return 0
    return sum(isinstance(entry, list) for queue in expected["restart"]["queues"] for entry in queue["entries"])


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if "crash" not in name and "kill" not in name and name[:3] != "326"])
def test_a_store_that_was_shut_down_in_order_needs_nothing(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    result = rmqctl("recover", store)
    assert result.code == 0
    assert "nothing to do" in result.out
    assert not (store / ".rmqctl").exists()


def test_a_store_of_3x_is_read_only(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("recover", unpack("326-basic", tmp_path), "--dry-run").code == 13


@pytest.mark.parametrize("verb", [("recover",), ("truncate", "--to", "40668"), ("rebuild", "all")])
def test_nothing_is_done_without_a_yes(verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    before = tree_hash(store)
    result = rmqctl(verb[0], store, *verb[1:])
    assert result.code == 12
    assert "--yes" in result.err
    assert tree_hash(store) == before


HOLDER = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("verb", [("recover",), ("truncate", "--to", "40668"), ("rebuild", "all")])
def test_a_store_in_use_is_left_alone(verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    before = tree_hash(store)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        result = rmqctl(verb[0], store, *verb[1:], "--yes")
        assert broker.stdin is not None
        broker.stdin.close()
    assert result.code == 11
    assert tree_hash(store) == before


def test_the_table_says_what_is_lost_and_what_a_restart_would_lose(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("497-basic--body-flip-last-abnormal", tmp_path)
    result = rmqctl("recover", store, "--dry-run")
    assert result.code == 1
    assert "bad-body-crc at" in result.out
    assert "a plain restart" in result.out
    document = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert document["schema"] == "rmqctl.recover/1"
    assert document["lost"]["records"] == sum(queue.get("lost", 0) for queue in document["queues"])
    assert f"{document['lost']['records']} messages" in result.out


def pass_over_damage(store: Path) -> int:
    """Flip a bit in the third file from the end of a store that died; its checkpoint says that all before the last file is whole."""
    last, third = (file.physical_offset for file in (_record(store, -1, 0), _record(store, -3, 20)))
    flip = store / "commitlog" / f"{third // 65536 * 65536:020d}"
    data = bytearray(flip.read_bytes())
    data[third % 65536 + 88] ^= 4
    flip.write_bytes(data)
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
    before = tree_hash(store)
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["restart"]["lost"]["records"] == 0
    assert plan["lost"]["records"] == 1
    assert rmqctl("recover", store, "--yes").code == 3
    again = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert (again["actions"], again["restart"]["maxPhyOffset"]) == ([], plan["restart"]["maxPhyOffset"])
    mark = ReadOnlyStore(store).commit_log.message_at(damaged_at)
    assert mark is not None
    assert mark.prepared_transaction_offset == MARK
    assert rmqctl("verify", store).code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


@pytest.mark.parametrize("output", ["table", "json"])
def test_explain_lists_each_step(output: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    steps = rmqctl("recover", store, "--dry-run", "-o", "json").document()["actions"]
    result = rmqctl("recover", store, "--dry-run", "--explain", "-o", output)
    for step in steps:
        if "path" in step:
            assert step["path"] in result.out


def test_a_mode_can_be_asked_for(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("497-basic--body-flip-first-normal", tmp_path)
    normal = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    abnormal = rmqctl("recover", store, "--mode", "abnormal", "--dry-run", "-o", "json").document()
    assert (normal["mode"], abnormal["mode"]) == ("normal", "abnormal")
    assert abnormal["maxPhyOffset"] < normal["maxPhyOffset"]
    assert json.dumps(abnormal["restart"]) != json.dumps(normal["restart"])


@pytest.mark.parametrize("verb", [("recover",), ("truncate", "--dirty"), ("rebuild", "queues")])
@pytest.mark.parametrize("linked", [True, False])
def test_a_log_that_was_not_read_is_not_an_empty_one(verb: tuple[str, ...], linked: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    (store / "commitlog").rename(tmp_path / "elsewhere")
    if linked:
        (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    before = tree_hash(store)
    result = rmqctl(verb[0], store, *verb[1:], "--yes")
    assert result.code in (2, 4)
    assert tree_hash(store) == before


def test_a_short_checkpoint_is_made_anew(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    (store / "abort").touch()
    with (store / "checkpoint").open("r+b") as file:
        file.truncate(100)
        file.seek(16)
        file.write((5).to_bytes(8, "big"))
    before = tree_hash(store)
    assert rmqctl("recover", store, "--yes").code == 3
    assert (store / "checkpoint").stat().st_size == 4096
    assert rmqctl("verify", store).code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_record_that_brokers_serve_is_not_the_logs_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The last record's properties end in zeros: brokers do not look, and serve it."""
    store = unpack("497-delay", tmp_path)
    last = max((store / "commitlog").iterdir())
    end = len(last.read_bytes().rstrip(b"\0"))
    with last.open("r+b") as file:
        file.seek(end - 30)
        file.write(bytes(30))
    (store / "abort").touch()
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["maxPhyOffset"] == plan["restart"]["maxPhyOffset"]
    assert plan["lost"]["records"] == 0
    assert rmqctl("recover", store, "--yes").code == 3
    again = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert (again["actions"], again["maxPhyOffset"]) == ([], plan["maxPhyOffset"])


def flip_a_body(rmqctl: Rmqctl, store: Path, number: int) -> int:
    """Flip a bit in the body of a message; its physical offset."""
    row = [row for row in rmqctl("dump", store, "-o", "jsonl").rows() if row["bodyLength"] > 20][number]
    at: int = row["physicalOffset"]
    file = store / "commitlog" / f"{at // 65536 * 65536:020d}"
    data = bytearray(file.read_bytes())
    data[at % 65536 + 88] ^= 4
    file.write_bytes(data)
    return at


def test_what_keep_going_would_keep(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    flip_a_body(rmqctl, store, 100)
    (store / "abort").touch()
    plain = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    going = rmqctl("recover", store, "--keep-going", "--dry-run", "-o", "json").document()
    assert plain["keepable"] == going["records"] - plain["records"] - 1 > 100
    assert plain["keepable"] == plain["lost"]["records"] - going["lost"]["records"]
    assert f"--keep-going would keep {plain['keepable']} of them" in rmqctl("recover", store, "--dry-run").out
    assert (going["keepable"], going["marks"], plain["marks"]) == (0, 1, 0)
    assert "consumers get them" in rmqctl("recover", store, "--keep-going", "--dry-run").out


def test_damage_that_is_passed_over_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    flip_a_body(rmqctl, store, 10)
    result = rmqctl("recover", store)
    assert (result.code, "nothing to do" in result.out) == (0, True)
    assert "damage remains: 1 damaged place in front" in result.err
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


def test_an_empty_file_in_the_middle_ends_the_log(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Once it has its length it has zeros, at which every broker ends the log."""
    store = unpack("533-basic", tmp_path)
    (store / "commitlog" / f"{65536:020d}").write_bytes(b"")
    assert rmqctl("recover", store, "--yes").code == 3
    again = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert (again["actions"], again["lost"]["records"]) == ([], 0)
    assert rmqctl("verify", store).code == 0


@pytest.mark.parametrize("base", ["471-basic", "497-basic", "533-basic"])
@pytest.mark.parametrize("points_to", [2**20, 0x7F7F7F7F7F7F7F7F])
def test_a_unit_that_points_behind_the_log_loses_no_message(base: str, points_to: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The real brokers drop all of its queue, abort or not; the messages are in the log, from which the queue is made anew."""
    store = unpack(base, tmp_path)
    queue = store / "consumequeue" / "%RETRY%billing" / "1" / f"{0:020d}"
    units = rmqctl("queue", store, "%RETRY%billing", 1, "-o", "jsonl").rows()
    with queue.open("r+b") as file:
        file.write(points_to.to_bytes(8, "big"))
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["lost"] == {"records": 0, "bytes": 0}
    assert plan["restart"]["lost"] == {"records": len(units), "bytes": 0}
    assert ("%RETRY%billing", 1) not in ranges(plan["restart"]["queues"])
    assert rmqctl("recover", store, "--yes").code == 3
    assert rmqctl("queue", store, "%RETRY%billing", 1, "-o", "jsonl").rows() == units


def test_units_without_a_message_are_lost_ones(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One that points behind the log, in the place of a message, and two behind the queue's end, whose messages the log has no more."""
    store = unpack("497-basic", tmp_path)
    queue = store / "consumequeue" / "%RETRY%billing" / "1" / f"{0:020d}"
    end = rmqctl("recover", store, "--dry-run", "-o", "json").document()["maxPhyOffset"]
    with queue.open("r+b") as file:
        file.write(end.to_bytes(8, "big"))
        file.seek(16 * 20)
        file.writelines(struct.pack(">qiq", end + place, 100, 0) for place in (0, 100))
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["lost"] == {"records": 2, "bytes": 0}
    assert [row["lost"] for row in plan["queues"] if "lost" in row] == [2]


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, b"\0" * 4096, b"\x7f" * 40 + bytes(4056)])
def test_a_checkpoint_that_verify_minds_is_set(content: bytes | None, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    checkpoint = store / "checkpoint"
    checkpoint.unlink()
    if content is not None:
        checkpoint.write_bytes(content)
    assert rmqctl("verify", store).code == 1
    actions = rmqctl("recover", store, "--dry-run", "-o", "json").document()["actions"]
    assert [action["action"] for action in actions] == ["set-checkpoint"]
    assert rmqctl("recover", store, "--yes").code == 3
    assert rmqctl("verify", store).code == 0
    assert rmqctl("recover", store).code == 0


@pytest.mark.parametrize("base", ["471-basic", "497-basic", "533-basic"])
@pytest.mark.parametrize(("vouched", "lacks_file", "made_anew"), [(True, False, False), (True, True, True), (False, False, True)])
def test_an_index_that_the_checkpoint_vouches_for_stays(
    base: str, vouched: bool, lacks_file: bool, made_anew: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """As the real brokers keep its files after an abnormal end, but they go on behind the last of them."""
    store = unpack(base, tmp_path)
    (store / "abort").touch()
    if vouched:
        with (store / "checkpoint").open("r+b") as file:
            newest = file.read(16)[8:]
            file.write(newest)
    if lacks_file:
        max((store / "index").iterdir()).unlink()
    actions = rmqctl("recover", store, "--dry-run", "-o", "json").document()["actions"]
    assert ("rebuild-index" in [action["action"] for action in actions]) is made_anew
    assert rmqctl("recover", store, "--yes").code == 3
    assert rmqctl("verify", store, "--level", "2").code == 0


@pytest.mark.parametrize("has_backup", [False, True])
def test_a_version_that_only_abort_tells_is_told(has_backup: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """abort.bak lies beside it where 5.x ran, but not in every copy."""
    store = unpack("533-crash", tmp_path)
    if not has_backup:
        (store / "abort.bak").unlink()
    (store / "abort").write_bytes(b"4711")
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["profile"] == "5.3"
    assert (plan["notes"] == []) is has_backup
    assert rmqctl("recover", store, "--yes").code == 3
    guess = rmqctl("recover", store, "--dry-run", "-o", "json").document()["profile"]
    assert (guess == "5.3") is has_backup
    assert ("give `--profile 5.3`" in "".join(plan["notes"])) is not has_backup


def test_sizes_that_nothing_tells_are_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    for path in [*(store / "consumequeue").rglob("*"), *(store / "index").iterdir()]:
        if path.is_file():
            path.unlink()
    result = rmqctl("recover", store, "--dry-run")
    assert "6000000 bytes (--broker-conf says otherwise)" in result.err
    assert "5000000 slots" in result.err
    assert "rebuild 4 queues of OrderPaid\n" in result.out
    assert "rebuild the index: there is none\n" in result.out


@pytest.mark.parametrize("options", [(), ("--keep-going",)])
def test_documents_fit_their_schema(options: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)
    (store / "commitlog" / f"{131072:020d}").unlink()
    document = rmqctl("recover", store, *options, "--dry-run", "-o", "json").document()
    jsonschema.validate(document, json.loads(files("rmqctl.cli").joinpath("schema", "recover.json").read_text()))


def test_a_lock_that_cannot_be_opened_is_named_once(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = damaged("471-crash--body-flip-first-abnormal", tmp_path)

    def lock(_: WritableStorage, path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(WritableStorage, "lock", lock)
    result = rmqctl("recover", store, "--yes")
    assert result.code == 4
    assert f"rmqctl: {store / 'lock'}: Permission denied; nothing was changed" in result.err
