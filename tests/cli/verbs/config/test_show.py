"""`rmqctl config show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl

Golden = Callable[[str], Path]


def test_a_queue_without_an_offset_of_its_group_is_shown(golden: Golden, rmqctl: Rmqctl) -> None:
    """The real 5.3.3 kept no offset of billing's 20 retries."""
    store = golden("broker-533")
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace(",3:375", ""))
    rows = rmqctl("config", "show", store, "-o", "json").document()["offsets"]
    found = [(row["topic"], row["queueId"], row["maxOffset"], row["behind"]) for row in rows if row["offset"] is None]
    assert found == [("%RETRY%billing", 0, 20, 20), ("orders", 3, 375, 375)]
    assert rmqctl("config", "show", store).out.count("none") == 2


def test_messages_that_were_deleted_are_not_behind(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace(",3:375", ",3:1"))
    first = min((store / "commitlog").iterdir())
    before = {tuple(row[key] for key in ("group", "topic", "queueId")): row for row in _offsets(rmqctl, store)}
    first.unlink()
    after = {tuple(row[key] for key in ("group", "topic", "queueId")): row for row in _offsets(rmqctl, store)}
    key = ("billing", "orders", 3)
    assert (before[key]["minOffset"], before[key]["behind"]) == (0, 374)
    assert after[key]["minOffset"] > 1
    assert after[key]["behind"] == 375 - after[key]["minOffset"]


def _offsets(rmqctl: Rmqctl, store: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rmqctl("config", "show", store, "-o", "json").document()["offsets"]
    return found


def test_a_delay_level_without_an_offset_is_shown(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:2}}')
    rows = rmqctl("config", "show", store, "-o", "json").document()["delayOffsets"]
    levels = {row["queueId"] + 1 for row in rmqctl("queue", store, "SCHEDULE_TOPIC_XXXX", "-o", "jsonl").rows()}
    assert {row["level"]: row["offset"] for row in rows} == {level: 2 if level == 1 else None for level in levels | {1}}
    assert all(row["behind"] == row["maxOffset"] > 0 for row in rows if row["offset"] is None)
    assert rmqctl("config", "show", store).out.count("none") >= len(levels) - 1 > 0


def test_queues_without_files_are_shown(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    topics = store / "config" / "topics.json"
    text = topics.read_text()
    at = text.index('"orders":{')
    topics.write_text(text[:at] + text[at:].replace('"readQueueNums":4', '"readQueueNums":5', 1))
    rows = [row for row in _offsets(rmqctl, store) if row["topic"] == "orders"]
    assert [(row["queueId"], row["offset"]) for row in rows] == [(0, 375), (1, 375), (2, 376), (3, 375), (4, None)]


@pytest.mark.parametrize(
    ("part", "key"), [("topics", "topics"), ("groups", "groups"), ("offsets", "offsets"), ("delay", "delayOffsets")]
)
def test_one_part_is_shown(part: str, key: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    whole = rmqctl("config", "show", store, "-o", "json").document()
    found = rmqctl("config", "show", store, part, "-o", "json").document()
    also = ("unlisted",) if part == "offsets" else ()
    assert found == {name: whole[name] for name in ("schema", "store", key, *also)}
    table = rmqctl("config", "show", store, part).out
    assert table.strip() in rmqctl("config", "show", store).out
    assert sum(line.startswith(("Topics", "Groups", "Offsets")) for line in table.splitlines()) == 1


def test_an_unknown_part_is_wrong_usage(golden: Golden, rmqctl: Rmqctl) -> None:
    assert rmqctl("config", "show", golden("broker-533"), "filters").code == 2
