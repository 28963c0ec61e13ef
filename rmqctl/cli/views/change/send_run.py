"""One run of `rmqctl send`: plan, ask, send, and say what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import print_document, print_line_of_text, print_table, remark
from rmqctl.errors import ExitCode, PeerError
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import SerializeType
from rmqctl.text import counted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

    from rmqctl.cli.shared.interruption import Interruption
    from rmqctl.format.message import Damage
    from rmqctl.operations.send.outgoing import Outgoing
    from rmqctl.operations.send.receipts import Receipts, Row
    from rmqctl.operations.send.sender import Tally, Targets
    from rmqctl.operations.send.source import Source
    from rmqctl.remoting.access_key import AccessKey
    from rmqctl.remoting.address import Address

TIMEOUT = 10.0  # seconds of one request
STDIN = "-"
SHOWN_MAX = 10  # lines on stderr about messages of one kind


@dataclass(frozen=True)
class SendOptions:
    """The options of `rmqctl send` that are not filters."""

    name_servers: tuple[Address, ...] | None
    broker: Address | None
    receipts: Path
    dry_run: bool
    dead_letters: str | None
    retries: bool
    topic_to: str | None
    rate: int | None
    batch: int
    new_ids: bool
    keep_queue: bool
    output: str


class SendRun:
    """Sends messages, and prints the result.

    `key` signs the requests, `tls` encrypts them.
    """

    source: Source  # of this pass over the messages
    has_found = False  # a message to send, or one that cannot be

    def __init__(self, store: Path, asked: SendOptions, key: AccessKey | None, tls: ssl.SSLContext | None) -> None:
        from rmqctl.operations.send.outgoing import Selection

        self._store, self._asked, self._key, self._tls = store, asked, key, tls
        self._selection = Selection(asked.topic_to, asked.dead_letters, asked.retries, asked.new_ids)
        self._complaints = 0

    def damage(self, damage: Damage) -> None:
        """Report damage in the log: messages there are not sent."""
        self._complain(f"damage: {damage.code} at {damage.physical_offset}, {damage.size} bytes: {damage.detail}")

    def send(self, messages: Callable[[], Iterator[Outgoing]], interruption: Interruption) -> ExitCode:
        """Send the messages, and return the exit code.

        Raises BadRequest, StoreInUse and OSError.
        """
        from rmqctl.operations.send.receipts import Receipts
        from rmqctl.operations.send.sender import Sender
        from rmqctl.operations.send.source import Source

        asked, targets = self._asked, self._targets()
        counts_first = asked.dry_run or (asked.keep_queue and str(self._store) != STDIN)

        with Receipts(asked.receipts, only_read=asked.dry_run) as receipts:
            if receipts.in_doubt:
                self._doubt(receipts.in_doubt)
            for is_sent in (False, True) if counts_first else (True,):
                self.source = Source(self._selection, self._complain)
                batch, rate = asked.batch, asked.rate or 0
                hears = self._complain, self._doubt, lambda: interruption.noted
                sender = Sender(targets, receipts, *hears, batch=batch, rate=rate)
                stopped = ""
                try:
                    if is_sent:
                        sender.send(messages())
                    else:
                        sender.count(messages())
                except PeerError as error:
                    stopped = f"{error}{'; once that is mended, the same command sends the rest' if is_sent else ''}"
                if not is_sent and asked.keep_queue and sender.tally.failed:
                    stopped = stopped or "nothing is sent: --keep-queue wants a queue for each message"
                if asked.dry_run or stopped:
                    break
            self.has_found = bool(sender.tally.selected or self.source.unsendable)
            self._print(sender.tally, targets, receipts, stopped)
        return ExitCode.INTERRUPTED if interruption.noted else self._exit_code(sender.tally, stopped)

    def _targets(self) -> Targets:
        from rmqctl.operations.send.route import NameServers, OneBroker
        from rmqctl.operations.send.sender import Targets

        def connect(address: Address) -> RemotingClient:
            # name servers and brokers of all versions read JSON
            return RemotingClient(*address, TIMEOUT, serialize_type=SerializeType.JSON, key=self._key, tls=self._tls)

        asked = self._asked
        routes = OneBroker(asked.broker, connect) if asked.broker else NameServers(asked.name_servers or (), connect)
        return Targets(routes, connect, keep_queue=asked.keep_queue)

    def _complain(self, line: str) -> None:
        self._complaints += 1
        if self._complaints <= SHOWN_MAX:
            remark(line)
        elif self._complaints == SHOWN_MAX + 1:
            remark("further ones are only counted")

    def _doubt(self, in_doubt: Mapping[str, Row]) -> None:
        offsets = ", ".join(str(row["physicalOffset"]) for row in in_doubt.values())
        remark(f"{counted(len(in_doubt), 'message')} had no answer and may arrive twice, sent again: {offsets}")

    def _exit_code(self, tally: Tally, stopped: str) -> ExitCode:
        if stopped or self.source.unsendable:
            return ExitCode.PARTIAL
        if self._asked.dry_run:
            return ExitCode.FINDINGS if tally.selected.total() > tally.skipped else ExitCode.CLEAN
        return ExitCode.PARTIAL if tally.failed or tally.statuses else ExitCode.CLEAN

    def _print(self, tally: Tally, targets: Targets, receipts: Receipts, stopped: str) -> None:
        failed = tally.failed.total() + self.source.unsendable
        topics = [
            {"topic": topic, "messages": count, "writeQueueNums": targets.queues(topic)}
            for topic, count in sorted(tally.selected.items())
        ]
        in_doubt = (*receipts.doubted, *receipts.in_doubt.values())
        if self._asked.output == "json":
            found = {
                "store": str(self._store),
                "dryRun": self._asked.dry_run,
                "selected": tally.selected.total() + self.source.unsendable,
                "sent": tally.sent,
                "failed": failed,
                "skipped": tally.skipped,
                "topics": topics,
                "failures": [{"topic": name, "why": why, "messages": n} for (name, why), n in tally.failed.items()],
                "statuses": [{"status": name, "messages": n} for name, n in tally.statuses.items()],
                "notSent": [{"why": why, "messages": n} for why, n in sorted(self.source.left_out.items())],
                "inDoubt": [{"physicalOffset": row["physicalOffset"], "topic": row["topic"]} for row in in_doubt],
                "stopped": stopped or None,
            }
            print_document("send", found)
        else:
            self._print_text(tally, failed, topics)
        if stopped:
            remark(f"rmqctl: {stopped}")

    def _print_text(self, tally: Tally, failed: int, topics: list[Row]) -> None:
        left = tally.selected.total() - tally.skipped - tally.failed.total()
        told = [
            f"{counted(left, 'message')} would be sent"
            if self._asked.dry_run
            else f"sent {counted(tally.sent, 'message')}"
        ]
        told += [f"{failed} cannot be sent"] if failed else []
        told += [f"{tally.skipped} sent before"] if tally.skipped else []
        told += [f"{count} stored with {name}" for name, count in tally.statuses.items()]
        print_line_of_text("; ".join(told))
        if topics:
            print()
            print_table(["TOPIC", "MESSAGES", "QUEUES"], [list(row.values()) for row in topics])
        for (topic, why), count in tally.failed.items():
            remark(f"{counted(count, 'message')} of {topic}: {why}")
        if self.source.left_out:
            remark(f"not to send: {', '.join(f'{count} {why}' for why, count in sorted(self.source.left_out.items()))}")
