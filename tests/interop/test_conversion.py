"""A store that `preflight --convert` wrote: the real broker serves the same messages, and groups go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

SIZES = Geometry(commitlog_file_size=262144, queue_file_units=300, index_slots=1000, index_entries=4000)
SMALL = Geometry(commitlog_file_size=65536, queue_file_units=50, index_slots=100, index_entries=400)
# a compacted topic is served from its queue without enableCompaction
IN_ROCKSDB = {"storeType": "defaultRocksDB", "enableCompaction": "false"}
COMPARED = ("bodyCrc", "sysFlag", "flag", "bornTimestamp", "storeTimestamp", "reconsumeTimes", "properties")
TO = 10  # a queue offset of the group billing


@pytest.mark.parametrize(
    ("name", "version", "sizes", "settings"),
    [
        ("broker-497", "5.5.0", SIZES, {}),
        ("broker-550", "4.9.7", SMALL, {}),
        ("broker-550-rocksdb", "5.5.0", SIZES, {}),
        ("broker-550", "5.5.0", SIZES, IN_ROCKSDB),
        ("broker-550-dledger", "5.5.0", SMALL, {}),
    ],
)
def test_consumers_go_on(
    name: str, version: str, sizes: Geometry, settings: Mapping[str, str], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root, new, conf = unpack(name, tmp_path), tmp_path / "new", tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**sizes.broker_conf(), **settings}.items()))
    if name in ("broker-497", "broker-550"):
        assert rmqctl("config", "set-offset", root, "billing", "orders", "--to", TO, "--yes").code == 0
    source = {key_of(row): row for row in rmqctl("dump", root, "-o", "jsonl").rows() if "topic" in row}
    before = tree_hash(root)
    said = rmqctl("preflight", root, "--to", version, "--broker-conf", conf, "--convert", new, "-o", "json").document()
    assert (said["starts"], said["converted"]["messages"]) == (True, len(source))
    assert tree_hash(root) == before
    groups = rmqctl("lag", root, "-o", "json").document()["groups"]
    wanted = {
        (topic, queue_id, offset)
        for row in groups
        if (topic := row["topic"]) == "orders" and row["group"] == "billing"
        for queue_id, offset in ((row["queueId"], at) for at in range(row["offset"], row["maxOffset"]))
    }
    broker, places = RealRocketMQ(version, timeout=200), {f"{topic}@{queue}" for topic, queue, _ in source}
    read = broker.read(new, start=True, geometry=sizes, settings={**settings, "askedQueues": ",".join(sorted(places))})
    served = {key_of(row): row for row in read["messages"]}
    assert {key: compared(row) for key, row in served.items() if key in source} == {
        key: compared(row) for key, row in source.items() if key in served
    }
    half = {key for key in source if key not in served}
    assert {key[0] for key in half} <= {"RMQ_SYS_TRANS_HALF_TOPIC"}
    total = sum(key[0] == "orders" for key in source)
    consumers = [("fresh", "orders", total), ("billing", "orders", len(wanted))]
    rows = broker.consume(new, consumers, geometry=sizes, settings=settings)
    got = Counter(
        (row["topic"], row["queueId"], offset) for row in rows if row["group"] == "billing" for offset in row["offsets"]
    )
    assert got == Counter(wanted)
    assert sum(len(row["offsets"]) for row in rows if row["group"] == "fresh") == total


def key_of(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


def compared(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in COMPARED}
