"""The places of messages whose QUEUEOFFSETs do not simply follow one another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import HEADS, Message
from rmqctl.operations.rebuild.built_queue import QueueCounts
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import overwrite
from tests.support.repair import plan_of, repaired

SECOND, THIRD = f"{65536:020d}", f"{131072:020d}"
KEEP_GOING = "--keep-going"


def mixed(store: str, other: str, file: str, to: Path) -> Path:
    """The store with a log file of the other one in the place of its own."""
    root = unpack(store, to / "store")
    shutil.copy2(unpack(other, to / "other") / "commitlog" / file, root / "commitlog" / file)
    return root


def renumber(root: Path, of_queue: QueueKey, number: Callable[[int], int]) -> None:
    """Give the messages of a queue other QUEUEOFFSETs."""
    with closing(ReadOnlyStore(root)) as store:
        found = [item for item in store.commit_log.scan() if isinstance(item, Message)]
        for message in found:
            if (message.topic, message.queue_id) == of_queue:
                at = message.physical_offset + HEADS[0].offset("QUEUEOFFSET")
                overwrite(root, at, number(message.queue_offset).to_bytes(8, "big"))


PAID = ("OrderPaid", 1)
AFTER_A_REFUSED_MESSAGE = {  # from apache/rocketmq 6570: the log skips 20, the real 4.9.7 serves 37 of 37 messages
    "it runs on": lambda number: number + (number >= 20),
    "it was started again": lambda number: number + (20 <= number <= 30),
}


@pytest.mark.parametrize("number", AFTER_A_REFUSED_MESSAGE.values(), ids=AFTER_A_REFUSED_MESSAGE)
def test_a_number_that_a_broker_skipped_moves_no_message(
    number: Callable[[int], int], golden: Callable[[str], Path], rmqctl: Rmqctl
) -> None:
    root = golden("497-basic")
    units = rmqctl("queue", root, *PAID, "-o", "jsonl").rows()
    renumber(root, PAID, number)
    plan = plan_of(rmqctl, root)
    assert (plan["actions"], plan["lost"]["records"]) == ([], 0)
    found = rmqctl("verify", root, "-o", "json").document()["findings"]
    assert {finding["code"] for finding in found} == {"bad-queue-offset"}
    assert sum(finding.get("count", 1) for finding in found) == sum(number(unit) != unit for unit in range(37))
    assert "missing" not in rmqctl("doctor", root).out
    shutil.rmtree(root / "consumequeue" / PAID[0])
    with repaired(rmqctl, root) as plan:
        assert plan["lost"]["records"] == 0
        places = [(unit["queueOffset"], unit["physicalOffset"]) for unit in units]
        rebuilt = rmqctl("queue", root, *PAID, "-o", "jsonl").rows()
        served = dict(reversed([(unit["physicalOffset"], unit["queueOffset"]) for unit in rebuilt]))
        assert served.keys() == {at for _, at in places}
        if number(36) == 36:  # the numbers tell how the broker went on
            assert [(unit["queueOffset"], unit["physicalOffset"]) for unit in rebuilt] == places


def test_of_two_messages_with_one_number_the_second_has_no_unit(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    """From apache/rocketmq 2865: the queue is what a broker makes of it, and no repair changes it."""
    root = golden("497-basic")
    twin = rmqctl("queue", root, *PAID, "-o", "jsonl").rows()[20]["physicalOffset"]
    renumber(root, PAID, lambda number: number - (number >= 20))
    file = root / "consumequeue" / PAID[0] / str(PAID[1]) / f"{0:020d}"
    data = file.read_bytes()
    file.write_bytes(data[: 20 * CQ_UNIT.size] + data[21 * CQ_UNIT.size :] + bytes(CQ_UNIT.size))
    found = rmqctl("verify", root, "-o", "json").document()["findings"]
    assert [(finding["code"], finding["physicalOffset"]) for finding in found] == [("unit-mismatch", twin)]
    assert rmqctl("recover", root, "--dry-run", "-o", "json").document()["actions"] == []
    before = tree_hash(root / "consumequeue")
    shutil.rmtree(root / "consumequeue" / PAID[0])
    assert rmqctl("recover", root, "--yes").code == 3
    assert tree_hash(root / "consumequeue") == before


@pytest.mark.parametrize("options", [(), (KEEP_GOING,)])
@pytest.mark.parametrize(
    ("store", "other", "file"),
    [("471-basic", "471-crash", SECOND), ("471-basic", "497-basic", THIRD), ("497-lmq", "471-crash", SECOND)],
)
def test_one_repair_settles_it(
    store: str, other: str, file: str, options: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """Also a second one without --keep-going has nothing to do."""
    root = mixed(store, other, file, tmp_path)
    with repaired(rmqctl, root, "--profile", "4.9", *options) as plan:
        again = plan_of(rmqctl, root, "--profile", "4.9")
        assert (again["actions"], again["lost"]["records"], again["leaves"]) == ([], 0, plan["leaves"])


def test_a_plan_says_where_queues_end_and_what_it_leaves(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = mixed("471-basic", "471-crash", SECOND, tmp_path)
    plan = rmqctl("recover", root, "--profile", "4.7", "--dry-run", "-o", "json").document()
    done = rmqctl("recover", root, "--profile", "4.7", "--yes", "-o", "json").document()
    assert (done["queues"], done["lost"], done["leaves"]) == (plan["queues"], plan["lost"], plan["leaves"])
    rows = rmqctl("queue", root, "-o", "jsonl").rows()
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in rows}
    assert ends == {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in plan["queues"]}


def test_a_queue_is_rebuilt_alike_alone_and_among_others(tmp_path: Path) -> None:
    """The places of one queue do not depend on the others."""
    store = ReadOnlyStore(mixed("471-basic", "471-crash", SECOND, tmp_path))
    together = built(store, frozenset(store.queues))
    alone = {key: built(store, frozenset((key,)))[key] for key in store.queues}
    assert alone == together


def built(store: ReadOnlyStore, keys: frozenset[QueueKey]) -> dict[QueueKey, QueueCounts]:
    rebuild = Rebuild(store, Selection(index=False, keys=keys, all_topics=True), None)
    rebuild.run()
    return {counts.key: counts for counts in rebuild.result.queues}
