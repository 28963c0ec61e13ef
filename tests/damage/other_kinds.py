"""Damage to the index, checkpoint, abort and configuration, and what does not belong into a store."""

from __future__ import annotations

import random
import shutil
import struct

from tests.damage.pristine import INDEX_HEADER_SIZE, SLOT_SIZE
from tests.damage.victim import Victim, flip, kind, overwrite, used

FAR = 1000 * 86400 * 1000  # ms


@kind
def index_slot_flipped(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        flip(rng.choice(files), INDEX_HEADER_SIZE + rng.randrange(SLOT_SIZE * victim.pristine.index_slots), rng)


@kind
def index_entry_flipped(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        path = rng.choice(files)
        begin = INDEX_HEADER_SIZE + SLOT_SIZE * victim.pristine.index_slots
        flip(path, rng.randrange(begin, max(used(path, 1), begin + 1)), rng)


@kind
def index_header_flipped(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        flip(rng.choice(files), rng.randrange(INDEX_HEADER_SIZE), rng)


@kind
def index_cut(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        path = rng.choice(files)
        path.write_bytes(path.read_bytes()[: rng.choice((0, 40, 500))])


@kind
def index_zeroed(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        path = rng.choice(files)
        path.write_bytes(bytes(path.stat().st_size))


@kind
def index_file_deleted(victim: Victim, rng: random.Random) -> None:
    if files := victim.files("index"):
        rng.choice(files).unlink()


@kind
def index_deleted(victim: Victim, rng: random.Random) -> None:
    shutil.rmtree(victim.root / "index", ignore_errors=True)


@kind
def index_of_another_store(victim: Victim, rng: random.Random) -> None:
    others = [
        other
        for other in victim.others
        if other.index_slots == victim.pristine.index_slots and (other.root / "index").is_dir()
    ]
    theirs = [path for other in others for path in sorted((other.root / "index").iterdir())]
    if theirs:
        chosen = rng.choice(theirs)
        (victim.root / "index").mkdir(exist_ok=True)
        shutil.copy2(chosen, victim.root / "index" / chosen.name)


@kind
def checkpoint_flipped(victim: Victim, rng: random.Random) -> None:
    flip(victim.root / "checkpoint", rng.randrange(40), rng)


@kind
def checkpoint_ahead(victim: Victim, rng: random.Random) -> None:
    path = victim.root / "checkpoint"
    if path.is_file() and path.stat().st_size >= 24:
        times = struct.unpack_from(">3q", path.read_bytes())
        overwrite(path, 0, struct.pack(">3q", *(min(time + FAR, 2**63 - 1) for time in times)))


@kind
def checkpoint_zeroed(victim: Victim, rng: random.Random) -> None:
    overwrite(victim.root / "checkpoint", 0, bytes(40))


@kind
def checkpoint_lost(victim: Victim, rng: random.Random) -> None:
    path = victim.root / "checkpoint"
    if path.is_file():
        rng.choice((path.unlink, lambda: path.write_bytes(path.read_bytes()[: rng.choice((0, 8, 24, 100))])))()


@kind
def abort_made(victim: Victim, rng: random.Random) -> None:
    (victim.root / "abort").touch()


@kind
def abort_removed(victim: Victim, rng: random.Random) -> None:
    (victim.root / "abort").unlink(missing_ok=True)


def _topics(victim: Victim) -> None:
    """A store of the engine alone has no configuration: give it some."""
    folder = victim.root / "config"
    folder.mkdir(exist_ok=True)
    names = (
        sorted(path.name for path in (victim.root / "consumequeue").glob("*"))
        if (victim.root / "consumequeue").is_dir()
        else []
    )
    topics = ",".join(f'"{name}":{{"readQueueNums":4,"topicName":"{name}","writeQueueNums":4}}' for name in names)
    if not (folder / "topics.json").exists():
        (folder / "topics.json").write_text(f'{{"dataVersion":{{"counter":1}},"topicConfigTable":{{{topics}}}}}')
    if not (folder / "consumerOffset.json").exists():
        (folder / "consumerOffset.json").write_text('{"offsetTable":{"OrderPaid@billing":{0:3,1:4}}}')


@kind
def config_cut(victim: Victim, rng: random.Random) -> None:
    _topics(victim)
    path = rng.choice(victim.files("config"))
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])


@kind
def config_flipped(victim: Victim, rng: random.Random) -> None:
    _topics(victim)
    path = rng.choice(victim.files("config"))
    if path.stat().st_size:
        flip(path, rng.randrange(path.stat().st_size), rng)


@kind
def config_lost(victim: Victim, rng: random.Random) -> None:
    shutil.rmtree(victim.root / "config", ignore_errors=True)


@kind
def stray_file_in_the_log(victim: Victim, rng: random.Random) -> None:
    (victim.root / "commitlog").mkdir(exist_ok=True)
    name = rng.choice(
        (".00000000000000000000.Xa1b2c", "00000000000000000000.tmp", ".00000000000000000000.swp", "notes.txt", "123")
    )
    (victim.root / "commitlog" / name).write_bytes(rng.randbytes(rng.choice((0, 100, 65536))))


@kind
def stray_file_in_a_queue(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        name = rng.choice((".00000000000000000000.Xa1b2c", "00000000000000000000.tmp", ".00000000000000000000.swp"))
        rng.choice(victim.queue_files).with_name(name).write_bytes(rng.randbytes(rng.choice((0, 100, 1000))))


@kind
def stray_file_elsewhere(victim: Victim, rng: random.Random) -> None:
    folder = victim.root / rng.choice(("index", "consumequeue", "config", ".", "consumequeue/OrderPaid"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / rng.choice(("x.tmp", ".x.swp", "00000000000000000000"))).write_bytes(rng.randbytes(rng.choice((0, 50))))


@kind
def stray_folder(victim: Victim, rng: random.Random) -> None:
    folder = rng.choice(("commitlog", "index", "consumequeue", "consumequeue/OrderPaid/0", "consumequeue/OrderPaid"))
    (victim.root / folder / rng.choice(("lost+found", ".snapshot", "00000000000000009000"))).mkdir(
        parents=True, exist_ok=True
    )
