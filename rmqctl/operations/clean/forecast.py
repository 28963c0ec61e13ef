"""When a store's disk is full, what retention keeps, and what expires unread.

The time to come is played hour by hour: the log grows evenly, and in each hour a broker deletes files by the rules of
CleanCommitLogService, as `expired_log.py` has them.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.timestamp import rfc3339
from rmqctl.operations.clean.disk_budget import Room
from rmqctl.operations.clean.expired_queues import stored_bytes
from rmqctl.operations.clean.log_files import log_files
from rmqctl.store.config.clean_config import HOUR_MS, known_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rmqctl.forensics.space.unread import Unread
    from rmqctl.format.profile import Profile
    from rmqctl.operations.clean.disk_use import DiskUse
    from rmqctl.store.config.clean_config import ExpirySettings
    from rmqctl.store.read.read_only_store import ReadOnlyStore

HOURS_A_DAY = 24
DAYS_MAX = 3 * 366


class Forecast(NamedTuple):
    """What happens to a store that grows on as it did. Times are in ms since 1970."""

    disk: DiskUse  # that of the last log file
    growth: int  # bytes a day
    reserved_ms: int
    kept: int | None  # bytes that retention keeps once the log is as old as that; None: deleteWhen never comes
    full: int | None  # when a broker deletes files before their time, or takes no messages; None: not by DAYS_MAX
    deletes_early: bool  # it deletes files then; else it takes no messages
    deleted: dict[str, int]  # when each log file of today is deleted, by its path; files that stay are left out

    def to_json(self, losses: Sequence[UnreadLoss]) -> dict[str, Any]:
        """Return the forecast for a JSON document."""
        return {
            "diskPath": str(self.disk.path),
            "diskBytes": self.disk.size,
            "diskUsedBytes": self.disk.used,
            "diskUsedPercent": self.disk.used_percent,
            "bytesPerDay": self.growth,
            "reservedHours": self.reserved_ms // HOUR_MS,
            "keptBytes": self.kept,
            "fullTimestamp": self.full,
            "fullTime": self.full and rfc3339(self.full),
            "deletesEarly": self.deletes_early,
            "unread": [
                {"group": one.group, "deleteTimestamp": one.at, "deleteTime": rfc3339(one.at)}
                | {"messages": one.messages, "bytes": one.bytes}
                for one in losses
            ],
        }


class UnreadLoss(NamedTuple):
    """What a group has not consumed yet and loses at the time `at`, unless it does."""

    group: str
    at: int  # ms since 1970
    messages: int
    bytes: int


class _File(NamedTuple):
    written_ms: int
    folder: Path
    bytes: int  # of disk
    path: str = ""  # of a file of today


def forecast(
    store: ReadOnlyStore, profile: Profile, growth: int, now_ms: int, disks: Sequence[DiskUse], logics_disk: DiskUse
) -> Forecast:
    """Return the forecast for a store that grows by `growth` bytes a day.

    `disks` are those of the log's folders, `logics_disk` is that of the consume queues' folder. Raises OSError.
    """
    settings = known_to(profile, store.conf.expiry)
    play = _Play(store, settings, Room(settings, profile, disks, logics_disk, stored_bytes(store)), growth)
    level, highest = 0, 0
    for hour in range(1, DAYS_MAX * HOURS_A_DAY):
        play.hour(now_ms - now_ms % HOUR_MS + hour * HOUR_MS)
        highest = max(highest, play.grown)
        if hour % HOURS_A_DAY == 0:
            is_settled = highest == level and hour * HOUR_MS > settings.reserved_ms + HOURS_A_DAY * HOUR_MS
            if is_settled or (play.full is not None and not play.deletes_early):
                break
            level = highest
        if play.deletes_early and not any(file.path for file in play.files):
            break
    disk = next(disk for disk in disks if disk.path == play.folder)
    kept = _kept(growth, settings, store.commit_log.queue.file_size)
    return Forecast(disk, growth, settings.reserved_ms, kept, play.full, play.deletes_early, play.deleted)


def losses(store: ReadOnlyStore, deleted: Mapping[str, int], unread: Mapping[str, Unread]) -> list[UnreadLoss]:
    """Return what each group loses when the files `deleted` go, the next loss first."""
    found: dict[tuple[int, str], list[int]] = {}
    for group, of_group in unread.items():
        for number, file in enumerate(store.commit_log.queue.files):
            if of_group.messages[number] and file.name in deleted:
                lost = found.setdefault((deleted[file.name], group), [0, 0])
                lost[0] += int(of_group.messages[number])
                lost[1] += int(of_group.bytes[number])
    return [UnreadLoss(group, at, *lost) for (at, group), lost in sorted(found.items())]


class _Play:
    """A store in the hours to come: `grown` is the change of its bytes until then."""

    def __init__(self, store: ReadOnlyStore, settings: ExpirySettings, room: Room, growth: int) -> None:
        log = log_files(store)
        *past, last = [
            _File(one.decision.mtime_ms, one.file.path.parent, one.decision.allocated_bytes, one.decision.path)
            for one in log
        ] or [_File(0, store.path.commitlogs[0], 0)]
        self.files = deque(past)
        self.folder = last.folder
        self.grown = 0
        self.full: int | None = None
        self.deletes_early = False
        self.deleted: dict[str, int] = {}
        self._open = last  # the file that is written to
        self._settings, self._room = settings, room
        self._growth = growth // HOURS_A_DAY
        self._file_size = store.commit_log.queue.file_size

    def hour(self, at: int) -> None:
        """Let the log grow until the time `at`, and delete what a broker deletes then."""
        self._change(self.folder, self._growth)
        self._open = self._open._replace(bytes=self._open.bytes + self._growth)
        if self._growth and self._open.bytes >= self._file_size:
            self.files.append(self._open._replace(written_ms=at))
            self._open = _File(0, self.folder, 0)
        while self.files and self._goes(at):
            file = self.files.popleft()
            self._change(file.folder, -file.bytes)
            self.deleted |= {file.path: at} if file.path else {}
        if self.full is None and self._room.stops_writing():
            self.full = at

    def _goes(self, at: int) -> bool:
        pressure, settings = self._room.pressure(), self._settings
        asked = datetime.fromtimestamp(at / 1000).astimezone().hour in settings.delete_when or pressure.asks is not None
        if asked and at >= self.files[0].written_ms + settings.reserved_ms:
            return True
        if not settings.clean_forcibly or pressure.forces is None or not self._room.is_helped(pressure.forces):
            return False
        self.deletes_early = self.deletes_early or self.full is None
        self.full = at if self.full is None else self.full
        return True

    def _change(self, folder: Path, count: int) -> None:
        self._room.free(folder, -count, -count)
        self.grown += count


def _kept(growth: int, settings: ExpirySettings, file_size: int) -> int | None:
    hours = sorted(settings.hours_of_day)
    if not hours:
        return None
    wait = max(after - before for before, after in pairwise([*hours, hours[0] + HOURS_A_DAY]))
    return growth * (settings.reserved_ms + wait * HOUR_MS) // (HOURS_A_DAY * HOUR_MS) + file_size
