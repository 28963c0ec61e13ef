"""Messages that brokers serve but clients reject (`rmqctl.format.client_check`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.client_check import BAD_COMPRESSION, BAD_PORT
from rmqctl.format.sys_flag import compression
from rmqctl.kernels.dispatch_scan import WRONG_COMPRESSION, WRONG_PORT
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.store.read.commit_log import CommitLog

CODES = {BAD_PORT: WRONG_PORT, BAD_COMPRESSION: WRONG_COMPRESSION}


def count_rejected(messages: Rows) -> Counter[str]:
    """Count the messages that clients reject, by the code of the finding.

    `messages` has the columns DISPATCH_COLUMNS.
    """
    return +Counter({code: int(np.count_nonzero(messages["traits"] & trait)) for code, trait in CODES.items()})


def find_rejected(log: CommitLog, messages: Rows) -> Iterator[Finding]:
    """Yield a finding for each run of successive messages that clients reject.

    Clients reject all messages of a run for the same reason.
    """
    for code, trait in CODES.items():
        wrong = np.flatnonzero(messages["traits"] & trait)
        for run in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1) if len(wrong) else ():
            rows = messages[run]
            yield _finding(log, code, int(rows[0]["physical_offset"]), int(rows["size"].sum(dtype=np.int64)), len(rows))


def _finding(log: CommitLog, code: str, at: int, size: int, count: int) -> Finding:
    file, message = log.queue.find(at), log.message_at(at)
    file_offset = at - file.file_from_offset if file is not None else None
    finding = Finding(code, log.path_of(at), at, "clients reject it", file_offset, size, count=count)
    if message is not None:
        detail = _ports(message) if code == BAD_PORT else _compression(message)
        more = f"; so have {counted(count - 1, 'message')} after it" if count > 1 else ""
        finding.detail = f"{detail}: clients reject the message, and all after it in the same pull{more}"
        finding.topic, finding.queue_id, finding.queue_offset = message.topic, message.queue_id, message.queue_offset
        finding.msg_id = message.msg_id
    return finding


def _ports(message: Message) -> str:
    return f"BORNHOST is {message.born_host}, STOREHOST is {message.store_host}, and a port is at most 65535"


def _compression(message: Message) -> str:
    start, kind = bytes(message.body[:4]).hex(" "), compression(message.sys_flag)
    return f"SYSFLAG {message.sys_flag:#x} says that the body is compressed ({kind}), and it begins with {start}"
