"""What preflight says of a start is what the real broker of that version does."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.forensics.preflight.preflight import Preflight, preflight
from rmqctl.format.message import Message
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import DATA, unpack
from tests.real_store.harness import broker_conf, geometry_of
from tests.real_store.restarts import Restarts

pytestmark = pytest.mark.interop
STORES = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz") if path.name != "damage.tar.xz")
SMALL = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "1000"}
LARGE = {"mappedFileSizeCommitLog": "262144", "mappedFileSizeConsumeQueue": "6000"}
INDEX, LARGE_INDEX = {"maxHashSlotNum": "100", "maxIndexNum": "400"}, {"maxHashSlotNum": "1000", "maxIndexNum": "4000"}


class Asked(NamedTuple):
    """A store, a version, what preflight said, and what the broker will have done."""

    name: str
    version: str
    said: Preflight
    records: list[int]  # physical offsets of all messages
    served: int  # before
    answer: Future[dict[str, Any]]


def asked(name: str, version: str, real: Restarts, folder: Path) -> Asked:
    """Ask both, each of its own copy."""
    root = unpack(name, folder / f"{name}-{version}")
    is_large = name.startswith("broker") or "combined" in name or "rocksdb" in name
    sizes = (LARGE | LARGE_INDEX) if is_large else (SMALL | INDEX)
    if "cqext" in name:
        sizes |= {"enableConsumeQueueExt": "true"}
    store = ReadOnlyStore(root)
    sizes["mappedFileSizeCommitLog"] = str(store.commit_log.queue.file_size)
    for file in (root / "timerlog").glob("*"):
        sizes["mappedFileSizeTimerLog"] = str(file.stat().st_size)
    conf = root.parent / "broker.conf"
    conf.write_text(broker_conf(root, geometry_of(sizes), {"enableCompaction": "false"} | sizes))
    said = preflight(store, read_broker_conf(conf), {}, version, 1)
    records = [item.physical_offset for item in store.commit_log.scan() if isinstance(item, Message)]
    ranges = [queue.min_and_max(store.commit_log.min_offset) for queue in store.queues.values()]
    store.close()
    return Asked(name, version, said, records, sum(high - low for low, high in ranges), real.ask(conf))


def difference(one: Asked) -> str:
    """How the broker differs from what was said; "" if it does not."""
    answer, said = one.answer.result(), one.said
    starts: bool | str = "hangs" if "hangs" in answer else bool(answer.get("load")) and "error" not in answer
    if starts != said.starts:
        return f"said {said.starts} ({said.restart.refused}), did {starts}: {answer.get('error')}"
    if starts is not True:
        return ""
    lost = sum(offset >= answer["maxPhyOffset"] for offset in one.records)
    if lost != said.restart.lost.records:
        return f"said {said.restart.lost.records} lost, did {lost}"
    ours = {(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in said.restart.queues if q.max_offset}
    theirs = {(q["topic"], q["queueId"], q["minOffset"], q["maxOffset"]) for q in answer["queues"] if q["maxOffset"]}
    return f"said {sorted(ours - theirs)[:4]}, did {sorted(theirs - ours)[:4]}" if ours != theirs else ""


def differences(versions: Sequence[str], names: Sequence[str], folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each store and version with "" or with what differs."""
    for version in versions:
        with Restarts(version, 20) as real:
            waiting = [asked(name, version, real, folder) for name in names]
            for one in waiting:
                yield one.name, version, difference(one)
                shutil.rmtree(folder / f"{one.name}-{version}", ignore_errors=True)


def test_starts_and_losses_are_those_of_the_real_broker(tmp_path: Path) -> None:
    names = [name for name in STORES if name[:3] in ("471", "497", "533", "550")]
    found = list(differences(("4.9.7", "5.5.0"), [name for name in names if "dledger" not in name], tmp_path))
    assert [one for one in found if one[2]] == []


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", default="4.9.7,5.5.0")
    parser.add_argument("--stores", default=",".join(name for name in STORES if "dledger" not in name))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as where:
        total = bad = 0
        for row in differences(options.versions.split(","), options.stores.split(","), Path(where)):
            total, bad = total + 1, bad + bool(row[2])
            if row[2]:
                print(*row, flush=True)
        print(total, "starts,", bad, "differ")
    sys.exit(bad > 0)
