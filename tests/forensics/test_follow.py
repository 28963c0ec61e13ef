"""A log is followed while it grows, rolls to its next file, and is cut: no record comes twice, and none is left out."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.forensics.follow import LogFollower, end_of_records
from rmqctl.format.message import Damage, Message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.file_edits import write_at
from tests.support.log_maker import BLANK, Record, encode, entry, write_entries

FILE_SIZE = 1024
POLLS_A_STEP = 3
Step = Callable[[], None]
Found = list[Message | Damage]


class Writer:
    """Writes records as a broker does: into files of 1024 bytes, each record at the end of the log."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "commitlog"
        self.folder.mkdir()
        self.end = 0
        self.starts: list[int] = []
        self.number = 0

    def write(self, physical_offset: int, data: bytes) -> None:
        base = physical_offset - physical_offset % FILE_SIZE
        path = self.folder / f"{base:020d}"
        if not path.exists():
            path.write_bytes(bytes(FILE_SIZE))
        write_at(path, physical_offset - base, data)

    def append(self, part: int | None = None) -> None:
        """Append one record, or the first `part` bytes of it: the next call writes the whole record."""
        data = self._next()
        room = FILE_SIZE - self.end % FILE_SIZE
        if len(data) + 8 > room:
            self.write(self.end, struct.pack(">iI", room, BLANK))
            self.end += room
            data = self._next()
        self.write(self.end, data[:part])
        if part is None:
            self.starts.append(self.end)
            self.end += len(data)
            self.number += 1

    def cut(self, count: int) -> None:
        """End the log before its last `count` records, as a broker does: their bytes stay, later files are deleted."""
        first = max(len(self.starts) - count, 0)
        self.end = self.starts[first]
        del self.starts[first:]
        for path in self.folder.iterdir():
            if int(path.name) > self.end:
                path.unlink()

    def _next(self) -> bytes:
        body = b"x" * (self.number * 37 % 90)
        return encode(Record(queue_offset=self.number, body=body, store_timestamp=10**12 + self.number), self.end)


class NoMoreStepsError(Exception):
    """The writer is done."""


def followed(root: Path, steps: list[Step], monkeypatch: pytest.MonkeyPatch) -> tuple[Found, list[int]]:
    """What a follower from the end of the log yields, and where it says that the log was cut.

    Each step of the writer comes after a few polls.
    """
    log = ReadOnlyStore(root).commit_log
    cuts: list[int] = []
    left = iter([step for each in steps for step in (wait, wait, each)] + [wait] * POLLS_A_STEP)

    def poll(_: float) -> None:
        step = next(left, None)
        if step is None:
            raise NoMoreStepsError
        step()

    monkeypatch.setattr("rmqctl.forensics.follow.time.sleep", poll)
    found: Found = []
    with pytest.raises(NoMoreStepsError):
        found.extend(LogFollower(log, end_of_records(log), cuts.append).items(None))
    return found, cuts


def wait() -> None:
    """A poll in which the writer does nothing."""


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path)
    for _ in range(5):
        writer.append()
    return writer


def numbers(found: Found) -> list[int]:
    assert all(isinstance(item, Message) for item in found), found
    return [item.queue_offset for item in found if isinstance(item, Message)]


def test_it_begins_at_the_end(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(tmp_path, [], monkeypatch) == ([], [])
    assert numbers(followed(tmp_path, [writer.append] * 3, monkeypatch)[0]) == [5, 6, 7]


def test_it_begins_at_the_end_behind_damage(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.write(writer.starts[-2], b"\xff" * 8)
    assert numbers(followed(tmp_path, [writer.append], monkeypatch)[0]) == [5]


def test_a_roll_to_the_next_file(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = followed(tmp_path, [writer.append] * 40, monkeypatch)
    assert numbers(found) == list(range(5, 45))
    assert writer.end > 4 * FILE_SIZE


def test_several_records_between_two_polls(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst() -> None:
        for _ in range(12):
            writer.append()

    assert numbers(followed(tmp_path, [burst, burst], monkeypatch)[0]) == list(range(5, 29))


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_a_log_that_is_cut_and_written_again(
    cut: int, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the cut leaves records from before the start of the follower, and in the file before."""
    steps = [writer.append] * 4 + [lambda: writer.cut(cut)] + [writer.append] * 12
    found, cuts = followed(tmp_path, steps, monkeypatch)
    assert numbers(found) == list(range(5, 21))
    assert cuts[-1] == writer.starts[9 - cut]  # before that, a file may be deleted


def test_bytes_behind_a_cut_that_are_zeroed(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zero() -> None:
        writer.cut(2)
        writer.write(writer.end, bytes(FILE_SIZE - writer.end % FILE_SIZE))

    found, cuts = followed(tmp_path, [writer.append, zero, writer.append, writer.append], monkeypatch)
    assert numbers(found) == [5, 6, 7]
    assert cuts == [writer.starts[4]]


def test_files_that_expire_are_no_cut(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Step] = [writer.append] * 20
    steps.insert(15, (writer.folder / f"{0:020d}").unlink)
    found, cuts = followed(tmp_path, steps, monkeypatch)
    assert (numbers(found), cuts) == (list(range(5, 25)), [])


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_growth_torn_writes_and_cuts(
    seed: int, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    steps: list[Step] = []
    for _ in range(30):
        what = chance.choice(("append", "append", "torn", "cut"))
        if what == "torn":
            steps.append(partial(writer.append, chance.randrange(1, 90)))
        elif what == "cut":
            steps.append(partial(writer.cut, chance.randrange(1, 5)))
        steps.append(writer.append)
    found, _ = followed(tmp_path, steps, monkeypatch)
    messages = [item.queue_offset for item in found if isinstance(item, Message)]
    assert messages == list(range(5, writer.number))


def test_a_torn_entry_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record, without its last byte, is found behind DLedger's header, and is not what follows the damage."""
    end = write_entries(tmp_path, [3], file_size=FILE_SIZE)[0][-1] + len(entry(Record(body=b"hello 0"), 0, 0))
    data, log = entry(Record(queue_offset=3), end, 3), tmp_path / "dledger-n0" / "data" / f"{0:020d}"
    steps: list[Step] = [partial(write_at, log, end, data[:-1]), partial(write_at, log, end, data)]
    found, cuts = followed(tmp_path, steps, monkeypatch)
    assert ([type(item) for item in found], numbers(found), cuts) == ([Message], [3], [])


def test_rows_before_and_after_are_one_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What --tail and --from-offset print ends where following begins, though the log grows in between."""
    from rmqctl.forensics.dump import Dump
    from rmqctl.forensics.message_filter import Filter

    writer = Writer(tmp_path)
    for _ in range(6):
        writer.append()
    for arguments in ({"tail": 2}, {"from_start": True}):
        monkeypatch.setattr("rmqctl.forensics.follow.time.sleep", lambda _: writer.append())
        rows = Dump(ReadOnlyStore(tmp_path), Filter(), on_damage=print).follow(**arguments)
        first = writer.number - 2 if "tail" in arguments else 0
        assert [next(rows)["queueOffset"] for _ in range(12)] == list(range(first, first + 12))
