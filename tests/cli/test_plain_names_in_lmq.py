"""INNER_MULTI_DISPATCH with names that lack %LMQ%, as the real stores of 4.9.7 and 5.3.3 number and dispatch them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.format.cq_unit import CQ_UNIT
from tests.conftest import Rmqctl
from tests.support.log_maker import Record, write_log

ALL_PLACES = {("%LMQ%a", 0): 3, ("Orders", 0): 3, ("Orders", 1): 2, ("plain", 0): 3, ("plain", 1): 4}


def record(topic: str, queue_id: int, queue_offset: int, names: str = "", offsets: str = "") -> Record:
    light = f"INNER_MULTI_DISPATCH\x01{names}\x02" if names else ""
    light += f"INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02" if offsets else ""
    return Record(
        topic=topic, queue_id=queue_id, queue_offset=queue_offset, properties=f"TAGS\x01A\x02{light}".encode()
    )


# what 4.9.7 wrote, put for put
OLD = [
    record("Orders", 0, 0, "plain", "0"),
    record("Orders", 1, 0, "plain,%LMQ%a", "0,0"),
    record("plain", 1, 1),
    record("Orders", 1, 1, "%LMQ%a,plain", "1,2"),
    record("plain", 1, 3),
    record("plain", 0, 1),
    record("Orders", 0, 1, "plain", "2"),
    record("Orders", 0, 2, "%LMQ%a", "2"),
]
# what 5.3.3 wrote: no offset for a name without %LMQ%
NEW = [
    record("Orders", 0, 0, "plain"),
    record("Orders", 1, 0, "%LMQ%a,plain", "0,"),
    record("plain", 1, 0),
    record("Orders", 0, 1, "%LMQ%a", "1"),
]


def ends(rmqctl: Rmqctl, store: Path) -> dict[tuple[str, int], tuple[int, int]]:
    rows = rmqctl("queue", store, "-o", "jsonl").rows()
    return {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows}


@pytest.mark.parametrize("command", [("rebuild", "queues"), ("recover",)])
def test_up_to_5_1_such_a_queue_is_that_of_the_topic(command: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = tmp_path / "store"
    write_log(store, OLD, file_size=65536)
    assert rmqctl(command[0], store, *command[1:], "--profile", "4.9", "--yes").code == 3
    assert ends(rmqctl, store) == {key: (0, end) for key, end in ALL_PLACES.items()}
    assert not [row for row in rmqctl("verify", store, "-o", "json").document()["findings"] if "unit" in row["code"]]


@pytest.mark.parametrize("command", [("rebuild", "queues"), ("recover",)])
def test_from_5_2_on_such_a_name_has_no_unit_and_takes_those_before_it_along(
    command: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = tmp_path / "store"
    write_log(store, NEW, file_size=65536)
    assert rmqctl(command[0], store, *command[1:], "--profile", "5.3", "--yes").code == 3
    # with a pre-blank at 0, the real 5.3.3 says MESSAGE_WAS_REMOVING at 0, and gives nothing
    assert ends(rmqctl, store) == {
        ("%LMQ%a", 0): (0, 2),
        ("Orders", 0): (0, 2),
        ("Orders", 1): (0, 1),
        ("plain", 1): (0, 1),
    }
    (repeated,) = (row for row in rmqctl("verify", store, "-o", "json").document()["findings"] if "unit" in row["code"])
    assert (repeated["code"], repeated["topic"], repeated["queueOffset"]) == ("unit-mismatch", "%LMQ%a", 0)


@pytest.mark.parametrize(("profile", "is_refused"), [("4.7", False), ("4.9", True), ("5.3", True)])
def test_a_start_ends_at_a_message_that_cannot_be_dispatched(
    profile: str, is_refused: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The real 5.3.3, which wrote such a message, never dispatched what came after, and did not start again after a
    crash.
    """
    store = tmp_path / "store"
    write_log(store, [record("Orders", 1, 0, "plain,%LMQ%a", ",0"), record("Orders", 1, 1)], file_size=65536)
    (store / "abort").touch()
    plan = rmqctl("recover", store, "--profile", profile, "--dry-run", "-o", "json").document()
    refused = plan["restart"].get("refused", "")
    assert refused == (
        "the message at 0 cannot be dispatched: INNER_MULTI_QUEUE_OFFSET has '', which is no number"
        if is_refused
        else ""
    )
    notes = [note for note in plan["notes"] if "does not start again: the message at 0 cannot be dispatched" in note]
    assert (plan["lost"]["records"], len(notes)) == (0, is_refused)
    queues = {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in plan["queues"]}
    assert queues["Orders", 1] == 2


@pytest.mark.parametrize("offset", [2**58, 10**18 - 1, 2**63 - 1])
def test_an_offset_that_no_queue_has_makes_no_queue(offset: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A file of it would have a name beyond 63 bits, which nobody loads."""
    store = tmp_path / "store"
    write_log(
        store, [record("Orders", 0, 0, "%LMQ%a", str(offset)), record("Orders", 0, 1, "%LMQ%b", "0")], file_size=65536
    )
    for command in (("rebuild", "queues"), ("recover",)):
        result = rmqctl(command[0], store, *command[1:], "--profile", "5.3", "--yes")
        assert (result.code, ends(rmqctl, store)) == (3, {("Orders", 0): (0, 2), ("%LMQ%b", 0): (0, 1)}), result.err
        assert rmqctl("verify", store, "--level", "2").code == 0
        assert rmqctl("undo", store, "--yes").code == 0


def test_one_wrong_offset_moves_no_light_queue(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    """The first message of %LMQ%dev0 says 9 where 0 was: those after it go on from 0."""
    store = golden("533-lmq")
    before = rmqctl("queue", store, "%LMQ%dev0", 0, "-o", "jsonl").rows()
    log = min((store / "commitlog").iterdir())
    damaged = log.read_bytes().replace(b"INNER_MULTI_QUEUE_OFFSET\x010,0", b"INNER_MULTI_QUEUE_OFFSET\x019,0", 1)
    assert damaged != log.read_bytes()
    log.write_bytes(damaged)
    shutil.rmtree(store / "consumequeue" / "%LMQ%dev0")
    result = rmqctl("recover", store, "--yes", "-o", "json")
    assert (result.code, result.document()["lost"]["records"]) == (3, 0)
    assert rmqctl("queue", store, "%LMQ%dev0", 0, "-o", "jsonl").rows() == before
    assert rmqctl("verify", store).code == 0


def test_messages_without_a_place_in_a_light_queue_are_named(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = tmp_path / "store"
    said = (0, 1, 2, 1, 3, 4)
    records = [record("Orders", 0, number, "%LMQ%a", str(offset)) for number, offset in enumerate(said)]
    write_log(store, records, file_size=65536)
    looked = rmqctl("rebuild", store, "queues", "--profile", "5.3", "--dry-run", "-o", "json")
    again = [message["physicalOffset"] for message in rmqctl("dump", store, "-o", "jsonl").rows()][3]
    (note,) = (note for note in looked.document()["notes"] if "no place in it" in note)
    assert f"no place in it (%LMQ%a/0: 1, the first at {again}). They count as lost" in note


def test_one_wrong_unit_costs_no_light_message(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    """The unit of %LMQ%dev0 at 9 leads to an earlier message: one rebuild mends it, and a second one finds it so."""
    store = golden("533-lmq")
    before = rmqctl("queue", store, "%LMQ%dev0", 0, "-o", "jsonl").rows()
    file = store / "consumequeue" / "%LMQ%dev0" / "0" / f"{0:020d}"
    data = file.read_bytes()
    file.write_bytes(data[: 9 * CQ_UNIT.size] + data[3 * CQ_UNIT.size :][: CQ_UNIT.size] + data[10 * CQ_UNIT.size :])
    for code in (3, 0):
        assert rmqctl("rebuild", store, "queues", "--yes").code == code
        assert rmqctl("queue", store, "%LMQ%dev0", 0, "-o", "jsonl").rows() == before
