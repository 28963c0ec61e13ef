"""Dispatch makes of a golden store's log the very queues and index that the real broker made of it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from rmqctl.format.index_entry import INDEX_HEADER
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.index.index_service import IndexService
from tests.conftest import unpack

# without: 3.2.6 (its index has other keys), extensions (tests of their own), crash and kill (their queues lag or are
# ahead), RocksDB
NAMES = [
    "471-basic", "471-batch", "471-delay", "471-ipv6", "471-tx", "497-basic", "497-batch", "497-delay", "497-lmq",
    "497-tx", "533-basic", "533-batch", "533-ipv6", "533-lmq", "533-longtopic", "533-propcrc", "broker-497",
    "broker-533",
]  # fmt: skip


# messageDelayLevel of the brokers that wrote the golden `broker-*`
DELAYS_OF_THE_BROKERS = (1000, 2000, 4000)


def geometry(name: str) -> Geometry:
    """The sizes of the golden stores."""
    return Geometry(256 * 1024, 6000, 1000, 4000) if name.startswith("broker") else Geometry(64 * 1024, 1000, 100, 400)


def only_log(source: Path, target: Path) -> Path:
    """A copy of a store's log, checkpoint left out: what a broker has after its queues and index were deleted."""
    target.mkdir()
    shutil.copytree(source / "commitlog", target / "commitlog")
    return target


def queue_bytes(root: Path) -> dict[str, bytes]:
    """The used part of every queue's files; queues that have no unit are as good as none."""
    found = {}
    for path in sorted((root / "consumequeue").rglob("0*")):
        if path.is_file() and (data := path.read_bytes().rstrip(b"\0")):
            found[str(path.relative_to(root))] = data
    return found


def index_content(root: Path) -> list[bytes]:
    """The index files in order, with header, slots and the entries that count."""
    contents = []
    with closing(IndexService(Storage(root), root / "index")) as index:
        for file in index.files:
            header = file.header()
            assert header is not None
            entries = b"".join(data for _, data in file.entry_blocks(header.index_count, 1000))
            contents.append(
                INDEX_HEADER.struct.pack(*header) + b"".join(data for _, data in file.slot_blocks()) + entries
            )
    return contents


@pytest.mark.parametrize("name", NAMES)
def test_the_same_queues_and_index(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    made = only_log(golden, tmp_path / "made")
    conf = BrokerConf(delays_ms=DELAYS_OF_THE_BROKERS) if name.startswith("broker") else BrokerConf()
    MessageStore(made, conf, geometry=geometry(name)).close()
    assert queue_bytes(made) == queue_bytes(golden)
    assert index_content(made) == index_content(golden)
    assert queue_bytes(golden)
