"""`rmqctl lag`."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl, unpack
from tests.support.databases import write_database
from tests.support.file_edits import write_at
from tests.support.group_offsets import add_offsets
from tests.support.log_maker import Record, write_log

Golden = Callable[[str], Path]
Row = dict[str, Any]


def lag(rmqctl: Rmqctl, store: Path, *words: str) -> Row:
    result = rmqctl("lag", store, "-o", "json", *words)
    assert result.code == 0, result.err
    return result.document()


def by_queue(document: Row) -> dict[tuple[str, str, int], Row]:
    return {(row["group"], row["topic"], row["queueId"]): row for row in document["groups"]}


def test_min_and_max_are_those_of_queue(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550")
    ends = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in rmqctl("queue", store, "-o", "jsonl").rows()
    }
    rows = lag(rmqctl, store)["groups"]
    assert all((row["minOffset"], row["maxOffset"]) == ends.get((row["topic"], row["queueId"]), (0, 0)) for row in rows)
    assert all(row["behind"] == row["maxOffset"] - (row["offset"] or 0) for row in rows)
    assert ("popgroup", "%RETRY%popgroup", 0) in by_queue({"groups": rows})  # no folder, but an offset


def test_the_oldest_message_that_is_not_consumed(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    add_offsets(store, {"orders@billing": {"3": 370}})
    document = lag(rmqctl, store, "billing")
    row = by_queue(document)["billing", "orders", 3]
    (message,) = rmqctl("query", store, "--topic", "orders", "--queue", "3", "--offset", "370", "-o", "jsonl").rows()
    info = rmqctl("info", store, "-o", "json").document()["commitLog"]
    assert (row["behind"], row["oldestStoreTimestamp"]) == (5, message["storeTimestamp"])
    assert (document["lastStoreTimestamp"], document["lastStoreTime"]) == (
        info["lastStoreTimestamp"],
        info["lastStoreTime"],
    )
    assert row["oldestAgeMs"] == info["lastStoreTimestamp"] - message["storeTimestamp"] > 0


def test_totals_have_retries_dead_letters_and_messages_in_flight(golden: Golden, rmqctl: Rmqctl) -> None:
    """The real 5.3.3 kept no offset of billing's 20 retries; the client of broker-550 let one pop time out."""
    (billing,) = lag(rmqctl, golden("broker-533"), "billing")["groupTotals"]
    assert [billing[key] for key in ("behind", "retryDepth", "dlqDepth", "popped")] == [20, 20, 20, 0]
    document = lag(rmqctl, golden("broker-550"), "popgroup")
    (popgroup,) = document["groupTotals"]
    assert [popgroup[key] for key in ("behind", "retryDepth", "dlqDepth", "popped")] == [0, 0, 0, 1]
    assert by_queue(document)["popgroup", "%RETRY%popgroup_popt", 0]["popped"] == 1


def test_retries_that_wait_for_their_delay(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    scheduled = rmqctl("dump", store, "--topic", "SCHEDULE_TOPIC_XXXX", "-o", "jsonl").rows()
    retries = [row for row in scheduled if row["properties"]["REAL_TOPIC"] == "%RETRY%billing"]
    assert 0 < len(retries) < len(scheduled)

    def delayed() -> list[int]:
        return [total["retriesDelayed"] for total in lag(rmqctl, store)["groupTotals"]]

    assert delayed() == [0, 0]
    (store / "config" / "delayOffset.json").write_text("{}")
    assert delayed() == [len(retries), 0]


def test_offsets_outside_their_queue(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    add_offsets(store, {"orders@billing": {"0": 1, "1": 400}})
    min((store / "commitlog").iterdir()).unlink()
    rows = by_queue(lag(rmqctl, store))
    before, after = rows["billing", "orders", 0], rows["billing", "orders", 1]
    assert (before["outside"], before["behind"]) == ("before", 375 - before["minOffset"])
    assert (after["outside"], after["behind"], after["oldestStoreTime"]) == ("after", -25, None)
    result = rmqctl("lag", store)
    assert result.code == 0
    assert "before the queue's begin" in result.out
    assert "after the queue's end" in result.out
    begin = before["minOffset"]
    assert (
        f"billing in orders/0 is at 1, before the queue's begin (the queue has [{begin}, 375)): "
        "messages that the group has not consumed were deleted" in result.err
    )
    assert "billing in orders/1 is at 400, after the queue's end" in result.err
    (total,) = [one for one in lag(rmqctl, store)["groupTotals"] if one["group"] == "billing"]
    assert total["expiredUnread"] == begin - 1
    assert f"{begin - 1} messages expired unread: billing {begin - 1}\n" in result.err
    assert "may skip new messages" in result.err


@pytest.mark.parametrize("bound", ["1000", "1h"])
def test_an_offset_outside_its_queue_exceeds_every_bound(bound: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    assert rmqctl("lag", store, "billing", "--max-behind", bound).code == 0
    add_offsets(store, {"orders@billing": {"1": 400}})
    result = rmqctl("lag", store, "billing", "--max-behind", bound)
    assert result.code == 1
    assert "the first is billing in orders/1, after the queue's end" in result.err


def test_doctor_names_the_groups_of_clients_that_are_behind(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read the delayed messages for that."""
    store = golden("broker-533")
    add_offsets(store, {"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 70}})
    (internal,) = lag(rmqctl, store, "CID_RMQ_SYS_TRANS")["groupTotals"]
    assert internal["behind"] == 10
    monkeypatch.delattr("rmqctl.forensics.groups.lag.delayed_retries")
    document = rmqctl("doctor", store, "-o", "json").document()
    assert document["groups"] == [{"group": "billing", "behind": 20, "behindAtLeast": False}]


@pytest.mark.parametrize(
    ("bound", "code"),
    [("0", 1), ("19", 1), ("20", 0), ("15s", 1), ("16500ms", 0), ("1h", 0), ("soon", 2), ("1.5h", 2), ("-1", 2)],
)
def test_max_behind(bound: str, code: int, golden: Golden, rmqctl: Rmqctl) -> None:
    """20 retries of billing, of 16 s."""
    result = rmqctl("lag", golden("broker-533"), "--max-behind", bound)
    assert result.code == code
    assert ("over --max-behind; the first is billing in %RETRY%billing/0" in result.err) == (code == 1)


def test_an_age_that_is_not_known_exceeds_every_age(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    add_offsets(store, {"orders@billing": {"0": 374, "1": 374}})
    one = ("lag", store, "billing", "--max-behind")
    assert rmqctl(*one, "1h").code == 0
    for queue in ("0", "1"):
        (unit,) = rmqctl("queue", store, "orders", queue, "--tail", "1", "-o", "jsonl").rows()
        log = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= unit["physicalOffset"])
        write_at(log, unit["physicalOffset"] - int(log.name), bytes(8))
    found = rmqctl(*one, "1h")
    assert found.code == 1
    assert "billing in orders/0: the oldest message that the group has not consumed cannot be read" in found.err
    assert "; 1 more like it\n2 queues over --max-behind; the first is billing in orders/0" in found.err
    row = by_queue(lag(rmqctl, store, "billing", "--max-behind", "1"))["billing", "orders", 0]
    assert (row["behind"], row["oldestAgeMs"]) == (1, None)


def test_the_group_that_revives_has_no_age(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550")
    assert rmqctl("lag", store, "CID_RMQ_SYS_REVIVE_GROUP", "--max-behind", "1s").code == 0
    assert rmqctl("lag", store, "CID_RMQ_SYS_REVIVE_GROUP", "--max-behind", "1").code == 1


def test_every_format_has_the_same_rows(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550")
    rows = lag(rmqctl, store)["groups"]
    assert rmqctl("lag", store, "-o", "jsonl").rows() == rows
    cells = list(csv.DictReader(io.StringIO(rmqctl("lag", store, "-o", "csv").out)))
    assert [row["behind"] for row in cells] == [str(row["behind"]) for row in rows]
    table = rmqctl("lag", store).out
    assert all(row["topic"] in table for row in rows)
    assert "none" in table


def test_a_queue_without_files_has_a_row(golden: Golden, rmqctl: Rmqctl) -> None:
    """A broker, too, lists each queue that topics.json gives to consumers."""
    store = golden("broker-497")
    topics = store / "config" / "topics.json"
    document = topics.read_text()
    at = document.index('"readQueueNums":', document.index('"orders":{'))
    topics.write_text(document[:at] + document[at:].replace('"readQueueNums":4', '"readQueueNums":6', 1))
    row = by_queue(lag(rmqctl, store, "billing"))["billing", "orders", 5]
    assert [row[key] for key in ("minOffset", "maxOffset", "offset", "behind")] == [0, 0, None, 0]


def test_an_unknown_group(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    result = rmqctl("lag", store, "biling")
    assert (result.code, result.out) == (2, "")
    assert "'biling'" in result.err


def test_a_store_without_groups(tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(tmp_path, [Record()], file_size=4096)
    result = rmqctl("lag", tmp_path)
    assert (result.code, result.out) == (0, "")
    assert "no file in config/ names a consumer group" in result.err


def test_offsets_that_cannot_be_read_are_partial(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    path = store / "config" / "consumerOffset.json"
    good = path.read_text()
    path.write_text(good[:100])
    path.with_name(path.name + ".bak").write_text(good)
    assert lag(rmqctl, store)["groupTotals"]  # from the .bak, as a broker reads it
    path.with_name(path.name + ".bak").write_text(json.dumps([]))
    result = rmqctl("lag", store)
    assert result.code == 4
    assert "config/consumerOffset.json" in result.err


def places(rows: list[Row]) -> set[tuple[str, int, int]]:
    return {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows}


@pytest.mark.parametrize("name", ["broker-497", "broker-533", "broker-550", "497-lmq", "326-tx-crash"])
def test_dump_prints_the_messages_that_lag_counts(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    """Half messages of 3.2.6 have the topic of their transaction, and no place in its queues."""
    store = golden(name)
    topics = {row["topic"] for row in rmqctl("queue", store, "-o", "jsonl").rows() if not row["topic"].startswith("%")}
    add_offsets(store, {f"{topic}@audit": {"0": 10} for topic in topics})
    document = lag(rmqctl, store)
    for total in document["groupTotals"]:
        dumped = rmqctl("dump", store, "--group", total["group"], "--unconsumed", "-o", "jsonl").rows()
        rows = [row for row in document["groups"] if row["group"] == total["group"]]
        behind = {
            (row["topic"], row["queueId"], offset)
            for row in rows
            for offset in range(max(row["offset"] or 0, row["minOffset"]), row["maxOffset"])
        }
        assert places(dumped) == behind
        assert len(dumped) == len(behind) == total["behind"]
    assert any(total["behind"] for total in document["groupTotals"] if total["group"] == "audit")


def test_unconsumed_goes_with_other_conditions(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    unconsumed = ("--group", "billing", "--unconsumed")
    everything = rmqctl("dump", store, *unconsumed, "-o", "jsonl").rows()
    border = everything[5]["physicalOffset"]
    assert rmqctl("dump", store, *unconsumed, "--to-offset", border, "-o", "jsonl").rows() == everything[:5]
    assert rmqctl("dump", store, *unconsumed, "--from-offset", border, "-o", "jsonl").rows() == everything[5:]
    assert rmqctl("dump", store, *unconsumed, "--tail", "2", "-o", "jsonl").rows() == everything[-2:]
    assert rmqctl("dump", store, *unconsumed, "--queue-offset", "3..4", "-o", "jsonl").rows() == everything[3:5]
    caught_up = rmqctl("dump", store, "--group", "CID_RMQ_SYS_TRANS", "--unconsumed", "-o", "jsonl")
    assert (caught_up.code, caught_up.out) == (0, "")
    assert "CID_RMQ_SYS_TRANS has no message left to consume" in caught_up.err


def test_kv_store_without_data_changes_no_answer(golden: Golden, rmqctl: Rmqctl) -> None:
    """5.3.2 and later create the database with popConsumerKVServiceEnable, also if nobody pops."""
    store = golden("broker-550")
    write_database(store / "kvStore", {"default": {}, "popState": {}})
    assert rmqctl("lag", store).code == 0
    (store / "kvStore" / "CURRENT").write_bytes(b"MANIFEST-999999")
    found = rmqctl("lag", store)
    assert (found.code, "kvStore/ says which messages were popped" in found.err) == (4, True)


def test_queues_without_files_are_bounded(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    path = store / "config" / "topics.json"
    before = lag(rmqctl, store)
    path.write_text(path.read_text().replace('"readQueueNums":4', '"readQueueNums":2147483647'))
    document = lag(rmqctl, store)
    assert (before["unlisted"], document["unlisted"] > 16_000) == (0, True)
    listed = [row for row in before["groups"] if row["offset"] is not None or row["maxOffset"]]
    assert [row for row in document["groups"] if row in listed] == listed
    assert len(document["groups"]) <= len(before["groups"])
    assert "rows of queues without files and without an offset left out" in rmqctl("lag", store).err
    shown = rmqctl("config", "show", store, "offsets", "-o", "json").document()
    assert shown["unlisted"] > 16_000
    assert len(shown["offsets"]) < 100


def test_config_show_and_lag_say_the_same(golden: Golden, rmqctl: Rmqctl) -> None:
    """Also for queues without files."""
    store = golden("broker-550")
    add_offsets(store, {"orders@billing": {"9": 3}})
    keys = ("group", "topic", "queueId", "offset", "minOffset", "maxOffset", "behind")
    of_lag = {tuple(row[key] for key in keys) for row in lag(rmqctl, store)["groups"]}
    shown = rmqctl("config", "show", store, "offsets", "-o", "json").document()["offsets"]
    assert of_lag <= {tuple(row[key] for key in keys) for row in shown}
    assert ("billing", "orders", 9, 3, 0, 0, -3) in of_lag


@pytest.mark.parametrize(
    ("part", "at_least", "dlq_depth"),
    [("orders", True, 20), ("%RETRY%billing/0", True, 20), ("%DLQ%billing", False, None), ("audit", False, 20)],
)
def test_what_is_not_read_is_not_counted_as_none(
    part: str, at_least: bool, dlq_depth: int | None, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("broker-497", tmp_path)
    (store / "consumequeue" / part).parent.mkdir(exist_ok=True)
    shutil.rmtree(store / "consumequeue" / part, ignore_errors=True)
    (store / "consumequeue" / part).symlink_to(tmp_path)  # is not followed
    (billing, _) = rmqctl("lag", store, "-o", "json").document()["groupTotals"]
    assert (billing["behindAtLeast"], billing["dlqDepth"]) == (at_least, dlq_depth)
    groups = rmqctl("doctor", store, "-o", "json").document()["groups"]
    assert ({"group": "billing", "behind": billing["behind"], "behindAtLeast": True} in groups) == at_least
    topic = part.removesuffix("/0")
    said = rmqctl("config", "set-offset", store, "billing", topic, "--to", "latest", "--new-group")
    assert (said.code, "cannot be read (--follow-links" in said.err) == (4, True)


def test_where_a_queue_is_not_read_sums_and_copies_are_not_claimed(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-497", tmp_path)
    (store / "consumequeue" / "orders").rename(tmp_path / "elsewhere")
    (store / "consumequeue" / "orders").symlink_to(tmp_path / "elsewhere")
    found = rmqctl("lag", store, "-o", "json")
    totals = {row["group"]: row["behindAtLeast"] for row in found.document()["groupTotals"]}
    assert (found.code, totals) == (4, {"billing": True, "CID_RMQ_SYS_TRANS": False})
    assert "\nbilling            ≥ 0 " in rmqctl("lag", store).out
    traced = rmqctl("trace", store, "--key", "o1477", "-o", "json")
    assert (traced.code, traced.document()["stages"][0]["reachable"]) == (4, None)
    waiting = rmqctl("trace", store, "--unresolved", "-o", "json")
    assert (waiting.code, waiting.document()["unresolved"]) == (4, [])
    for one in (found, traced, waiting):
        assert "consumequeue/orders: " in one.err
    delivered = rmqctl("config", "set-offset", store, "--delay-level", 1, "--to", "undelivered", "--dry-run")
    assert (delivered.code, "may have what the level delivered" in delivered.err) == (4, True)
