"""The log files to delete, by the rules of RocketMQ's CleanCommitLogService.

Every 10 seconds, a broker makes a round. It deletes log files in an hour of deleteWhen, while a disk is too full, and
in the 20 rounds after mqadmin's deleteExpiredCommitLog: the oldest first, and at most 10 files in a round (5.x:
deleteFileBatchMax; `clean --batch` sets another maximum). The first log file that must stay ends the round, and the
last log file always stays.

One run of `clean` does the work of many rounds. In an hour of deleteWhen, it deletes every expired file. If a disk is
too full, it deletes files until the used space, less what the deleted files occupied, is below the limit. If the size
of the full disk is not known, or if this disk has no log files, `clean` does the work of one round.

Unlike a broker, `clean` stops at obstacles and at protected messages. An obstacle is a gap in the log after the file, a
file of a wrong length, or a second file with the same offsets. `--protect-unconsumed` protects messages. `--keep-bytes`
limits the size of the log and `--keep-files` the number of its files; with either, the age of log files is ignored.
Even then, `clean` never deletes the last log file, and stops at obstacles and protected messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.format.timestamp import rfc3339
from rmqctl.operations.clean.plan_types import NOBODY_WAITS, sum_of
from rmqctl.store.config.clean_config import HOUR_MS
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.operations.clean.disk_budget import Room
    from rmqctl.operations.clean.disk_use import Full, Pressure
    from rmqctl.operations.clean.log_files import LogFile
    from rmqctl.operations.clean.pending_messages import Outstanding
    from rmqctl.operations.clean.plan_types import FileDecision, PendingCounts, Trigger
    from rmqctl.store.config.clean_config import ExpirySettings

MANUAL_ROUNDS = 20
MTIME_SLACK_MS = HOUR_MS
NAMES_SHOWN = 3
LAST_STAYS, ONE_BEFORE_STAYS = "the last file never goes", "a file before it stays"


class ExpiredLog:
    """Decides which log files are deleted at the time `now_ms`.

    `hour` is compared with deleteWhen. `decide` fills `removed` with a reason for each file to delete, oldest file
    first; `trigger` and `reason` then say why log files are deleted, or `reason` why none is.
    """

    def __init__(
        self,
        log: list[LogFile],
        settings: ExpirySettings,
        room: Room,
        outstanding: Outstanding,
        *,
        now_ms: int,
        hour: int,
    ) -> None:
        self._log = log
        self._settings = settings
        self._room = room
        self._outstanding = outstanding
        self._now = now_ms
        self._hour = hour
        self._full = room.stops_writing()
        self._stays = ""  # why the first file that stays must stay
        self.removed: list[str] = []
        self.trigger: Trigger | None = None
        self.reason = "the log has no messages"

    def decide(self) -> None:
        """Decide which log files are deleted and which stay.

        If the operator has set no limits, the rules are a broker's.
        """
        limits = [(self._settings.keep_bytes, "byte"), (self._settings.keep_files, "file")]
        kept = " and ".join(counted(limit, what) for limit, what in limits if limit is not None)
        if kept and self._log:
            self.trigger, self.reason = "by hand", f"the log may keep {kept}"
            self._keep_by_hand()
        else:
            self._rounds()

    def _keep_by_hand(self) -> None:
        settings, left = self._settings, sum(one.file.size for one in self._log)
        for number, one in enumerate(self._log):
            too_large = settings.keep_bytes is not None and left > settings.keep_bytes
            too_many = settings.keep_files is not None and len(self._log) - number > settings.keep_files
            self._stays = self._holds(number) if too_large or too_many else self.reason
            if self._stays:
                return
            self.removed.append(self.reason)
            left -= one.file.size

    def _rounds(self) -> None:
        for done in range(len(self._log)):
            disk = self._room.pressure()
            asking = self._asking(disk, done)
            if not asking:
                self._stays = self._nothing_asks(disk, done)
            if not done:
                self.trigger = asking[0][0] if asking else None
                self.reason = "; ".join(why for _, why in asking) or self._stays
            forces = disk.forces if self._settings.clean_forcibly and self._counts(disk.forces, done) else None
            if not asking or not self._round(f"whatever its age: {forces.why}" if forces else ""):
                return

    def _asking(self, disk: Pressure, done: int) -> list[tuple[Trigger, str]]:
        asking: list[tuple[Trigger, str]] = []
        if self._hour in self._settings.delete_when:
            asking.append(("time", f"{self._hour:02} is an hour of deleteWhen ({self._hours})"))
        if disk.asks and self._counts(disk.asks, done):
            asking.append(("disk", disk.asks.why))
        if self._settings.manual and done < MANUAL_ROUNDS:
            asking.append(("manual", "asked for by hand (--manual)"))
        return asking

    def _nothing_asks(self, disk: Pressure, done: int) -> str:
        why = disk.asks.why if disk.asks else disk.calm
        if not done:
            return f"nothing asks for deletion: {self._hour:02} is not an hour of deleteWhen ({self._hours}), and {why}"
        rounds = f"{counted(done, 'round')} of {counted(max(self._settings.batch, 1), 'file')}"
        return f"after {rounds} nothing asks for more: {why}"

    def _counts(self, full: Full | None, done: int) -> bool:
        """Return whether a full disk is a reason for another round, after `done` rounds.

        The first round counts every full disk, later ones only a disk on which the deletion of log files frees space.
        """
        return full is not None and (not done or self._room.is_helped(full))

    @property
    def _hours(self) -> str:
        return ";".join(f"{hour:02}" for hour in self._settings.delete_when)

    def _round(self, forces: str) -> bool:
        # the log files that one round deletes are marked; returns whether another one is possible
        for _ in range(max(self._settings.batch, 1)):
            number = len(self.removed)
            self._stays = self._holds(number)
            if self._stays:
                return False
            one = self._log[number]
            since = self._since(one)
            if since is not None and self._now >= since + self._settings.reserved_ms:
                self.removed.append(f"{self._what} {rfc3339(since)}, more than {self._reserved} ago")
            elif forces:
                self.removed.append(forces)
            else:
                self._stays = self._young(since)
                return False
            self._room.free(one.file.path.parent, one.decision.bytes, one.decision.allocated_bytes)
        return True

    def _holds(self, number: int) -> str:
        # why the expired log file at this position must stay, or "" if it may be deleted
        if number >= len(self._log) - 1:
            return LAST_STAYS
        blocked_by = self._log[number].blocked_by
        if blocked_by or not self._settings.protect_unconsumed:
            return blocked_by
        waiting, timers = self._outstanding.of(number), self._outstanding.timers(number)
        if waiting.total:
            return f"messages in it wait for someone: {self._who_waits(waiting)}"
        return f"{timers} timer messages are in it, and whether they were delivered is not known" if timers else ""

    def _young(self, since: int | None) -> str:
        if since is None:
            return "when its last message was stored is not known"
        if since > self._now:
            return f"{self._what} {rfc3339(since)}, which is in the future: has a clock been set back?"
        return f"{self._what} {rfc3339(since)}, not yet {self._reserved} ago"

    def _since(self, one: LogFile) -> int | None:
        """Return the time (ms since 1970) from which a log file's age is counted."""
        return one.decision.mtime_ms if self._settings.by == "mtime" else one.decision.last_store_timestamp

    @property
    def _what(self) -> str:
        return "last written to" if self._settings.by == "mtime" else "its last message stored"

    @property
    def _reserved(self) -> str:
        return f"{self._settings.reserved_ms / HOUR_MS:g} h"

    def decisions(self) -> list[FileDecision]:
        """Return the decisions on all log files, oldest first."""
        return [self._decision(number, one) for number, one in enumerate(self._log)]

    def _decision(self, number: int, one: LogFile) -> FileDecision:
        is_last, first_left = number == len(self._log) - 1, len(self.removed)
        if number < first_left:
            why = self.removed[number]
        elif is_last:
            why = LAST_STAYS
        else:
            why = self._stays if number == first_left else ONE_BEFORE_STAYS
        waiting = NOBODY_WAITS if is_last or number > first_left else self._outstanding.of(number)
        return replace(one.decision, goes=number < first_left, why=why, waiting=waiting)

    def warnings(self) -> list[str]:
        """Return warnings that an operator should read before confirming a deletion."""
        found = [f"{one.file.name}: {one.blocked_by}" for one in self._log if one.blocked_by]
        found += [self._full] if self._full else []
        if not self._settings.hours_of_day:
            found.append(
                f"deleteWhen ({self._hours}) is no hour of a day: as for a broker, time alone never deletes anything"
            )
        if self._settings.by == "mtime":
            found += self._mtime_warnings()
        waiting = sum_of(self._outstanding.of(number) for number in range(len(self.removed)))
        if waiting.total:
            found.append(
                f"messages in files that go wait for someone: {self._who_waits(waiting)}; --protect-unconsumed keeps "
                "them"
            )
        return found

    def _mtime_warnings(self) -> list[str]:
        found = []
        decisions = [one.decision for one in self._log]
        off = [
            decision
            for decision in decisions
            if decision.last_store_timestamp and abs(decision.mtime_ms - decision.last_store_timestamp) > MTIME_SLACK_MS
        ]
        if off:
            first = off[0]
            found.append(
                f"the times of {counted(len(off), 'file')} of the log are not those of their last messages (the first, "
                f"{first.path}: {rfc3339(first.mtime_ms)}, messages until "
                f"{rfc3339(first.last_store_timestamp or 0)}): a copy that "
                "did not keep times? --by store-timestamp goes by the messages"
            )
        future = sum(decision.mtime_ms > self._now for decision in decisions)
        if future:
            found.append(
                f"the times of {counted(future, 'file')} of the log are in the future, by this host's clock: until "
                "then they stay"
            )
        return found

    def _who_waits(self, waiting: PendingCounts) -> str:
        words = [
            (waiting.unconsumed, f"not consumed (farthest behind: {_first_names(self._outstanding.slowest)})"),
            (waiting.scheduled, "scheduled and not delivered"),
            (waiting.half, "half, neither committed nor rolled back"),
            (waiting.dead, f"dead letters that no group reads ({_first_names(self._outstanding.dead_letters)})"),
        ]
        return ", ".join(f"{count} {what}" for count, what in words if count)


def _first_names(counts: dict[str, int]) -> str:
    names = sorted(counts, key=counts.__getitem__, reverse=True)
    return ", ".join(names[:NAMES_SHOWN]) + (
        f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    )
