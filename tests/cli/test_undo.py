"""`undo`: list, undo, drop; what is asked, what is refused, and what it says."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from itertools import count
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import Rmqctl
from tests.conftest import tree_hash
from tests.faulty_system import Crashed, Fault, FaultySystem, open_descriptors

Golden = Callable[[str], Path]
SET = ("set", "--physic-msg-timestamp", "0", "--yes")


@pytest.mark.parametrize("name", ["471-basic", "326-basic", "533-crash"])
def test_undone_newest_first(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    hashes = [tree_hash(store)]
    for moment in ("1", "2", "3"):
        assert rmqctl("checkpoint", store, "set", "--logics-msg-timestamp", moment, "--yes").code == 0
        hashes.append(rmqctl("checkpoint", store, "-o", "json").out)
    journals = rmqctl("undo", store, "--list", "-o", "json").document()["journals"]
    assert [(row["number"], row["verb"], row["state"], row["summary"]) for row in journals] == [
        (number, "checkpoint", "done", "logicsMsgTimestamp = " + str(number)) for number in (1, 2, 3)
    ]
    for before in (hashes[2], hashes[1]):
        result = rmqctl("undo", store, "--yes")
        assert (result.code, result.err.count("\n")) == (0, 1)
        assert rmqctl("checkpoint", store, "-o", "json").out == before
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == hashes[0]
    result = rmqctl("undo", store, "--yes")
    assert (result.code, result.err) == (0, "nothing to undo: no change by rmqctl is kept here\n")


def test_a_dry_run_and_no_terminal_change_nothing(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("471-basic")
    assert rmqctl("undo", store, "--dry-run").code == 0
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    shown = rmqctl("undo", store, "--dry-run")
    assert (shown.code, shown.err) == (1, "")
    assert "write     checkpoint" in shown.out
    assert rmqctl("undo", store, "--drop", "--dry-run").code == 1
    monkeypatch.setattr(sys, "stdin", Path(os.devnull).open())  # noqa: SIM115 -- closed with the test's process
    for arguments in (("undo", store), ("undo", store, "--drop"), ("undo", store, "--force")):
        result = rmqctl(*arguments)
        assert result.code == 12
        assert result.err == "rmqctl: not confirmed, nothing was changed (--yes does it without asking)\n"
    assert rmqctl("undo", store).out == shown.out
    assert tree_hash(store) == before


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 12), (b"\n", 12)])
def test_the_answer_at_a_terminal(answer: bytes, code: int, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    rmqctl("checkpoint", store, *SET)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqctl", "undo", str(store)], stdin=follower, stderr=follower, stdout=subprocess.PIPE
    )
    os.close(follower)
    os.write(leader, answer)
    assert process.communicate()[0].startswith(b"number")
    os.close(leader)
    assert process.returncode == code
    assert (tree_hash(store) == before) is (code == 0)


def test_dropped_it_cannot_be_undone(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    rmqctl("checkpoint", store, "set", "--index-msg-timestamp", "0", "--yes")
    after = rmqctl("checkpoint", store).out
    result = rmqctl("undo", store, "--drop", "--yes")
    assert (result.code, result.err) == (0, "dropped: 2\n")
    assert not (store / ".rmqctl").exists()
    assert rmqctl("checkpoint", store).out == after
    assert rmqctl("undo", store, "--list").out == ""


def test_what_was_appended_since_is_not_lost(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    assert rmqctl("append", store, "--topic", "OrderPaid", "--body", "x").code == 0
    before = tree_hash(store)
    for arguments in (("--dry-run",), ("--yes",), ()):
        result = rmqctl("undo", store, *arguments)
        assert result.code == 1
        assert "written to since `rmqctl checkpoint`: " in result.err
        assert result.err.count("\n") == 1
    assert tree_hash(store) == before
    assert rmqctl("undo", store, "--yes", "--force").code == 0


def half_changed(store: Path, rmqctl: Rmqctl) -> None:
    """The process ends at the first call behind which the store counts as half changed."""
    for at in count(1):
        descriptors = open_descriptors()
        with FaultySystem(store, Fault.CRASH_AFTER, at) as system, pytest.raises(Crashed):
            rmqctl("checkpoint", store, *SET)
        system.end_process(descriptors)
        if '"begun"' in rmqctl("undo", store, "--list", "-o", "json").out:
            return
        rmqctl("undo", store, "--yes")


def test_a_half_done_change_is_told_and_must_be_undone_first(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    half_changed(store, rmqctl)
    left = tree_hash(store)
    assert rmqctl("undo", store, "--list", "-o", "jsonl").rows()[0]["state"] == "begun"
    note = f"note: rmqctl checkpoint was interrupted: the store is half changed; `rmqctl undo {store}` brings it back\n"
    for verb in ("info", "verify"):
        assert note in rmqctl(verb, store).err
    for arguments in (
        ("append", store, "--topic", "OrderPaid", "--body", "x"),
        ("checkpoint", store, "set", "--index-msg-timestamp", "0", "--yes"),
        ("undo", store, "--drop", "--yes"),
    ):
        result = rmqctl(*arguments)
        assert result.code == 1
        assert (
            result.err
            == f"rmqctl: {store}: rmqctl checkpoint was interrupted: the store is half changed (rmqctl undo {store} brings it back)\n"
        )
    assert tree_hash(store) == left
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_store_in_use(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    program = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        for arguments in (
            ("undo", store),
            ("undo", store, "--yes"),
            ("undo", store, "--drop", "--yes"),
            ("checkpoint", store, *SET[:2], "5"),
        ):
            result = rmqctl(*arguments)
            assert result.code == 11
            assert result.err == f"rmqctl: {store}: a broker, or another rmqctl, has the store open (stop it, or work on a copy)\n"
        broker.communicate()
    assert tree_hash(store) == before


def test_a_damaged_journal(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    (store / ".rmqctl/journal/0001-checkpoint/journal.json").write_bytes(b"{")
    for arguments in (("undo", store, "--yes"), ("undo", store, "--list"), ("checkpoint", store, *SET[:2], "5", "--yes")):
        result = rmqctl(*arguments)
        assert result.code == 4
        assert "the journal is damaged" in result.err
    assert "note: " in rmqctl("info", store).err


def test_documents_fit_their_schema(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    schema = json.loads(files("rmqctl.cli").joinpath("schema", "undo.json").read_text())
    for arguments in (("--list",), ("--dry-run",), ("--drop", "--dry-run"), ("--yes",), ("--list",)):
        jsonschema.validate(rmqctl("undo", store, *arguments, "-o", "json").document(), schema)


def test_options_that_contradict_each_other(golden: Golden, rmqctl: Rmqctl) -> None:
    assert rmqctl("undo", golden("471-basic"), "--list", "--drop").code == 2
