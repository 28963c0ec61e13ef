"""Light message queues (LMQ): the real stores number, dispatch and recover them as rmqctl does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.format.message import Message
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.real_store.harness import RealRocketMQ, broker_conf
from tests.support.light_traffic import LIGHT_SETTINGS, SIZES, light_traffic

pytestmark = pytest.mark.interop

VERSIONS = [("4.9.7", "4.9"), ("5.3.3", "5.3")]


def messages_of(root: Path) -> dict[QueueKey, list[tuple[int, int]]]:
    """Of each queue the queue offset and the number in the log of each message."""
    store = ReadOnlyStore(root)
    found = [item.physical_offset for item in store.commit_log.scan(ScanSummary()) if isinstance(item, Message)]
    queues = {key: list(queue.units(0, queue.max_offset)) for key, queue in store.queues.items()}
    return {
        key: [(unit.queue_offset, found.index(unit.physical_offset)) for unit in units] for key, units in queues.items()
    }


@pytest.mark.parametrize(("version", "profile"), VERSIONS)
def test_append_makes_the_queues_that_the_real_store_makes(
    version: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are begun twice; then a real start after a crash comes to what recover foretells."""
    real, theirs = RealRocketMQ(version), tmp_path / "theirs"
    for _ in range(2):
        assert set(real.put_lines(theirs, light_traffic(), geometry=SIZES, settings=LIGHT_SETTINGS)) == {"PUT_OK"}
    ours, lines, conf = tmp_path / "ours", tmp_path / "lines", tmp_path / "broker.conf"
    lines.write_text("".join(json.dumps(message) + "\n" for message in light_traffic()))
    conf.write_text(broker_conf(ours, SIZES, LIGHT_SETTINGS))
    new = ("--create", "--profile", profile, "--broker-conf", str(conf))
    for options in (new, ()):  # the second time by what is there, too
        assert run(["append", str(ours), *options, "--from", str(lines), "--with-system-topics"]) == 0
    assert messages_of(ours) == messages_of(theirs)
    assert run(["verify", str(ours)]) == run(["verify", str(theirs), "--level", "2"]) == 0
    capsys.readouterr()
    a_restart_after_a_crash_is_the_real_one(real, profile, theirs, capsys)


def a_restart_after_a_crash_is_the_real_one(
    real: RealRocketMQ, profile: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (theirs / "abort").touch()
    for name in (theirs / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(name)
    assert run(["recover", str(theirs), "--profile", profile, "--dry-run", "-o", "json"]) == 1
    restart: dict[str, Any] = json.loads(capsys.readouterr().out)["restart"]
    read = real.read(theirs, start=True, geometry=SIZES, settings=LIGHT_SETTINGS)
    ends = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in read["queues"]
        if row["maxOffset"]
    }
    assert {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in restart["queues"]} == ends
