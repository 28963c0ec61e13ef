"""What a restart comes to, as the real broker told of every damage case, and of many more that we made and asked it
about.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import Damage, Message
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.format.profile import profile_of as profile_of_version
from rmqctl.store.config.broker_conf import broker_conf_of
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.config.java_properties import JavaProperties
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery.rules import Mode
from rmqctl.store.recovery.simulation import RestartOutcome, RestartSimulation, plan_restart
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.conftest import DATA, apply_damage, damage_cases, tree_hash, unpack
from tests.support.file_edits import flip_bits, write_at
from tests.support.golden_store import ranges
from tests.support.small_store import message

OLD = (PROFILE_4_7, PROFILE_4_9)
PROFILE_OF = {"452": PROFILE_4_7, "471": PROFILE_4_7, "497": PROFILE_4_9, "533": PROFILE_5_3}


def restart_cases() -> dict[str, dict[str, Any]]:
    """Name -> case, as in damage.tar.xz: cases of our own, answered by the real stores of 4.7.1, 4.9.7 and 5.3.3."""
    with lzma.open(DATA / "restart.json.xz") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


CASES = damage_cases()
MORE_CASES = restart_cases()


def damaged(case: dict[str, Any], tmp_path: Path) -> ReadOnlyStore:
    root = unpack(case["base"], tmp_path)
    apply_damage(root, case["ops"])
    return ReadOnlyStore(root)


def profile_of(case: dict[str, Any]) -> Profile:
    return PROFILE_OF[case["base"].removeprefix("broker-").removeprefix("queues/")[:3]]


def assert_is_the_real_one(case: dict[str, Any], outcome: RestartOutcome) -> None:
    load, real, ours = case["expected"]["load"], case["expected"]["restart"], outcome.to_json()
    if not load.get("load"):
        assert ours.get("refused")
    elif "error" in real:
        assert ours.get("hangs")
    else:
        assert (ours["minPhyOffset"], ours["maxPhyOffset"]) == (real["minPhyOffset"], real["maxPhyOffset"])
        assert ranges(ours["queues"]) == ranges(real["queues"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_damage_case_comes_to_what_the_real_broker_came_to(name: str, tmp_path: Path) -> None:
    store = damaged(CASES[name], tmp_path)
    before = tree_hash(store.path.root)
    outcome = plan_restart(store, profile_of(CASES[name]), threads=2)
    assert_is_the_real_one(CASES[name], outcome)
    assert tree_hash(store.path.root) == before


@pytest.mark.parametrize("name", sorted(MORE_CASES))
def test_and_so_does_every_case_of_ours(name: str, tmp_path: Path) -> None:
    assert_is_the_real_one(
        MORE_CASES[name], plan_restart(damaged(MORE_CASES[name], tmp_path), profile_of(MORE_CASES[name]))
    )


@pytest.mark.parametrize("name", sorted(CASES)[::7])
def test_it_listens_to_one_message_after_the_other_as_well(name: str, tmp_path: Path) -> None:
    store = damaged(CASES[name], tmp_path)
    builder = DispatchRequestBuilder(with_keys=False)
    restart = RestartSimulation(store, profile_of(CASES[name]), builder)
    for item in store.commit_log.scan():
        if isinstance(item, Damage):
            restart.damage(item)
        elif isinstance(item, Message):
            restart.on_messages(builder.of(item))
    assert restart.finish() == plan_restart(store, profile_of(CASES[name]))


@pytest.mark.parametrize("name", sorted(CASES)[::5])
def test_it_needs_nobody_to_tell_it_of_messages(name: str, tmp_path: Path) -> None:
    """Then it reads the log by itself; only what is lost after the end it does not know."""
    store = damaged(CASES[name], tmp_path)
    alone = RestartSimulation(store, profile_of(CASES[name]), DispatchRequestBuilder(with_keys=False)).finish()
    assert alone.to_json().get("queues") == plan_restart(store, profile_of(CASES[name])).to_json().get("queues")


def test_it_tells_why_and_what_is_lost(tmp_path: Path) -> None:
    case = CASES["497-basic--body-flip-first-abnormal"]
    outcome = plan_restart(damaged(case, tmp_path), PROFILE_4_9)
    assert outcome.mode is Mode.ABNORMAL
    assert outcome.start_file is not None
    assert outcome.start_file_path == "commitlog/00000000000000000000"
    assert outcome.end is not None
    assert (outcome.end.physical_offset, outcome.end.code) == (0, "bad-body-crc")
    assert "BODYCRC" in outcome.end.why
    assert outcome.lost.records == sum(queue.lost for queue in outcome.queues) == 300
    assert outcome.queues_are_cut
    assert all(queue.cut_from for queue in outcome.queues if queue.deleted)
    assert outcome.deleted_log_files == tuple(f"commitlog/{65536 * number:020d}" for number in (1, 2, 3))
    assert outcome.dropped_index_files
    assert outcome.to_json()["lost"] == {"records": 300, "bytes": outcome.lost.bytes}


def test_a_healthy_store_loses_nothing(tmp_path: Path) -> None:
    for name, profile in PROFILE_OF.items():
        store = ReadOnlyStore(unpack(f"{name}-basic", tmp_path / name))
        outcome = plan_restart(store, profile)
        assert outcome.mode is Mode.NORMAL
        assert (outcome.lost, outcome.deleted_log_files, outcome.dropped_index_files) == ((0, 0), (), ())
        assert not any(queue.cut_from or queue.deleted for queue in outcome.queues)
        assert outcome.end is not None
        assert outcome.end.code == ""


@pytest.mark.parametrize("profile", list(PROFILES.values()))
def test_what_start_dispatches_again_is_not_lost(profile: Profile, tmp_path: Path) -> None:
    """A unit in the middle points after the log: the queue is cut there. The real 4.x fill it again, 5.3.3 does not."""
    store = MessageStore.create(tmp_path / "s", PutSettings(profile), Geometry(65536, 1000, 100, 400))
    for number in range(20):
        store.put_message(message(number, queue_id=0))
    store.close()
    (queue,) = (tmp_path / "s" / "consumequeue").rglob(f"{0:020d}")
    write_at(queue, 10 * 20, (2**20).to_bytes(8, "big"))
    outcome = plan_restart(ReadOnlyStore(tmp_path / "s"), profile)
    assert [found.max_offset for found in outcome.queues] == [20 if profile in OLD else 10]
    assert outcome.lost.records == (0 if profile in OLD else 10)


@pytest.mark.parametrize("profile", list(PROFILES.values()))
def test_a_mode_that_is_asked_for(profile: Profile, tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("471-basic", tmp_path))
    normal, abnormal = (plan_restart(store, profile, mode=mode) for mode in Mode)
    assert (normal.mode, abnormal.mode) == tuple(Mode)
    assert normal.to_json() == abnormal.to_json()
    assert abnormal.dropped_index_files
    assert not normal.dropped_index_files


@pytest.mark.parametrize("profile", list(PROFILES.values()))
def test_without_a_log_every_queue_is_deleted(profile: Profile, tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    for file in (root / "commitlog").iterdir():
        file.unlink()
    outcome = plan_restart(ReadOnlyStore(root), profile)
    assert (outcome.min_phy_offset, outcome.max_phy_offset, outcome.start_file) == (-1, 0, None)
    assert all(queue.max_offset == 0 and queue.deleted for queue in outcome.queues)


def test_config_that_is_bad_and_its_backup_too(tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    (root / "config").mkdir(exist_ok=True)
    (root / "config/topics.json").write_text("{")
    assert plan_restart(ReadOnlyStore(root), PROFILE_4_9).refused is None
    (root / "config/topics.json.bak").write_text("{")
    assert "topics.json" in (plan_restart(ReadOnlyStore(root), PROFILE_4_9).refused or "")


def test_4_stops_in_front_of_a_v2_record(tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("533-longtopic", tmp_path))
    first_long = next(item for item in store.commit_log.scan() if isinstance(item, Message) and len(item.topic) > 127)
    outcome = plan_restart(store, PROFILE_4_9)
    assert outcome.end is not None
    assert outcome.end.physical_offset == first_long.physical_offset
    assert plan_restart(store, PROFILE_5_3).lost.records == 0


def test_files_may_be_named_off_their_grid(tmp_path: Path) -> None:
    """As 4.9.7 does: it writes on in the log file at the end modulo the file size, and reads a queue file's first unit
    at its begin.
    """
    root = unpack("497-basic", tmp_path)
    *_, last = sorted((root / "commitlog").iterdir())
    end = plan_restart(ReadOnlyStore(root), PROFILE_4_9).max_phy_offset
    last.rename(last.with_name(f"{int(last.name) + 20:020d}"))
    queue = min((root / "consumequeue" / "OrderPaid" / "0").iterdir())
    queue.rename(queue.with_name(f"{1007:020d}"))
    outcome = plan_restart(ReadOnlyStore(root), PROFILE_4_9)
    assert outcome.refused is None
    assert outcome.max_phy_offset == end + 40
    found = next(row for row in outcome.queues if (row.topic, row.queue_id) == ("OrderPaid", 0))
    assert found.min_offset == 50


def test_start_dispatches_what_lies_behind_the_scan_in_such_a_file(tmp_path: Path) -> None:
    """The real 4.6.0 and 4.9.7 end the scan at message 15, but the file 400 bytes later, and dispatch up to there."""
    store = MessageStore.create(tmp_path, PutSettings(PROFILE_4_9), Geometry(2048, 1000, 100, 400))
    ends = []
    for number in range(20):
        store.put_message(message(number, queue_id=0))
        ends.append(store.max_phy_offset)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    file = tmp_path / "commitlog" / f"{2048:020d}"
    flip_bits(file, ends[14] - 2048 + 88)  # in the body of message 15
    file.rename(file.with_name(f"{2448:020d}"))
    for version, messages in (("4.4.0", 15), ("4.6.0", 17), ("4.9.7", 17), ("5.3.3", 15)):
        outcome = plan_restart(ReadOnlyStore(tmp_path), profile_of_version(version))
        assert outcome.max_phy_offset == ends[14] + 800, version
        assert [queue.max_offset for queue in outcome.queues] == [messages], version


def many_files(root: Path, profile: Profile) -> Path:
    """Make a store of 21 log files whose queues and checkpoint are gone, and `abort` there."""
    store = MessageStore.create(root, PutSettings(profile), Geometry(2048, 1000, 100, 400))
    while store.max_phy_offset < 20 * 2048:
        store.put_message(message(0, queue_id=0))
    store.close()
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    return root


def test_5_4_serves_the_last_10_files_alone(tmp_path: Path) -> None:
    """The real 5.5.0 served 711 of 3,000 messages, of 36 files; earlier versions all."""
    root = many_files(tmp_path / "s", PROFILE_5_3)
    whole = plan_restart(ReadOnlyStore(root), profile_of_version("5.3.4"))
    assert whole.start_file_path == "commitlog/00000000000000000000"
    for version, conf, files in (("5.4.0", {}, 10), ("5.5.1", {}, 10), ("5.5.0", {"commitLogRecoverMaxNum": "3"}, 3)):
        opened = ReadOnlyStore(root, broker_conf_of(JavaProperties(root / "broker.conf", conf)))
        found = plan_restart(opened, profile_of_version(version))
        assert found.start_file_path == f"commitlog/{(21 - files) * 2048:020d}"
        ((low, high),) = ((queue.min_offset, queue.max_offset) for queue in found.queues)
        assert high == whole.queues[0].max_offset
        assert low > whole.queues[0].min_offset == 0


@pytest.mark.parametrize(("version", "loads"), [("4.4.0", True), ("4.9.2", True), ("5.1.1", False), ("5.1.4", True)])
def test_an_empty_last_file_by_version(version: str, loads: bool, tmp_path: Path) -> None:
    root = unpack("497-basic", tmp_path)
    (root / f"commitlog/{65536 * 8:020d}").touch()
    outcome = plan_restart(ReadOnlyStore(root), profile_of_version(version))
    assert (outcome.refused is None) == loads
    if loads:
        assert outcome.lost.records == 0


def test_files_after_one_of_a_wrong_length_are_left_out(tmp_path: Path) -> None:
    """Up to 4.4.0 and in 4.9.2, which then serve the first file alone."""
    root = unpack("471-basic", tmp_path)
    second = sorted((root / "commitlog").iterdir())[1]
    os.truncate(second, 100)
    assert plan_restart(ReadOnlyStore(root), profile_of_version("4.9.1")).refused
    outcome = plan_restart(ReadOnlyStore(root), profile_of_version("4.9.2"))
    assert outcome.max_phy_offset < 65536
    assert outcome.lost.records > 100


def test_without_check_crc_on_recover_a_flipped_body_ends_no_log(tmp_path: Path) -> None:
    """CommitLog.recoverNormally passes isCheckCRCOnRecover() on (sources of 4.1.0 to 5.3.3)."""
    root = unpack("497-basic", tmp_path)
    apply_damage(root, damage_cases()["497-basic--body-flip-last-normal"]["ops"])
    lost = []
    for said in ("true", "false"):
        conf = broker_conf_of(JavaProperties(root / "broker.conf", {"checkCRCOnRecover": said}))
        lost.append(plan_restart(ReadOnlyStore(root, conf), profile_of_version("4.9.7")).lost.records)
    assert lost[0] > lost[1] == 0


def test_force_verify_prop_crc_ends_the_log(tmp_path: Path) -> None:
    """As the real 5.3.3 did with this store: the log ends at 196608, and with `abort` at 0."""
    root = unpack("533-basic", tmp_path)
    conf = broker_conf_of(JavaProperties(root / "broker.conf", {"forceVerifyPropCRC": "true"}))
    assert plan_restart(ReadOnlyStore(root, conf), PROFILE_5_3).max_phy_offset == 196608
    assert plan_restart(ReadOnlyStore(root, conf), profile_of_version("5.1.4")).max_phy_offset == 244398
    (root / "abort").touch()
    found = plan_restart(ReadOnlyStore(root, conf), PROFILE_5_3)
    assert (found.max_phy_offset, found.lost.records) == (0, 300)


@pytest.mark.parametrize(
    ("version", "loads"), [("4.9.7", True), ("5.0.0", False), ("5.1.4", False), ("5.3.3", False), ("5.5.1", True)]
)
def test_duplication_enable_reads_the_log_once_more(version: str, loads: bool, tmp_path: Path) -> None:
    """The real 5.0.0, 5.1.4, 5.2.0 and 5.3.3 do not load it: they read the zeros, at which the log of 5.5.1 ends."""
    root = unpack("497-basic", tmp_path)
    conf = broker_conf_of(JavaProperties(root / "broker.conf", {"duplicationEnable": "true"}))
    assert plan_restart(ReadOnlyStore(root, conf), profile_of_version(version)).refused is None
    with (root / f"commitlog/{0:020d}").open("r+b") as file:
        file.write(bytes(300))
    assert (plan_restart(ReadOnlyStore(root, conf), profile_of_version(version)).refused is None) == loads
    assert plan_restart(ReadOnlyStore(root), profile_of_version(version)).refused is None


@pytest.mark.parametrize(("version", "loads"), [("4.9.7", True), ("5.0.0", False), ("5.4.0", False), ("5.5.0", True)])
def test_an_empty_queue_file_that_only_start_would_fill(version: str, loads: bool, tmp_path: Path) -> None:
    """The real 5.0.0 does not load such a store with recheckReputOffsetFromCq: load() corrects min offsets first."""
    store = MessageStore.create(tmp_path, PutSettings(PROFILE_5_3), Geometry(2048, 5, 100, 400))
    for number in range(8):
        store.put_message(message(number, queue_id=0))
    store.close()
    root, last = tmp_path, max((tmp_path / "consumequeue").glob("*/*/*"))
    last.write_bytes(bytes(last.stat().st_size))
    conf = broker_conf_of(JavaProperties(root / "broker.conf", {"recheckReputOffsetFromCq": "true"}))
    assert (plan_restart(ReadOnlyStore(root, conf), profile_of_version(version)).refused is None) == loads


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_the_second_look_ends_where_the_cut_file_has_no_bytes(version: str, tmp_path: Path) -> None:
    """As in these versions (random start s13/5.5.0/200): at 20, the file reads at byte 20, where it has been cut."""
    store = MessageStore.create(tmp_path, PutSettings(PROFILE_5_3), Geometry(4096, 1000, 100, 400))
    for number in range(5):
        store.put_message(message(number, queue_id=0))
    store.close()
    file = tmp_path / "commitlog" / f"{0:020d}"
    flip_bits(file, 4)  # the magic code of the first record
    file.rename(file.with_name(f"{20:020d}"))
    conf = broker_conf_of(JavaProperties(tmp_path / "broker.conf", {"duplicationEnable": "true"}))
    found = plan_restart(ReadOnlyStore(tmp_path, conf), profile_of_version(version))
    assert (found.refused, found.max_phy_offset) == (None, 40)
