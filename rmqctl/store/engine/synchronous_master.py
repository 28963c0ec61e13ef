"""Puts that wait for slaves, as in CommitLog with brokerRole=SYNC_MASTER.

| brokers | how many slaves | too few |
|---|---|---|
| 4.x | one | SLAVE_NOT_AVAILABLE at once (none is connected, or all are haSlaveFallbehindMax behind) |
| 5.x | inSyncReplicas - 1; none by default | FLUSH_SLAVE_TIMEOUT after slaveTimeout |
| 5.x, enableSlaveActingMaster | the same | IN_SYNC_REPLICAS_NOT_ENOUGH at once, and nothing is stored |

With enableAutoInSyncReplicas, the number of slaves falls to the number of slaves in sync, but not below
minInSyncReplicas - 1.

If a connected slave does not acknowledge in time, the put gets FLUSH_SLAVE_TIMEOUT. In 4.x, a put with
SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT stores the message. Up to 4.9.2, a put waits for syncFlushTimeout instead of
slaveTimeout.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from rmqctl.store.write.group_commit_request import GroupCommitRequest
from rmqctl.store.write.put_message import PutMessageStatus

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.store.ha.ha_service import HAService

ANY_SLAVE = 1  # ackNums of the requests of a 4.x broker


class SynchronousMaster:
    """Waits for the slaves of `service`, as a broker of `profile` does.

    `alive_replica_num_in_group` is the number of live brokers in the group, including the master (5.x,
    enableSlaveActingMaster). A broker regularly asks a name server for the number of live brokers. In rmqctl, the
    embedding program sets `alive_replica_num_in_group` (default: totalReplicas of broker.conf).
    """

    def __init__(self, service: HAService, profile: Profile) -> None:
        self.service = service
        self._conf = service.conf
        self._counts_replicas = profile.counts_in_sync_replicas
        timeout = self._conf.slave_timeout_ms if profile.has_slave_timeout else self._conf.sync_flush_timeout_ms
        self._timeout = timeout / 1000
        self.alive_replica_num_in_group = self._conf.total_replicas

    def need_ack_nums(self, max_phy_offset: int) -> int | None:
        """Return how many brokers, including the master, must have the next message.

        `max_phy_offset` is the end of the log before the put. If too few brokers are in sync, the result is None, and
        the message must not be stored (calcNeedAckNums).
        """
        if not self._counts_replicas:
            return ANY_SLAVE
        needed = self._conf.in_sync_replicas
        if not self._conf.slave_acting_master:
            return needed
        in_sync = min(self.alive_replica_num_in_group, self.service.in_sync_replicas_nums(max_phy_offset))
        if self._conf.auto_in_sync_replicas:
            needed = max(min(needed, in_sync), self._conf.min_in_sync_replicas)
        return needed if needed <= in_sync else None

    def submit_replica_request(self, end: int, ack_nums: int) -> Future[PutMessageStatus]:
        """Return a future of the replication status; the message ends at `end`."""
        done: Future[PutMessageStatus] = Future()
        if self._counts_replicas and ack_nums <= 1:
            done.set_result(PutMessageStatus.PUT_OK)
        elif not self._counts_replicas and not self.service.is_slave_ok(end):
            done.set_result(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        else:
            self.service.put_request(GroupCommitRequest(end, time.monotonic() + self._timeout, done, ack_nums))
        return done
