"""A log with bytes inserted or removed: its records are shown, and stay damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl
from tests.support.log_maker import Record, encode

FILE_SIZE = 65536


def write_with_noise(root: Path, noise: bytes, *, cut: int = 0) -> int:
    """Write 60 records with noise before each, or with the first `cut` bytes of the log removed."""
    data, at = b"", 0
    for number in range(60):
        record = encode(Record(queue_offset=number, body=b"b%d" % number), at)
        at += len(record)
        data += noise + record
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data[cut:].ljust(FILE_SIZE, b"\0"))
    return 60


@pytest.mark.parametrize(("noise", "cut", "shown"), [(b"noise", 0, 60), (b"", 3, 59), (b"\0" * 9, 0, 60)])
def test_records_that_lie_elsewhere_are_shown(
    noise: bytes, cut: int, shown: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    write_with_noise(tmp_path, noise, cut=cut)
    for words in (["dump", tmp_path, "--damaged"], ["dump", tmp_path], ["dump", tmp_path, "--tail", 100]):
        result = rmqctl(*words, "-o", "jsonl")
        rows = [row for row in result.rows() if "queueOffset" in row]
        assert result.code == 1
        assert [row["queueOffset"] for row in rows] == list(range(60 - shown, 60))
        assert {row["damage"] for row in rows} == {"bad-physical-offset"}
    found = rmqctl("query", tmp_path, "--topic", "OrderPaid", "--queue", 1, "--offset", 7, "--scan", "-o", "jsonl")
    assert [row["queueOffset"] for row in found.rows()] == [7]
    assert sum(line.startswith("damage:") for line in found.err.splitlines()) == 1
    traced = rmqctl("trace", tmp_path, "--key", "k1", "--limit", 99, "-o", "json")
    assert [stage["queueOffset"] for stage in traced.document()["stages"]] == list(range(60 - shown, 60))
    verified = rmqctl("verify", tmp_path, "--level", 1, "-o", "json")
    assert (verified.code, verified.document()["messages"]) == (1, 0)
