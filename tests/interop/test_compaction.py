"""The real broker gives consumers of a compacted topic what `dump --compaction` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Golden, Rmqctl
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.support.compacted_stores import DAMAGES, LOG_SIZE, UNITS_SIZE, in_two_files

pytestmark = pytest.mark.interop
SIZES = Geometry(commitlog_file_size=1 << 18, queue_file_units=300, index_slots=1000, index_entries=4000)
SETTINGS = {
    "compactionMappedFileSize": f"{LOG_SIZE // 10}",  # a broker makes it five times the other
    "compactionCqMappedFileSize": f"{UNITS_SIZE}",
    "mappedFileSizeTimerLog": "102400",
}


def offsets(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(row["queueId"], row["queueOffset"]) for row in rows}


def served(version: str, root: Path, count: int) -> set[tuple[int, int]]:
    rows = RealRocketMQ(version, timeout=120).consume(root, [("new", "cmpt", count)], geometry=SIZES, settings=SETTINGS)
    return {(row["queueId"], offset) for row in rows for offset in row["offsets"]}


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_consumers_get_what_dump_prints(version: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = in_two_files(golden("broker-550"))
    dumped = offsets(rmqctl("dump", root, "--compaction", "-o", "jsonl").rows())
    assert len(dumped) == 67
    assert served(version, root, len(dumped)) == dumped


@pytest.mark.parametrize("name", ["all of a unit", "end of the units gone", "units and log begin later"])
def test_consumers_do_not_get_what_verify_names(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = in_two_files(golden("broker-550"))
    before = offsets(rmqctl("dump", root, "--compaction", "-o", "jsonl").rows())
    DAMAGES[name][0](root)
    lost = 29 if name == "units and log begin later" else sum(DAMAGES[name][1].values())  # 3 keys in 29 messages
    got = served("5.5.0", root, len(before) - lost)
    assert got < before
    assert len(got) == len(before) - lost
