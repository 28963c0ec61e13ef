"""Extracts in real brokers: each message is served once, at its place, and groups go on where they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.store.config.broker_conf import read_broker_conf
from tests.conftest import Rmqctl, unpack
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

CONSUMED = {"0": 20, "1": 0, "2": 7, "3": 1000}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("how", [(), ("--keep-offsets", "--redact", "body", "--redact", "properties")])
def test_a_broker_serves_it(version: str, how: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, new = unpack("broker-497", tmp_path), tmp_path / "new"
    (source / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"orders@billing": CONSUMED}}))
    some = ("--topic", "orders", "--topic", "events", "--body-match", "[37]", "--queue-offset", "3..")
    assert rmqctl("extract", source, new, *some, *how).code == 0
    rows = rmqctl("dump", new, "-o", "jsonl").rows()
    asked = rmqctl("dump", source, "-o", "jsonl", *some).rows()
    assert len(rows) == len(asked) > 30
    left = rmqctl("dump", new, "-o", "jsonl", "--group", "billing", "--unconsumed").rows()
    assert 20 < len(left) < len(rows)
    if how:
        assert [row["queueOffset"] for row in rows] == [row["queueOffset"] for row in asked]
    conf = read_broker_conf(new / "broker.conf")
    sizes = Geometry(
        conf.commitlog_file_size or 0, (conf.consumequeue_file_size or 0) // 20, conf.index_slots or 0,
        conf.index_entries or 0,
    )  # fmt: skip
    topics = {topic: sum(row["topic"] == topic for row in rows) for topic in ("orders", "events")}
    broker = RealRocketMQ(version, timeout=120)
    copy = shutil.copytree(new, tmp_path / "served")
    served = broker.serve(copy, topics, geometry=sizes)
    keys = ("topic", "queueId", "queueOffset", "bodyCrc", "storeTimestamp", "properties")
    assert sorted(json.dumps([row[key] for key in keys], sort_keys=True) for row in served["messages"]) == sorted(
        json.dumps([row[key] for key in keys], sort_keys=True) for row in rows
    )
    copy = shutil.copytree(new, tmp_path / "consumed")
    got = broker.consume(copy, [("billing", "orders", len(left))], geometry=sizes)
    consumed = {(row["topic"], row["queueId"]): sorted(row["offsets"]) for row in got if row["offsets"]}
    assert consumed == {
        place: sorted(row["queueOffset"] for row in left if (row["topic"], row["queueId"]) == place)
        for place in {(row["topic"], row["queueId"]) for row in left}
    }
