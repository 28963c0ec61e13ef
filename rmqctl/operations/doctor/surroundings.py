"""What is wrong around a store: its disk is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.operations.clean.disk_use import disk_use, stops_writing
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import known_to
from rmqctl.store.config.store_path import CONSUMEQUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.profile import Profile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_disk(store: ReadOnlyStore, profile: Profile) -> Iterator[Finding]:
    """Yield a finding if a broker takes no messages because a disk is full.

    The disk of a copy says nothing about the broker: the disk counts where a broker holds the store, or where
    broker.conf is given. Raises OSError.
    """
    if store.conf == BrokerConf() and store.lock_holder() is None:
        return
    disks = [disk_use(store.storage, path, profile) for path in store.path.commitlogs]
    queues = disk_use(store.storage, store.path.part(CONSUMEQUEUE), profile)
    why = stops_writing(known_to(profile, store.conf.expiry), profile, disks, queues)
    if why:
        free = min((disk.size - disk.used for disk in (*disks, queues) if disk.size), default=0)
        folder = store.storage.display(store.path.commitlogs[0])
        yield Finding("disk-over-limit", folder, None, f"{why}; {max(free, 0)} bytes are free")
