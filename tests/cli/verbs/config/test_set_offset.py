"""`rmqctl config set-offset`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.fastjson import fastjson_loads
from tests.conftest import Result, Rmqctl, tree_hash

Golden = Callable[[str], Path]
ENDS = {0: 375, 1: 375, 2: 376, 3: 375}  # of orders, in both stores
STORES = ("broker-497", "broker-533")


def offsets_json(store: Path) -> Path:
    return store / "config" / "consumerOffset.json"


def stored(store: Path, key: str = "orders@billing", table: str = "offsetTable") -> Any:
    return fastjson_loads(offsets_json(store).read_text())[table].get(key)


def set_offset(rmqctl: Rmqctl, store: Path, *arguments: object) -> Result:
    return rmqctl("config", "set-offset", store, *arguments)


def new_offsets(result: Result) -> dict[int, int]:
    return {row["queueId"]: row["newOffset"] for row in result.document()["queues"]}


@pytest.mark.parametrize("name", STORES)
def test_the_plan_is_shown_then_made_then_undone(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    before, text = tree_hash(store), offsets_json(store).read_text()
    asked = ("billing", "orders", "--to", "earliest")
    plan = set_offset(rmqctl, store, *asked, "--dry-run", "-o", "json")
    assert (plan.code, tree_hash(store)) == (1, before)
    assert new_offsets(plan) == dict.fromkeys(ENDS, 0)
    assert [row["offset"] for row in plan.document()["queues"]] == list(ENDS.values())
    done = set_offset(rmqctl, store, *asked, "--yes", "-o", "json")
    assert (done.code, done.out) == (0, plan.out)
    assert "rmqctl undo" in done.err
    assert stored(store) == dict.fromkeys("0123", 0)
    assert (store / "config" / "consumerOffset.json.bak").read_text() == text
    again = set_offset(rmqctl, store, *asked, "--yes")
    assert (again.code, again.err) == (0, "nothing to do: the group already has these offsets\n")
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", STORES)
def test_every_other_entry_keeps_its_bytes(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    before = offsets_json(store).read_text()
    assert set_offset(rmqctl, store, "billing", "orders", 2, "--to", 100, "--yes").code == 0
    after = offsets_json(store).read_text()
    assert stored(store)["2"] == 100
    if name == "broker-533":
        version = stored(store, "counter", "dataVersion"), stored(store, "timestamp", "dataVersion")
        assert version[0] == 2
        after = after.replace(str(version[1]), "1795253406198").replace('"counter":2', '"counter":1')
    assert after == before.replace("2:376", "2:100")


def test_the_form_of_5_5_is_kept(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550")
    before = offsets_json(store).read_text()
    assert set_offset(rmqctl, store, "popgroup", "popt", 1, "--to", "earliest", "--yes").code == 0
    changed = [
        (old, new)
        for old, new in zip(before.splitlines(), offsets_json(store).read_text().splitlines(), strict=True)
        if old != new and "timestamp" not in old
    ]
    assert changed == [('\t\t"counter":1,', '\t\t"counter":2,'), ("\t\t\t1:50,", "\t\t\t1:0,")]


@pytest.mark.parametrize("name", ["497-basic", "533-basic"])
def test_a_time_gives_what_the_broker_gives(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    """A look-up by time of `query` is held equal to the real broker's elsewhere."""
    store = golden(name)
    rows = rmqctl("queue", store, "-o", "jsonl").rows()
    topic = rows[0]["topic"]
    queues = [row for row in rows if row["topic"] == topic]
    first = rmqctl("query", store, "--topic", topic, "--queue", queues[0]["queueId"], "--offset", 3, "-o", "jsonl")
    moment = first.rows()[0]["storeTimestamp"]
    time = rmqctl("query", store, "--topic", topic, "--queue", queues[0]["queueId"], "--at", moment, "-o", "jsonl")
    found = set_offset(rmqctl, store, "new", topic, "--to", rfc3339(moment), "--new-group", "--dry-run", "-o", "json")
    assert found.code == 1
    assert new_offsets(found)[queues[0]["queueId"]] == time.rows()[0]["queueOffset"]
    assert set(new_offsets(found)) >= {row["queueId"] for row in queues}


def test_latest_is_the_end_and_a_queue_without_files_has_0(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    topics = store / "config" / "topics.json"
    content = topics.read_text()
    at = content.index('"orders":{')
    topics.write_text(content[:at] + content[at:].replace('"readQueueNums":4', '"readQueueNums":5', 1))
    found = set_offset(rmqctl, store, "billing", "orders", "--to", "latest", "--yes", "-o", "json")
    assert new_offsets(found) == ENDS | {4: 0}
    assert stored(store) == {str(queue): offset for queue, offset in (ENDS | {4: 0}).items()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("billing", "orders", "--to", "376"), "offset 376 is not in queue orders/0, which has 0 to 375"),
        (("billing", "orders", "--to", "1795253356492"), "the time is --to 2026-11-21T09:29:16.492Z"),
        (("billing", "orders", "4", "--to", "earliest"), "has no queue 4: its queues are 0, 1, 2, 3"),
        (("biling", "orders", "--to", "earliest"), "(the nearest name is 'billing'; --new-group sets offsets"),
        (("billing", "order", "--to", "earliest"), "the nearest name is 'orders'"),
        (("billing", "orders", "--to", "soon"), "'soon' is not a time"),
        (("billing", "orders"), "Missing option '--to'"),
        (("billing", "orders", "--to", "-2h", "--queue", "1"), "No such option"),
    ],
)
def test_wrong_requests_change_nothing(arguments: tuple[str, ...], said: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    result = set_offset(rmqctl, store, *arguments, "--yes")
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert tree_hash(store) == before


def test_a_new_group_is_added(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = offsets_json(store).read_text()
    asked = ("audit", "events", "--to", "latest", "--new-group", "--yes")
    assert set_offset(rmqctl, store, *asked).code == 0
    entry = fastjson_loads(offsets_json(store).read_text())["offsetTable"]["events@audit"]
    numbers = ",".join(f"{queue}:{offset}" for queue, offset in entry.items())
    assert offsets_json(store).read_text() == before.replace(
        "\n\t}\n}", f',\n\t\t"events@audit":{{{numbers}\n\t\t}}\n\t}}\n}}'
    )


@pytest.mark.parametrize(("name", "version"), [("broker-497", False), ("broker-533", True)])
def test_a_missing_file_is_written_as_its_broker_writes_it(
    name: str, version: bool, golden: Golden, rmqctl: Rmqctl
) -> None:
    store = golden(name)
    whole = offsets_json(store).read_text()
    for path in (store / "config").glob("consumerOffset*"):
        path.unlink()
    before = tree_hash(store)
    assert set_offset(rmqctl, store, "billing", "orders", "--to", "latest", "--yes").code == 0
    content = fastjson_loads(offsets_json(store).read_text())
    assert content["offsetTable"] == {"orders@billing": {str(queue): end for queue, end in ENDS.items()}}
    assert list(content) == (["dataVersion", "offsetTable"] if version else ["offsetTable"])
    assert '"orders@billing":{0:375,1:375,2:376,3:375\n\t\t}' in whole
    assert '"orders@billing":{0:375,1:375,2:376,3:375\n\t\t}' in offsets_json(store).read_text()
    assert not (store / "config" / "consumerOffset.json.bak").exists()
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_broken_file_does_not_become_the_bak(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    backup = store / "config" / "consumerOffset.json.bak"
    good = backup.read_text()
    offsets_json(store).write_text(good[:40])
    before = tree_hash(store)
    assert set_offset(rmqctl, store, "billing", "orders", 0, "--to", 7, "--yes").code == 0
    assert offsets_json(store).read_text() == good.replace("0:375", "0:7")
    assert backup.read_text() == good
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before
    backup.write_text("{")
    refused = set_offset(rmqctl, store, "billing", "orders", "--to", "latest", "--new-group", "--yes")
    assert refused.code == 4
    assert "there is no good .bak" in refused.err


def test_with_two_files_both_are_changed(golden: Golden, rmqctl: Rmqctl) -> None:
    """A broker with enableLmq reads lmqConsumerOffset.json only."""
    store = golden("broker-533")
    other = store / "config" / "lmqConsumerOffset.json"
    other.write_text('{"lmqOffsetTable":{"%LMQ%q@%LMQ%g":5},"offsetTable":{"orders@billing":{0:1}}}')
    assert set_offset(rmqctl, store, "billing", "orders", 0, "--to", 9, "--yes").code == 0
    assert other.read_text() == '{"lmqOffsetTable":{"%LMQ%q@%LMQ%g":5},"offsetTable":{"orders@billing":{0:9}}}'
    assert stored(store)["0"] == 9


def test_a_broker_with_lmq_has_all_offsets_in_its_own_file(golden: Golden, rmqctl: Rmqctl) -> None:
    """The real 4.9.7 and 5.3.3 read them there with enableLmq, and no consumerOffset.json."""
    store = golden("broker-497")
    own = store / "config" / "lmqConsumerOffset.json"
    offsets_json(store).rename(own)
    offsets_json(store).with_name("consumerOffset.json.bak").unlink()
    (store / "config" / "subscriptionGroup.json").unlink()
    before = own.read_text()
    assert set_offset(rmqctl, store, "billing", "orders", 0, "--to", 9, "--yes").code == 0
    assert own.read_text() == before.replace("0:375", "0:9")
    assert not offsets_json(store).exists()
    rows = rmqctl("lag", store, "billing", "-o", "json").document()["groups"]
    assert {row["queueId"]: row["offset"] for row in rows if row["topic"] == "orders"} == ENDS | {0: 9}


def test_the_offset_of_an_lmq_group_is_one_number(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-lmq")
    topic = next(row["topic"] for row in rmqctl("queue", store, "-o", "jsonl").rows() if row["topic"][0] == "%")
    asked = ("%LMQ%g", topic, "--to", "latest", "--new-group", "--yes", "-o", "json")
    end = new_offsets(set_offset(rmqctl, store, *asked))[0]
    content = fastjson_loads((store / "config" / "lmqConsumerOffset.json").read_text())
    assert content["lmqOffsetTable"] == {f"{topic}@%LMQ%g": end}
    assert end > 0


def test_a_reset_offset_of_the_file_is_changed_with_it(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    text = offsets_json(store).read_text()
    offsets_json(store).write_text(text[:-2] + ',\n\t"resetOffsetTable":{\n\t\t"orders@billing":{1:3\n\t\t}\n\t}\n}')
    assert set_offset(rmqctl, store, "billing", "orders", "--to", "latest", "--yes").code == 0
    assert stored(store, table="resetOffsetTable") == {"1": 375}


def test_messages_that_ordered_pop_holds_are_noted(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    order = store / "config" / "consumerOrderInfo.json"
    order.write_text(json.dumps({"table": {"orders@billing": {"2": {"o": [5], "popTime": 1}}}}))
    held = set_offset(rmqctl, store, "billing", "orders", "--to", "earliest", "--dry-run", "-o", "json")
    assert "billing holds in queue 2 (ordered POP)" in held.document()["notes"][0]
    assert held.err.count("note: ") == 1
    assert not set_offset(rmqctl, store, "billing", "orders", 1, "--to", "earliest", "--dry-run").err


def test_configuration_in_rocksdb_is_not_changed(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    database = store / "config" / "consumerOffsets" / "CURRENT"
    database.parent.mkdir()
    database.touch()
    result = set_offset(rmqctl, store, "billing", "orders", "--to", "latest", "--yes")
    assert (result.code, "in RocksDB" in result.err) == (13, True)
    assert set_offset(rmqctl, golden("broker-533-rocksdb"), "billing", "orders", "--to", "latest").code == 13


def test_without_a_confirmation_nothing_is_changed(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    assert set_offset(rmqctl, store, "billing", "orders", "--to", "earliest").code == 12
    assert tree_hash(store) == before


def test_a_link_is_not_written_through(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("broker-497")
    offsets_json(store).rename(tmp_path / "elsewhere")
    offsets_json(store).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    result = set_offset(rmqctl, store, "billing", "orders", "--to", "earliest", "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert (tmp_path / "elsewhere").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"offsetTable":{', '"resetOffsetTable":{"orders@billing":5},"offsetTable":{'),
        ('"offsetTable":{', '"resetOffsetTable":[],"offsetTable":{'),
        ('"counter":1', '"counter":9223372036854775807'),
        ('"dataVersion":{', '"dataVersion":null,"dataVersion":{'),
        ("0:375", '"0":"375"'),
        ("0:375", '"+0":375'),
        ("\n\t", "\r\n "),
    ],
)
def test_any_file_that_a_broker_loads_is_changed(old: str, new: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    text = offsets_json(store).read_text()
    assert old in text
    offsets_json(store).write_text(text.replace(old, new), newline="")
    before = tree_hash(store)
    assert set_offset(rmqctl, store, "billing", "orders", 0, "--to", 9, "--yes").code == 0
    row = rmqctl("lag", store, "billing", "-o", "json").document()["groups"]
    assert {each["queueId"]: each["offset"] for each in row if each["topic"] == "orders"} == ENDS | {0: 9}
    assert rmqctl("config", "show", store).code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_folder_elsewhere_is_not_written_to(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("broker-497")
    (store / "config").rename(tmp_path / "elsewhere")
    (store / "config").symlink_to(tmp_path / "elsewhere")
    before = tree_hash(tmp_path / "elsewhere")
    asked = ("billing", "orders", "--to", "earliest", "--new-group", "--yes")
    result = set_offset(rmqctl, store, *asked)
    assert (result.code, result.err.count("\n")) == (4, 1), result.err
    assert tree_hash(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("group", ["", "a@b", "a\nb", "a\udcff"])
def test_a_name_that_no_broker_accepts_is_refused(group: str, golden: Golden, rmqctl: Rmqctl) -> None:
    result = set_offset(rmqctl, golden("broker-533"), group, "orders", "--to", "latest", "--new-group", "--yes")
    assert (result.code, "cannot be the name of a group" in result.err) == (2, True)


def test_a_light_group_has_one_offset_a_topic(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    asked = ("%LMQ%x", "orders", "--to", "latest", "--new-group")
    assert set_offset(rmqctl, store, *asked[:2], 2, *asked[2:], "--dry-run").code == 2
    assert new_offsets(set_offset(rmqctl, store, *asked, "--dry-run", "-o", "json")) == {0: ENDS[0]}
    assert set_offset(rmqctl, store, *asked, "--yes").code == 0
    text = (store / "config" / "lmqConsumerOffset.json").read_text()
    assert fastjson_loads(text)["lmqOffsetTable"] == {"orders@%LMQ%x": ENDS[0]}


def delay_ahead(store: Path, levels: str) -> Path:
    """A store whose delay levels are as in `levels`; the golden one has delivered level 1 alone."""
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (store / "config" / name).write_text(f'{{\n\t"offsetTable":{{{levels}\n\t}}\n}}')
    return store


def test_a_delay_level_is_set_to_what_it_has_not_delivered(golden: Golden, rmqctl: Rmqctl) -> None:
    store = delay_ahead(golden("497-delay"), "1:1,3:25477423")
    before = tree_hash(store)
    asked = ("--delay-level", 3, "--to")
    plan = set_offset(rmqctl, store, *asked, "undelivered", "--dry-run", "-o", "json")
    assert (plan.code, plan.document()["notes"]) == (1, ["5 messages of the level not delivered yet"])
    assert new_offsets(plan) == {2: 0}
    skipping = set_offset(rmqctl, store, *asked, "latest", "--dry-run", "-o", "json").document()["notes"]
    assert "5 messages of them before offset 5: never delivered" in skipping
    assert set_offset(rmqctl, store, *asked, "undelivered", "--yes").code == 0
    assert (store / "config" / "delayOffset.json").read_text() == '{\n\t"offsetTable":{1:1,3:0\n\t}\n}'
    assert rmqctl("doctor", store).code == 0
    assert set_offset(rmqctl, store, *asked, "undelivered", "--yes").code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before
    assert set_offset(rmqctl, store, *asked, 6, "--yes").code == 2
    assert set_offset(rmqctl, store, "--delay-level", 7, "--to", 0, "--yes").code == 2


@pytest.mark.parametrize("name", ["broker-497", "broker-533", "broker-550"])
def test_a_delivered_level_has_nothing_undelivered(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    for level in (1, 2, 3):
        result = set_offset(rmqctl, store, "--delay-level", level, "--to", "undelivered", "--dry-run")
        assert (result.code, "nothing to do: the level already has this offset" in result.err) == (0, True)
    again = set_offset(rmqctl, store, "--delay-level", 1, "--to", "earliest", "--dry-run", "-o", "json").document()
    end = again["queues"][0]["maxOffset"]
    assert again["notes"][1] == f"{end} messages delivered already, and delivered again from 0 on"


def test_a_delay_level_is_instead_of_a_group(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    assert set_offset(rmqctl, store, "--to", "latest", "--yes").code == 2
    assert set_offset(rmqctl, store, "billing", "orders", "--to", "undelivered", "--yes").code == 2
    assert set_offset(rmqctl, store, "billing", "orders", "--delay-level", 1, "--to", "latest", "--yes").code == 2


def test_doctor_delivers_what_waits_in_a_level_that_is_ahead(golden: Golden, rmqctl: Rmqctl) -> None:
    store = delay_ahead(golden("497-delay"), "1:1,3:25477423,2:900")
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert (cause["code"], cause["then"].partition(":")[0]) == ("delay-ahead", "9 messages wait there")
    for command in cause["next"].split("; "):
        assert rmqctl(*shlex.split(command)[1:]).code == 0
    assert fastjson_loads((store / "config" / "delayOffset.json").read_text())["offsetTable"] == {
        "1": 1,
        "3": 0,
        "2": 0,
    }
    assert rmqctl("doctor", store).code == 0
