"""What rmqctl says of a store that a real broker wrote under real clients, against the clients' own log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl
from tests.real_store.harness import Geometry, RealRocketMQ, TrafficReport
from tests.support.client_log import (
    ClientLog,
    ClientRecord,
    GroupState,
    Progress,
    client_records_of,
    differences,
    group_states,
    stored_progress,
)

pytestmark = pytest.mark.interop

VERSIONS = ("4.7.1", "4.9.7", "5.3.3", "5.5.0")
SIZES = Geometry(commitlog_file_size=1 << 18, queue_file_units=300, index_slots=1000, index_entries=4000)
ORDERS = 300  # every kind of order comes again after 100
MESSAGES_MIN = 250
WORDS_STEP = 7


@pytest.mark.parametrize("version", VERSIONS)
def test_rmqctl_says_what_the_clients_logged(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One test a version: a broker and its clients take half a minute."""
    root = tmp_path / "store"
    report = RealRocketMQ(version, timeout=300).traffic(root, ORDERS, geometry=SIZES)
    log = ClientLog(report.events, version)
    assert len(log.of_message) >= MESSAGES_MIN
    progress = stored_progress(root)
    assert {place: progress.get(place) for place in log.offsets()} == log.offsets()
    lag_is_as_reported(root, report, rmqctl)
    every_message_is_traced_as_logged(root, log, progress, rmqctl)


def lag_is_as_reported(root: Path, report: TrafficReport, rmqctl: Rmqctl) -> None:
    """`lag` says of every group and queue what mqadmin's consumerProgress said of the running broker."""
    rows = rmqctl("lag", root, "-o", "json").document()["groups"]
    ours = {(row["group"], row["topic"], row["queueId"]): row for row in rows}
    groups = {row["group"] for row in report.progress}
    assert groups >= {"ledger", "billing", "audit"}
    for said in report.progress:
        found = ours.pop((said["group"], said["topic"], said["queueId"]))
        assert (found["maxOffset"], found["offset"] or 0) == (said["brokerOffset"], said["consumerOffset"]), said
        assert found["behind"] == said["brokerOffset"] - said["consumerOffset"], said
    assert [row for row in ours.values() if row["group"] in groups and row["offset"] is not None] == []


def every_message_is_traced_as_logged(root: Path, log: ClientLog, progress: Progress, rmqctl: Rmqctl) -> None:
    """`trace` finds every message by its UNIQ_KEY; and some by KEYS."""

    def trace(how: str, what: str) -> dict[str, Any]:
        return rmqctl("trace", root, how, what, "-o", "json").document()

    recorded = client_records_of(root)
    by_unique_key = {
        key: problems(trace("--unique-key", key), key, log, progress, recorded.get(key, Counter()))
        for key in log.of_message
    }
    by_word = {
        word: differences(log.stages(key), trace("--key", word)["stages"])
        for word, key in sorted(log.words().items())[::WORDS_STEP]
    }
    assert {key: what for key, what in (by_unique_key | by_word).items() if what} == {}


def problems(
    document: dict[str, Any], key: str, log: ClientLog, progress: Progress, in_store: Counter[ClientRecord]
) -> list[str]:
    """What `trace` says otherwise than the clients; `in_store` is what their message trace has of the message."""
    stages, groups = document["stages"], document["groups"]
    wrong = differences(log.stages(key), stages)
    wrong += [f"not reachable: {stage}" for stage in stages if not stage["reachable"]]
    if not document["found"] or not document["verdict"]:
        wrong.append(f"found {document['found']}, verdict {document['verdict']!r}")
    said = {(row["group"], row["topic"], row["queueId"], row["queueOffset"], row["state"]) for row in groups}
    known = {row for row in said if row[-1] != "unknown"}
    wanted = group_states(stages, progress)
    wrong += [f"group missing: {row}" for row in sorted(wanted - known)]
    wrong += [f"group too much: {row}" for row in sorted(known - wanted)]
    recorded = Counter(
        # only 5.x says the group after a message
        (row["record"], None if row["record"] == "SubAfter" else row["group"], row["transactionState"])
        for row in document["clientRecords"]
    )
    if recorded != in_store:
        wrong.append(f"clients recorded {in_store}, not {recorded}")
    if not recorded <= log.client_records(key):
        wrong.append(f"clients recorded {recorded}, and did {log.client_records(key)}")
    return wrong + not_as_taken(stages, known, log)


def not_as_taken(stages: list[dict[str, Any]], states: set[GroupState], log: ClientLog) -> list[str]:
    """The records that a group was given, by its log, and that do not count as consumed; or the other way round."""
    taken = log.taken()
    offset_of = {(stage["topic"], stage["queueId"], stage["queueOffset"]): stage["physicalOffset"] for stage in stages}
    states_of = {(group, offset_of.get((topic, queue, at))): state for group, topic, queue, at, state in states}
    return [
        f"{place} is {state}"
        for place, state in states_of.items()
        # audit stopped; whoever subscribes to some tags passes by the others
        if (place in taken and state != "consumed")
        or (place[0] == "audit" and place not in taken and state != "waiting")
    ]
