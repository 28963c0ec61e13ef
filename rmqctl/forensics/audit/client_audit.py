"""Messages that brokers serve but clients reject (`client_check`)."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.body.client_check import BAD_COMPRESSION, BAD_PORT
from rmqctl.format.sys_flag import compression
from rmqctl.kernels.dispatch_scan import WRONG_COMPRESSION, WRONG_PORT
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.store.read.commit_log import CommitLog

CODES = {BAD_PORT: WRONG_PORT, BAD_COMPRESSION: WRONG_COMPRESSION}


def count_rejected(messages: Rows) -> Counter[str]:
    """Count the messages that clients reject, by the code of the finding.

    `messages` are rows of DISPATCH_COLUMNS.
    """
    return +Counter({code: int(np.count_nonzero(messages["traits"] & trait)) for code, trait in CODES.items()})


class RejectedMessages:
    """Finds runs of messages in `log` that clients reject for the same reason."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._last: dict[str, tuple[Finding, str]] = {}

    def find(self, messages: Rows) -> list[Finding]:
        """Return a finding for each new run in `messages`, in log order.

        `messages` are successive rows of DISPATCH_COLUMNS. A run that continues the last one of an earlier call is
        added to its finding.
        """
        found = []
        for code, trait in CODES.items():
            wrong = np.flatnonzero(messages["traits"] & trait)
            for run in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1) if len(wrong) else ():
                rows = messages[run]
                at, size = int(rows[0]["physical_offset"]), int(rows["size"].sum(dtype=np.int64))
                if not self._goes_on(code, at, size, len(rows)):
                    finding, reason = self._last[code] = _finding(self._log, code, at, size, len(rows))
                    finding.detail = _detail(reason, len(rows))
                    found.append((at, finding))
        return [finding for _, finding in sorted(found, key=itemgetter(0))]

    def _goes_on(self, code: str, at: int, size: int, count: int) -> bool:
        finding, reason = self._last.get(code, (None, ""))
        if finding is None or (finding.physical_offset or 0) + (finding.size or 0) != at:
            return False
        finding.size, finding.count = at + size - (finding.physical_offset or 0), finding.count + count
        finding.detail = _detail(reason, finding.count)
        return True


def _finding(log: CommitLog, code: str, at: int, size: int, count: int) -> tuple[Finding, str]:
    # Return a finding, and why clients reject its first message ("" if it is unreadable).
    file, message = log.queue.find(at), log.message_at(at)
    file_offset = at - file.file_from_offset if file is not None else None
    finding = Finding(code, log.path_of(at), at, "", file_offset, size, count=count)
    if message is None:
        return finding, ""
    finding.topic, finding.queue_id, finding.queue_offset = message.topic, message.queue_id, message.queue_offset
    finding.msg_id = message.msg_id
    return finding, _ports(message) if code == BAD_PORT else _compression(message)


def _detail(reason: str, count: int) -> str:
    if not reason:
        return "clients reject it"
    more = f"; so have {counted(count - 1, 'message')} after it" if count > 1 else ""
    return f"{reason}: clients reject the message, and all after it in the same pull{more}"


def _ports(message: Message) -> str:
    return f"BORNHOST is {message.born_host}, STOREHOST is {message.store_host}, and a port is at most 65535"


def _compression(message: Message) -> str:
    start, kind = bytes(message.body[:4]).hex(" "), compression(message.sys_flag)
    return f"SYSFLAG {message.sys_flag:#x} says that the body is compressed ({kind}), and it begins with {start}"
