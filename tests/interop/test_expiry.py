"""Files of a real store deleted by the store's own clean services: the plan names the same ones, and the same offsets
afterwards.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.errors import BadRequest
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.operations.clean.disk_use import DiskUse, Pressure, disk_use, pressure, stops_writing
from rmqctl.operations.clean.plan import plan_expiry
from rmqctl.operations.clean.plan_types import ExpiryPlan
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.config.clean_config import ExpirySettings, known_to
from rmqctl.store.config.store_path import QUEUE_PARTS
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.interop.test_queue_kinds import REAL_SIZES as REAL_BATCH_SIZES
from tests.interop.test_queue_kinds import SIZES as BATCH_SIZES
from tests.interop.test_queue_kinds import put_batches
from tests.real_store.harness import Geometry, RealRocketMQ, broker_conf
from tests.store.write.test_batch_consume_queue_writer import with_batch_topics

pytestmark = pytest.mark.interop

PROFILES = {"4.7.1": PROFILE_4_7, "4.9.7": PROFILE_4_9, "5.3.3": PROFILE_5_3}
SIZES = Geometry(65536, 50, 100, 400)
MESSAGES = 3500
HOUR_MS = 3_600_000
ROUNDS = 4
ALL_BUT_THE_LAST = -1
OLD = 100  # hours
NOWHERE = "/proc/no-such-folder"  # a folder that nobody can make

USUAL = {"fileReservedTime": "72", "diskMaxUsedSpaceRatio": "95", "cleanFileForciblyEnable": "true"} | {
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
    "diskSpaceWarningLevelRatio": "90",
    "diskSpaceCleanForciblyRatio": "85",
}
# the real disk is what it is: 4.x is forced by a level below any use of it, 5.x by what the store itself may take of a
# very small part
FORCED = {
    "cleanForciblyRatio": "-2",
    "replicasPerDiskPartition": "100000000",
    "logicalDiskSpaceCleanForciblyThreshold": "0.0",
}


def _hours(*ahead: int) -> str:
    """deleteWhen: the hours so many from now."""
    now = datetime.now().astimezone()
    return ";".join(f"{(now + timedelta(hours=hours)).hour:02}" for hours in ahead)


# redeleted in every round
HELD = {"cleanHoldsFirst": "true", "redeleteHangedFileInterval": "-1"}
THE_HOUR = {"deleteWhen": _hours(0, 1)}  # the next, too: a test may run across the border
ANOTHER_HOUR = {"deleteWhen": _hours(11, 12, 13)}


def _as_it_is(_: Path) -> None:
    pass


def _two_roots(root: Path) -> None:
    """Every second file of the log lies elsewhere."""
    (root / "more").mkdir()
    for path in _log(root)[1::2]:
        path.rename(root / "more" / path.name)


def _gap(root: Path) -> None:
    _log(root)[2].unlink()


def _only_the_last(root: Path) -> None:
    """As after a run that was killed between log and queues."""
    for path in _log(root)[:-1]:
        path.unlink()


class Case(NamedTuple):
    """A store whose oldest files are `ages` hours old, all others new; so many files go."""

    settings: Mapping[str, str]
    ages: tuple[float, ...]
    goes: int
    prepare: Callable[[Path], None] = _as_it_is
    manually: bool = False


CASES = {
    "expired, in the hour": Case(THE_HOUR, (OLD,) * 3, 3),
    "expired, in another hour": Case(ANOTHER_HOUR, (OLD,) * 3, 0),
    "none expired": Case(THE_HOUR, (71.9,) * 3, 0),
    "just expired": Case(THE_HOUR, (72.1,), 1),
    "an hour that no day has": Case({"deleteWhen": "25"}, (OLD,) * 3, 0),
    "an hour that no day has, and this one": Case({"deleteWhen": "25;" + THE_HOUR["deleteWhen"]}, (OLD,) * 3, 3),
    "the first held by a reader, and forced": Case(
        THE_HOUR | HELD | {"destroyMapedFileIntervalForcibly": "0"}, (OLD,) * 3, 3
    ),
    "two days reserved": Case(THE_HOUR | {"fileReservedTime": "48"}, (OLD, 60, 50, 40, 60), 3),
    "a young file first": Case(THE_HOUR, (1, OLD, OLD), 0),
    "a young file between old ones": Case(THE_HOUR, (OLD, OLD, 1, OLD, OLD), 2),
    "the first written to in the future": Case(THE_HOUR, (-5, OLD, OLD), 0),
    "the clock set back": Case(THE_HOUR, (-500,) * 6, 0),
    "manually": Case(ANOTHER_HOUR, (OLD,) * 4, 4, manually=True),
    "manually, none expired": Case(ANOTHER_HOUR, (), 0, manually=True),
    "all expired: more than one batch": Case(THE_HOUR, (OLD,) * 50, ALL_BUT_THE_LAST),
    "forced by the disk": Case(THE_HOUR | FORCED, (), ALL_BUT_THE_LAST),
    "not forced, as the broker was told": Case(THE_HOUR | FORCED | {"cleanFileForciblyEnable": "false"}, (OLD, OLD), 2),
    "a disk that cannot be read": Case(
        ANOTHER_HOUR | {"storePathCommitLog": f"STORE/commitlog,{NOWHERE}"}, (OLD,) * 3, 3
    ),
    "one file only, and what is left of others": Case(THE_HOUR, (OLD,) * 50, 0, _only_the_last),
    "two roots": Case(THE_HOUR | {"storePathCommitLog": "STORE/commitlog,STORE/more"}, (OLD,) * 5, 5, _two_roots),
    "a read-only root": Case(
        THE_HOUR | {"storePathCommitLog": "STORE/commitlog,STORE/more", "readOnlyCommitLogStorePaths": "STORE/more"},
        (OLD,) * 5,
        5,
        _two_roots,
    ),
}
MORE_THAN_A_BATCH = "all expired: more than one batch"


LEVELS_ASKED = (1, 29, 30, 31, 34, 35, 36, 60, 84, 85, 86, 89, 90, 91, 100)


def cases_of(version: str) -> dict[str, Case]:
    """4.7.1 knows one folder only."""
    return {
        name: case for name, case in CASES.items() if version != "4.7.1" or "storePathCommitLog" not in case.settings
    }


VERSIONS_AND_CASES = [(version, name) for version in PROFILES for name in cases_of(version)]


class Outcome(NamedTuple):
    """What a store was before, what we planned, what the real one came to."""

    root: Path
    files: frozenset[str]
    plan: ExpiryPlan
    real: dict[str, Any]

    @property
    def gone(self) -> frozenset[str]:
        """The files that the real store deleted."""
        return self.files - _files(self.root)


def _log(root: Path) -> list[Path]:
    return sorted([*(root / "commitlog").iterdir(), *(root / "more").glob("0*")], key=lambda path: path.name)


def _files(root: Path) -> frozenset[str]:
    parts = ("commitlog", "more", *QUEUE_PARTS, "index")
    return frozenset(
        str(path.relative_to(root)) for part in parts for path in (root / part).rglob("*") if path.is_file()
    )


def _conf(root: Path, case: Case, rounds: int = ROUNDS, sizes: Geometry = SIZES) -> Path:
    """Its broker.conf, beside the store."""
    ours = {"cleanRounds": str(rounds), "cleanManually": str(case.manually).lower()}
    settings = {key: value.replace("STORE", str(root)) for key, value in (USUAL | dict(case.settings) | ours).items()}
    path = root.with_name("broker.conf")
    path.write_text(broker_conf(root, sizes, settings), encoding="ascii")
    return path


def _prepare(base: Path, folder: Path, case: Case) -> Path:
    root = folder / "store"
    shutil.copytree(base, root)
    now = time.time()
    for path, hours in zip(_log(root), case.ages, strict=False):
        os.utime(path, (now, now - hours * 3600))
    case.prepare(root)
    return root


def _plan(root: Path, conf: Path, profile: Profile, *, manually: bool, unused_topics: bool = False) -> ExpiryPlan:
    said = read_broker_conf(conf)
    if NOWHERE in said.commitlog_paths:  # the broker goes on without it, we do not
        said = said._replace(commitlog_paths=said.commitlog_paths[:1])
    settings = known_to(profile, said.expiry)._replace(manual=manually, unused_topics=unused_topics)
    if "cleanForciblyRatio=-2" in conf.read_text(encoding="ascii") and not profile.force_level_asks:
        settings = settings._replace(force_percent=-200.0)
    store = ReadOnlyStore(root, said)
    disks = [disk_use(store.storage, folder, profile) for folder in store.path.commitlogs]
    if NOWHERE in conf.read_text(encoding="ascii"):
        disks.append(DiskUse(Path(NOWHERE), -1))
    logics = disk_use(store.storage, root / "consumequeue", profile)
    with closing(store):
        return plan_expiry(
            store, settings, profile, now_ms=time.time_ns() // 1_000_000, disks=disks, logics_disk=logics
        )


@pytest.fixture(scope="module", params=PROFILES)
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def base(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("base") / "store"
    RealRocketMQ(version).put(root, MESSAGES, geometry=SIZES, topics=2, queues_per_topic=2)
    return root


@pytest.fixture(scope="module")
def outcomes(version: str, base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All cases at once: a JVM's start takes longer than a store's clean services."""
    confs, planned = [], []
    for case in cases_of(version).values():
        root = _prepare(base, tmp_path_factory.mktemp("case"), case)
        confs.append(_conf(root, case))
        plan = _plan(root, confs[-1], PROFILES[version], manually=case.manually)
        shutil.copytree(root, root.with_name("before"))
        planned.append((root, _files(root), plan))
    answers = RealRocketMQ(version).clean_all(confs)
    return {
        name: Outcome(*before, real) for name, before, real in zip(cases_of(version), planned, answers, strict=True)
    }


@pytest.mark.parametrize(("version", "name"), VERSIONS_AND_CASES, indirect=["version"])
def test_the_same_files_go(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.real["loaded"]
    going = [file.path for file in outcome.plan.going]
    logs = [path for path in going if path.startswith(("commitlog", "more"))]
    assert len(logs) == (CASES[name].goes if CASES[name].goes >= 0 else len(_log(outcome.root.with_name("before"))) - 1)
    assert outcome.gone == frozenset(going)
    assert outcome.real["minPhyOffset"] == outcome.plan.new_min_phy_offset


@pytest.mark.parametrize(("version", "name"), VERSIONS_AND_CASES, indirect=["version"])
def test_queues_begin_at_the_same_offsets(name: str, outcomes: dict[str, Outcome], version: str) -> None:
    outcome = outcomes[name]
    risen = {(rise.topic, rise.queue_id): rise.new_min_offset for rise in outcome.plan.rises}
    compared = 0
    with closing(ReadOnlyStore(outcome.root.with_name("before"))) as before:
        for row in outcome.real["queues"]:
            key = row["topic"], row["queueId"]
            queue = before.queues.get(key)
            if queue is None:
                continue
            begins = risen.get(key, queue.min_offset(outcome.plan.min_phy_offset))
            if (
                begins < row["maxOffset"] or PROFILES[version].expired_queue_begins_at_end
            ):  # else 4.x leaves it at what it was
                assert row["minOffset"] == begins
                compared += 1
    assert compared


def test_queue_and_index_files_went_too(outcomes: dict[str, Outcome]) -> None:
    kinds = {file.kind for outcome in outcomes.values() for file in outcome.plan.going}
    assert kinds == {"commitlog", "consumequeue", "index"}
    left = {file.kind for file in outcomes["one file only, and what is left of others"].plan.going}
    assert left == {"consumequeue", "index"}


def test_a_round_is_a_batch_of_the_plan(version: str, base: Path, tmp_path: Path) -> None:
    case = CASES[MORE_THAN_A_BATCH]
    root = _prepare(base, tmp_path, case)
    conf = _conf(root, case, rounds=1)
    plan = _plan(root, conf, PROFILES[version], manually=False)
    before = _files(root)
    RealRocketMQ(version).clean_all([conf])
    logs = [file.path for file in plan.going if file.kind == "commitlog"]
    assert len(logs) > 10
    assert sorted(path for path in before - _files(root) if path.startswith("commitlog")) == logs[:10]


def test_how_many_files_a_round_has(version: str, base: Path, tmp_path: Path) -> None:
    """4.x knows no deleteFileBatchMax."""
    case = Case(THE_HOUR | {"deleteFileBatchMax": "3"}, (OLD,) * 50, ALL_BUT_THE_LAST)
    root = _prepare(base, tmp_path, case)
    conf = _conf(root, case, rounds=1)
    before = _files(root)
    RealRocketMQ(version).clean_all([conf])
    gone = [path for path in before - _files(root) if path.startswith("commitlog")]
    assert (
        len(gone)
        == known_to(PROFILES[version], read_broker_conf(conf).expiry).batch
        == (3 if version == "5.3.3" else 10)
    )


def test_a_broker_waits_for_who_reads_in_the_first_file(version: str, base: Path, tmp_path: Path) -> None:
    """For 120 s; without a broker nobody reads."""
    case = Case(THE_HOUR | HELD, (OLD,) * 3, 3)
    root = _prepare(base, tmp_path, case)
    conf = _conf(root, case)
    plan = _plan(root, conf, PROFILES[version], manually=False)
    before = _log(root)
    RealRocketMQ(version).clean_all([conf])
    assert _log(root) == before
    assert sum(file.kind == "commitlog" for file in plan.going) == 3


@pytest.mark.parametrize("percent", LEVELS_ASKED)
def test_the_bounds_of_the_disk_levels(percent: int, levels: dict[int, tuple[float, float]]) -> None:
    """5.x forces from the one on, and takes no messages from the other on."""
    settings = ExpirySettings(force_percent=percent, warning_percent=percent)
    force, warning = levels[percent]
    level = round(min(force, warning) * 100)
    found = [_pressure(settings, use).forces is not None for use in (level, level + 1)]
    told = [bool(_stops(settings, use)) for use in (round(warning * 100), round(warning * 100) + 1)]
    assert (found, told) == ([False, True], [False, True])


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[float, float]]:
    """What 5.3.3 makes of a percent in broker.conf: its force level and its warning level."""
    confs = []
    for percent in LEVELS_ASKED:
        root = tmp_path_factory.mktemp("levels") / "store"
        said = {"diskSpaceCleanForciblyRatio": str(percent), "diskSpaceWarningLevelRatio": str(percent)}
        confs.append(_conf(root, Case(ANOTHER_HOUR | said, (), 0), rounds=0))
    answers = RealRocketMQ("5.3.3").clean_all(confs)
    return {
        percent: (answer["forceLevel"], answer["warningLevel"])
        for percent, answer in zip(LEVELS_ASKED, answers, strict=True)
    }


def _pressure(settings: ExpirySettings, percent: float) -> Pressure:
    disk = DiskUse(Path("log"), percent)
    return pressure(settings, PROFILE_5_3, [disk], disk._replace(used_percent=0), 0)


def _stops(settings: ExpirySettings, percent: float) -> str:
    disk = DiskUse(Path("log"), percent)
    return stops_writing(settings, PROFILE_5_3, [disk], disk._replace(used_percent=0))


def test_queues_of_a_topic_that_is_no_more(version: str, tmp_path: Path) -> None:
    """topic-2 has messages in the log's first files only; mqadmin cleanUnusedTopic, after the deletion, takes what we
    take.
    """
    base = tmp_path / "base"
    broker = RealRocketMQ(version)
    broker.put(base, 300, geometry=SIZES, topics=3, queues_per_topic=2)
    broker.put(base, MESSAGES, geometry=SIZES, topics=2, queues_per_topic=2)
    (base / "config").mkdir(exist_ok=True)
    (base / "config/topics.json").write_text('{"topicConfigTable":{"topic-0":{},"topic-1":{}}}')
    case = Case(THE_HOUR | {"cleanRetainedTopics": "topic-0,topic-1"}, (OLD,) * 5, 5)
    root = _prepare(base, tmp_path / "real", case)
    conf = _conf(root, case)
    plan = _plan(root, conf, PROFILES[version], manually=False, unused_topics=True)
    before = _files(root)
    broker.clean_all([conf])
    assert before - _files(root) == {file.path for file in plan.going}
    assert plan.folders == ("consumequeue/topic-2/0", "consumequeue/topic-2/1", "consumequeue/topic-2")
    assert {path.name for path in (root / "consumequeue").rglob("*") if path.is_dir()} - {"topic-2"} == {
        "topic-0",
        "topic-1",
        "0",
        "1",
    }


def test_a_broker_goes_on_behind_a_gap_where_the_plan_does_not(version: str, base: Path, tmp_path: Path) -> None:
    case = Case(THE_HOUR, (OLD,) * 6, 5, _gap)
    root = _prepare(base, tmp_path, case)
    conf = _conf(root, case)
    plan = _plan(root, conf, PROFILES[version], manually=False)
    before = _files(root)
    RealRocketMQ(version).clean_all([conf])
    going = frozenset(file.path for file in plan.going)
    assert sum(path.startswith("commitlog") for path in going) == 1
    assert going < before - _files(root)


def test_blanks_in_delete_when_let_a_broker_delete_nothing(version: str, base: Path, tmp_path: Path) -> None:
    case = Case({"deleteWhen": "04, 05"} | FORCED, (OLD,) * 3, 0)
    root = _prepare(base, tmp_path, case)
    conf = _conf(root, case)
    before = _files(root)
    RealRocketMQ(version).clean_all([conf])
    assert _files(root) == before
    with pytest.raises(BadRequest, match="deleteWhen"):
        read_broker_conf(conf)


def test_a_store_whose_files_we_deleted_loads_with_the_same_offsets(version: str, base: Path, tmp_path: Path) -> None:
    case = CASES["expired, in the hour"]
    real, ours = _prepare(base, tmp_path / "real", case), tmp_path / "ours" / "store"
    shutil.copytree(real, ours)
    plan = _plan(ours, _conf(ours, case), PROFILES[version], manually=False)
    for file in plan.going:
        (ours / file.path).unlink()
    broker = RealRocketMQ(version)
    broker.clean_all([_conf(real, case)])
    after = broker.load(ours, geometry=SIZES, start=True)
    theirs = broker.load(real, geometry=SIZES, start=True)
    assert after == theirs._replace(seconds=after.seconds, cpu_seconds=after.cpu_seconds)
    assert after.min_phy_offset == plan.new_min_phy_offset


def test_the_extension_goes_with_its_queue(version: str, tmp_path: Path) -> None:
    extended = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2000"}
    base = tmp_path / "base"
    RealRocketMQ(version).put(base, MESSAGES, geometry=SIZES, topics=1, queues_per_topic=2, settings=extended)
    case = Case(THE_HOUR | extended, (OLD,) * 9, 9)
    root = _prepare(base, tmp_path / "real", case)
    conf = _conf(root, case)
    plan = _plan(root, conf, PROFILES[version], manually=False)
    before = _files(root)
    RealRocketMQ(version).clean_all([conf])
    assert before - _files(root) == {file.path for file in plan.going}
    assert "consumequeue_ext" in {file.kind for file in plan.going}


def test_batch_queues_go_by_their_units(tmp_path: Path) -> None:
    base = tmp_path / "base"
    put_batches(with_batch_topics(base, ["topic-0"], BATCH_SIZES))
    case = Case(
        THE_HOUR | {"mapperFileSizeBatchConsumeQueue": str(BATCH_SIZES.batchconsumequeue_file_size)}, (OLD,) * 2, 2
    )
    root = _prepare(base, tmp_path / "real", case)
    conf = _conf(root, case, sizes=REAL_BATCH_SIZES)
    plan = _plan(root, conf, PROFILE_5_3, manually=False)
    before = _files(root)
    (said,) = RealRocketMQ("5.3.3").clean_all([conf])
    assert before - _files(root) == {file.path for file in plan.going}
    assert "batchconsumequeue" in {file.kind for file in plan.going}
    risen = {(rise.topic, rise.queue_id): rise.new_min_offset for rise in plan.rises}
    assert {
        key: offset
        for row in said["queues"]
        if (key := (row["topic"], row["queueId"])) in risen
        for offset in [row["minOffset"]]
    } == risen


@pytest.mark.parametrize(("ahead", "goes"), [((0, 1), True), ((11, 12, 13), False)])
def test_delete_when_is_of_the_hosts_own_time(
    ahead: tuple[int, ...], goes: bool, version: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM goes by TZ as we do."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        case = Case({"deleteWhen": _hours(*ahead)}, (OLD,) * 3, 3)
        root = _prepare(base, tmp_path, case)
        conf = _conf(root, case)
        plan = _plan(root, conf, PROFILES[version], manually=False)
        before = _files(root)
        RealRocketMQ(version).clean_all([conf])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert plan.time_zone == "IST (UTC+0530)"
    assert before - _files(root) == {file.path for file in plan.going}
    assert bool(plan.going) == goes
