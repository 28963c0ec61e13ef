"""The run of `rmqctl replicate`."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_document, print_fields, print_line_of_text, remark, to_json
from rmqctl.cli.shared.change import LogChangeOptions
from rmqctl.cli.shared.confirm import confirm
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.run_as import act_as_owner
from rmqctl.errors import BadRequest, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.replicate.log_pull import Progress
    from rmqctl.operations.replicate.master import LogRange, Master
    from rmqctl.remoting.broker_requests import BrokerRequests


LINE_SECONDS = 5.0  # between two lines
JSON_SECONDS = 1.0


@contextmanager
def _full_disk_explained() -> Iterator[None]:
    """Add a hint for the user to the error of a full disk."""
    from rmqctl.logfile.system.writable_storage import NO_ROOM

    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        what = f"{error.strerror} (make room, and run the same command again: it goes on at the end of STORE)"
        raise OSError(error.errno, what, error.filename) from error


@dataclass(frozen=True)
class ReplicateOptions(LogChangeOptions):
    """The options of `rmqctl replicate`."""

    once: bool
    verify_only: bool
    max_bytes_per_second: int
    as_slave: bool
    allow_slow_puts: bool


@dataclass
class ReplicateRun:
    """One run of `rmqctl replicate`: ask the master, show the plan, and copy."""

    broker: str
    root: Path | None
    asked: ReplicateOptions

    def run(self) -> int:
        """Copy the master's log, or only check the log, and return the exit code."""
        from rmqctl.operations.replicate.master import ask_master, ask_range
        from rmqctl.remoting.address import parse_address
        from rmqctl.remoting.broker_requests import BrokerRequests
        from rmqctl.remoting.client import RemotingClient

        address = parse_address(self.broker)
        warmed_up(self._warm_up)
        with RemotingClient(address.host, address.port) as client:
            requests = BrokerRequests(client)
            master = ask_master(address, requests)
            self._check(master)
            asked = ask_range(address, requests)
            if self.root is None:
                return self._verify(master, asked)
            return self._replicate(self.root, master, asked, requests)

    def _warm_up(self) -> None:
        """Compile or load the kernels that the run needs."""
        if self.root is None:
            from rmqctl.operations.replicate.wire_audit import WireAudit

            WireAudit.warm_up()
        else:
            from rmqctl.store.engine.message_store import MessageStore

            MessageStore.warm_up()

    def _check(self, master: Master) -> None:
        """Raise BadRequest if the copy may not count as a slave, or slows down puts."""
        if master.controller_mode and self.asked.as_slave:
            raise BadRequest(
                "the broker runs with a controller, which alone says who counts as a slave",
                path=str(master.address),
                hint="leave out --as-slave",
            )
        if master.slows_down_for_mirrors and not (self.asked.allow_slow_puts or self.asked.as_slave):
            raise BadRequest(
                "a SYNC_MASTER of 4.x: if it has no other slave, each put takes 3 s while a copy is connected",
                path=str(master.address),
                hint="--allow-slow-puts copies it all the same, --as-slave counts as a slave",
            )

    def _replicate(self, root: Path, master: Master, asked: LogRange, requests: BrokerRequests) -> int:
        from rmqctl.operations.replicate.dry_run import check_can_continue
        from rmqctl.operations.replicate.mirror import forget_starts, is_new, mark_as_mirror, open_mirror
        from rmqctl.operations.replicate.replication import HowToReplicate, Replication, close_store

        what = f"{master.address} ({master.version}, {master.role}), log {asked.min_offset} to {asked.max_offset}"
        new = is_new(root)
        if self.asked.dry_run:
            if not new:
                may_connect = self.asked.allow_slow_puts or not master.slows_down_for_mirrors
                check_can_continue(root, master, asked, self.asked.threads, may_connect=may_connect)
            self._print(
                {
                    "master": str(master.address),
                    "action": "create" if new else "continue",
                    "brokerVersion": master.version,
                    "role": master.role,
                    "minPhyOffset": asked.min_offset,
                    "maxPhyOffset": asked.max_offset,
                }
            )
            return int(ExitCode.FINDINGS)
        confirm(f"Copy {what} into {root}?", yes=self.asked.yes)
        if self.asked.as_slave:
            remark("this copy counts as a slave: puts of a SYNC_MASTER succeed when this copy has them on disk")
        act_as_owner(root)
        with Interruption() as interruption, _full_disk_explained(), ExitStack() as held:
            store = open_mirror(root, master, self.asked.threads, remark)
            held.callback(close_store, store)
            how = HowToReplicate(self.asked.once, self.asked.as_slave, self.asked.max_bytes_per_second)
            replication = Replication(
                store,
                root,
                master,
                requests,
                how,
                lambda: interruption.noted,
                remark,
                ReplicateProgress(kept("progress_mode")).show,
            )
            if not new:
                replication.on_joined = partial(mark_as_mirror, root, master)
            replication.run()
            held.pop_all()
            store.close()
            if replication.has_joined:
                forget_starts(root)
        ends = {"minPhyOffset": store.min_phy_offset, "maxPhyOffset": store.max_phy_offset}
        self._print({"master": str(master.address)} | ends | _counts(replication.progress))
        return int(ExitCode.INTERRUPTED if interruption.noted else ExitCode.CLEAN)

    def _print(self, found: dict[str, Any]) -> None:
        """Print what the run would do, did, or found."""
        document = {"store": None if self.root is None else str(self.root)} | found
        if self.asked.output == "json":
            print_document("replicate", document)
        else:
            print_fields((key, value) for key, value in document.items() if key != "findings" and value is not None)

    def _verify(self, master: Master, asked: LogRange) -> int:
        from rmqctl.operations.replicate.wire_audit import WireAudit

        with Interruption() as interruption:
            audit = WireAudit(
                master,
                asked,
                lambda: interruption.noted,
                ReplicateProgress(kept("progress_mode")).show,
                self.asked.max_bytes_per_second,
            )
            audit.run()
        found = {
            "master": str(master.address),
            "minPhyOffset": asked.min_offset,
            "maxPhyOffset": audit.progress.max_offset,
            "okUpTo": audit.ok_up_to,
            **_counts(audit.progress),
            "findings": [finding.to_json() for finding in audit.findings],
        }
        for finding in audit.findings if self.asked.output == "table" else ():
            print_line_of_text(f"{finding.code} at {finding.physical_offset}: {finding.detail}")
        self._print(found)
        if audit.damages > len(audit.findings):
            remark(f"note: {audit.damages} findings in all; the first {len(audit.findings)} are shown")
        if interruption.noted:
            return int(ExitCode.INTERRUPTED)
        return int(ExitCode.FINDINGS if audit.damages else ExitCode.CLEAN)


def _counts(progress: Progress) -> dict[str, Any]:
    return {"bytes": progress.bytes, "messages": progress.messages, "seconds": round(progress.seconds, 3)}


class ReplicateProgress:
    """Show the copy's end offset, the rate and the lag on stderr.

    `mode` (auto, json, none) is the form of the lines. No line is written if nothing has changed.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._interval = JSON_SECONDS if mode == "json" else LINE_SECONDS
        self._shown_at = time.monotonic()
        self._shown = (0, 0, 0)

    def show(self, progress: Progress) -> None:
        """Show the progress at most once in 5 s (as JSON at most once in 1 s)."""
        now, state = time.monotonic(), (progress.bytes, progress.max_offset, progress.master_offset)
        if self._mode == "none" or now - self._shown_at < self._interval or state == self._shown:
            return
        rate = int((progress.bytes - self._shown[0]) / (now - self._shown_at))
        self._shown_at, self._shown = now, state
        lag = max(progress.master_offset - progress.max_offset, 0)
        if self._mode == "json":
            found = {"bytes": progress.bytes, "maxPhyOffset": progress.max_offset, "bytesPerSecond": rate}
            remark(to_json({"progress": "replicate", **found, "lagBytes": lag}))
        else:
            remark(f"at {progress.max_offset} of {progress.master_offset}, {lag} bytes behind, {rate} bytes/s")
