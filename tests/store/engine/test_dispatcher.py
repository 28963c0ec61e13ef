"""Dispatch makes of a golden store's log the very queues and index that the real broker made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.engine.message_store import MessageStore
from tests.conftest import unpack
from tests.support.dispatched import index_content, only_log, queue_bytes
from tests.support.golden_store import geometry

# without: 3.2.6 (its index has other keys), extensions (tests of their own), crash and kill (their queues lag or are
# ahead), RocksDB
NAMES = [
    "471-basic", "471-batch", "471-delay", "471-ipv6", "471-tx", "497-basic", "497-batch", "497-delay", "497-lmq",
    "497-tx", "533-basic", "533-batch", "533-ipv6", "533-lmq", "533-longtopic", "533-propcrc", "broker-497",
    "broker-533",
]  # fmt: skip


# messageDelayLevel of the brokers that wrote the golden `broker-*`
DELAYS_OF_THE_BROKERS = (1000, 2000, 4000)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_queues_and_index(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    made = only_log(golden, tmp_path / "made")
    conf = BrokerConf(delays_ms=DELAYS_OF_THE_BROKERS) if name.startswith("broker") else BrokerConf()
    MessageStore(made, conf, geometry=geometry(name)).close()
    assert queue_bytes(made) == queue_bytes(golden)
    assert index_content(made) == index_content(golden)
    assert queue_bytes(golden)
