"""How often an examination reads the log, and what it does without a simulated start."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.doctor.next_start import starts_in_words
from rmqctl.format.message import HEADS, Message
from rmqctl.format.profile import PROFILES, Profile, profile_of
from rmqctl.operations.doctor.diagnosis import diagnose
from rmqctl.operations.doctor.examination import Examination, Examiner
from rmqctl.store.read.commit_log import CommitLog
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import guess_profile
from tests.support.file_edits import flip_bits

Golden = Callable[[str], Path]


def examine(root: Path) -> Examination:
    store = ReadOnlyStore(root)
    return Examiner(store, guess_profile(store), 1).run()


@pytest.mark.parametrize("name", ["471-basic", "533-lmq"])
def test_a_healthy_store_is_read_once(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    scan_columns = CommitLog.scan_columns

    def counted(self: CommitLog, *arguments: Any, **options: Any) -> Any:
        passes.append(options.get("start"))
        return scan_columns(self, *arguments, **options)

    monkeypatch.setattr(CommitLog, "scan_columns", counted)
    found = examine(golden(name))
    assert (found.findings, found.repairs.plain, passes) == ((), None, [None])


def test_the_start_is_the_one_that_recover_simulates(golden: Golden) -> None:
    root = golden("497-crash")
    found = examine(root)
    assert found.restart is not None
    assert found.repairs.plain is not None
    assert found.restart == found.repairs.plain.restart


@pytest.mark.parametrize(("field", "byte", "bit"), [("SYSFLAG", 0, 6), ("STOREHOST", 1, 0), ("RECONSUMETIMES", 0, 7)])
def test_a_changed_bit_that_brokers_cannot_see(field: str, byte: int, bit: int, golden: Golden) -> None:
    root = golden("497-basic")
    messages = [item for item in ReadOnlyStore(root).commit_log.scan() if isinstance(item, Message)]
    at = messages[40].physical_offset
    flip_bits(root / "commitlog" / "00000000000000000000", at + HEADS[0].offset(field) + byte, 1 << bit)
    found = examine(root)
    assert [(one.code, one.physical_offset) for one in found.findings if not one.code.startswith("index-")] == [
        ("field-changed", at)
    ]
    assert diagnose(found, "STORE").causes[0].next_command == "rmqctl heal STORE --yes"


def test_no_heal_is_offered_where_no_verb_changes_the_log(golden: Golden) -> None:
    root = golden("326-basic")
    store = ReadOnlyStore(root)
    message = next(islice((item for item in store.commit_log.scan() if isinstance(item, Message)), 40, None))
    at = message.physical_offset + HEADS[0].offset("SYSFLAG")
    flip_bits(root / "commitlog" / "00000000000000000000", at, 1 << 6)
    assert Examiner(store, guess_profile(store), 1).run().healing is not None
    assert Examiner(store, guess_profile(store), 1, blocked=lambda _: "3.x").run().healing is None


def test_a_start_beside_a_queue_file_off_its_grid_is_simulated(golden: Golden) -> None:
    root = golden("497-basic")
    path = next(path for path in (root / "consumequeue").rglob("0*") if path.is_file())
    path.rename(path.with_name(f"{int(path.name) + 7:020d}"))
    found = examine(root)
    assert found.restart is not None
    assert "file-length" in {finding.code for finding in found.findings}
    assert found.repairs.plain is not None


@pytest.mark.parametrize("file", ["commitlog/00000000000000262144", "consumequeue/OrderPaid/0/00000000000000001000"])
def test_versions_that_start_differently_are_told_apart(file: str, golden: Golden) -> None:
    """RocketMQ's issue 6904: the real 5.1.1 does not start with an empty last file, and 5.1.4 deletes it."""
    root = golden("514-basic")

    def by_version(profile: Profile) -> str:
        return starts_in_words(Examiner(ReadOnlyStore(root), profile, 1).run().by_version)

    assert by_version(PROFILES["5.3"]) == ""  # a healthy store
    (root / file).touch()
    words = by_version(PROFILES["5.3"])
    assert words.startswith(
        f"5.0.0 to 5.1.2 refuse to start ({file.rpartition('/')[0]}: {file.rpartition('/')[2]} has 0"
    )
    assert "; 5.1.3 and 5.1.4 start, " in words
    assert words.endswith("lose no message")
    assert by_version(profile_of("5.1.1")) == ""  # the version is known
