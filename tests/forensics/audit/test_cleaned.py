"""What receipts say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME, read_receipts
from rmqctl.logfile.system.storage import Storage

LOG = {"path": f"commitlog/{0:020d}", "bytes": 100}


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        ([], []),
        ([LOG], [100]),
        ([LOG, {"path": f"/data/log/{100:020d}", "bytes": 100}], [100, 200]),
        ([{"path": f"consumequeue/T/0/{0:020d}", "bytes": 100}, {"path": "index/20270101000000000", "bytes": 100}], []),
        ([{"path": f"commitlog/{0:020d}"}, {"path": 7, "bytes": 100}, ["path"], None, {"path": "", "bytes": 1}], []),
    ],
)
def test_where_files_of_the_log_ended(rows: list[Any], ends: list[int], tmp_path: Path) -> None:
    (tmp_path / RECEIPTS_NAME).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [offset for offset in (0, 100, 200) if read_receipts(Storage(tmp_path), tmp_path, offset).is_cleaned] == ends


def test_lines_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / RECEIPTS_NAME).write_bytes(
        b'\xff\xfe\n\n{"path":"comm\n{"path":"a","bytes":"100"}\n' + json.dumps(LOG).encode()
    )
    found = read_receipts(Storage(tmp_path), tmp_path, 100)
    assert found == (True, [f"{RECEIPTS_NAME}:{line}" for line in (1, 3, 4)])


def test_receipts_that_were_rotated_are_known(tmp_path: Path) -> None:
    (tmp_path / RECEIPTS_NAME).touch()
    (tmp_path / f"{RECEIPTS_NAME}.1").write_text(json.dumps(LOG))
    assert read_receipts(Storage(tmp_path), tmp_path, 100).is_cleaned


def test_without_receipts_nothing_is_known(tmp_path: Path) -> None:
    assert not read_receipts(Storage(tmp_path), tmp_path, 0).is_cleaned
    (tmp_path / RECEIPTS_NAME).mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        read_receipts(Storage(tmp_path), tmp_path, 0)
