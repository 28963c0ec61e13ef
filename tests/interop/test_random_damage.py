"""Random damage under the real stores: after `recover` a broker serves all that it served before, or the plan counted
it as lost.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.errors import ExitCode
from tests.conftest import DATA
from tests.damage.case import Case, conf_of, draw
from tests.damage.command import call
from tests.damage.pristine import Pristine, copy_store, stores_of
from tests.real_store.harness import VERSIONS, RealRocketMQ, broker_conf, geometry_of

pytestmark = pytest.mark.interop

SEED = "interop"
CASES_A_VERSION = 22
SECONDS_A_STORE = 15
MADE = (ExitCode.CLEAN, ExitCode.REPAIRED)
DIES_AGAIN = "if the broker dies before its checkpoint moves on"


class Served(NamedTuple):
    """A message that the real store gives to consumers of the queue that it names."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: int


class Repaired(NamedTuple):
    """A case's store as it was damaged; recovered; recovered, with `abort`; what recover said that it did, and that a
    broker starts.
    """

    case: Case
    damaged: Path
    recovered: Path
    crashed: Path
    plan: dict[str, Any]
    starts: bool


def repaired(case: Case, stores: dict[str, Pristine], folder: Path) -> Repaired:
    """Make the three stores of a case."""
    damaged = folder / "damaged"
    case.make(stores, damaged)
    recovered = copy_store(damaged, folder / "recovered")
    conf = conf_of(damaged)
    result = call(
        "recover", recovered, "--broker-conf", conf, "--profile", stores[case.store].profile, "--yes", "-o", "json"
    )
    crashed = copy_store(recovered, folder / "crashed")
    (crashed / "abort").touch()
    return Repaired(case, damaged, recovered, crashed, result.document() if result.out else {}, result.code in MADE)


def served(answer: dict[str, Any]) -> set[Served]:
    """What consumers get of a store; nothing of one that does not start."""
    return {
        Served(row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["crc32"])
        for row in answer.get("messages", ())
        if (row["topic"], row["queueId"]) == (row["cqTopic"], row["cqQueueId"])
    }


def strays(answer: dict[str, Any]) -> set[int]:
    """Physical offsets of records that a queue serves although they name another: one bit of the name is flipped.

    A start after a crash puts them into a queue of that name, too; a repaired store has no such queue.
    """
    return {
        row["physicalOffset"]
        for row in answer.get("messages", ())
        if (row["topic"], row["queueId"]) != (row["cqTopic"], row["cqQueueId"])
    }


def untold(case: Repaired, answers: list[dict[str, Any]]) -> list[str]:
    """What brokers do not serve after the repair, and the plan does not say so."""
    if not case.plan:
        return []
    before, after, crashed = map(served, answers)
    if "JSON" in answers[0].get("error", ""):
        return []  # configuration that no broker reads, which recover has no part in
    found = [
        f"the broker does not start: {answer}"
        for answer in answers[1:]
        if case.starts and answer.get("load") is not True
    ]
    if found:
        return found
    lost = Counter({(queue["topic"], queue["queueId"]): queue.get("lostMessages", 0) for queue in case.plan["queues"]})
    in_their_queue = strays(answers[1])
    after_a_crash = crashed if not any(note.startswith(DIES_AGAIN) for note in case.plan["notes"]) else before
    for name, now in (("normal", after), ("abort", after_a_crash)):
        gone = {message for message in before - now if message.physical_offset not in in_their_queue}
        more = Counter((message.topic, message.queue_id) for message in gone) - lost
        if len(gone) > case.plan["lost"]["records"] or more:
            told = f"{len(gone)} of {len(before)} are gone, lost says {case.plan['lost']['records']}"
            found.append(f"{name}: {told}; more than said of {dict(more)}; {sorted(gone)[:3]}")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_no_less_after_recover(version: str, tmp_path: Path) -> None:
    """Each store by its own version, all in one JVM; before and after, and after a further crash."""
    stores = stores_of(DATA, tmp_path, lambda name: name.removeprefix("broker-").startswith(version.replace(".", "")))
    cases = [
        repaired(draw(f"{SEED}-{version}", number, list(stores)), stores, tmp_path / str(number))
        for number in range(CASES_A_VERSION)
    ]
    confs = []
    for case in cases:
        for root in (case.damaged, case.recovered, case.crashed):
            conf = root.with_name(f"{root.name}.real.conf")
            pristine = stores[case.case.store]
            conf.write_text(broker_conf(root, geometry_of(pristine.broker_conf()), pristine.settings), encoding="ascii")
            confs.append(conf)
    answers = RealRocketMQ(version).read_confs(confs, start=True, key_messages=0, seconds=SECONDS_A_STORE)
    failures = []
    for number, case in enumerate(cases):
        failures += [f"python -m tests.damage {case.case}: {what}" for what in untold(case, answers[3 * number :][:3])]
    assert not failures, "\n".join(failures)
    assert sum(bool(case.plan) for case in cases) > CASES_A_VERSION * 2 // 3
