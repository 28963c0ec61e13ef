"""The records of compaction/ are those that consumers of a compacted topic get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.file_edits import write_at

LOG = "compaction/compactionLog/cmpt/1/00000000000000000000"


def test_dump_of_compaction(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    before = tree_hash(root)
    result = rmqctl("dump", root, "--compaction", "--body", "base64", "-o", "jsonl")
    assert result.code == 0
    assert tree_hash(root) == before
    in_log = rmqctl("dump", root, "--topic", "cmpt", "--body", "base64", "-o", "jsonl").rows()
    place = ("physicalOffset", "path", "msgId")
    found, kept = (
        [{key: value for key, value in row.items() if key not in place} for row in rows]
        for rows in (result.rows(), in_log)
    )
    assert found == sorted(kept, key=lambda row: (row["queueId"], row["queueOffset"]))  # of few messages, all are kept
    rows = rmqctl("dump", root, "--compaction", "--queue", 1, "--limit", 1, "-o", "json").document()["items"]
    assert [(row["queueOffset"], row["physicalOffset"], row["path"]) for row in rows] == [(0, 0, LOG)]


def test_damage_in_compaction(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    write_at(root / LOG, 4, b"\0")
    result = rmqctl("dump", root, "--compaction", "--damaged", "-o", "jsonl")
    assert result.code == 1
    damaged = [row for row in result.rows() if "damage" in row]
    assert [(row["damage"], row["physicalOffset"], row["path"]) for row in damaged] == [("bad-magic", 0, LOG)]
    assert LOG in result.err


@pytest.mark.parametrize("link", ["compaction", "compaction/compactionLog/cmpt", f"{LOG}"])
def test_links_out_are_not_followed(link: str, golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden("broker-550")
    (root / link).rename(tmp_path / "elsewhere")
    (root / link).symlink_to(tmp_path / "elsewhere")
    result = rmqctl("dump", root, "--compaction", "-o", "jsonl")
    assert (result.code, result.out) == (4, "")
    assert "link out of the store" in result.err


def test_only_filters_by_content_go_with_it(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    for options in (["--tail", 1], ["--around", 0], ["--follow"], ["--from-offset", 0]):
        assert rmqctl("dump", root, "--compaction", *options).code == 2
