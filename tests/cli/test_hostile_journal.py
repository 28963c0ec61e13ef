"""A store that somebody made to have files changed outside of it: by links in the place of rmqctl's own folders, or by
a forged journal.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.operations.rebuild.rebuild import Rebuild
from tests.conftest import Rmqctl, signals_given_back, tree_hash, unpack

CHANGES = {
    "checkpoint": ("set", "--physic-msg-timestamp", "5", "--yes"),
    "recover": ("--mode", "abnormal", "--yes"),
    "rebuild": ("all", "--yes"),
    "truncate": ("--to", "40404", "--yes"),
    "undo": ("--yes",),
    "clean": ("--keep-files", "1", "--interval", "0", "--yes"),
}
OWN = (
    ".rmqctl",
    ".rmqctl/journal",
    ".rmqctl/expired",
    ".rmqctl/journal/0001-checkpoint",
    ".rmqctl/journal/0001-checkpoint/kept",
)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a journal, and what an interrupted clean left; beside it `outside`."""

    store = unpack("471-basic", tmp_path_factory.mktemp("changed"))
    with signals_given_back():
        assert run(["checkpoint", str(store), *CHANGES["checkpoint"]]) == 0
    (store / ".rmqctl/expired").mkdir()
    (store / ".rmqctl/expired/index:1").write_bytes(b"left")
    return store


@pytest.fixture
def attacked(changed: Path, tmp_path: Path) -> Path:
    """A copy of it to be attacked."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    (tmp_path / "outside" / f"{0:020d}").write_bytes(b"a log")
    return shutil.copytree(changed, tmp_path / "store")


def refused(verb: str, store: Path, rmqctl: Rmqctl) -> str:
    """What the refusal says; nothing is changed, neither in the store nor outside."""
    before = tree_hash(store.parent)
    result = rmqctl(verb, store, *CHANGES[verb])
    assert (result.code, tree_hash(store.parent)) == (4, before)
    return result.err


def found_by_verify(store: Path, rmqctl: Rmqctl) -> str:
    """Where verify has the journal; it does not say that it be followed."""
    result = rmqctl("verify", store, "-o", "json")
    (finding,) = (finding for finding in result.document()["findings"] if finding["code"] == "bad-journal")
    assert result.code == 1
    assert "rmqctl undo" not in result.err
    return str(finding["path"])


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("name", OWN)
def test_no_link_is_followed(name: str, verb: str, attacked: Path, rmqctl: Rmqctl) -> None:
    (attacked / name).rename(attacked.parent / "outside/moved")
    (attacked / name).symlink_to(attacked.parent / "outside/moved")
    if name.endswith("expired") and verb != "clean":
        return
    assert "this is not a folder" in refused(verb, attacked, rmqctl)
    if verb == "undo":
        assert found_by_verify(attacked, rmqctl) == name


def forge(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = store / ".rmqctl/journal/0001-checkpoint/journal.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


MOVED = {"kept": None, "staged": "staging/x"}
FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "leads up": lambda found: found["moved"].append({"path": "../outside", **MOVED}),
    "leads up from within": lambda found: found["moved"].append({"path": "index/../../outside", **MOVED}),
    "absolute": lambda found: found["moved"].append({"path": "OUTSIDE/secret", **MOVED}),
    "a log file elsewhere": lambda found: found["moved"].append({"path": f"OUTSIDE/{0:020d}", **MOVED}),
    "the store itself": lambda found: found["moved"].append({"path": ".", **MOVED}),
    "a whole part": lambda found: found["moved"].append({"path": "commitlog", **MOVED}),
    "not a part": lambda found: found["moved"].append({"path": "compaction/position-checkpoint", **MOVED}),
    "not a config file": lambda found: found["moved"].append({"path": "config/plain_acl.yml", **MOVED}),
    "below a config file": lambda found: found["moved"].append({"path": "config/x/topics.json", **MOVED}),
    "kept elsewhere": lambda found: found["moved"].append(
        {"path": "abort", "kept": "../../../../outside", "staged": None}
    ),
    "kept at an absolute path": lambda found: found["moved"].append(
        {"path": "abort", "kept": "OUTSIDE/secret", "staged": None}
    ),
    "kept bytes elsewhere": lambda found: found["files"][0].update(kept="../../../../outside/secret"),
    "bytes of a file elsewhere": lambda found: found["files"][0].update(path="../outside/secret"),
    "bytes of an absolute path": lambda found: found["files"][0].update(path="OUTSIDE/secret"),
    "bytes of a link": lambda found: found["files"][0].update(path="link/secret"),
    "a folder elsewhere made": lambda found: found["made"].append("../outside"),
    "a time elsewhere": lambda found: found["folders"].update({"../outside": 0}),
    "a number too large": lambda found: found["files"][0].update(size=2**70),
    "ranges beyond the file": lambda found: found["files"][0].update(ranges=[[0, 10**9]]),
    "pieces that are not kept": lambda found: found["files"][0].update(kept=None),
    "a file kept as a folder": lambda found: found["files"][0].update(kept="kept"),
    "one path twice": lambda found: found["moved"].append({"path": "checkpoint", **MOVED}),
    "deep": lambda found: found.update(changes=[{"x": "DEEP"}]),
}


@pytest.mark.parametrize("state", ["begun", "done", "undoing"])
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_journal_is_refused(kind: str, state: str, attacked: Path, rmqctl: Rmqctl) -> None:
    journal = attacked / ".rmqctl/journal/0001-checkpoint"
    (attacked / "link").symlink_to(attacked.parent / "outside")
    forge(attacked, FORGED[kind])
    text = (journal / "journal.json").read_text().replace("OUTSIDE", str(attacked.parent / "outside"))
    (journal / "journal.json").write_text(text.replace('"DEEP"', "[" * 100_000 + "]" * 100_000))
    if state == "begun":
        (journal / "done").unlink()
    if state == "undoing":
        (journal / "undoing").touch()
    elsewhere = kind in ("absolute", "a log file elsewhere", "bytes of an absolute path")
    assert ("give --broker-conf" if elsewhere else f"take {journal} away by hand") in refused("undo", attacked, rmqctl)
    assert found_by_verify(attacked, rmqctl) == ".rmqctl/journal/0001-checkpoint/journal.json"


@pytest.mark.parametrize("name", ["journal.json", "done", "kept/bytes-0"])
def test_the_files_of_a_journal_are_no_links(name: str, attacked: Path, rmqctl: Rmqctl) -> None:
    file = attacked / ".rmqctl/journal/0001-checkpoint" / name
    file.rename(attacked.parent / "outside/moved")
    file.symlink_to(attacked.parent / "outside/moved")
    refused("undo", attacked, rmqctl)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_a_folder_of_the_store_that_became_a_link(part: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    assert rmqctl("truncate", store, *CHANGES["truncate"]).code == 3
    (store / part).rename(tmp_path / "outside")
    (store / part).symlink_to(tmp_path / "outside")
    before = tree_hash(tmp_path / "outside")
    result = rmqctl("undo", store, "--force", "--yes")
    assert (result.code, tree_hash(tmp_path / "outside")) == (4, before)
    assert "a symbolic link is in its place, or on the way" in result.err
    assert rmqctl("undo", store, "--force", "--follow-links", "--yes").code == 0
    assert tree_hash(tmp_path / "outside") != before


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what a rebuild left that Ctrl-C ended."""
    store = unpack("broker-533", tmp_path_factory.mktemp("interrupted"))
    on_messages = Rebuild._see

    def and_then_ctrl_c(self: Rebuild, item: Any) -> None:
        on_messages(self, item)
        signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patched, signals_given_back():
        patched.setattr(Rebuild, "_see", and_then_ctrl_c)
        assert run(["rebuild", str(store), "all", "--yes", "--threads", "1"]) == 130
    return store


FORGED_PROGRESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a topic that is a path": lambda found: found["queues"][0].update(
        topic="OUTSIDE", queue_id=0, min_offset=0, max_offset=0
    ),
    "a topic above the folder": lambda found: found["queues"][0].update(topic="../../../../../../outside", queue_id=0),
    "no queueId": lambda found: found["queues"][0].update(queue_id=-1),
    "a place without a file name": lambda found: found["queues"][0].update(min_offset=2**60, max_offset=2**60),
    "an end before the start": lambda found: found["queues"][0].update(min_offset=5, max_offset=1),
    "a count beyond 63 bits": lambda found: found["queues"][0].update(bytes=2**63),
    "a count below 0": lambda found: found["queues"][0].update(same=-3),
    "a batch queue that is none": lambda found: found["batch_queues"].append(found["queues"].pop()),
    "the same queue twice": lambda found: found["queues"].append(found["queues"][0]),
    "a position after the log": lambda found: found["log"].update(position=2**62),
    "a position before the log": lambda found: found["log"].update(position=-1),
    "an index beyond 63 bits": lambda found: found["index"].update(entries=2**63),
}


@pytest.mark.parametrize("forged", FORGED_PROGRESS)
def test_a_forged_progress_of_a_rebuild_is_refused(
    forged: str, interrupted: Path, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """Its topics become folders, in which whatever is there would be deleted.

    The store is as it was before the rebuild.
    """
    (tmp_path / "outside/0").mkdir(parents=True)
    (tmp_path / "outside/0/diary").write_bytes(b"dear")
    before = tree_hash(tmp_path / "outside")
    store = shutil.copytree(interrupted, tmp_path / "store")
    progress = store / ".rmqctl/journal/0001-rebuild/staging/rebuild.json"
    found = json.loads(progress.read_text())
    FORGED_PROGRESS[forged](found)
    progress.write_text(json.dumps(found).replace("OUTSIDE", str(tmp_path / "outside")))
    result = rmqctl("rebuild", store, "all", "--resume", "--yes")
    assert (result.code, tree_hash(tmp_path / "outside")) == (2, before), result.err
    assert "run it without --resume" in result.err
    assert tree_hash(store) == tree_hash(unpack("broker-533", tmp_path / "whole"))


def test_a_journal_with_the_highest_number_leaves_none_to_the_next_change(attacked: Path, rmqctl: Rmqctl) -> None:
    """A journal that no verb finds again could not be undone."""
    highest = attacked / ".rmqctl/journal/999999999-checkpoint"
    highest.with_name("0001-checkpoint").rename(highest)
    refusal = refused("recover", attacked, rmqctl)
    assert "no change can have a number after 999999999; nothing was changed" in refusal
    assert f"take {highest} away by hand" in refusal


def test_a_change_that_did_not_begin_takes_no_number(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    before = tree_hash(store)
    (store / ".rmqctl/journal/999999999-recover").mkdir(parents=True)
    assert rmqctl("checkpoint", store, *CHANGES["checkpoint"]).code == 0
    assert [row["number"] for row in rmqctl("undo", store, "--list", "-o", "jsonl").rows()] == [1]
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_what_is_not_of_rmqctl_stays(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("471-basic", tmp_path)
    assert rmqctl("checkpoint", store, *CHANGES["checkpoint"]).code == 0
    notes = [
        store / ".rmqctl/mine/notes",
        store / ".rmqctl/journal/notes",
        store / ".rmqctl/journal/1000000000-recover/kept/bytes-0",
    ]
    for path in notes:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine")
    assert rmqctl("undo", store, "--yes").code == 0
    again = rmqctl("undo", store, "--yes")
    assert (again.code, again.err) == (
        0, f"there is nothing to take back: what lies in {store / '.rmqctl'} is not of rmqctl's making, and stays\n"
    )  # fmt: skip
    assert [path.read_bytes() for path in notes] == [b"mine"] * 3
