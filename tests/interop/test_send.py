"""`rmqctl send` into real brokers, with kills in between: they have each message once, but for those that it names."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rmqctl.format.body.compression import decompressed
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import SerializeType
from tests.conftest import Rmqctl
from tests.real_store.cluster import LOOPBACK, SETTINGS, Cluster
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

UPDATE_AND_CREATE_TOPIC = 17
MESSAGES, KILLS = 2000, 3
TOPICS = ("orders", "audit")
LARGE = Geometry(commitlog_file_size=1 << 25, queue_file_units=5000, index_slots=1000, index_entries=8000)
OF_THE_BROKER = {"CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}


def lines() -> list[dict[str, Any]]:
    """Messages of all kinds: compressed, binary, large, dead letters."""
    draw, made = random.Random(1), []
    for number in range(MESSAGES):
        body, sys_flag = draw.choice((f"{number} größe 漢字".encode(), b"%d " % number + draw.randbytes(300))), 0
        if number % 500 == 9:
            body += draw.randbytes(3_000_000)
        if number % 20 == 3:
            body, sys_flag = zlib.compress(body), 0x1
        if number % 20 == 4:
            body, sys_flag = zstandard.compress(body), 0x201
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number} 漢字", "größe": "😀"}
        topic = TOPICS[number % 2]
        if number % 100 == 50:
            properties |= {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": "A" * 32, "DELAY": "-1"}
            topic = "%DLQ%billing"
        made.append({"topic": topic, "queueId": number // 40 % 3, "flag": number % 3, "sysFlag": sys_flag})
        made[-1] |= {"body": body.hex(), "bodyEncoding": "hex", "physicalOffset": number, "properties": properties}
    return made


def as_sent(row: dict[str, Any]) -> tuple[Any, ...]:
    dropped = OF_THE_BROKER | {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"}
    properties = {name: text for name, text in row["properties"].items() if name not in dropped}
    topic = row["properties"].get("RETRY_TOPIC", row["topic"])
    return topic, row["flag"], row["sysFlag"], row["body"], tuple(sorted(properties.items()))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_killed_and_resumed(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    messages = lines()
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, messages)))
    assert rmqctl("append", tmp_path / "store", "--create", "--profile", "4.9", "--from", tmp_path / "lines").code == 0
    with Cluster(version, tmp_path / "cluster", geometry=LARGE) as cluster:
        broker = cluster.start("master", 0, "ASYNC_MASTER")
        with RemotingClient(LOOPBACK, broker.port, serialize_type=SerializeType.JSON) as client:
            for topic in TOPICS:
                fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4"}
                fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
                client.invoke(UPDATE_AND_CREATE_TOPIC, fields)
        receipts = tmp_path / "receipts"
        said = ("send", tmp_path / "store", "--to", cluster.name_server, "--receipts", receipts, "--yes", "-o", "json")
        for kill in range(KILLS):
            killed_after(
                MESSAGES * (kill + 1) // (KILLS + 2), receipts, [sys.executable, "-m", "rmqctl", *map(str, said)]
            )
        found = rmqctl(*said)
        assert found.code == 0
        again = rmqctl(*said)
        assert (again.code, again.document()["skipped"]) == (0, MESSAGES - MESSAGES // 100)
        assert rmqctl(*said[:4], "--broker", f"{LOOPBACK}:{broker.port}", *said[4:]).code == 2
        dead = rmqctl(*said, "--dead-letters", "billing")
        assert (dead.code, dead.document()["sent"]) == (0, MESSAGES // 100)
        broker.kill()
        dumped = rmqctl("dump", broker.store, "--body", "hex", "-o", "jsonl", *(f"--topic={topic}" for topic in TOPICS))
    arrived = Counter(map(as_sent, map(json.loads, dumped.out.splitlines())))
    assert set(arrived) == set(map(as_sent, messages))
    consumers = [(f"of-{topic}", topic, n) for topic, n in Counter(row[0] for row in arrived.elements()).items()]
    rows = RealRocketMQ(version, timeout=120).consume(broker.store, consumers, geometry=LARGE, settings=SETTINGS)
    bodies = [zlib.crc32(decompressed(flag, bytes.fromhex(body))) for _, _, flag, body, _ in arrived.elements()]
    assert Counter(crc for row in rows for crc in row["bodies"]) == Counter(bodies)
    of_key = {row["properties"]["UNIQ_KEY"]: as_sent(row) for row in messages}
    source = rmqctl("dump", tmp_path / "store", "--body", "none", "-o", "jsonl").out.splitlines()
    key_at = {row["physicalOffset"]: row["properties"]["UNIQ_KEY"] for row in map(json.loads, source)}
    named = {of_key[key_at[row["physicalOffset"]]] for row in again.document()["inDoubt"]}
    assert {message for message, times in arrived.items() if times > 1} <= named
    assert len(named) <= 200 * KILLS


def killed_after(count: int, receipts: Path, command: list[str]) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if receipts.exists() and receipts.read_bytes().count(b"\n") >= count:
            break
        time.sleep(0.001)
    process.kill()
    process.wait()
