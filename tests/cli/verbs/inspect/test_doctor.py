"""`rmqctl doctor` names the damage first, and a command that repairs it."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.views.inspect.doctor_view import GAUGES
from rmqctl.cli.views.metrics_file import MetricsFile
from rmqctl.forensics.doctor.causes import CAUSES
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import MAGIC_V1
from rmqctl.store.config import store_path
from rmqctl.store.config.fastjson import fastjson_loads
from tests.conftest import GOLDEN_NAMES, Rmqctl, apply_damage, each_damage, tree_hash, unpack
from tests.support.file_edits import overwrite, poke, write_at
from tests.support.golden_store import CASES, damaged
from tests.support.log_maker import BLANK, Record, log_bytes
from tests.support.named_damage import is_named

KEYS = {"code", "summary", "evidence", "means", "restart", "next", "confidence"}
FEW_GOLDEN = ("broker-497", "broker-533", "533-lmq", "471-crash")
ORDERS = '"orders":{\n\t\t\t"attributes":'
ROUNDS = 3  # commands until nothing is wrong any more; two damages may need two


def diagnosis(store: Path, rmqctl: Rmqctl) -> dict[str, Any]:
    """The document of doctor; the store is as it was."""
    before = tree_hash(store)
    result = rmqctl("doctor", store, "-o", "json")
    assert tree_hash(store) == before
    found = result.document()
    assert result.code == (0 if found["healthy"] else 1)
    assert found["healthy"] == (not found["causes"])
    assert all(cause.keys() >= KEYS and all(cause[key] for key in KEYS) for cause in found["causes"])
    return found


def agreed(command: str) -> str:
    """The command of someone who has looked at the plan."""
    return command.replace("--dry-run", "--yes")


def do_next(found: dict[str, Any], rmqctl: Rmqctl) -> None:
    """Run the next command of the first cause, as someone who agrees to its plan.

    A plan of `heal` that brings back only a part exits with 4 (CONTRACT), so it is only shown.
    """
    program, *words = shlex.split(agreed(found["causes"][0]["next"]))
    assert program == "rmqctl"
    is_part = words[0] == "heal" and "--dry-run" in found["causes"][0]["next"]
    assert rmqctl(*words).code in ((4,) if is_part else (0, 3)), words


def combined(count: int) -> list[tuple[str, str]]:
    """Pairs of cases of one store that can both be applied."""
    rng = random.Random("doctor")
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        one, other = rng.sample(sorted(CASES), 2)
        changed = [{op["path"] for op in CASES[name]["ops"] if op["path"] != "abort"} for name in (one, other)]
        if CASES[one]["base"] == CASES[other]["base"] and not changed[0] & changed[1]:
            pairs.append((one, other))
    return pairs


@each_damage()
def test_a_damage_is_named_and_repaired(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged(name, tmp_path)
    found = diagnosis(store, rmqctl)
    assert is_named(found["causes"][0], CASES[name]["ops"])
    do_next(found, rmqctl)
    if "rmqctl heal " in found["causes"][0]["next"] and not (found := diagnosis(store, rmqctl))["healthy"]:
        assert found["causes"][0]["code"] == "broker-died"  # which is no damage, and stays
        do_next(found, rmqctl)
    assert rmqctl("verify", store, "-o", "json").document()["findings"] == []
    assert diagnosis(store, rmqctl)["healthy"]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), combined(40))
def test_two_damages(one: str, other: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    operations = [*CASES[one]["ops"], *CASES[other]["ops"]]
    store = unpack(CASES[one]["base"], tmp_path)
    apply_damage(store, operations)
    found = diagnosis(store, rmqctl)
    assert is_named(found["causes"][0], operations)
    for _ in range(ROUNDS):
        if not found["healthy"]:
            do_next(found, rmqctl)
            found = diagnosis(store, rmqctl)
    assert found["healthy"], found["causes"][0]
    assert rmqctl("verify", store).code == 0


def test_a_queue_without_a_message_in_the_log_is_no_lost_start(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A real 5.3.3 gives the queue min and max 2: the units stay, and only show the number of its next message."""
    store = damaged("533-propcrc--first-file-expired", tmp_path)
    do_next(diagnosis(store, rmqctl), rmqctl)
    assert diagnosis(store, rmqctl)["healthy"]
    found = rmqctl("verify", store, "-o", "json").document()
    assert found["findings"] == []
    assert "2 queue units before the log's first file: of queues without a message in the log" in found["notes"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW_GOLDEN else [pytest.mark.slow]) for name in GOLDEN_NAMES]
)
def test_an_undamaged_store_is_one_line(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    if (store / "abort").exists():
        assert [cause["code"] for cause in diagnosis(store, rmqctl)["causes"]] == ["broker-died"]
    else:
        result = rmqctl("doctor", store)
        assert (result.code, len(result.out.splitlines()), result.err) == (0, 1, "")
        is_all = "; not read: " not in result.out
        assert result.out.startswith("healthy: " if is_all else "nothing wrong in what was looked at: ")


def test_one_lost_file_is_one_cause_on_the_page(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-basic--last-file-missing-abnormal", tmp_path)
    result = rmqctl("doctor", store)
    assert result.code == 1
    lines = [line.replace(str(store), "store") for line in result.out.splitlines()]
    assert lines[:2] == [
        "not healthy: log-tail-gone; 42 messages lost; no broker runs on it",
        "next: rmqctl recover store --yes",
    ]
    assert all(len(line) <= 100 for line in lines)
    assert result.out.count("a start now") == 1
    headings = [line for line in lines if line[:1].isdigit()]
    assert headings == ["1. log-tail-gone (likely)", "2. broker-died (certain)"]


def test_watch_writes_the_verdict_as_metrics(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, metrics = damaged("497-basic--body-flip-last-normal", tmp_path), tmp_path / "doctor.prom"
    assert rmqctl("doctor", store, "--watch", metrics).code == 1
    text = metrics.read_text()
    for gauge, value in (("healthy", 0), ("exit_status", 1), ("restart_fails", 0)):
        assert f'rmqctl_doctor_{gauge}{{store="{store}"}} {value}\n' in text
    lost = rmqctl("recover", store, "--dry-run", "-o", "json").document()["restart"]["lost"]["records"]
    assert lost > 0
    assert f'rmqctl_doctor_restart_lost_messages{{store="{store}"}} {lost}\n' in text
    assert f'rmqctl_doctor_causes{{store="{store}",code="record-damaged"}} 1\n' in text
    assert f'rmqctl_doctor_causes{{store="{store}",code="index-gone"}} 0\n' in text
    inside = rmqctl("doctor", store, "--watch", store / "x.prom")
    assert (inside.code, "inside the store" in inside.err) == (2, True)


@pytest.mark.parametrize("code", CAUSES)
def test_every_cause_is_explained(code: str, rmqctl: Rmqctl) -> None:
    result = rmqctl("explain", code)
    assert result.code == 0
    assert CAUSES[code].means in result.out
    assert "{" not in result.out


def test_the_next_command_has_the_options_of_this_one(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, conf = damaged("471-basic--cq-missing-normal", tmp_path), tmp_path / "the broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\n")
    found = rmqctl("doctor", store, "--broker-conf", conf, "--profile", "4.9", "-o", "json").document()
    command = found["causes"][0]["next"]
    assert command == f"rmqctl recover {store} --broker-conf '{conf}' --profile 4.9 --yes"


def test_the_log_of_a_rocksdb_store_is_examined_without_its_extra(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    result = rmqctl("doctor", unpack("broker-533-rocksdb", tmp_path))
    assert (result.code, result.out.startswith("nothing wrong in what was looked at: ")) == (4, True)
    assert "its queues are in RocksDB, and are not read" in result.err


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("topics.json", '"orders"', '"odrers"', "topics-lost"),
        ("topics.json", ORDERS + "{}", ORDERS + '{"queue.type":"BatchCQ"}', "two-queue-types"),
        ("topics.json", '"counter":5', '"counter":4', "config-rolled-back"),
        ("topics.json", '"topicConfigTable":{', '"topicConfigTable":', "config-damaged"),
        ("delayOffset.json", "3:32", "3:99", "delay-ahead"),
        ("consumerOffset.json", '"offsetTable":{', '"offsetTable":', "config-damaged"),
        ("consumerOffset.json", ",3:375", ",3:4096", "group-ahead"),
    ],
)
def test_config_is_compared_with_queues_and_bak_and_repaired(
    name: str, old: str, new: str, code: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("broker-533", tmp_path)
    path = store / "config" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = diagnosis(store, rmqctl)
    assert found["causes"][0]["code"] == code
    assert name in str(found["causes"][0])
    do_next(found, rmqctl)
    assert diagnosis(store, rmqctl)["healthy"] == (code != "two-queue-types")  # where one only looks first


def empty(path: Path) -> None:
    path.write_text("{}")


def lose_with_bak(path: Path) -> None:
    for one in (path, path.with_name(f"{path.name}.bak")):
        one.unlink(missing_ok=True)


def lose_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("base", ["broker-497", "broker-550"])
@pytest.mark.parametrize(
    ("name", "harm", "code"),
    [
        ("topics.json", empty, "config-emptied"),
        ("consumerOffset.json", empty, "config-emptied"),
        ("topics.json", lose_with_bak, "topics-lost"),
        ("topics.json", lose_folder, "topics-lost"),
        ("subscriptionGroup.json", lose_with_bak, "config-lost"),
    ],
)
def test_a_lost_config_is_a_cause_and_restored(
    base: str, name: str, harm: Callable[[Path], None], code: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack(base, tmp_path)
    harm(store / "config" / name)
    found = diagnosis(store, rmqctl)
    # without timercheck, the real 5.5.0 delivers all timer messages again
    again = ["timer-behind"] if base == "broker-550" and harm is lose_folder else []
    assert [cause["code"] for cause in found["causes"]] == [code, *again]
    plan = rmqctl("config", "restore", store, name, "--dry-run", "-o", "json")
    assert (plan.code, plan.document()["state"]) != (0, "whole")
    for _ in range(ROUNDS):  # the .bak may lack the topic that was added last
        if not found["healthy"]:
            do_next(found, rmqctl)
            found = diagnosis(store, rmqctl)
    assert found["healthy"]


@pytest.mark.parametrize("text", [b"null", b"[]", b" \n"])
def test_a_text_that_a_broker_takes_as_an_empty_file(text: bytes, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """4.9.7 and 5.3.3 serve no topic then, although the .bak is good (asked on 2026-11-25)."""
    store = unpack("broker-497", tmp_path)
    path = store / "config" / "topics.json"
    path.write_bytes(text)
    (cause,) = (one for one in diagnosis(store, rmqctl)["causes"] if one["code"] == "config-damaged")
    assert f"{text.decode().strip() or 'blanks'}" in cause["means"]
    assert "does not read the .bak" in cause["means"]


def test_lost_offsets_are_found_by_the_groups_of_other_files(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-497", tmp_path)
    lose_with_bak(store / "config" / "consumerOffset.json")
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["next"]) == ("config-lost", f"rmqctl config show {store}")
    assert cause["evidence"][0]["detail"].endswith("and the store has 1 consumer group: billing")
    assert [one["code"] for one in rmqctl("verify", store, "-o", "json").document()["findings"]] == ["config-missing"]
    (store / "config" / "lmqConsumerOffset.json").write_text('{"offsetTable":{}}')  # a broker with enableLmq
    assert diagnosis(store, rmqctl)["healthy"]


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
@pytest.mark.parametrize(("harm", "code"), [(empty, "config-empty"), (lose_with_bak, "config-missing")])
def test_verify_finds_lost_config_as_doctor_does(
    name: str, harm: Callable[[Path], None], code: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("broker-550", tmp_path)
    harm(store / "config" / name)
    found = rmqctl("verify", store, "-o", "json")
    assert [(one["code"], one["path"]) for one in found.document()["findings"]] == [(code, f"config/{name}")]
    assert found.code == 1


def test_a_bak_with_more_entries_than_its_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Offsets of a topic and a group that both still exist are no deleted ones."""
    store = unpack("broker-497", tmp_path)
    path = store / "config" / "consumerOffset.json"
    shutil.copy(path, path.with_name(f"{path.name}.bak"))
    path.write_text(path.read_text().replace("{0:375,1:375,2:376,3:375", "{0:375"))
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["confidence"]) == ("config-shrunk", "possible")
    assert cause["evidence"][0]["detail"].startswith("consumerOffset.json.bak has 3 entries that consumerOffset.json")
    assert rmqctl(*shlex.split(cause["next"])[1:]).code == 1
    assert rmqctl(*shlex.split(agreed(cause["next"]))[1:]).code == 0
    assert diagnosis(store, rmqctl)["healthy"]
    topics = store / "config" / "topics.json"
    topics.write_text(topics.read_text().replace('"events"', '"deleted"'))  # its offsets go with a deleted topic
    shutil.copy(path, path.with_name(f"{path.name}.bak"))
    set_offsets(store, "events@billing", {"0": 5}, ".bak")
    assert "config-shrunk" not in {one["code"] for one in diagnosis(store, rmqctl)["causes"]}


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_renamed_log_file_is_renamed_back(at: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    file = sorted((store / "commitlog").iterdir())[at]
    before, aside = tree_hash(store), file.rename(file.with_name(f"{file.name}.bak"))
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert (cause["code"], f"commitlog/{aside.name}" in cause["summary"]) == ("log-file-renamed", True)
    assert cause["next"] == f"mv -n {aside} {file}"
    for options in ((), ("--keep-going",)):
        refused = rmqctl("recover", store, "--yes", *options)
        assert (refused.code, cause["next"] in refused.err) == (4, True)
    aside.rename(file)
    assert tree_hash(store) == before
    assert diagnosis(store, rmqctl)["healthy"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param((1, 0, 2, 3), id="swapped"),
        pytest.param((3, 1, 2, 0), id="swapped-with-the-last"),
        pytest.param((1, 2, 0, 3), id="in-a-circle"),
        pytest.param((1, 2, 3, 4), id="shifted"),
        pytest.param((0, 2, 3, 4), id="shifted-from-the-second"),
        pytest.param((4, 0, 2, 1), id="moved-and-in-a-circle"),
    ],
)
@pytest.mark.parametrize("with_empty", [False, True])
def test_log_files_with_wrong_names_are_one_cause(
    names: tuple[int, ...], with_empty: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """`names` has the place of each file; with a file of zeros behind the last one, which a broker makes in advance."""
    store = unpack("broker-533", tmp_path)
    files = sorted((store / "commitlog").iterdir())
    size = files[0].stat().st_size
    if with_empty:
        files.append(files[-1].with_name(f"{size * len(files):020d}"))
        files[-1].write_bytes(bytes(size))
        names = (*names, 4) if 4 not in names else (*names, *sorted({*range(6)} - {*names})[:1])
    before = tree_hash(store)
    aside = [file.rename(file.with_name(f"x{place}")) for file, place in zip(files, names, strict=True)]
    for file in aside:
        file.rename(file.with_name(f"{int(file.name[1:]) * size:020d}"))
    (cause,) = diagnosis(store, rmqctl)["causes"]
    shown = rmqctl("doctor", store).out.splitlines()
    assert shown[1] == f"next: {cause['next']}"
    assert (cause["code"], "\n".join(shown[2:]).count("mv -n ")) == ("log-file-renamed", cause["next"].count("mv"))
    subprocess.run(cause["next"], shell=True, check=True)
    assert tree_hash(store) == before
    assert diagnosis(store, rmqctl)["healthy"]


def test_the_page_has_every_name_of_a_log_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A log with half of its names is no log."""
    (tmp_path / "commitlog").mkdir()
    for base in range(0, 25 * 2048, 2048):
        file = log_bytes([Record(body=bytes(900)), Record(body=bytes(850))], base)
        blank = struct.pack(">iI", 2048 - len(file), BLANK)
        (tmp_path / "commitlog" / f"{(base + 2048) % (25 * 2048):020d}").write_bytes((file + blank).ljust(2048, b"\0"))
    (cause,) = diagnosis(tmp_path, rmqctl)["causes"]
    shown = rmqctl("doctor", tmp_path).out
    assert (cause["code"], cause["next"].count("mv -n "), shown.count("mv -n ")) == ("log-file-renamed", 26, 52)


@pytest.mark.parametrize(("number", "name"), [(0, 20), (1, 65536 + 4096), (1, 65536 - 1), (2, 10 * 65536)])
def test_a_log_file_with_a_wrong_number_is_renamed_back(number: int, name: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """All that follows from the wrong name has this one cause; no repair of it is proposed."""
    store = unpack("533-basic", tmp_path)
    file = store / "commitlog" / f"{number * 65536:020d}"
    renamed = file.rename(file.with_name(f"{name:020d}"))
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], f"commitlog/{renamed.name}" in cause["summary"]) == ("log-file-renamed", True)
    assert cause["next"] == f"mv -n {renamed} {file}"
    renamed.rename(file)
    assert diagnosis(store, rmqctl)["healthy"]


def test_a_log_file_with_a_lower_number_is_the_only_cause(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The first file expired, and the second has its number: the queues' units for both lead to wrong bytes."""
    store = unpack("497-basic", tmp_path)
    first, second = (store / "commitlog" / f"{number * 65536:020d}" for number in (0, 1))
    first.unlink()
    second.rename(first)
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["next"]) == ("log-file-renamed", f"mv -n {first} {second}")


def test_a_log_file_of_another_place_was_not_renamed(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Its records say offsets where no file of this log is missing."""
    store = unpack("497-basic", tmp_path)
    file = store / "commitlog" / f"{65536:020d}"
    write_with_offsets(file, 1000 * 65536)
    codes = [cause["code"] for cause in diagnosis(store, rmqctl)["causes"]]
    assert ("log-file-misplaced" in codes, "log-file-renamed" in codes) == (True, False)


def write_with_offsets(file: Path, difference: int) -> None:
    """Add a number to the PHYSICALOFFSET of each record of a log file."""
    data = bytearray(file.read_bytes())
    at = 0
    while struct.unpack_from(">I", data, at + 4)[0] == MAGIC_V1:
        struct.pack_into(">q", data, at + 28, struct.unpack_from(">q", data, at + 28)[0] + difference)
        at += struct.unpack_from(">i", data, at)[0]
    file.write_bytes(data)


def test_of_two_copies_one_gets_the_name(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    file = store / "commitlog" / f"{65536:020d}"
    aside = file.with_name(f"{file.name}.bak")
    shutil.copyfile(file, file.with_name(f"{655360:020d}"))
    file.rename(aside)
    causes = diagnosis(store, rmqctl)["causes"]
    assert [cause["next"] for cause in causes if cause["code"] == "log-file-renamed"] == [f"mv -n {aside} {file}"]


def set_offsets(store: Path, group: str, offsets: dict[str, int], end: str = "") -> None:
    """Set offsets of topic@group in consumerOffset.json, or in its .bak."""
    path = store / "config" / f"consumerOffset.json{end}"
    content: dict[str, Any] = fastjson_loads(path.read_text())
    content["offsetTable"].setdefault(group, {}).update(offsets)
    path.write_text(json.dumps(content))


def test_each_group_ahead_is_set_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    for group in ("orders@-first", "orders@billing", "orders@second", "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"):
        set_offsets(store, group, {"0": 5000})
    found = diagnosis(store, rmqctl)
    (cause,) = found["causes"]
    assert sorted(cause["next"].split("; ")) == [
        f"rmqctl config set-offset {store} --to latest --dry-run {group} orders 0"
        for group in ("-- -first", "billing", "second")
    ]
    assert "skips the 1125 messages that these" in cause["then"]  # 375 for each of three groups
    assert "`--to earliest --yes` delivers all 1125 messages" in cause["then"]
    shown = [line.split()[:2] for line in rmqctl("doctor", store).out.splitlines()]
    assert shown.count(["next", "rmqctl"]) == 3
    for command in cause["next"].split("; "):
        assert rmqctl(*shlex.split(command)[1:]).code == 1
        assert rmqctl(*shlex.split(command.replace("--dry-run", "--yes"))[1:]).code == 0
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert cause["next"] == f"rmqctl config show {store} offsets"
    assert "Only the broker itself reads as this group" in cause["then"]


def test_a_group_ahead_in_all_queues_is_set_back_by_one_command(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    set_offsets(store, "orders@billing", {str(number): 5000 for number in range(4)})
    found = diagnosis(store, rmqctl)
    (cause,) = found["causes"]
    assert cause["next"] == f"rmqctl config set-offset {store} --to latest --dry-run billing orders"
    do_next(found, rmqctl)
    assert diagnosis(store, rmqctl)["healthy"]


def test_a_copy_made_under_a_broker_is_told_by_the_times_of_its_files(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """With the times of the original, it looks like a crash that lost the end of the log."""
    store = unpack("497-basic", tmp_path)
    (store / "abort").touch()
    shutil.copytree(store, tmp_path / "cp-a", copy_function=shutil.copy2)
    shutil.copytree(store, tmp_path / "cp", copy_function=shutil.copyfile)
    found = {}
    for name in ("cp-a", "cp"):
        max((tmp_path / name / "commitlog").iterdir()).unlink()
        found[name] = [cause["code"] for cause in diagnosis(tmp_path / name, rmqctl)["causes"]]
    assert found == {"cp-a": ["log-tail-gone", "broker-died"], "cp": ["copied-live"]}


def test_the_page_says_each_thing_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Evidence has the details; the line `what` does not repeat them."""
    store = damaged("497-basic--body-flip-last-normal", tmp_path)
    (store / "abort").touch()
    for cause in diagnosis(store, rmqctl)["causes"]:
        assert not [one["detail"] for one in cause["evidence"] if one["detail"] in cause["summary"]]
    (died,) = (cause for cause in diagnosis(store, rmqctl)["causes"] if cause["code"] == "broker-died")
    assert [one["path"] for one in died["evidence"] if one["code"] == "abort"] == ["abort"]
    os.truncate(store / "commitlog" / "00000000000000131072", 40_000)
    commands = [line.split(maxsplit=1)[1] for line in rmqctl("doctor", store).out.splitlines() if "next  " in line]
    assert commands[-1] == "as for 1" != commands[0]


def test_a_guessed_profile_has_its_reason(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("533-basic--index-missing-normal", tmp_path)
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert " --profile 5.3 " in cause["next"]
    assert cause["then"].startswith("`--profile 5.3` is rmqctl's guess, because")
    asked = rmqctl("doctor", store, "--profile", "5.3", "-o", "json").document()["causes"][0]
    assert (asked["next"], asked["then"].startswith("`--profile` is as doctor got it.")) == (cause["next"], True)


def test_offsets_that_no_file_has_are_only_looked_at(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_text("{")
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert (cause["code"], cause["next"]) == ("config-damaged", f"rmqctl config show {store}")
    assert "a good copy" in cause["then"]


def test_a_clock_that_stepped_back_is_no_old_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A broker compares the counters of two data versions first, and then the timestamps."""
    store = unpack("broker-533", tmp_path)
    path = store / "config" / "topics.json"
    content = fastjson_loads(path.read_text())
    content["dataVersion"] |= {"counter": 99, "timestamp": 1}
    path.write_text(json.dumps(content))
    assert diagnosis(store, rmqctl)["healthy"]


def test_groups_of_the_broker_are_not_behind(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    set_offsets(store, "orders@CID_RMQ_SYS_TRANS", {"0": 0})
    assert "CID_RMQ_SYS_TRANS" not in {group["group"] for group in diagnosis(store, rmqctl)["groups"]}


def test_a_lost_log_is_no_start_without_loss(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    shutil.rmtree(store / "commitlog")
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert (cause["code"], "deletes all queues" in cause["restart"]["detail"]) == ("log-gone", True)
    assert "loses no message" not in cause["restart"]["detail"]


def test_a_repair_that_loses_messages_is_to_be_looked_at_first(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    sorted((store / "commitlog").iterdir())[1].unlink()
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert "messages are gone already, or with the next start: this loses no more and puts" in cause["then"]
    assert cause["next"].endswith(" --yes")
    store = damaged("471-basic--body-flip-first-normal", tmp_path / "flipped")
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert cause["next"].startswith("rmqctl heal ")
    assert cause["next"].endswith(" --yes")
    overwrite(store, cause["evidence"][0]["physicalOffset"] + 88, b"garbage, and no flipped bit" * 2)
    cause = diagnosis(store, rmqctl)["causes"][0]
    assert cause["then"].startswith(
        "This changes nothing. With --yes instead of --dry-run, it loses 1 message and puts"
    )
    assert cause["next"].endswith(" --dry-run")


def test_the_number_of_messages_that_queues_miss(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One unit of zeros ends the queue for a broker of 5.3: the 275 after the unit are missing after a start, too."""
    store = unpack("broker-533", tmp_path)
    queue = store / "consumequeue" / "orders" / "1" / f"{0:020d}"
    write_at(queue, 100 * CQ_UNIT.size, bytes(CQ_UNIT.size))
    shutil.rmtree(store / "consumequeue" / "events" / "2")
    gone, damaged = diagnosis(store, rmqctl)["causes"]
    assert [(gone["code"], gone["missedMessages"]), (damaged["code"], damaged["missedMessages"])] == [
        ("queue-gone", 72),
        ("queue-damaged", 1),
    ]
    assert "72 messages of the log missing in the queues" in gone["summary"]
    assert "still miss 347 messages afterwards" in damaged["restart"]["detail"]


def test_units_that_lead_elsewhere_are_missed_messages(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    for number in (7, 20, 21):
        poke(store / "consumequeue" / "orders" / "1" / f"{0:020d}", number * CQ_UNIT.size, "q", 100 + number)
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["missedMessages"]) == ("queue-damaged", 3)
    assert "does not write units again that a queue has" in cause["restart"]["detail"]


def test_two_ends_of_the_log_are_explained(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    (store / "commitlog" / f"{786432:020d}").write_bytes(b"")
    result = rmqctl("doctor", store)
    assert "the log ends at 786432 (at 785839 after a start)" in " ".join(result.out.split())
    detail = diagnosis(store, rmqctl)["causes"][0]["restart"]["detail"]
    assert "It stores the next message at 785839, and not at 786432, where doctor's scan of the log ends." in detail


def test_a_hole_before_an_empty_file_stays(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The broker's start takes the later end of the log."""
    store = damaged("533-crash--last-file-missing-abnormal", tmp_path)
    result = rmqctl("doctor", store)
    assert "the log ends at 262144 (at 327680 after a start)" in " ".join(result.out.split())
    detail = diagnosis(store, rmqctl)["causes"][0]["restart"]["detail"]
    assert "It stores the next message at 327680. The last message ends at 262144: the log keeps a hole" in detail


def test_names_for_metrics_may_be_of_any_bytes() -> None:
    gauges = MetricsFile("doctor", Path("/store"), GAUGES)
    gauges.set("behind_messages", 1, group="a\rb\udcff")
    assert 'group="a\\\\rb\\udcff"' in gauges.encoded().decode()


def test_further_passes_do_not_exceed_the_total(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("497-basic--body-flip-last-normal", tmp_path)
    result = rmqctl("doctor", store, "--progress", "json")
    shown = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
    assert shown
    assert all(one["bytes"] <= one["totalBytes"] for one in shown)


def test_a_flipped_bit_of_a_key_is_the_records_not_the_indexs(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, key = unpack("broker-497", tmp_path), b"KEYS\x01o17 "
    path = next(path for path in (store / "commitlog").iterdir() if key in path.read_bytes())
    data = path.read_bytes()
    path.write_bytes(data.replace(key, b"KEYS\x01n17 "))
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["confidence"]) == ("record-with-other-keys", "likely")
    assert path.name in cause["summary"]
    at = cause["evidence"][0]["physicalOffset"]
    assert cause["next"] == f"rmqctl heal {store} --yes"
    assert cause["restart"]["detail"].endswith(f"It begins after {at}: the damage there stays.")  # no start stops there
    for verb in (("recover",), ("rebuild", "index")):
        notes = rmqctl(verb[0], store, *verb[1:], "--dry-run", "-o", "json").document()["notes"]
        assert any(f"another key than the record at {at}" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "file", "at", "bit", "code"),
    [
        ("497-basic", 131072, 12620, 5, "queue-with-other-tags"),
        ("broker-497", 0, 150_833, 6, "index-damaged"),  # STORETIMESTAMP
        ("broker-497", 0, 6288, 1, "record-with-other-keys"),  # orders -> orfers
        ("broker-497", 0, 5981 + 39, 0, "messages-rejected"),  # SYSFLAG
    ],
)
def test_what_heal_brings_back_is_healed_before_its_witness_is_rebuilt(
    name: str, file: int, at: int, bit: int, code: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack(name, tmp_path)
    path = store / "commitlog" / f"{file:020d}"
    before = path.read_bytes()
    path.write_bytes(before[:at] + bytes([before[at] ^ 1 << bit]) + before[at + 1 :])
    causes = diagnosis(store, rmqctl)["causes"]
    assert (causes[0]["code"], {cause["next"] for cause in causes}) == (code, {f"rmqctl heal {store} --yes"})
    for verb in (["recover"], ["rebuild", "all"]):
        plan = rmqctl(verb[0], store, *verb[1:], "--dry-run", "-o", "json")  # with nothing to do, it harms no witness
        notes = plan.document()["notes"]
        assert plan.code == 0 or any("`rmqctl heal` brings back the damaged record" in one for one in notes)
    assert rmqctl(*shlex.split(causes[0]["next"])[1:]).code == 3
    assert (path.read_bytes(), rmqctl("doctor", store).code) == (before, 0)


def test_no_offset_is_set_in_a_topic_that_does_not_exist(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-533", tmp_path)
    set_offsets(store, "ordErs@billing", {"0": 5000})
    (cause,) = diagnosis(store, rmqctl)["causes"]
    assert (cause["code"], cause["next"]) == ("group-ahead", f"rmqctl config show {store} offsets")
    assert rmqctl(*shlex.split(cause["next"])[1:]).code == 0
