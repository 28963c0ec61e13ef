"""What a real broker's timer delivers after it died, and after rmqctl wrote its files anew."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from rmqctl.format.message import Message
from rmqctl.format.properties import KEYS, TIMER_OUT_MS
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

COUNT = 300
ALL_DUE_S = 75
SIZES = Geometry(commitlog_file_size=1 << 18, queue_file_units=300, index_slots=1000, index_entries=4000)
SETTINGS = {"timerRollWindowSlot": "20", "mappedFileSizeTimerLog": "8192"}  # rolls within seconds, and several files


@pytest.mark.parametrize(("version", "more"), [("5.3.3", {}), ("5.5.0", {}), ("5.5.0", {"timerRocksDBEnable": "true"})])
def test_each_waiting_message_comes_once(version: str, more: dict[str, str], tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One broker writes, and dies; copies of its store are left alone, cut, and robbed of the timer's files."""
    real, stores, settings = RealRocketMQ(version, timeout=300), {}, SETTINGS | more
    died = tmp_path / "died"
    deleted = real.timers(died, COUNT, 8, geometry=SIZES, settings=settings)
    sent = {f"timer{number}" for number in range(COUNT)}
    before = delivered(died)
    assert 0 < len(before) < COUNT
    for name in ("left", "rebuilt", "cut"):
        stores[name] = Path(copytree(died, tmp_path / name))
    rmtree(stores["rebuilt"] / "timerlog")
    (stores["rebuilt"] / "timerwheel").unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    assert rmqctl("rebuild", stores["rebuilt"], "timers", "--broker-conf", conf, "--yes").code == 3
    cut_at = half_way(died)
    assert rmqctl("truncate", stores["cut"], "--to", cut_at, "--broker-conf", conf, "--yes").code == 3
    kept = delivered(stores["cut"])
    listed = rmqctl("queue", stores["left"], "--timer", "--broker-conf", conf, "-o", "jsonl").rows()
    to_come = Counter(row["keys"] for row in listed)
    given = timer_keys(stores["cut"])
    waiting = {key for key in given if key.replace("timer", "delete") not in given and key.startswith("timer")}

    def run(store: Path) -> None:
        real.timers(store, 0, ALL_DUE_S, geometry=SIZES, settings=settings)

    with ThreadPoolExecutor() as brokers:
        list(brokers.map(run, stores.values()))
    came = delivered(stores["left"]) - before
    # of messages that are read again, a deleted one can come in spite of it
    assert {key: came[key] for key in sent - deleted} == {key: to_come[key] for key in sent - deleted}
    # with timerRocksDBEnable, a broker delivers at once what is due within a second, also if it is deleted
    assert delivered(stores["rebuilt"]) == Counter(sent - deleted | before.keys())
    assert delivered(stores["cut"]) - kept == Counter(waiting - set(kept))


def delivered(store: Path) -> Counter[str]:
    """How often each message was delivered."""
    opened = ReadOnlyStore(store)
    found = (item for item in opened.commit_log.scan() if isinstance(item, Message) and item.topic == "timed")
    keys = Counter(message.properties[KEYS] for message in found if TIMER_OUT_MS in message.properties)
    opened.close()
    return keys


def timer_keys(store: Path) -> set[str]:
    """The messages that the timer was given; those of `deleteN` delete."""
    opened = ReadOnlyStore(store)
    found = (item for item in opened.commit_log.scan() if isinstance(item, Message) and "wheel_timer" in item.topic)
    keys = {message.properties[KEYS] for message in found}
    opened.close()
    return keys


def half_way(store: Path) -> int:
    """Where the delivered copy begins that stands in the middle of all."""
    opened = ReadOnlyStore(store)
    found = (item for item in opened.commit_log.scan() if isinstance(item, Message) and item.topic == "timed")
    copies = [message.physical_offset for message in found if TIMER_OUT_MS in message.properties]
    opened.close()
    return copies[len(copies) // 2]
