"""truncate: the log ends where it is told to, at a record boundary; queues and index follow; undo brings all back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.errors import read_hint
from tests.conftest import READABLE_NAMES, Rmqctl, tree_hash, unpack
from tests.support.file_edits import write_at

NAMES = [name for name in READABLE_NAMES if "crash" not in name and "kill" not in name and name[:3] != "326"]


def boundaries(rmqctl: Rmqctl, store: Path) -> list[int]:
    return [row["physicalOffset"] for row in rmqctl("dump", store, "-o", "jsonl").rows()]


@pytest.mark.parametrize("name", NAMES)
def test_log_queues_and_index_end_there(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    before = tree_hash(store)
    records = boundaries(rmqctl, store)
    end = records[len(records) * 2 // 3]
    plan = rmqctl("truncate", store, "--to", end, "--dry-run", "-o", "json")
    assert plan.code == 1
    assert tree_hash(store) == before
    assert rmqctl("truncate", store, "--to", end, "--yes").code == 3
    assert boundaries(rmqctl, store) == records[: len(records) * 2 // 3]
    findings = rmqctl("verify", store, "--level", "2", "-o", "json").document()["findings"]
    assert findings == []
    lost = plan.document()["lost"]["records"]
    assert 0 < lost <= len(records) - len(records) * 2 // 3
    assert rmqctl("undo", store, "--yes").code in (0, 3)
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", ["497-basic", "533-batch"])
def test_every_boundary_is_taken_and_nothing_between(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack(name, tmp_path)
    records = boundaries(rmqctl, store)
    for begin, end in list(pairwise(records))[::40]:
        assert rmqctl("truncate", store, "--to", begin, "--dry-run").code == 1
        for inside in (begin + 1, end - 1):
            refused = rmqctl("truncate", store, "--to", inside, "--yes")
            assert refused.code == 2
            assert f"{begin} and {end}" in refused.err or f"{begin} and" in refused.err


def test_a_wrong_unit_in_between_takes_no_others_along(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One that points after the end, where those after it do not: the queue does not end there."""
    store = unpack("497-basic", tmp_path)
    queue = store / "consumequeue" / "%RETRY%billing" / "1" / f"{0:020d}"
    write_at(queue, 8 * 20, (2**20).to_bytes(8, "big"))  # the first that is looked at of 16
    end = rmqctl("verify", store, "-o", "json").document()["maxPhyOffset"]
    plan = rmqctl("truncate", store, "--to", end, "--dry-run", "-o", "json")
    assert plan.code == 0
    assert plan.document()["lost"] == {"records": 0, "bytes": 0}


def test_an_offset_outside_the_log_is_refused(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    before = tree_hash(store)
    assert rmqctl("truncate", store, "--to", 10**12, "--yes").code == 2
    assert rmqctl("truncate", store, "--yes").code == 2
    assert rmqctl("truncate", store, "--to", 0, "--dirty", "--yes").code == 2
    assert tree_hash(store) == before


def test_dirty_zeroes_what_stands_behind_the_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    last = max((store / "commitlog").iterdir())
    content = last.read_bytes()
    end = len(content.rstrip(b"\0"))
    write_at(last, end + 100, b"stale bytes of an earlier life")
    assert rmqctl("truncate", store, "--dirty", "--dry-run").code == 1
    assert rmqctl("truncate", store, "--dirty", "--yes").code == 3
    assert last.read_bytes() == content
    assert rmqctl("truncate", store, "--dirty", "--yes").code == 0


def test_keep_tail_moves_the_positions_only(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    end = boundaries(rmqctl, store)[-5]
    actions = rmqctl("truncate", store, "--to", end, "--keep-tail", "--dry-run", "-o", "json").document()["actions"]
    assert not any(action["action"] == "zero" and action["path"].startswith("commitlog") for action in actions)


def test_keep_tail_says_what_comes_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    records = boundaries(rmqctl, store)
    in_file = [at for at in records if 65536 <= at < 131072]
    plan = rmqctl("truncate", store, "--to", in_file[-7], "--keep-tail", "--dry-run", "-o", "json").document()
    assert [note.split(":")[0] for note in plan["notes"]] == [f"7 good messages after {in_file[-7]} stay in the file"]
    assert rmqctl("truncate", store, "--to", in_file[-7], "--keep-tail", "--yes").code == 3
    assert boundaries(rmqctl, store) == records[: records.index(in_file[-1]) + 1]
    assert rmqctl("truncate", store, "--to", in_file[-7], "--dry-run", "-o", "json").document()["notes"] == []


def test_what_is_wrong_with_the_options_is_said(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    outside = rmqctl("truncate", store, "--to", 999999999)
    assert f"{store}: the log cannot end at offset 999999999 (its messages reach from 0 to 244398)" in outside.err
    assert "not both" in rmqctl("truncate", store, "--to", 0, "--dirty").err
    said = "missing the end of the log: give --to OFFSET, as `rmqctl dump STORE` shows them, or --dirty"
    assert said in rmqctl("truncate", store).err


def test_a_log_that_may_not_be_read_is_one_for_its_owner(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack("533-basic", tmp_path)
    assert read_hint("cannot be read: Permission denied") == "run it as the owner of the files"
    assert read_hint("cannot be read: Input/output error").startswith("copy the disk")

    def denied(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied", "a log file")

    monkeypatch.setattr("rmqctl.logfile.mapped_file.MappedFile.read_exact", denied)
    monkeypatch.setattr("rmqctl.logfile.mapped_file.MappedFile.read", denied)
    for words in (("recover",), ("truncate", "--to", 0)):
        found = rmqctl(words[0], store, *words[1:], "--dry-run")
        assert (found.code, "(run it as " in found.err, "copy the disk" in found.err) == (4, True, False), found.err


def test_explain_shows_each_step(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    end = boundaries(rmqctl, store)[100]
    steps = rmqctl("truncate", store, "--to", end, "--dry-run", "-o", "json").document()["actions"]
    short, each = (
        rmqctl("truncate", store, "--to", end, "--dry-run", *options).out for options in ((), ("--explain",))
    )
    assert "(--explain shows each)" in short
    zeroed = sum(step["action"] == "zero" and step["path"].startswith("consumequeue/") for step in steps)
    assert f"zero {zeroed} ranges of consumequeue\n" in short
    assert all(step["path"] in each for step in steps if "path" in step)


def test_the_whole_log_can_go(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    before = tree_hash(store)
    assert rmqctl("truncate", store, "--to", 0, "--yes").code == 3
    assert boundaries(rmqctl, store) == []
    assert rmqctl("undo", store, "--yes").code in (0, 3)
    assert tree_hash(store) == before


def test_dirty_drops_no_good_message(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    last = max((store / "commitlog").iterdir())
    write_at(last, 10000, b"\xff" * 20)
    before = tree_hash(store)
    result = rmqctl("truncate", store, "--dirty", "--yes")
    assert result.code == 2
    assert "good messages stand after" in result.err
    assert tree_hash(store) == before


def test_the_checkpoint_does_not_vouch_for_what_is_gone(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    end = boundaries(rmqctl, store)[100]
    assert rmqctl("truncate", store, "--to", end, "--yes").code == 3
    assert rmqctl("verify", store).code == 0


def test_an_end_behind_the_last_record_is_no_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    plan = rmqctl("truncate", store, "--to", 262144, "--dry-run", "-o", "json")
    assert (plan.code, plan.document()["maxPhyOffset"]) == (0, 244398)


def test_what_the_next_start_drops_of_what_stays_is_lost(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """4.9 begins at the third file from the end: with one file less that is where a record is damaged."""
    store = unpack("497-basic", tmp_path)
    records = boundaries(rmqctl, store)
    hit = next(offset for offset in records if offset > 30000)
    write_at(store / "commitlog" / f"{0:020d}", hit + 4, b"\xde\xad\xbe\xef")
    end = next(offset for offset in records if offset > 2 * 65536 + 20000)
    plan = rmqctl("truncate", store, "--to", end, "--dry-run", "-o", "json").document()
    served = sum(offset < hit for offset in records)
    assert (
        plan["lost"]["records"]
        == sum(queue.get("lostMessages", 0) for queue in plan["queues"])
        == len(records) - served
    )
    assert [note for note in plan["notes"] if f"ends the log at {hit}, and serves" in note]
