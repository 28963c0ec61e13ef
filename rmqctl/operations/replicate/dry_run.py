"""Check whether `replicate` could continue the copy in an existing store.

This does not change the store, and does not acknowledge any put on the master.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqctl.operations.replicate.log_pull import LogPull, connect, known_bytes
from rmqctl.operations.replicate.mirror import end_after_start
from rmqctl.operations.replicate.mirror_epochs import MirrorEpochs
from rmqctl.store.ha.auto_switch_ha_client import AutoSwitchHAClient
from rmqctl.store.read.read_only_store import ReadOnlyStore

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.operations.replicate.log_pull import Known
    from rmqctl.operations.replicate.master import LogRange, Master

WAIT = 0.1  # seconds to wait for bytes


def check_can_continue(root: Path, master: Master, asked: LogRange, threads: int, *, may_connect: bool) -> None:
    """Check whether `replicate` would continue a store.

    With `may_connect`, the end of the store is compared with the master's log. Raises BadRequest if the file sizes
    differ. Raises NeedsRecovery if the store is damaged, if the master has deleted needed log files, or if the logs
    differ. Raises PeerError if the master breaks the protocol. Consume queue extensions are not checked.
    """
    end = end_after_start(root, master, threads)
    if end is None:
        return
    store = ReadOnlyStore(root, master.conf)
    try:
        known = known_bytes(store.commit_log.queue.files, end, asked, str(master.address))
    finally:
        store.close()
    if known is not None and may_connect:
        time.sleep(master.longest_put)  # the first report must acknowledge no put
        _compare(root, master, asked, known)


def _compare(root: Path, master: Master, asked: LogRange, known: Known) -> None:
    with connect(master) as client:
        pull = LogPull(client, master, asked.min_offset, known, lambda _: None)
        if isinstance(client, AutoSwitchHAClient):
            MirrorEpochs(root).check(client.epochs, str(master.address))
        while not pull.is_joined:
            pull.step(WAIT)
            pull.check_stall(asked)
