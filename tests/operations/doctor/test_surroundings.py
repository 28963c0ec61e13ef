"""A full disk, a broker that runs and a broker.conf that does not fit are causes of doctor."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from rmqctl.logfile.system.storage import DiskSpace, Storage
from rmqctl.operations.doctor.surroundings import UNCOVERED
from tests.conftest import Rmqctl
from tests.support.lock_holder import lock_held

Golden = Callable[[str], Path]


def causes(store: Path, rmqctl: Rmqctl, *options: object, used: int = 0) -> dict[str, str]:
    """The next command of each cause, on a disk of which `used` % are used."""
    space = DiskSpace(total=1000, free=1000 - 10 * used, usable=1000 - 10 * used, device=1)
    with patch.object(Storage, "disk_space", return_value=space):
        document = rmqctl("doctor", store, *options, "-o", "json").document()
    return {cause["code"]: cause["next"] for cause in document["causes"]}


@pytest.mark.parametrize(
    ("name", "said", "used", "is_full"),
    [
        ("497-basic", "", 91, True),
        ("497-basic", "", 90, False),
        ("497-basic", "diskSpaceWarningLevelRatio=95\n", 91, True),  # 4.x does not read it
        ("broker-533", "diskSpaceWarningLevelRatio=50\n", 60, True),
    ],
)
def test_a_full_disk_is_a_cause(
    name: str, said: str, used: int, is_full: bool, golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store, conf = golden(name), tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n{said}")
    found = causes(store, rmqctl, "--broker-conf", conf, used=used)
    assert list(found) == (["disk-full"] if is_full else [])
    assert all(command.startswith("rmqctl clean ") and "--dry-run" in command for command in found.values())
    assert causes(store, rmqctl, used=99) == {}  # perhaps a copy, on another disk


def test_with_a_broker_alive_the_next_begins_with_stopping_it(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    with lock_held(store) as pid:
        assert causes(store, rmqctl) == {}
        found = causes(store, rmqctl, used=99)
        assert list(found) == ["disk-full", "broker-runs"]
        assert found["disk-full"].startswith("rmqctl clean ")
        assert found["broker-runs"] == f"kill {pid}"
    with patch.object(Storage, "lock_holder", return_value=-1):  # of another host or container
        found = causes(store, rmqctl, used=99)
    assert found["broker-runs"] == f"rmqctl info {store}"
    assert not any("kill" in command for command in found.values())


LOG, QUEUE = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"
SLOTS = "maxHashSlotNum"
EXT = "mappedFileSizeConsumeQueueExt"
OLD_LOG, OLD_QUEUE = "mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"  # MessageStoreConfig up to 4.5.1


@pytest.mark.parametrize(
    ("said", "version", "lines"),
    [
        (f"{LOG}=65536\n{QUEUE}=1000\n", "4.9.7", []),
        (f"{LOG}=65536\n{OLD_LOG}=1\n{OLD_QUEUE}=1\n{QUEUE}=990\n", "4.9.7", []),
        (f"{OLD_LOG}=65536\n{OLD_QUEUE}=1000\n", "4.5.1", []),
        (f"{LOG}=65536\n{OLD_QUEUE}=1000\n", "4.5.2", [f"3s/.*/{QUEUE}=1000/"]),
        (f"{LOG}=64K\n{QUEUE}=1000 \n", "4.9.7", [f"2s/.*/{LOG}=65536/", f"3s/.*/{QUEUE}=1000/"]),
        (f"{LOG}=65536\n{QUEUE} = \\\n  6000000\n", "4.9.7", [f"3s/.*/{QUEUE}=1000/", "4,4d"]),
        (f"{LOG}=1024\n{OLD_QUEUE}:1000\n", "5.3.3", [f"2s/.*/{LOG}=65536/", f"3s/.*/{QUEUE}=1000/"]),
        (f"{LOG}=65536\n{QUEUE}=1000\n", "4.5.1", [f"2s/.*/{OLD_LOG}=65536/", f"3s/.*/{OLD_QUEUE}=1000/"]),
    ],
)
def test_a_broker_conf_that_does_not_fit_is_one_cause(
    said: str, version: str, lines: list[str], golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """Its next corrects the lines, and nothing is wrong then."""
    store, conf = golden("497-basic"), tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\n{said}{SLOTS}=100\n")
    words = ("doctor", store, "--broker-conf", conf, "--broker-version", version, "-o", "json")
    document = rmqctl(*words).document()
    assert document["assumed"] == [UNCOVERED] * (not lines)
    assert [cause["code"] for cause in document["causes"]] == ["broker-conf-wrong"] * bool(lines)
    for cause in document["causes"]:
        assert cause["next"] == f"sed -i.bak {' '.join(f'-e {line!r}' for line in lines)} {conf}"
        assert cause["restart"]["refused"]
        subprocess.run(cause["next"], shell=True, check=True)
        assert rmqctl(*words).document()["healthy"]


def test_a_cut_file_is_not_the_fault_of_broker_conf(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, conf = golden("497-basic"), tmp_path / "broker.conf"
    conf.write_text(f"{LOG}=65536\n{QUEUE}=1000\n")
    for file in (store / "commitlog").iterdir():
        with file.open("r+b") as opened:
            opened.truncate(60_000)
    assert "broker-conf-wrong" not in causes(store, rmqctl, "--broker-conf", conf)


def test_what_no_option_said_is_said_once(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, conf = golden("497-basic"), tmp_path / "broker.conf"
    assert rmqctl("doctor", store).out.endswith(
        f"; assumed: the defaults of broker.conf (no --broker-conf), version 4.9.7 (no --broker-version), {UNCOVERED}\n"
    )
    conf.write_text(f"{LOG}=65536\n")
    document = rmqctl("doctor", store, "--broker-conf", conf, "--broker-version", "4.9.7", "-o", "json").document()
    assert document["assumed"] == [
        f"{QUEUE}=1000, which broker.conf does not set (default: 6000000)",
        f"{SLOTS}=100, which broker.conf does not set (default: 5000000)",
        UNCOVERED,
    ]


@pytest.mark.parametrize(("name", "is_covered"), [("533-propcrc", True), ("533-basic", False)])
def test_a_healthy_store_may_have_flipped_bits_that_no_checksum_covers(
    name: str, is_covered: bool, golden: Golden, rmqctl: Rmqctl
) -> None:
    assert (UNCOVERED in rmqctl("doctor", golden(name), "-o", "json").document()["assumed"]) != is_covered


@pytest.mark.parametrize("name", ["497-basic", "471-cqext"])
def test_slots_that_no_index_file_has(name: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The real 4.9.7 starts, and finds 1 of 65 keys; with another maxIndexNum alone, all 65. 471-cqext has one file."""
    store, conf = golden(name), tmp_path / "broker.conf"
    conf.write_text(f"{LOG}=65536\n{QUEUE}=1000\n{SLOTS}=200\nmaxIndexNum=999\n")
    found = causes(store, rmqctl, "--broker-conf", conf)
    assert found == {"broker-conf-wrong": f"sed -i.bak -e '3s/.*/{SLOTS}=100/' {conf}"}
    subprocess.run(found["broker-conf-wrong"], shell=True, check=True)
    assert causes(store, rmqctl, "--broker-conf", conf) == {}


def test_a_length_that_no_extension_has(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, conf = golden("471-cqext"), tmp_path / "broker.conf"
    conf.write_text(f"{LOG}=65536\n{QUEUE}=1000\nenableConsumeQueueExt=true\n{EXT}=4096\n")
    found = causes(store, rmqctl, "--broker-conf", conf)
    assert found == {"broker-conf-wrong": f"sed -i.bak -e '4s/.*/{EXT}=50331648/' {conf}"}


@pytest.mark.parametrize("read", [None, "{}", '{"offsetTable":{"orders@old":{0:1}}}'])
def test_offsets_that_a_broker_with_enable_lmq_does_not_read(
    read: str | None, golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The real 4.9.7 then has no offset of any group, and after the copy all of them."""
    store, conf = golden("broker-497"), tmp_path / "broker.conf"
    conf.write_text("enableLmq=true\nenableMultiDispatch=true\n")
    if read is not None:
        (store / "config" / "lmqConsumerOffset.json").write_text(read)

    def behind(*options: object) -> list[tuple[str, int | None, int | None]]:
        found = rmqctl("lag", store, *options, "-o", "json").document()["groups"]
        return [(row["topic"], row["offset"], row["behind"]) for row in found if row["group"] == "billing"]

    known = behind()
    unread = behind("--broker-conf", conf)
    assert {offset for _, offset, _ in known} != {None}
    assert {offset for _, offset, _ in unread} == {None}
    assert causes(store, rmqctl, "--broker-conf", conf, "--broker-version", "4.9.2") == {}  # it does not know enableLmq
    found = causes(store, rmqctl, "--broker-conf", conf)
    assert list(found) == ["offsets-unread"]
    for command in found["offsets-unread"].split("; "):
        program, *words = shlex.split(command)
        if program == "rmqctl":
            assert rmqctl(*words).code == 0
        else:
            subprocess.run([program, *words], check=True)
    assert behind("--broker-conf", conf) == known
    assert causes(store, rmqctl, "--broker-conf", conf) == {}


def test_a_start_that_loses_messages_of_a_whole_store_is_a_cause(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The real 5.3.3 ends the log at 196608: no record of the store has `__CRC32#`."""
    store, conf = golden("533-basic"), tmp_path / "broker.conf"
    conf.write_text(f"{LOG}=65536\n{QUEUE}=1000\nenabledAppendPropCRC=true\nforceVerifyPropCRC=true\n")
    assert causes(store, rmqctl, "--broker-conf", conf) == {
        "start-loses": f"rmqctl recover {store} --broker-conf {conf} --dry-run"
    }
    (store / "abort").touch()
    found = causes(store, rmqctl, "--broker-conf", conf)
    assert list(found) == ["start-loses", "broker-died"]
    assert all(command.endswith("--dry-run") for command in found.values())
