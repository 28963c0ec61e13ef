"""Pull the log of a master over one connection.

A pull begins up to 64 KiB before the end of the mirror, and compares the mirror's last bytes with the master's log. If
they differ, nothing is appended: these are different logs. The bytes after the mirror's end are split into records,
checked, and passed to the caller.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import NeedsRecovery, PeerError
from rmqctl.format.message import Damage
from rmqctl.store.ha.auto_switch_ha_client import AutoSwitchHAClient
from rmqctl.store.ha.ha_client import READ_MAX_BUFFER_SIZE, HAClient
from rmqctl.store.ha.received_log import ReceivedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.operations.replicate.master import LogRange, Master
    from rmqctl.store.ha.received_log import ReceivedPart

OVERLAP = 64 * 1024  # bytes in which a mirror is compared with its master
FIRST_BYTE = b"\0"  # of a log that begins at 0: the first byte of a record's size below 16 MiB
LEAST_READ = 4096
BATCH = 8 * 1024 * 1024  # bytes that are dispatched at once, if so many arrive without a pause
QUIET = 3.0  # seconds without a byte after a heartbeat: a slowed-down master also sends heartbeats inside a record
STALL = 15.0  # seconds in which only heartbeats arrive before the end of the log


@dataclass
class Progress:
    """The counts of a run of `replicate`. Offsets are in bytes."""

    bytes: int = 0
    messages: int = 0
    max_offset: int = 0  # the end of the copy
    master_offset: int = 0  # the last known end of the master's log
    seconds: float = 0.0  # from the first connection to the last received byte


class Known(NamedTuple):
    """The last bytes of the mirror's log, which begin at physical offset `offset`."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The physical offset at which the mirror's log ends."""
        return self.offset + len(self.data)


def connect(master: Master) -> HAClient:
    """Return an HA client for the master; `with` opens the connection."""
    kind = AutoSwitchHAClient if master.controller_mode else HAClient
    return kind(master.address.host, master.ha_port)


def known_bytes(files: Sequence[MappedFile], end: int, asked: LogRange, address: str) -> Known | None:
    """Return the last bytes of the mirror, or None if the mirror has no log.

    `files` are its log files, and `end` is the physical offset at which its last record ends. Raises NeedsRecovery if
    the master's log does not have the last byte of the mirror.
    """
    if not files:
        return None
    if asked.min_offset > end or asked.min_offset == end > files[0].file_from_offset:
        what = f"the mirror ends at {end}, but the log of {address} begins at {asked.min_offset}: the rest has expired"
        raise NeedsRecovery(what, hint="replicate into another STORE")
    if asked.max_offset < end:
        what = f"the mirror ends at {end}, after the log of {address}, which ends at {asked.max_offset}"
        raise NeedsRecovery(
            f"{what}: it is another log, or the master lost its end", hint="replicate into another STORE"
        )
    begin = max(asked.min_offset, end - OVERLAP, files[0].file_from_offset)
    parts = []
    for file in files:
        if file.end > begin and file.file_from_offset < end:
            start = max(begin - file.file_from_offset, 0)
            parts.append(file.read(start, min(end, file.end) - file.file_from_offset - start))
    return Known(begin, b"".join(parts))


class LogPull:
    """Pulls the log of a master over `client`, beginning at the end of the mirror.

    `known` has the mirror's last bytes; if it is None, the pull begins at `begin`, the first offset of the master's
    log. `take` is called with each part of the log, in order. `rate` is the limit in bytes a second; 0 means none. With
    `lenient`, the pull continues after damage.
    """

    def __init__(
        self,
        client: HAClient,
        master: Master,
        begin: int,
        known: Known | None,
        take: Callable[[ReceivedPart], None],
        rate: int = 0,
        *,
        lenient: bool = False,
    ) -> None:
        self._client = client
        self._take = take
        self._known = known
        self._known_left = 0 if known is None else len(known.data)  # bytes that were not compared yet
        self._rate = rate
        self._debt = 0.0  # seconds by which reading is ahead of `rate`
        self.received = ReceivedLog(
            begin if known is None else known.end, master.file_size, str(master.address), lenient=lenient
        )
        self._heartbeat_at = 0.0  # time.monotonic() of a heartbeat after which no byte has arrived; 0: none
        start = begin if known is None else known.offset
        if start == 0 and client.sends_last_file_for_0:
            start = len(FIRST_BYTE)
            self._known_left = max(self._known_left - start, 0)
            if self.received.offset == 0:
                self.received.add(memoryview(FIRST_BYTE))
        client.begin(start)

    @property
    def end(self) -> int:
        """The physical offset up to which the master's log has arrived."""
        return self.received.offset + self.received.waiting

    @property
    def is_joined(self) -> bool:
        """Whether the mirror's last bytes were compared with the master's log."""
        return not self._known_left

    def step(self, timeout: float) -> int:
        """Process the bytes that arrive in `timeout` seconds, and return their number.

        Raises PeerError, NeedsRecovery, and any error that `take` raises.
        """
        if self._debt > timeout:
            self._client.repeat_report()
            time.sleep(timeout)
            self._debt -= timeout
            return 0
        began = time.monotonic()
        size_max = max(self._rate // 10, LEAST_READ) if self._rate else READ_MAX_BUFFER_SIZE
        count = more = self._receive(timeout, size_max)
        while more and count < BATCH and not self._rate:
            try:
                more = self._receive(0, size_max)
            except PeerError:  # the bytes that have arrived are good; the next step raises the error again
                break
            count += more
        for part in self.received.parts():
            self._take(part)
        if self._rate:
            self._debt = max(self._debt + count / self._rate - (time.monotonic() - began), 0)
        return count

    def _receive(self, timeout: float, size_max: int) -> int:
        count = 0
        for transfer in self._client.receive(timeout, size_max):
            if not transfer.body:
                self._heartbeat_at = self._heartbeat_at or time.monotonic()
                continue
            self._heartbeat_at = 0.0
            count += len(transfer.body)
            body = self._compared(transfer.offset, transfer.body)
            if body:
                self.received.add(body)
        return count

    def check_stall(self, asked: LogRange) -> None:
        """Raise an error if the master stops sending the log before the log's end."""
        at = self.end - self._known_left
        if asked.min_offset > self.end:
            what = f"{self._client.address} has deleted its log up to {asked.min_offset}; the mirror ends at {self.end}"
            raise NeedsRecovery(what, hint="replicate into another STORE")
        if asked.max_offset > at and self._is_quiet_for(STALL):
            what = f"the master stands still at offset {at}, but its log ends at {asked.max_offset}"
            raise PeerError(what, path=self._client.address)

    def check_whole(self, asked: LogRange) -> None:
        """Raise NeedsRecovery if the master's log ends too early, or inside a record.

        It ends too early if the mirror's log is longer. `asked` must be the present range of the master's log.
        """
        if asked.max_offset < self.received.offset:
            what = f"the log of {self._client.address} ends at {asked.max_offset}, before the mirror's end"
            raise NeedsRecovery(what, offset=self.received.offset, hint="replicate into another STORE")
        is_whole = self.received.offset >= asked.max_offset or self.end < asked.max_offset
        rest = self.received.rest() if not is_whole and self.is_quiet else None
        if rest is not None:
            raise damaged_master(rest)

    @property
    def is_quiet(self) -> bool:
        """Return whether the master has nothing more to send."""
        return self._is_quiet_for(QUIET)

    def _is_quiet_for(self, seconds: float) -> bool:
        return self._heartbeat_at > 0 and time.monotonic() - self._heartbeat_at > seconds

    def _compared(self, offset: int, body: memoryview) -> memoryview:
        known = self._known
        if known is None or offset >= known.end:
            return body
        start = offset - known.offset
        both = min(len(body), len(known.data) - start)
        if body[:both] != known.data[start : start + both]:
            at = next(at for at in range(both) if body[at] != known.data[start + at])
            what = f"the mirror and {self._client.address} differ at offset {offset + at}: these are different logs"
            raise NeedsRecovery(what, hint="replicate into another STORE")
        self._known_left -= both
        return body[both:]


def damaged_master(damage: Damage) -> NeedsRecovery:
    """Return the error for damage in the master's log."""
    what = f"the master's log is damaged ({damage.code}: {damage.detail})"
    return NeedsRecovery(what, offset=damage.physical_offset, hint="--verify-only checks the whole log")
