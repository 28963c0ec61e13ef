"""Damage to consume queues and their extension."""

from __future__ import annotations

import random
import shutil
import struct

from tests.damage.victim import UNIT, Victim, cut, extend, flip, kind, overwrite, used


@kind
def unit_flipped(victim: Victim, rng: random.Random) -> None:
    if victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        flip(path, rng.randrange(used(path)), rng)


@kind
def units_zeroed(victim: Victim, rng: random.Random) -> None:
    if victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        overwrite(path, UNIT * rng.randrange(used(path) // UNIT), bytes(UNIT * rng.choice((1, 2, 10))))


@kind
def units_garbled(victim: Victim, rng: random.Random) -> None:
    if victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        overwrite(path, rng.randrange(used(path)), rng.randbytes(rng.choice((1, 20, 60))))


@kind
def units_shuffled(victim: Victim, rng: random.Random) -> None:
    if victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        data = path.read_bytes()[: used(path)]
        units = [data[at : at + UNIT] for at in range(0, len(data), UNIT)]
        rng.shuffle(units)
        overwrite(path, 0, b"".join(units))


@kind
def unit_repeated(victim: Victim, rng: random.Random) -> None:
    if victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        count = used(path) // UNIT
        data = path.read_bytes()
        source = UNIT * rng.randrange(count)
        overwrite(path, UNIT * rng.randrange(count + 1), data[source : source + UNIT])


@kind
def queue_pages_zeroed(victim: Victim, rng: random.Random) -> None:
    """Of several queues the last page, which never reached the disk."""
    for path in rng.sample(victim.queue_files, min(len(victim.queue_files), rng.choice((1, 3, 99)))):
        path.write_bytes(bytes(path.stat().st_size))


@kind
def queues_lag(victim: Victim, rng: random.Random) -> None:
    for path in victim.used_queue_files:
        lag = UNIT * rng.choice((0, 1, 12))
        overwrite(path, max(used(path) - lag, 0), bytes(lag))


@kind
def queue_is_ahead(victim: Victim, rng: random.Random) -> None:
    """Units of messages that never reached the disk."""
    if victim.used_queue_files and victim.pristine.records:
        path = victim.used_queue_files[-1] if rng.randrange(2) else rng.choice(victim.used_queue_files)
        last = victim.pristine.records[-1]
        end = int(last.file) + last.at + last.size
        units = [struct.pack(">qiq", end + 150 * number, 150, number) for number in range(rng.choice((1, 4)))]
        overwrite(path, used(path), b"".join(units))


@kind
def queue_file_cut(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        cut(rng.choice(victim.queue_files), UNIT, rng)


@kind
def queue_file_extended(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        extend(rng.choice(victim.queue_files), UNIT, rng)


@kind
def queue_file_deleted(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        rng.choice(victim.queue_files).unlink()


@kind
def queue_file_renamed(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        path = rng.choice(victim.queue_files)
        moved = int(path.name) + rng.choice((1, 2, 10)) * victim.pristine.queue_file_size + rng.choice((0, 0, 7))
        path.replace(path.with_name(f"{moved:020d}"))


@kind
def queue_files_swapped(victim: Victim, rng: random.Random) -> None:
    if len(victim.used_queue_files) > 1:
        one, other = rng.sample(victim.used_queue_files, 2)
        data = one.read_bytes()
        shutil.copy2(other, one)
        other.write_bytes(data)


@kind
def queue_file_duplicated(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        path = rng.choice(victim.queue_files)
        last = max(int(other.name) for other in victim.queue_files if other.parent == path.parent)
        shutil.copy2(path, path.with_name(f"{last + victim.pristine.queue_file_size:020d}"))


@kind
def zero_queue_file_added(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        path = rng.choice(victim.queue_files)
        last = max(int(other.name) for other in victim.queue_files if other.parent == path.parent)
        path.with_name(f"{last + victim.pristine.queue_file_size:020d}").write_bytes(
            bytes(victim.pristine.queue_file_size)
        )


@kind
def queue_deleted(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        shutil.rmtree(rng.choice(victim.queue_files).parent)


@kind
def all_queues_deleted(victim: Victim, rng: random.Random) -> None:
    shutil.rmtree(victim.root / "consumequeue", ignore_errors=True)


@kind
def queue_of_another_store(victim: Victim, rng: random.Random) -> None:
    theirs = rng.choice(victim.others).root / "consumequeue"
    files = sorted(path for path in theirs.rglob("0*") if path.is_file())
    if files:
        chosen = rng.choice(files)
        target = victim.root / "consumequeue" / chosen.relative_to(theirs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(chosen, target)


@kind
def queue_under_another_number(victim: Victim, rng: random.Random) -> None:
    if victim.queue_files:
        folder = rng.choice(victim.queue_files).parent
        target = folder.with_name(rng.choice(("7", "99")))
        if not target.exists():
            folder.rename(target)


@kind
def ext_damaged(victim: Victim, rng: random.Random) -> None:
    """The extension's units where there are any, or a queue's unit that claims to have one."""
    files = [path for path in victim.files("consumequeue_ext") if path.read_bytes().strip(b"\0")]
    if files:
        path = rng.choice(files)
        flip(path, rng.randrange(used(path, 1)), rng)
    elif victim.used_queue_files:
        path = rng.choice(victim.used_queue_files)
        overwrite(path, used(path) - 8, struct.pack(">q", -(2**63) + rng.randrange(1000)))


@kind
def ext_lost(victim: Victim, rng: random.Random) -> None:
    files = victim.files("consumequeue_ext")
    if files:
        path = rng.choice(files)
        rng.choice((path.unlink, lambda: path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])))()
