"""Check the whole log of a live master over the network, without storing the log."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import of_damage
from rmqctl.format.message import Damage
from rmqctl.kernels import scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.operations.replicate.log_pull import LogPull, Progress, connect
from rmqctl.store.ha.received_log import RECORD_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.forensics.finding import Finding
    from rmqctl.operations.replicate.master import LogRange, Master
    from rmqctl.store.ha.received_log import ReceivedPart

WAIT = 0.1  # seconds to wait for bytes
FINDINGS_MAX = 10_000  # further findings are only counted


@dataclass
class WireAudit:
    """Checks the log of `master` in the range `asked`, until `is_over` returns True.

    The attributes are the result.
    """

    master: Master
    asked: LogRange
    is_over: Callable[[], bool]
    on_progress: Callable[[Progress], None]
    rate: int = 0
    progress: Progress = field(default_factory=Progress)
    findings: list[Finding] = field(default_factory=list)
    damages: int = 0
    ok_up_to: int = 0  # physical offset up to which all records are good

    @staticmethod
    def warm_up() -> None:
        """Compile or load the kernels."""
        warm_up(scan)

    def run(self) -> None:
        """Check the log up to the end of the range `asked`.

        Raises PeerError. Raises NeedsRecovery if the master deletes log files before they are read.
        """
        self.progress.max_offset = self.ok_up_to = self.asked.min_offset
        self.progress.master_offset = self.asked.max_offset
        if self.asked.max_offset == self.asked.min_offset:
            return
        with connect(self.master) as client:
            pull = LogPull(client, self.master, self.asked.min_offset, None, self._take, self.rate, lenient=True)
            began_at = time.monotonic()
            while not (self._has_all(pull) or self.is_over()):
                if pull.step(WAIT):
                    self.progress.seconds = time.monotonic() - began_at
                pull.check_stall(self.asked)
                self.on_progress(self.progress)
            rest = pull.received.rest() if pull.received.offset < self.asked.max_offset else None
            if rest is not None and not self.is_over():
                self._note(rest)

    def _has_all(self, pull: LogPull) -> bool:
        """Return whether the check has reached the end of the range `asked`.

        The log may grow during the check, and the range may end inside a record. If the end of the last record does not
        arrive, the check ends when the master sends nothing more.
        """
        behind = pull.end - self.asked.max_offset
        ends_inside = behind >= 0 and pull.is_quiet
        return pull.received.offset >= self.asked.max_offset or ends_inside or behind > RECORD_SIZE_MAX

    def _take(self, part: ReceivedPart) -> None:
        self.progress.bytes += len(part.data)
        self.progress.messages += part.messages
        self.progress.max_offset = part.offset + len(part.data)
        if isinstance(part.item, Damage):
            self._note(part.item)
        elif not self.damages:
            self.ok_up_to = self.progress.max_offset

    def _note(self, damage: Damage) -> None:
        self.damages += 1
        if len(self.findings) < FINDINGS_MAX:
            base = damage.physical_offset - damage.physical_offset % self.master.file_size
            self.findings.append(of_damage(damage, str(self.master.address), base))
