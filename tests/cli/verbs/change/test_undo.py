"""`undo`: list, undo, drop; what is asked, what is refused, and what it says."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from rmqctl.cli.main import run
from rmqctl.logfile.system.writable_storage import WritableStorage
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.faulty_system import Crashed, Fault, FaultySystem, open_descriptors
from tests.support.lock_holder import lock_held

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
    assert (result.code, result.err) == (0, nothing_to_undo(store))


def nothing_to_undo(store: Path) -> str:
    return (
        "nothing to undo: no change by rmqctl is kept in this store; "
        "what `clean` deleted is only in a copy or on a slave, and "
        f"`rmqctl truncate {store} --to OFFSET` cuts off what `append` appended\n"
    )


def test_an_append_is_not_called_nothing(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    end = rmqctl("info", store, "-o", "json").document()["commitLog"]["maxPhyOffset"]
    assert rmqctl("append", store, "--topic", "OrderPaid", "--body", "x").code == 0
    result = rmqctl("undo", store, "--yes")
    assert (result.code, result.err) == (0, nothing_to_undo(store))
    assert rmqctl("truncate", store, "--to", end, "--yes").code == 3
    assert rmqctl("info", store, "-o", "json").document()["commitLog"]["maxPhyOffset"] == end


def test_an_undo_says_what_the_change_was(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    assert rmqctl("config", "set-offset", store, "billing", "orders", "0", "--to", "earliest", "--yes").code == 0
    assert [row["verb"] for row in rmqctl("undo", store, "--list", "-o", "jsonl").rows()] == ["config set-offset"]
    assert (store / ".rmqctl" / "journal" / "0001-config-set-offset").is_dir()
    result = rmqctl("undo", store, "--yes")
    assert (
        result.err
        == "undone: 1 config set-offset (offsets of billing in orders are 0: 0); the store is as it was before\n"
    )


def test_a_dry_run_and_no_terminal_change_nothing(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("471-basic")
    assert rmqctl("undo", store, "--dry-run").code == 0
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    shown = rmqctl("undo", store, "--dry-run")
    assert (shown.code, shown.err) == (1, "")
    assert "to take it back:" in shown.out
    assert "restore   checkpoint" in shown.out
    assert rmqctl("undo", store, "--drop", "--dry-run").code == 1
    monkeypatch.setattr(sys, "stdin", Path(os.devnull).open())  # noqa: SIM115 -- closed with the test's process
    for arguments in (("undo", store), ("undo", store, "--drop"), ("undo", store, "--force")):
        result = rmqctl(*arguments)
        assert result.code == 12
        assert result.err == "rmqctl: not confirmed, nothing was changed (pass --yes to confirm)\n"
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
    assert result.code == 0
    assert re.fullmatch(
        r"dropped: 2, which took \d{4,5} bytes of the disk; they cannot be taken back any more\n", result.err
    )
    assert not (store / ".rmqctl").exists()
    assert rmqctl("checkpoint", store).out == after
    result = rmqctl("undo", store, "--list")
    assert (result.code, result.out, result.err) == (0, "", nothing_to_undo(store))


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
    result = rmqctl("undo", store, "--yes", "--force")
    assert result.code == 0
    assert "as it was before" not in result.err
    assert f"`rmqctl verify {store}` says whether it fits, `rmqctl recover {store}` makes it fit" in result.err


def test_what_recover_makes_of_a_forced_undo(golden: Golden, rmqctl: Rmqctl) -> None:
    """A new topic of the log's end that the undo takes away."""
    store = golden("497-basic")
    assert rmqctl("truncate", store, "--to", "0", "--yes").code == 3
    assert rmqctl("append", store, "--topic", "new", "--body", "x", "--profile", "4.9").code == 0
    assert rmqctl("undo", store, "--yes").code == 1
    assert rmqctl("undo", store, "--yes", "--force").code == 0
    assert rmqctl("verify", store).code == 1
    assert rmqctl("recover", store, "--yes").code == 3
    assert rmqctl("verify", store).code == 0


@pytest.mark.parametrize(("arguments", "state"), [((), "undone"), (("--drop",), "dropped")])
def test_json_says_what_was_done(arguments: tuple[str, ...], state: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    for how, code, said in (("--dry-run", 1, "done"), ("--yes", 0, state)):
        result = rmqctl("undo", store, *arguments, how, "-o", "json")
        assert (result.code, [row["state"] for row in result.document()["journals"]]) == (code, [said])


def test_it_is_said_what_an_undo_does(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    (store / "consumequeue" / "OrderPaid" / "0" / f"{0:020d}").unlink()
    (store / "consumequeue" / "OrderPaid" / "0").rmdir()
    (store / "checkpoint").write_bytes(bytes(4096))
    assert rmqctl("rebuild", store, "all", "--yes").code == 3
    (row,) = rmqctl("undo", store, "--dry-run", "-o", "json").document()["journals"]
    assert {"action": "remove", "path": "consumequeue/OrderPaid/0"} in row["undo"]
    assert {"action": "put back", "path": "consumequeue/OrderPaid/1"} in row["undo"]
    assert {"action": "put back", "path": "index"} in row["undo"]
    assert row["undo"][-1] == {"action": "restore", "path": "checkpoint", "bytes": 8}


def test_a_signal_does_not_end_an_undo_that_began(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("471-basic")
    before = tree_hash(store)
    rmqctl("checkpoint", store, *SET)
    set_mtime = WritableStorage.set_mtime

    def and_ctrl_c(self: WritableStorage, path: Path, mtime_ns: int) -> None:
        signal.raise_signal(signal.SIGINT)
        set_mtime(self, path, mtime_ns)

    monkeypatch.setattr(WritableStorage, "set_mtime", and_ctrl_c)
    result = rmqctl("undo", store, "--yes")
    assert (result.code, result.err) == (
        0,
        "undone: 1 checkpoint (physicMsgTimestamp = 0); the store is as it was before\n",
    )
    assert tree_hash(store) == before


def test_a_signal_before_it_begins_ends_it(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    monkeypatch.setattr(WritableStorage, "lock", lambda *_: signal.raise_signal(signal.SIGINT))
    result = rmqctl("undo", store, "--yes")
    assert (result.code, result.err.strip()) == (130, "nothing was changed\n\nrmqctl: interrupted")
    assert tree_hash(store) == before


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
            == f"rmqctl: {store}: rmqctl checkpoint was interrupted: the store is half changed (rmqctl undo {store} "
            "brings it back)\n"
        )
    assert tree_hash(store) == left
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_store_in_use(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    with lock_held(store):
        for arguments in (
            ("undo", store),
            ("undo", store, "--yes"),
            ("undo", store, "--drop", "--yes"),
            ("undo", store, "--dry-run"),
            ("checkpoint", store, *SET[:2], "5"),
            ("checkpoint", store, *SET[:2], "5", "--dry-run"),
        ):
            result = rmqctl(*arguments)
            assert result.code == 11
            assert (
                result.err
                == f"rmqctl: {store}: a broker, or another rmqctl, has the store open (stop it, or work on a copy)\n"
            )
        assert rmqctl("undo", store, "--list").code == rmqctl("checkpoint", store, "show").code == 0
    assert tree_hash(store) == before


def test_a_damaged_journal(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    (store / ".rmqctl/journal/0001-checkpoint/journal.json").write_bytes(b"{")
    for arguments in (
        ("undo", store, "--yes"),
        ("undo", store, "--list"),
        ("checkpoint", store, *SET[:2], "5", "--yes"),
    ):
        result = rmqctl(*arguments)
        assert result.code == 4
        assert "the journal is damaged" in result.out + result.err
    assert "note: a change by rmqctl cannot be undone: " in rmqctl("info", store).err


def damaged_among(store: Path, rmqctl: Rmqctl, *damaged: str) -> list[str]:
    """Three changes, the journals of some of them damaged.

    Return the hashes of the store's files, without rmqctl's own, before each.
    """
    hashes = []
    for moment in ("1", "2", "3"):
        hashes.append(rmqctl("checkpoint", store, "-o", "json").out)
        assert rmqctl("checkpoint", store, "set", "--logics-msg-timestamp", moment, "--yes").code == 0
    for name in damaged:
        (store / ".rmqctl/journal" / name / "journal.json").write_bytes(b"{")
    return hashes


def test_a_damaged_journal_does_not_hide_the_sound_ones(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    damaged_among(store, rmqctl, "0002-checkpoint")
    result = rmqctl("undo", store, "--list", "-o", "json")
    rows = result.document()["journals"]
    assert (result.code, [(row["folder"], row["state"]) for row in rows]) == (
        4,
        [("0001-checkpoint", "done"), ("0002-checkpoint", "damaged"), ("0003-checkpoint", "done")],
    )
    assert rows[1]["summary"].startswith(".rmqctl/journal/0002-checkpoint/journal.json: the journal is damaged: ")
    assert f"`rmqctl undo {store} --drop-damaged 0002-checkpoint` forgets this change" in result.err
    findings = rmqctl("verify", store, "-o", "json").document()["findings"]
    assert [each["path"] for each in findings if each["code"] == "bad-journal"] == [
        ".rmqctl/journal/0002-checkpoint/journal.json"
    ]


def test_a_newer_change_than_a_damaged_one_is_taken_back(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    before = damaged_among(store, rmqctl, "0002-checkpoint")
    assert rmqctl("undo", store, "--yes").code == 0
    assert rmqctl("checkpoint", store, "-o", "json").out == before[2]
    refused = rmqctl("undo", store, "--yes")
    assert refused.code == 4
    assert f"take {store}/.rmqctl/journal/0002-checkpoint away by hand" in refused.err


def test_a_damaged_journal_is_dropped_by_its_name(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    damaged_among(store, rmqctl, "0001-checkpoint", "0003-checkpoint")
    lock = (store / "lock").stat().st_ino
    result = rmqctl("undo", store, "--drop", "--yes", "-o", "json")
    assert (result.code, [row["number"] for row in result.document()["journals"]]) == (4, [2])
    assert "0003-checkpoint is damaged" in result.err
    refused = rmqctl("checkpoint", store, *SET)
    assert (refused.code, rmqctl("undo", store, "--drop", "--yes").code) == (4, 4)
    for name in ("0001-checkpoint", "0003-checkpoint"):
        assert name in refused.err + rmqctl("undo", store, "--list").err
        assert rmqctl("undo", store, "--drop-damaged", name, "--dry-run").code == 1
        assert rmqctl("undo", store, "--drop-damaged", name, "--yes").code == 0
    assert not (store / ".rmqctl").exists()
    assert (store / "lock").stat().st_ino == lock
    assert rmqctl("checkpoint", store, *SET).code == 0


def test_only_a_damaged_journal_is_dropped_by_its_name(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    damaged_among(store, rmqctl, "0002-checkpoint")
    before = tree_hash(store)
    for name in ("0001-checkpoint", "0009-checkpoint", "..", "../../commitlog"):
        assert rmqctl("undo", store, "--drop-damaged", name, "--yes").code == 2
    assert tree_hash(store) == before


@pytest.mark.parametrize("state", ["begun", "undoing"])
def test_a_damaged_journal_of_a_change_that_may_be_half_done_stays(state: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    damaged_among(store, rmqctl, "0003-checkpoint")
    journal = store / ".rmqctl/journal/0003-checkpoint"
    if state == "begun":
        (journal / "done").unlink()
    else:
        (journal / "undoing").touch()
    before = tree_hash(store)
    for arguments in (("--drop",), ("--drop-damaged", "0003-checkpoint"), ()):
        result = rmqctl("undo", store, *arguments, "--yes")
        assert result.code == 4
        assert f"the store may be half changed; look at it, and take {journal} away by hand" in result.err
    assert tree_hash(store) == before


def test_documents_fit_their_schema(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    for arguments in (("--list",), ("--dry-run",), ("--drop", "--dry-run"), ("--yes",), ("--list",)):
        assert rmqctl("undo", store, *arguments, "-o", "json").document()["schema"] == "rmqctl.undo/1"


def test_options_that_contradict_each_other(golden: Golden, rmqctl: Rmqctl) -> None:
    assert rmqctl("undo", golden("471-basic"), "--list", "--drop").code == 2


PLANS = ("undo", "undo --drop", "checkpoint set --index-msg-timestamp 0", "truncate --to 0", "rebuild all")


@pytest.mark.parametrize("plan", PLANS)
def test_a_reader_of_the_plan_who_goes_away(plan: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    rmqctl("checkpoint", store, *SET)
    before = tree_hash(store)
    verb, *more = plan.split()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rmqctl", verb, str(store), *more, "--yes"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        141,
        "nothing was changed: stdout was closed before the plan was printed",
    )
    assert tree_hash(store) == before


def test_signals_stay_ignored_behind_a_change(golden: Golden) -> None:
    """Up to the end of the process, whose exit status says what was done."""
    store = golden("471-basic")
    run([str(word) for word in ("checkpoint", store, *SET)])
    assert run(["undo", str(store), "--dry-run"]) == 1
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("elsewhere", ["--broker-conf", "--follow-links"])
def test_the_undo_that_is_proposed_works(elsewhere: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """It has the options that the change needed; without them one line says which to give, and nothing is changed."""
    store, log = unpack("497-crash", tmp_path), tmp_path / "log"
    (store / "commitlog").rename(log)
    conf = tmp_path / "broker's.conf"
    conf.write_text(f"storePathCommitLog={log}\n")
    if elsewhere == "--follow-links":
        (store / "commitlog").symlink_to(log)
    words = [elsewhere, str(conf)] if elsewhere == "--broker-conf" else [elsewhere]
    before = tree_hash(store), tree_hash(log)
    said = rmqctl("recover", store, *words, "--yes").err
    proposed = shlex.split(said.split("`")[-2])
    assert proposed == ["rmqctl", "undo", str(store), *words]
    changed = tree_hash(store), tree_hash(log)
    refused = rmqctl("undo", store, "--yes")
    assert refused.code == 4
    assert f"give {elsewhere}" in refused.err
    assert "nothing was changed" in refused.err
    assert "by hand" not in refused.err
    assert (tree_hash(store), tree_hash(log)) == changed
    assert rmqctl(*proposed[1:], "--yes").code == 0
    assert (tree_hash(store), tree_hash(log)) == before
