"""Damage to the commit log: to fields of records, to ranges, to whole files."""

from __future__ import annotations

import random
import shutil
import struct

from tests.damage.victim import KINDS, Victim, cut, extend, flip, kind, overwrite, used

FIELDS = (
    "size", "magic", "body-crc", "queue-id", "flag", "queue-offset", "physical-offset", "sys-flag", "born-timestamp",
    "born-host", "store-timestamp", "store-host", "reconsume-times", "prepared-offset", "body-length", "body",
    "topic-length", "topic", "properties-length", "properties",
)  # fmt: skip
PAGE = 4096


def _flip_field(field: str) -> None:
    def damage(victim: Victim, rng: random.Random) -> None:
        chosen = rng.choice([record for record in victim.pristine.records if record.fields[field].size])
        place = chosen.fields[field]
        flip(victim.log_file(chosen.file), place.at + rng.randrange(place.size), rng)

    KINDS[f"flip-{field}"] = damage


for _field in FIELDS:
    _flip_field(_field)


@kind
def flip_queue_offset_of_a_first_message(victim: Victim, rng: random.Random) -> None:
    records = victim.pristine.records
    place = rng.choice(records[: max(len(records) // 20, 1)]).fields["queue-offset"]
    flip(victim.log_file(records[0].file), place.at + rng.randrange(place.size), rng)


@kind
def garble_queue_offset(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(victim.log_file(chosen.file), chosen.fields["queue-offset"].at, rng.randbytes(rng.choice((1, 2, 8))))


@kind
def garble_a_header(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(victim.log_file(chosen.file), chosen.at, rng.randbytes(rng.choice((8, 40, 88))))


@kind
def garble_hosts(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    place = chosen.fields[rng.choice(("born-host", "store-host"))]
    overwrite(victim.log_file(chosen.file), place.at, rng.randbytes(place.size))


@kind
def garbage_in_the_log(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(
        victim.log_file(chosen.file),
        chosen.at + rng.randrange(chosen.size),
        rng.randbytes(rng.choice((1, 7, 60, 500, 5000))),
    )


@kind
def zeros_in_the_log(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(
        victim.log_file(chosen.file), chosen.at + rng.choice((0, 0, 7, 60)), bytes(rng.choice((4, 60, 300, 3000)))
    )


@kind
def zero_page_of_the_log(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        path = rng.choice(victim.log_files)
        overwrite(path, PAGE * rng.randrange(max(path.stat().st_size // PAGE, 1)), bytes(PAGE * rng.choice((1, 1, 2))))


@kind
def zero_a_message(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(victim.log_file(chosen.file), chosen.at, bytes(chosen.size))


@kind
def empty_a_body(victim: Victim, rng: random.Random) -> None:
    chosen = rng.choice(victim.pristine.records)
    overwrite(victim.log_file(chosen.file), chosen.fields["body-length"].at, bytes(4))


@kind
def stale_records_behind_the_end(victim: Victim, rng: random.Random) -> None:
    last = victim.pristine.records[-1]
    stale = rng.choice([record for record in victim.pristine.records if record.file == last.file])
    path = victim.log_file(last.file)
    if path.is_file():
        data = path.read_bytes()[stale.at : last.at + last.size]
        overwrite(
            path, last.at + last.size + rng.choice((0, 0, 1, 300)), data[: rng.choice((stale.size, 3 * stale.size))]
        )


@kind
def garbage_behind_the_end(victim: Victim, rng: random.Random) -> None:
    last = victim.pristine.records[-1]
    overwrite(victim.log_file(last.file), last.at + last.size, rng.randbytes(rng.choice((3, 100))))


@kind
def torn_last_record(victim: Victim, rng: random.Random) -> None:
    last = victim.pristine.records[-1]
    cut = rng.randrange(1, last.size)
    overwrite(victim.log_file(last.file), last.at + cut, bytes(last.size - cut))


@kind
def blank_destroyed(victim: Victim, rng: random.Random) -> None:
    if victim.pristine.blanks:
        blank = rng.choice(victim.pristine.blanks)
        path = victim.log_file(blank.file)
        rng.choice(
            (lambda: flip(path, blank.at + rng.randrange(8), rng), lambda: overwrite(path, blank.at, bytes(8)))
        )()


@kind
def log_file_cut(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        cut(rng.choice(victim.log_files), PAGE, rng)


@kind
def log_file_extended(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        extend(rng.choice(victim.log_files), PAGE, rng)


@kind
def log_file_deleted(victim: Victim, rng: random.Random) -> None:
    if len(victim.log_files) > 1:
        rng.choice(victim.log_files).unlink()


@kind
def last_log_file_lost(victim: Victim, rng: random.Random) -> None:
    if len(victim.log_files) > 1:
        victim.log_files[-1].unlink()


@kind
def log_file_renamed(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        path = rng.choice(victim.log_files)
        moved = int(path.name) + rng.choice((1, 2, 5, 100)) * victim.pristine.log_file_size
        path.replace(path.with_name(f"{moved:020d}"))


@kind
def log_file_renamed_off_its_grid(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        path = rng.choice(victim.log_files)
        path.replace(path.with_name(f"{int(path.name) + rng.choice((1, 20, 4096)):020d}"))


@kind
def log_files_swapped(victim: Victim, rng: random.Random) -> None:
    if len(victim.log_files) > 1:
        one, other = rng.sample(victim.log_files, 2)
        data = one.read_bytes()
        shutil.copy2(other, one)
        other.write_bytes(data)


@kind
def log_file_duplicated(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        last = int(victim.log_files[-1].name) + victim.pristine.log_file_size
        shutil.copy2(rng.choice(victim.log_files), victim.log_file(f"{last:020d}"))


@kind
def zero_log_file_added(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        size = victim.pristine.log_file_size
        victim.log_file(f"{int(victim.log_files[-1].name) + size:020d}").write_bytes(bytes(size))


@kind
def last_log_file_zeroed(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        victim.log_files[-1].write_bytes(bytes(victim.log_files[-1].stat().st_size))


@kind
def empty_log_file_added(victim: Victim, rng: random.Random) -> None:
    if victim.log_files:
        victim.log_file(f"{int(victim.log_files[-1].name) + victim.pristine.log_file_size:020d}").touch()


@kind
def log_file_of_another_store(victim: Victim, rng: random.Random) -> None:
    """In the place of one, with the same offsets."""
    others = [other for other in victim.others if other.log_file_size == victim.pristine.log_file_size]
    if others and victim.log_files:
        theirs = rng.choice(rng.choice(others).log_files)
        shutil.copy2(theirs, victim.log_file(rng.choice((theirs.name, victim.log_files[-1].name))))


@kind
def records_of_another_place(victim: Victim, rng: random.Random) -> None:
    """A record over the begin of another one, as a misdirected write leaves it."""
    source, target = rng.choice(victim.pristine.records), rng.choice(victim.pristine.records)
    data = (victim.pristine.root / "commitlog" / source.file).read_bytes()[source.at : source.at + source.size]
    overwrite(victim.log_file(target.file), target.at, data)


@kind
def log_behind_a_lost_tail(victim: Victim, rng: random.Random) -> None:
    """The end of the last file's messages never reached the disk: zeros."""
    if victim.log_files:
        path = victim.log_files[-1]
        end = used(path, 1)
        begin = rng.randrange(end + 1)
        overwrite(path, begin, bytes(end - begin))


@kind
def store_timestamp_zeroed(victim: Victim, rng: random.Random) -> None:
    """Of a file's first message: by it brokers choose where they begin."""
    chosen = rng.choice([record for record in victim.pristine.records if record.at == 0])
    value = rng.choice((0, 1, 2**62))
    overwrite(victim.log_file(chosen.file), chosen.fields["store-timestamp"].at, struct.pack(">q", value))
