"""Extensions, written: as the real broker wrote the golden one's, and continued where a broker would."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rmqctl.errors import NeedsRecovery
from rmqctl.forensics.verify import verify
from rmqctl.format.cq_unit import EXT_BASE, is_ext_address
from rmqctl.format.profile import PROFILE_4_9
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings
from rmqctl.store.write.consume_queue_ext_writer import ConsumeQueueExtWriter
from tests.conftest import tree_hash
from tests.support import cqext_store
from tests.support.dispatched import only_log
from tests.support.file_edits import write_at
from tests.support.golden_store import geometry
from tests.support.small_store import findings, message, stored

WITH, WITHOUT = BrokerConf(consumequeue_ext_enabled=True), BrokerConf(consumequeue_ext_enabled=False)
SMALL = Geometry(
    4096, 200, 10, 40, consumequeue_ext_file_size=168
)  # 8 units and the blank's 4 bytes leave 4 of the file


@pytest.mark.slow
def test_the_same_queues_and_extensions_as_the_real_brokers(tmp_path: Path) -> None:
    made = only_log(cqext_store.unpack_cqext(tmp_path), tmp_path / "made")
    MessageStore(made, WITH, geometry=geometry(cqext_store.NAME)).close()
    for folder in ("consumequeue", "consumequeue_ext"):
        golden = {path: data for path, data in cqext_store.used_parts(folder).items() if data}
        assert len(golden) == 16
        for path, data in golden.items():
            with (made / path).open("rb") as file:
                assert file.read(cqext_store.USED_MAX).rstrip(b"\0") == data
            assert folder == "consumequeue" or (made / path).stat().st_size == 48 * 1024 * 1024


def created(root: Path) -> MessageStore:
    return MessageStore.create(root, PutSettings(PROFILE_4_9), SMALL, WITH)


def put(store: MessageStore, count: int) -> None:
    for number in range(count):
        assert store.put_message(message(number, queue_id=0)).is_ok
    store.close()


def addresses(root: Path) -> list[int]:
    """Offsets in the extension that the units of the one queue have; -1 for a plain tags code."""
    queue = ReadOnlyStore(root).queues["OrderPaid", 0]
    return [
        unit.tags_code - EXT_BASE if is_ext_address(unit.tags_code) else -1 for unit in queue.units(0, queue.max_offset)
    ]  # fmt: skip


def test_files_are_closed_four_bytes_early(tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 20)
    files = sorted((tmp_path / "s" / "consumequeue_ext" / "OrderPaid" / "0").iterdir())
    assert [(path.name, path.stat().st_size) for path in files] == [(f"{base:020d}", 168) for base in (0, 168, 336)]
    assert addresses(tmp_path / "s") == [base + 20 * at for base in (0, 168, 336) for at in range(8)][:20]
    assert files[0].read_bytes()[160:] == struct.pack(">h6x", -1)
    assert files[2].read_bytes()[80:] == bytes(88)
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("first", [1, 7, 8, 9, 16])
def test_a_store_is_gone_on_with(first: int, tmp_path: Path) -> None:
    put(created(tmp_path / "s"), first)
    put(MessageStore(tmp_path / "s"), 20 - first)
    put(created(tmp_path / "at once"), 20)
    assert addresses(tmp_path / "s") == addresses(tmp_path / "at once")
    assert findings(tmp_path / "s") == []
    store = ReadOnlyStore(tmp_path / "s")
    extension = store.extensions["OrderPaid", 0]
    units = list(store.queues["OrderPaid", 0].units(0, 20))
    assert [extension.tags_code(unit.tags_code) for unit in units] == [
        store.tags_code(m) for m in stored(tmp_path / "s")
    ]


def test_units_that_nothing_points_to_are_overwritten(tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 3)
    path = tmp_path / "s" / "consumequeue_ext" / "OrderPaid" / "0" / f"{0:020d}"
    orphan = struct.pack(">hqqh", 20, 7, 1_795_252_516_848, 0)
    write_at(path, 60, orphan)
    put(MessageStore(tmp_path / "s"), 1)
    assert addresses(tmp_path / "s") == [0, 20, 40, 60]
    assert findings(tmp_path / "s") == []


def test_it_can_be_turned_off_and_on_again(tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 3)
    put(MessageStore(tmp_path / "s", WITHOUT), 2)
    put(MessageStore(tmp_path / "s"), 1)  # nothing said: as the last unit
    put(MessageStore(tmp_path / "s", WITH), 2)
    assert addresses(tmp_path / "s") == [0, 20, 40, -1, -1, -1, 60, 80]
    assert findings(tmp_path / "s") == []


def test_an_empty_folder_is_begun(tmp_path: Path) -> None:
    put(MessageStore.create(tmp_path / "s", PutSettings(PROFILE_4_9), SMALL), 3)
    (tmp_path / "s" / "consumequeue_ext" / "OrderPaid" / "0").mkdir(parents=True)
    put(MessageStore(tmp_path / "s", WITH, geometry=SMALL), 2)
    assert addresses(tmp_path / "s") == [-1, -1, -1, 0, 20]
    assert findings(tmp_path / "s") == []


def test_without_an_address_it_goes_on_behind_the_last_unit(tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 3)
    queue = tmp_path / "s" / "consumequeue" / "OrderPaid" / "0" / f"{0:020d}"
    units = np.frombuffer(queue.read_bytes(), ">i8,>i4,>i8").copy()
    units["f2"] = 5
    queue.write_bytes(units.tobytes())
    put(MessageStore(tmp_path / "s", WITH), 1)
    assert addresses(tmp_path / "s")[3] == 60


@pytest.mark.parametrize("gone", [False, True])
def test_an_address_that_leads_nowhere_needs_recovery(gone: bool, tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 3)
    path = tmp_path / "s" / "consumequeue_ext" / "OrderPaid" / "0" / f"{0:020d}"
    if gone:
        path.unlink()
    else:
        path.write_bytes(bytes(168))
    before = tree_hash(tmp_path / "s")
    with pytest.raises(NeedsRecovery, match="lead to no unit"):
        MessageStore(tmp_path / "s")
    assert tree_hash(tmp_path / "s") == before


@pytest.mark.parametrize(("folder", "size"), [("consumequeue", 200), ("consumequeue_ext", 168)])
def test_a_file_of_a_wrong_length_needs_recovery(folder: str, size: int, tmp_path: Path) -> None:
    put(created(tmp_path / "s"), 20)
    path = max((tmp_path / "s" / folder / "OrderPaid" / "0").iterdir())
    path.write_bytes(path.read_bytes()[: size // 2])
    before = tree_hash(tmp_path / "s")
    with pytest.raises(NeedsRecovery, match="file-length"):
        MessageStore(tmp_path / "s")
    assert tree_hash(tmp_path / "s") == before


def test_lmq_queues_have_no_extension(tmp_path: Path) -> None:
    store = MessageStore.create(tmp_path / "s", PutSettings(PROFILE_4_9, multi_dispatch=True), SMALL, WITH)
    assert store.put_message(message(0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "TAGS": "t"})).is_ok
    store.close()
    assert sorted(path.name for path in (tmp_path / "s" / "consumequeue_ext").iterdir()) == ["OrderPaid"]
    assert verify(ReadOnlyStore(tmp_path / "s")).findings == []


def test_a_large_batch_fills_many_files(tmp_path: Path) -> None:
    writer = ConsumeQueueExtWriter(WritableMappedFileQueue(WritableStorage(tmp_path), [tmp_path / "ext"], 168))
    codes = np.arange(1000)
    found = writer.put(codes, codes)
    writer.queue.close()
    assert found.tolist() == [EXT_BASE + 168 * (at // 8) + 20 * (at % 8) for at in range(1000)]
    assert len(list((tmp_path / "ext").iterdir())) == 125
