"""Random damage under real stores: `python -m tests.interop.random_damage 1000 --seed today`.

After `recover`, a broker serves all that it served before, or the plan counted it as lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import ExitCode
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from tests.conftest import DATA
from tests.damage.case import Case, conf_of, draw
from tests.damage.command import call
from tests.damage.pristine import Pristine, copy_store, stores_of
from tests.real_store.harness import VERSIONS, RealRocketMQ, broker_conf, geometry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "python -m tests.interop.random_damage"
CASES_A_TASK = 22
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


class Verdict(NamedTuple):
    """Which messages of a case no broker serves after the repair, untold; `has_plan` where recover planned one."""

    case: Case
    has_plan: bool
    untold: list[str]


def verdicts(seed: str, version: str, numbers: Sequence[int], folder: Path) -> list[Verdict]:
    """Ask a real broker, in one JVM, about cases of its own version's stores: before, after, and after a crash."""
    stores = stores_of(DATA, folder, lambda name: name.removeprefix("broker-").startswith(version.replace(".", "")))
    cases = [
        repaired(draw(f"{seed}-{version}", number, list(stores)), stores, folder / str(number)) for number in numbers
    ]
    confs = []
    for case in cases:
        for root in (case.damaged, case.recovered, case.crashed):
            conf = root.with_name(f"{root.name}.real.conf")
            pristine = stores[case.case.store]
            conf.write_text(broker_conf(root, geometry_of(pristine.broker_conf()), pristine.settings), encoding="ascii")
            confs.append(conf)
    answers = RealRocketMQ(version).read_confs(confs, start=True, key_messages=0, seconds=SECONDS_A_STORE)
    return [
        Verdict(case.case, bool(case.plan), untold(case, answers[3 * number :][:3]))
        for number, case in enumerate(cases)
    ]


def _task(seed: str, version: str, numbers: Sequence[int]) -> list[Verdict]:
    cache_where(find_cache)
    with tempfile.TemporaryDirectory(prefix="rmqctl-damage-", ignore_cleanup_errors=True) as folder:
        return verdicts(seed, version, numbers, Path(folder))


def main() -> int:
    """Parse the command line and run what it asks for; 1 where a case fails."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("cases", type=int, nargs="?", default=99, help="how many, over all versions")
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--only", action="append", default=[], help="VERSION/NUMBER of a case of the seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a JVM")
    options = parser.parse_args()
    starts = [only.split("/") for only in options.only]
    numbers = {
        version: [int(number) for of, number in starts if of == version]
        if starts
        else range(-(-options.cases // len(VERSIONS)))
        for version in VERSIONS
    }
    failed = count = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        tasks = [
            pool.submit(_task, options.seed, version, chosen[at : at + CASES_A_TASK])
            for version, chosen in numbers.items()
            for at in range(0, len(chosen), CASES_A_TASK)
        ]
        for task in tasks:
            for verdict in task.result():
                count += 1
                failed += bool(verdict.untold)
                for what in verdict.untold:
                    print(f"FAILED python -m tests.damage {verdict.case}\n  {what}", flush=True)
    print(f"{count - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
