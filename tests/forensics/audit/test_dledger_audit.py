"""A DLedger log that lost entries of its group is not healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack


@pytest.mark.parametrize(("cut", "missing"), [(25610, 28), (0, 83)])
def test_entries_that_the_group_agreed_on_are_missing(cut: int, missing: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """DLedger's issue 285: zeros where entries were."""
    store = unpack("broker-550-dledger", tmp_path)
    log = store / "dledger-n0" / "data" / f"{0:020d}"
    raw = log.read_bytes()
    log.write_bytes(raw[:cut] + bytes(len(raw) - cut))
    (finding,) = rmqctl("verify", store, "--level", 1, "-o", "json").document()["findings"]
    assert (finding["code"], finding["physicalOffset"], finding["count"]) == ("entries-missing", cut, missing)
    result = rmqctl("doctor", store, "-o", "json")
    assert (result.code, [cause["code"] for cause in result.document()["causes"]]) == (1, ["committed-gone"])


@pytest.mark.parametrize("text", ["committedIndex=82\nendIndex=82\n", "committedIndex=-1\n", "", "x"])
def test_entries_after_the_committed_index_are_no_fault(text: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-550-dledger", tmp_path)
    (store / "dledger-n0" / "checkpoint").write_text(text)
    assert rmqctl("doctor", store).code == 0
