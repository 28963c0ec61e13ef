from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import cq_unit, message
from rmqctl.store.read.consume_queue_ext import ConsumeQueueExt
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support import cqext_store
from tests.support.memory_storage import memory_queue
from tests.support.property_settings import PROPERTY

FIRST = -(2**63)


def ext_unit(tags_code: int, bitmap: bytes = b"", *, size: int | None = None) -> bytes:
    size = 20 + len(bitmap) if size is None else size
    return struct.pack(">hqqh", size, tags_code, 1_795_252_516_848, len(bitmap)) + bitmap


def extension(data: bytes, base: int = 0) -> ConsumeQueueExt:
    return ConsumeQueueExt(memory_queue({base: data}))


def test_the_address_of_a_unit_leads_to_its_tags_code() -> None:
    ext = extension(ext_unit(2598919) + ext_unit(-5, bytes(7)) + ext_unit(9))
    assert [ext.tags_code(FIRST + at) for at in (0, 20, 47)] == [2598919, -5, 9]


def test_an_address_in_a_later_file_is_found() -> None:
    ext = ConsumeQueueExt(memory_queue({100: ext_unit(1).ljust(100), 200: ext_unit(2).ljust(100)}))
    assert [ext.tags_code(FIRST + at) for at in (100, 200)] == [1, 2]


@pytest.mark.parametrize("address", [FIRST + 1, FIRST + 40, FIRST + 10**9, -1, 0, -(2**31) - 1])
def test_an_address_without_a_unit_has_no_tags_code(address: int) -> None:
    assert extension(ext_unit(1) + ext_unit(2)).tags_code(address) is None


@pytest.mark.parametrize("size", [-1, 0, 19, 21, 2**15 - 1])
def test_a_unit_whose_size_does_not_add_up_has_no_tags_code(size: int) -> None:
    assert extension(ext_unit(1, size=size)).tags_code(FIRST) is None


def test_a_unit_cut_by_the_end_of_the_file_has_no_tags_code() -> None:
    assert extension(ext_unit(1)[:-1]).tags_code(FIRST) is None


def test_the_end_blank_has_no_tags_code() -> None:
    assert extension(struct.pack(">h", -1).ljust(40, b"\0")).tags_code(FIRST) is None


@PROPERTY
@given(st.binary(max_size=60), st.integers(0, 80))
def test_random_bytes_never_raise(data: bytes, at: int) -> None:
    assert isinstance(extension(data).tags_code(FIRST + at), int | None)


def test_the_addresses_of_the_golden_store_lead_to_the_hash_of_the_tags(tmp_path: Path) -> None:
    store = ReadOnlyStore(cqext_store.unpack_cqext(tmp_path))
    queue, ext = store.queues[cqext_store.QUEUE], store.extensions[cqext_store.QUEUE]
    units = list(queue.units(0, queue.max_offset))
    messages = [store.commit_log.message_at(unit.physical_offset) for unit in units]
    assert len(units) == 11
    assert all(cq_unit.is_ext_address(unit.tags_code) for unit in units)
    assert [ext.tags_code(unit.tags_code) for unit in units] == [
        found and message.tags_code(found.properties) for found in messages
    ]
