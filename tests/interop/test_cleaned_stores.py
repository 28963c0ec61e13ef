"""Stores that `clean` took files from, under the real stores: they load, and what is left is where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from tests.conftest import READABLE_NAMES, expected, unpack
from tests.interop.compared_answers import ALL, conf_of, messages, real_answers
from tests.interop.readings import Stored, about, read_copies, settings_of
from tests.interop.written_stores import PROFILE_OF
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop

# shut down cleanly, and of more than one file
NAMES = [name for name in READABLE_NAMES if not name.startswith("326") and "crash" not in name and "kill" not in name]
KEPT = (1, 2)


def own_version(name: str) -> str:
    return next(version for version in PROFILE_OF if version.replace(".", "") in name)


def clean(root: Path, name: str, *options: object) -> int:
    words = ["clean", root, "--broker-conf", conf_of(name, root.parent), "--interval", 0, "--yes", *options]
    return run([str(word) for word in words])


def queues_of(root: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, int], dict[str, Any]]:
    """What `rmqctl queue` says."""
    capsys.readouterr()
    assert run(["queue", str(root), "-o", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(row["topic"], row["queueId"]): row for row in rows}


def assert_what_is_left(
    answer: dict[str, Any], golden: dict[str, Any], ours: dict[tuple[str, int], dict[str, Any]]
) -> None:
    """All that the log still has, each in its queues and under its keys; and where each queue begins and ends.

    4.x does not raise the min offset of a queue whose units are all before the log. Where one of them points to 0,
    which it finds in the log's first file whichever that is, it serves that file's first record when the sizes agree;
    so it does after its own deletion.
    """
    assert answer.get("load") is True, answer
    low, high = answer["minPhyOffset"], answer["maxPhyOffset"]
    assert high == golden["maxPhyOffset"]
    left = messages(golden, low, high)
    served = messages(answer, 0, high)
    assert {place: row for place, row in served.items() if place in left or place[2] != low} == left
    assert_keys_left(answer, golden, low)
    theirs = {(row["topic"], row["queueId"]): row for row in answer["queues"]}
    for row in golden["queues"]:
        key = row["topic"], row["queueId"]
        if key in ours:
            begin = row["minOffset"] + sum(entry[1] < low for entry in row["entries"])
            if begin < row["maxOffset"]:
                assert (theirs[key]["minOffset"], ours[key]["minOffset"]) == (begin, begin), key
                assert theirs[key]["entries"] == [entry for entry in row["entries"] if entry[1] >= low]
            assert theirs[key]["maxOffset"] == ours[key]["maxOffset"] == row["maxOffset"], key
    assert left


def assert_keys_left(answer: dict[str, Any], golden: dict[str, Any], low: int) -> None:
    """Under each key that both were asked for."""
    before = {(row["topic"], row["key"]): row for row in golden["keyQueries"]}
    asked = 0
    for row in answer["keyQueries"]:
        old = before.get((row["topic"], row["key"]))
        if old is not None and len(old["physicalOffsets"]) < old["max"]:
            asked += 1
            assert sorted(row["physicalOffsets"]) == sorted(
                offset for offset in old["physicalOffsets"] if offset >= low
            )
    assert asked or not before


@pytest.mark.parametrize("version", PROFILE_OF)
def test_what_is_left_is_where_it_was(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores, ours = {}, {}
    for name in (name for name in NAMES if own_version(name) == version):
        for kept in KEPT:
            root = unpack(name, tmp_path / f"{name}-{kept}")
            assert clean(root, name, "--keep-files", kept) == 0
            assert len(list((root / "commitlog").iterdir())) <= kept
            stores[name, kept], ours[name, kept] = Stored(name, root), queues_of(root, capsys)
    for (name, kept), answer in read_copies(version, stores, start=True, key_messages=ALL).items():
        with about(name, kept):
            first = min(int(path.name) for path in (stores[name, kept].root / "commitlog").iterdir())
            assert answer["minPhyOffset"] == first
            assert_what_is_left(answer, expected(name), ours[name, kept])


def not_closed(root: Path, name: str) -> None:
    assert clean(root, name, "--keep-files", 2) == 0
    (root / "abort").touch()


def with_a_file_left(root: Path, name: str) -> None:
    """Killed between rename and unlink, and in the middle of a receipt."""
    assert clean(root, name, "--keep-files", 2) == 0
    left = root / ".rmqctl/expired/commitlog:00000000000000065536"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(65536))
    with (root / "rmqctl-clean.log").open("a") as log:
        log.write('{"time":')


def log_only(root: Path, name: str) -> None:
    """Killed before the first file of a queue went."""
    for path in sorted((root / "commitlog").iterdir())[:-2]:
        path.unlink()


WAYS: dict[str, Callable[[Path, str], object]] = {
    "cleaned": lambda root, name: clean(root, name, "--keep-files", 2),
    "not closed": not_closed,
    "a file left": with_a_file_left,
    "log only": log_only,
}


@pytest.mark.parametrize("version", PROFILE_OF)
def test_every_version_loads_them(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a whole run leaves them, and as one that was killed does; look-ups by time, too."""
    name = f"{version.replace('.', '')}-basic"
    golden = expected(name)
    stores = [unpack(name, tmp_path / way) for way in WAYS]
    for root, way in zip(stores, WAYS.values(), strict=True):
        way(root, name)
    ours = [queues_of(root, capsys) for root in stores]
    for root, answer, queues in zip(stores, real_answers(stores, name, version, time_look_ups=True), ours, strict=True):
        assert len(list((root / "commitlog").iterdir())) == 2
        assert_what_is_left(answer, golden, queues)
        assert_time_look_ups(root, answer, version)


def test_there_is_one_of_each_kind() -> None:
    assert {own_version(name) for name in NAMES} == set(PROFILE_OF)
    assert [name for name in NAMES if settings_of(name)]
