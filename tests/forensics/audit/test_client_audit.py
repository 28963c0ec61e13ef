"""verify names messages that clients reject, and recover counts them as what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.format.message import Message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import overwrite
from tests.support.verified_by_tasks import verified_by_tasks

SYS_FLAG, BORN_PORT, STORE_PORT = 36, 52, 68


@pytest.mark.parametrize(
    ("code", "at", "data", "words"),
    [
        ("bad-port", BORN_PORT, b"\x00\x01\x00\x00", ":65536, "),
        ("bad-port", STORE_PORT, b"\xff\xff\xff\xff", ":-1, "),
        ("bad-compression", SYS_FLAG, b"\x00\x00\x00\x01", "compressed (zlib), and it begins with"),
        ("bad-compression", SYS_FLAG, b"\x00\x00\x05\x01", "compressed (unknown)"),
    ],
)
def test_a_message_that_clients_reject(
    code: str, at: int, data: bytes, words: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("497-basic", tmp_path)
    messages = [item for item in ReadOnlyStore(store).commit_log.scan() if isinstance(item, Message)]
    for message in (messages[30], messages[31], messages[60]):
        overwrite(store, message.physical_offset + at, data)
    before = tree_hash(store)
    for level in (2, 3):
        report = rmqctl("verify", store, "--level", level, "-o", "json")
        found = [(each["code"], each["physicalOffset"], each.get("count", 1)) for each in report.document()["findings"]]
        assert found == [(code, messages[30].physical_offset, 2), (code, messages[60].physical_offset, 1)]
        assert report.code == 1
    findings = verified_by_tasks(store, split_size=10**9).report.findings
    first = report.document()["findings"][0]
    assert words in first["detail"]
    assert (first["topic"], first["queueOffset"]) == (messages[30].topic, messages[30].queue_offset)
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    for size in (10_000, messages[31].physical_offset):
        assert verified_by_tasks(store, split_size=size).report.findings == findings
    assert (plan["actions"], plan["leaves"]) == ([], [{"code": code, "count": 3}])
    assert tree_hash(store) == before
