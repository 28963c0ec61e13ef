"""What a broker of another version drops and does not read.

tests/interop/test_preflight.py asks the brokers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.forensics.preflight.option_names import is_known, versions_of
from tests.conftest import Rmqctl, tree_hash, unpack

QUEUES, LOG = "mappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=100\n", "mappedFileSizeCommitLog=65536\n"
# store, version: starts, messages lost, and the problems with their counts
FORESEEN = {
    ("497-basic", "5.5.0"): (True, 0, {}),
    ("497-basic", "4.1.0"): (True, 0, {}),
    ("533-batch", "4.9.7"): (True, 0, {}),
    ("533-longtopic", "5.0.0"): (True, 250, {"target-loses": 250, "records-unknown": 63}),
    ("533-longtopic", "5.1.0"): (True, 0, {}),
    ("471-ipv6", "4.5.2"): (True, 250, {"target-loses": 250, "records-unknown": 167}),
    ("550-rocksdb-crash", "5.1.3"): (True, 0, {}),
    ("broker-550-rocksdb", "5.1.3"): (True, 0, {"queue-database-unread": 138, "config-database-unread": 6}),
    ("broker-550-rocksdb", "4.9.7"): (True, 0, {"config-database-unread": 6}),
    ("broker-550-rocksdb", "5.5.1"): (True, 0, {}),
    ("broker-550-dledger", "4.4.0"): (True, 0, {"dledger-unread": 83}),
    ("broker-550-dledger", "5.5.1"): (True, 0, {}),
    ("broker-550", "4.9.7"): (True, 0, {"timers-unread": 25, "pop-unread": 1}),
    ("broker-550-rdbidx", "5.3.3"): (True, 0, {}),
}


@pytest.mark.parametrize(("name", "version"), FORESEEN)
def test_what_is_foreseen(name: str, version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(name, tmp_path)
    before = tree_hash(root)
    result = rmqctl("preflight", root, "--to", version, "-o", "json")
    said = result.document()
    found = {problem["code"]: problem["count"] for problem in said["problems"]}
    assert (said["starts"], said["lost"]["records"], found) == FORESEEN[name, version]
    assert result.code == (1 if found else 0)
    assert tree_hash(root) == before


def test_a_store_without_a_file_in_the_middle_hangs_4x(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("497-basic", tmp_path)
    sorted((root / "commitlog").iterdir())[1].unlink()
    shutil.rmtree(root / "consumequeue")
    said = {to: rmqctl("preflight", root, "--to", to, "-o", "json").document() for to in ("4.9.7", "5.5.0")}
    assert (said["4.9.7"]["starts"], said["5.5.0"]["starts"]) == ("hangs", True)
    assert said["4.9.7"]["problems"][0]["code"] == "target-hangs"


def test_messages_that_no_start_puts_into_a_queue(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("497-basic", tmp_path)
    for file in (root / "consumequeue/OrderPaid/0").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(root / "consumequeue/OrderPaid/1")
    found = rmqctl("preflight", root, "--to", "4.9.7")
    said = "queues-unread: 75 messages of OrderPaid/0, OrderPaid/1 in no queue after the start"
    assert (found.code, said in found.out) == (1, True), found.out


def test_static_topics_and_tiered_storage(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, conf = unpack("497-basic", tmp_path), tmp_path / "broker.conf"
    (root / "commitlog" / f"{0:020d}").unlink()
    piece = {"bname": "a", "queueId": 1, "logicOffset": 100}
    mappings = {"topicQueueMappingInfoMap": {"OrderPaid": {"bname": "a", "hostedQueues": {"7": [piece]}}}}
    (root / "config/topicQueueMapping.json").write_text(json.dumps(mappings))
    segments = '"a/OrderPaid/0":{0:{"baseOffset":0,"size":0}},"a/gone/0":{20:{"baseOffset":20,"size":40},7:{}}'
    tier, text = root / "config/tieredStoreMetadata.json", f'{{"consumeQueueFileSegmentTable":{{{segments}}}}}'

    def said(to: str, *options: object) -> dict[str, int]:
        problems = rmqctl("preflight", root, "--to", to, *options, "-o", "json").document()["problems"]
        return {problem["code"]: problem["count"] for problem in problems}

    tier.write_text(text)
    assert said("4.9.7") == {"static-topics-unread": 1}  # a segment without its numbers
    tier.write_text(text.replace(",7:{}", ""))
    queues = rmqctl("queue", root, "OrderPaid", "-o", "jsonl").rows()
    only = next(row["minOffset"] for row in queues if row["queueId"] == 0) + 2
    assert only > 2
    assert said("4.9.7") == {"static-topics-unread": 1, "tiered-unread": only}
    assert said("5.0.0") == {"tiered-unread": only}
    assert said("5.5.0") == {}
    conf.write_text(QUEUES + LOG)
    assert said("5.5.0", "--broker-conf", conf) == {"tiered-unread": only}
    conf.write_text(f"{QUEUES}{LOG}messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore\n")
    assert said("5.5.0", "--broker-conf", conf) == {}


def test_broker_conf_is_that_of_the_new_broker(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, conf = unpack("533-basic", tmp_path), tmp_path / "broker.conf"

    def said(text: str, to: str = "4.9.7") -> tuple[object, list[str], str]:
        conf.write_text(text)
        document = rmqctl("preflight", root, "--to", to, "--broker-conf", conf, "-o", "json").document()
        problems = document["problems"]
        return document["starts"], [problem["code"] for problem in problems], json.dumps(problems)

    assert said(QUEUES + LOG)[:2] == (True, [])
    starts, codes, text = said(f"{QUEUES}{LOG}\ntimerWheelEnable=true\nflushDiskTyp=x\n")
    assert (starts, codes) == (True, ["option-unknown", "option-unknown"])
    assert "line 5 of broker.conf: 4.9.7 ignores timerWheelEnable (known to 5.0.0 and later)" in text
    assert f"remove line 5 of {conf}" in text
    starts, codes, text = said(QUEUES)  # the default of 1 GiB
    assert (starts, codes) == (False, ["target-refuses"])
    assert f"--broker-conf {conf} --convert {root}-4.9.7" in text
    assert said(QUEUES + LOG, "4.5.1")[:2] == (False, ["target-refuses", "option-unknown", "option-unknown"])
    assert said(QUEUES + LOG + "storeType=defaultRocksDB\n", "5.5.0")[1] == ["queues-unread"]


def test_a_broker_conf_of_another_store_is_noted(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, conf = unpack("497-basic", tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"{QUEUES}{LOG}storePathRootDir=/elsewhere\nstorePathCommitLog=/elsewhere/log\n")
    noted = rmqctl("preflight", root, "--to", "4.9.7", "--broker-conf", conf).err
    assert "storePathRootDir is /elsewhere, but STORE is used" in noted
    assert "the log is that of storePathCommitLog" in noted


def test_names_of_broker_conf() -> None:
    assert is_known("brokerName", "4.1.0")
    assert versions_of("mapedFileSizeCommitLog") == "4.1.0 to 4.5.1"
    assert versions_of("configBlackList") == "4.9.8 to 4.9.8, 5.2.0 and later"
    assert versions_of("rocketmq") == ""
