"""Stores of many small files, which no golden store has: written by rmqctl itself, as brokers of a profile write."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from unittest.mock import patch

from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.host import Host
from rmqctl.format.profile import PROFILES
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine import message_store
from rmqctl.store.write.commit_log_writer import PutSettings

SIZES = Geometry(4096, 400, 50, 200)
HOST = Host(bytes([10, 1, 2, 3]), 34567)
BEGAN, MS_A_MESSAGE = 1_795_252_516_000, 700
LOG_FILES = (1, 2, 9, 20, 40)
PROFILE_OF = {"400": "4.7", "491": "4.9", "500": "5.3", "540": "5.4"}
NAMES = tuple(f"{version}-{files}-files" for version in PROFILE_OF for files in LOG_FILES)


def write(name: str, root: Path) -> None:
    """Make the store of a name of NAMES at `root`: 14 messages or so a file, four queues, a message each 700 ms."""
    version, files, _ = name.split("-")
    times = count(BEGAN, MS_A_MESSAGE)
    with patch.object(message_store, "now_ms", lambda: next(times)):
        settings = PutSettings(PROFILES[PROFILE_OF[version]])
        store = message_store.MessageStore.create(root, settings, SIZES)
        number = 0
        while store.max_phy_offset < (int(files) - 0.4) * SIZES.commitlog_file_size:
            properties = {"TAGS": f"Tag{number % 3}", "KEYS": f"k{number} u{number % 5}"}
            body = b"x" * (number * 37 % 290)
            topic = ("OrderPaid", "Stock")[number % 2]
            message = MessageExtBrokerInner(topic, body, properties, HOST, HOST, BEGAN, number // 2 % 3)
            assert store.put_message(message).is_ok
            number += 1
        store.close()
