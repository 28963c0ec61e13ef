"""Records that brokers pass and serve, damaged as they are: they do not end the log, and keep nobody from going on with
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.format.message import Message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import write_at

FILE_SIZE = 65536
# the store, where in a record, and what stands there then; a negative place is counted from the record's end
CASES = {
    "bad-physical-offset": ("497-basic", 28, b"\0\0\0\0\0\0\x2a\x2a"),
    "torn-properties": ("497-basic", -1, b"\0"),
    "bad-property-crc": ("533-propcrc", 16, b"\x77"),
}


@pytest.mark.parametrize("which", [-1, -4], ids=["last", "before"])
@pytest.mark.parametrize("code", CASES)
def test_the_log_goes_on_after_it(code: str, which: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    name, at, data = CASES[code]
    store = unpack(name, tmp_path)
    log = ReadOnlyStore(store).commit_log
    end, _ = log.end()
    hit = [item for item in log.scan() if isinstance(item, Message)][which]
    begin, place = divmod((hit.physical_offset if at >= 0 else hit.end) + at, FILE_SIZE)
    write_at(store / "commitlog" / f"{begin * FILE_SIZE:020d}", place, data)
    before = tree_hash(store)
    found, last = ReadOnlyStore(store).commit_log.end()
    assert (found, last is not None) == (end, True)
    dirty = rmqctl("truncate", store, "--dirty", "--dry-run", "-o", "json")
    assert (dirty.code, dirty.document()["maxPhyOffset"], dirty.document()["actions"]) == (0, end, [])
    assert tree_hash(store) == before
    if code != "torn-properties":  # which have an entry of the index less
        assert rmqctl("recover", store, "--dry-run", "-o", "json").document()["actions"] == []
    assert rmqctl("append", store, "--topic", "OrderPaid", "--body", "next").code == 0
    messages = [item for item in ReadOnlyStore(store).commit_log.scan() if isinstance(item, Message)]
    assert messages[-1].physical_offset == end
    codes = {finding["code"] for finding in rmqctl("verify", store, "-o", "json").document()["findings"]}
    assert code in codes
    assert not any(each.startswith(("hole", "bad-body", "missing", "bytes-behind")) for each in codes)
