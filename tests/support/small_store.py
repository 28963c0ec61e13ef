"""Small stores that the engine writes: their messages, and what is found in them afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqctl.forensics.verify import verify
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.host import Host
from rmqctl.format.message import Message
from rmqctl.format.profile import PROFILE_4_9, Profile
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.flush import FlushIntervals
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings

SMALL = Geometry(4096, 200, 10, 40)
BORN, STORE = Host(bytes([10, 1, 2, 3]), 34567), Host(bytes([192, 168, 7, 9]), 10911)
IPV6 = Host(bytes(range(16)), 10911)
FAST = FlushIntervals(flush=0.01, flush_thorough=0.05, commit=0.01, commit_thorough=0.05)


def message(number: int = 0, **changes: Any) -> MessageExtBrokerInner:
    found = {"TAGS": f"Tag{number % 3}", "KEYS": f"k{number} u{number % 5}", "UNIQ_KEY": f"{number:032X}"}
    made = MessageExtBrokerInner("OrderPaid", b"x" * (number % 90), found, BORN, STORE, 1_795_252_516_000, number % 3)
    return made._replace(**changes)


def created(root: Path, profile: Profile = PROFILE_4_9, geometry: Geometry = SMALL, **settings: Any) -> MessageStore:
    return MessageStore.create(root, PutSettings(profile, **settings), geometry)


def findings(root: Path) -> list[str]:
    return [f"{finding.code} {finding.path} {finding.detail}" for finding in verify(ReadOnlyStore(root)).findings]


def stored(root: Path) -> list[Message]:
    return [item for item in ReadOnlyStore(root).commit_log.scan() if isinstance(item, Message)]
