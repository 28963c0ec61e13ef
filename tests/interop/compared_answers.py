"""What the real store says of golden stores that were damaged and repaired, compared with what it should say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rmqctl.cli.main import run
from rmqctl.format.message import PLACEHOLDER_SIGN
from tests.conftest import LIKE_OTHERS
from tests.interop.readings import settings_of, sizes
from tests.interop.written_stores import PROFILE_OF
from tests.real_store.harness import RealRocketMQ
from tests.support.golden_store import CASES as ALL_CASES
from tests.support.golden_store import profile_of, ranges

Place = tuple[str, int, int]
VERSION_OF = {profile: version for version, profile in PROFILE_OF.items()}
CASES = {name: case for name, case in ALL_CASES.items() if not case["base"].startswith(LIKE_OTHERS)}
BASES = sorted({case["base"] for case in CASES.values()})
REPAIRED = 3
ALL = 100_000


def place_of(row: dict[str, Any]) -> Place:
    return row["cqTopic"], row["cqQueueId"], row["queueOffset"]


def by_place(answer: dict[str, Any]) -> dict[Place, dict[str, Any]]:
    return {place_of(row): row for row in answer["messages"]}


def assert_all_but_placeholders(answer: dict[str, Any], golden: dict[str, Any]) -> list[dict[str, Any]]:
    """The store is as before, placeholders aside; returns these."""
    assert answer["load"] is True
    assert answer["maxPhyOffset"] == golden["maxPhyOffset"]
    assert ranges(answer["queues"]) == ranges(golden["queues"])
    assert [row["entries"] for row in answer["queues"] if row["maxOffset"]] == [
        row["entries"] for row in golden["queues"] if row["maxOffset"]
    ]
    got, wanted = by_place(answer), by_place(golden)
    assert got.keys() == wanted.keys()
    placeholders = [place for place, row in got.items() if row["preparedTransactionOffset"] == PLACEHOLDER_SIGN]
    assert [place for place in got if got[place] != wanted[place] and place not in placeholders] == []
    return [got[place] for place in placeholders]


def conf_of(name: str, folder: Path) -> Path:
    """A broker.conf: where index or queues are missing, no file shows their sizes."""
    conf = folder / "broker.conf"
    conf.write_text(
        "".join(f"{key}={value}\n" for key, value in (sizes(name).broker_conf() | settings_of(name)).items())
    )
    return conf


def rmqctl(*arguments: object) -> int:
    return run([str(argument) for argument in arguments])


def real_answers(
    stores: Iterable[Path], name: str, version: str | None = None, *, time_look_ups: bool = False
) -> list[dict[str, Any]]:
    """What the real store says of each, loaded and started."""
    broker = RealRocketMQ(version or VERSION_OF[profile_of(name)])
    sized, settings = sizes(name), settings_of(name)
    return broker.read_all(
        [*stores], start=True, geometry=sized, key_messages=ALL, time_look_ups=time_look_ups, settings=settings
    )


def units(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Topic, queueId, queueOffset, physicalOffset, size of each unit that gives a message."""
    return {
        (row["topic"], row["queueId"], *entry)
        for row in answer["queues"]
        for entry in row["entries"]
        if isinstance(entry, list)
    }


def assert_keys(answer: dict[str, Any], wanted: dict[str, Any], begin: int, end: int) -> None:
    """Whatever `wanted` has of [begin, end) by a topic and a key, the answer has, too; where it has the newest only,
    those of that time.
    """
    found = {(row["topic"], row["key"]): row["physicalOffsets"] for row in answer["keyQueries"]}
    for row in wanted["keyQueries"]:
        asked = row["topic"], row["key"]
        offsets = found.get(asked, [])
        oldest = offsets[0] if len(offsets) == row["max"] else begin
        assert {offset for offset in row["physicalOffsets"] if oldest <= offset < end} <= set(offsets), asked


def messages(answer: dict[str, Any], begin: int, end: int) -> dict[Place, dict[str, Any]]:
    """Those of [begin, end) by queue and physical offset; without the checksum that was computed."""
    return {
        (row["cqTopic"], row["cqQueueId"], row["physicalOffset"]): {
            key: value for key, value in row.items() if key != "crc32"
        }
        for row in answer["messages"]
        if begin <= row["physicalOffset"] < end
    }


def assert_no_worse(answer: dict[str, Any], restart: dict[str, Any], *, with_times: bool) -> None:
    """What the broker's own restart has left is all there."""
    assert units(answer) >= units(restart)
    assert_keys(answer, restart, 0, answer["maxPhyOffset"])
    queues = {(row["topic"], row["queueId"]): row for row in answer["queues"]}
    for row in restart["queues"]:
        if not row["maxOffset"]:
            continue
        our = queues[row["topic"], row["queueId"]]
        assert (our["minOffset"], our["entries"][: len(row["entries"])]) == (
            row["minOffset"],
            of_messages(row["entries"]),
        )
        if with_times and (our["maxOffset"], our["entries"]) == (row["maxOffset"], row["entries"]):
            assert {key: our[key] for key in row} == row


def of_messages(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if isinstance(entry, list)]
