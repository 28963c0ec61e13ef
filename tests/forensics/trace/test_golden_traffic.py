"""`trace` of every message of the stores that real clients made, against what the clients' programs were made to do.

The programs are Traffic.java and Traffic5.java: the number in KEYS says what becomes of a message.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.forensics.trace.document import document
from rmqctl.forensics.trace.trace import Question, Trace
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import expected
from tests.support.client_log import REVIVE_TOPIC, TIMER_TOPIC, group_states, stored_progress

pytestmark = pytest.mark.slow

Kinds = Counter[str]
Place = tuple[str, int, int]


class Made(NamedTuple):
    """How a store was made: so many orders; and whether the program waited for the last retry."""

    orders: int
    dead_letters: bool
    pop: bool


MADE = {
    "broker-497": Made(1500, dead_letters=True, pop=False),
    "broker-533": Made(1500, dead_letters=True, pop=False),
    "broker-550": Made(200, dead_letters=False, pop=True),
}
WAITED = ("delayed", "delivered")
TIMED = ("timer", "delivered")
WARM = "warm"  # the first message of a topic, with the number of the try


def transaction(number: int) -> tuple[str, ...]:
    """Committed, rolled back, or committed after a check."""
    return (("half", "op", "commit"), ("half", "rollback"), ("half", "half", "op", "commit"))[number // 25 % 3]


def poisoned(number: int, made: Made) -> tuple[str, ...]:
    """The group subscribes to two tags of three, and retries once."""
    if number % 3 == 2:
        return ("stored",)
    return ("stored", "delayed", "retry", *(["dead-letter"] if made.dead_letters else []))


def designed(made: Made) -> dict[str, tuple[str, ...]]:
    """The kinds of the stages of each message, by the first word of KEYS, without POP's."""
    found: dict[str, tuple[str, ...]] = {WARM: ("stored",)}
    for i in range(made.orders):
        word = f"poison-{i}" if i % 50 == 7 else f"o{i}"
        found[word] = poisoned(i, made) if i % 50 == 7 else WAITED if i % 40 == 3 else ("stored",)
        if i % 25 == 11:
            found[f"tx{i}"] = transaction(i)
        if i % 30 == 17:
            found |= {f"e{i}-{j}": ("stored",) for j in range(6)}
        if made.pop:
            found |= {f"pop{i}": ("stored",), f"ck{i % 7}": ("stored",)}
            found |= {f"timer{i}": TIMED if i % 8 == 0 else ("timer",)} if i % 4 == 0 else {}
    return found


class GoldenTraffic:
    """A store, and what its real broker says of it: every message, by UNIQ_KEY."""

    def __init__(self, name: str, root: Path) -> None:
        self.store = ReadOnlyStore(root)
        self.progress = stored_progress(root)
        self.messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
        rows = expected(name)["messages"]
        for row in rows:
            if "UNIQ_KEY" in row["properties"]:  # an op message has none: the trace of its half message has it
                self.messages[row["properties"]["UNIQ_KEY"]].append(row)
        self.pop: dict[Place, Kinds] = defaultdict(Counter)
        for row in rows:
            if is_of_pop(row):
                for place in self._popped(row["physicalOffset"]):
                    kind = "pop-checkpoint" if row["properties"]["TAGS"] == "ck" else "pop-ack"
                    self.pop[place]["timer" if row["topic"] == TIMER_TOPIC else kind] += 1

    def _popped(self, physical_offset: int) -> Iterator[Place]:
        """Yield the places of the messages that a checkpoint or an acknowledgement is about."""
        message = self.store.commit_log.message_at(physical_offset)
        assert message is not None
        body = json.loads(bytes(message.body))
        offsets = [body["so"] + step for step in body["d"]] if "d" in body else body.get("aol") or [body["ao"]]
        for offset in offsets:
            yield body["t"], body["q"], offset

    def kinds(self, key: str, design: dict[str, tuple[str, ...]]) -> Kinds:
        """What the stages of a message must be."""
        rows = self.messages[key]
        if is_of_pop(rows[0]):
            return Counter(TIMED)
        words = [word_of(row) for row in rows]
        kinds = sum((Counter(design[word]) for word in dict.fromkeys(words)), Counter())
        kinds["retry"] += sum(
            row["topic"].startswith("%RETRY%popgroup") for row in rows
        )  # the program's own count says which
        for row in rows:
            kinds += self.pop[row["topic"], row["queueId"], row["queueOffset"]]
        return +kinds


def word_of(row: dict[str, Any]) -> str:
    """The first word of KEYS."""
    word: str = row["properties"]["KEYS"].split()[0]
    return WARM if word.startswith(WARM) else word


def is_of_pop(row: dict[str, Any]) -> bool:
    """Whether a record is a checkpoint or an acknowledgement."""
    return row["properties"].get("TAGS") in ("ck", "ack", "bAck") and row["topic"] in (REVIVE_TOPIC, TIMER_TOPIC)


@pytest.mark.parametrize("name", MADE)
def test_every_message_is_traced_as_its_maker_meant_it(name: str, golden: Callable[[str], Path]) -> None:
    traffic = GoldenTraffic(name, golden(name))
    design = designed(MADE[name])
    rows = [row for rows in traffic.messages.values() for row in rows if not is_of_pop(row)]
    assert {word_of(row) for row in rows} == design.keys()
    problems = {key: list(wrong(traffic, key, design)) for key in traffic.messages}
    assert {key: found for key, found in problems.items() if found} == {}


def wrong(traffic: GoldenTraffic, key: str, design: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield what `trace` says otherwise."""
    said = document(Trace([traffic.store], Question(unique_key=key), threads=1, warm_up=lambda: None), ["store"])
    stages = said["stages"]
    kinds = Counter(stage["kind"] for stage in stages)
    if kinds != traffic.kinds(key, design):
        yield f"{kinds}, not {traffic.kinds(key, design)}"
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp")
    places = {tuple(stage[name] for name in names) for stage in stages}
    yield from (f"missing: {row}" for row in traffic.messages[key] if tuple(row[name] for name in names) not in places)
    yield from (f"not reachable: {stage}" for stage in stages if not stage["reachable"])
    states = {(row["group"], row["topic"], row["queueId"], row["queueOffset"], row["state"]) for row in said["groups"]}
    wanted = group_states(stages, traffic.progress)
    yield from (f"group: {row}" for row in {row for row in states if row[-1] != "unknown"} ^ wanted)
