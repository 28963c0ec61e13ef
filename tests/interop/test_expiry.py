"""Files of a real store deleted by the store's own clean services: the plan names the same ones, and the same offsets
afterwards.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from tests.interop.readings import about, for_harness
from tests.real_store.harness import Geometry, RealRocketMQ, broker_conf
from tests.support.batch_queues import SIZES as BATCH_SIZES
from tests.support.batch_queues import put_batches, with_batch_topics

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
    rounds: int = ROUNDS
    sizes: Geometry = SIZES
    unused_topics: bool = False


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


class Outcome(NamedTuple):
    """What a store was before, what we planned, what the real one came to."""

    root: Path
    conf: Path
    files: frozenset[str]
    plan: ExpiryPlan
    real: dict[str, Any]

    @property
    def gone(self) -> frozenset[str]:
        """The files that the real store deleted."""
        return self.files - _files(self.root)

    @property
    def going(self) -> frozenset[str]:
        """The files that we would have deleted."""
        return frozenset(file.path for file in self.plan.going)

    @property
    def kinds(self) -> set[str]:
        """The kinds of these."""
        return {file.kind for file in self.plan.going}


def _log(root: Path) -> list[Path]:
    return sorted([*(root / "commitlog").iterdir(), *(root / "more").glob("0*")], key=lambda path: path.name)


def _files(root: Path) -> frozenset[str]:
    parts = ("commitlog", "more", *QUEUE_PARTS, "index")
    return frozenset(
        str(path.relative_to(root)) for part in parts for path in (root / part).rglob("*") if path.is_file()
    )


def _conf(root: Path, case: Case) -> Path:
    """Its broker.conf, beside the store."""
    ours = {"cleanRounds": str(case.rounds), "cleanManually": str(case.manually).lower()}
    settings = {key: value.replace("STORE", str(root)) for key, value in (USUAL | dict(case.settings) | ours).items()}
    path = root.with_name("broker.conf")
    path.write_text(broker_conf(root, case.sizes, settings), encoding="ascii")
    return path


def _prepare(base: Path, folder: Path, case: Case) -> Path:
    root = folder / "store"
    shutil.copytree(base, root)
    now = time.time()
    for path, hours in zip(_log(root), case.ages, strict=False):
        os.utime(path, (now, now - hours * 3600))
    case.prepare(root)
    return root


def _plan(root: Path, conf: Path, profile: Profile, case: Case) -> ExpiryPlan:
    said = read_broker_conf(conf)
    if NOWHERE in said.commitlog_paths:  # the broker goes on without it, we do not
        said = said._replace(commitlog_paths=said.commitlog_paths[:1])
    settings = known_to(profile, said.expiry)._replace(manual=case.manually, unused_topics=case.unused_topics)
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


def outcomes(
    version: str, asked: Mapping[str, tuple[Path, Case]], folder: Path, not_planned: Sequence[Path] = ()
) -> dict[str, Outcome]:
    """Each case on a copy of its store, all by one JVM: its start takes longer than a store's clean services.

    `not_planned` are further broker.confs, of stores that it is to clean.
    """
    planned = []
    for number, (base, case) in enumerate(asked.values()):
        root = _prepare(base, folder / str(number), case)
        conf = _conf(root, case)
        planned.append((root, conf, _files(root), _plan(root, conf, PROFILES[version], case)))
        shutil.copytree(root, root.with_name("before"))
    answers = RealRocketMQ(version).clean_all([*(conf for _, conf, *_ in planned), *not_planned])
    answered = zip(asked, planned, answers, strict=False)
    return {name: Outcome(*before, real) for name, before, real in answered}


def the_same_files_went(outcome: Outcome, goes: int) -> None:
    assert outcome.real["loaded"]
    logs = [path for path in outcome.going if path.startswith(("commitlog", "more"))]
    assert len(logs) == (goes if goes >= 0 else len(_log(outcome.root.with_name("before"))) - 1)
    assert outcome.gone == outcome.going
    assert outcome.real["minPhyOffset"] == outcome.plan.new_min_phy_offset


def queues_begin_at_the_same_offsets(outcome: Outcome, profile: Profile) -> None:
    risen = {(rise.topic, rise.queue_id): rise.new_min_offset for rise in outcome.plan.rises}
    compared = 0
    with closing(ReadOnlyStore(outcome.root.with_name("before"))) as before:
        for row in outcome.real["queues"]:
            key = row["topic"], row["queueId"]
            queue = before.queues.get(key)
            if queue is None:
                continue
            begins = risen.get(key, queue.min_offset(outcome.plan.min_phy_offset))
            if begins < row["maxOffset"] or profile.expired_queue_begins_at_end:  # else 4.x leaves it at what it was
                assert row["minOffset"] == begins
                compared += 1
    assert compared


def _logs(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if path.startswith("commitlog"))


def _a_round_is_a_batch_of_the_plan(outcome: Outcome, _: Profile) -> None:
    planned = [file.path for file in outcome.plan.going if file.kind == "commitlog"]
    assert len(planned) > 10
    assert _logs(outcome.gone) == planned[:10]


def _a_round_has_so_many_files(outcome: Outcome, profile: Profile) -> None:
    """4.x knows no deleteFileBatchMax."""
    batch = known_to(profile, read_broker_conf(outcome.conf).expiry).batch
    assert len(_logs(outcome.gone)) == batch == (3 if profile is PROFILE_5_3 else 10)


def _the_broker_waits(outcome: Outcome, _: Profile) -> None:
    """For 120 s; without a broker nobody reads."""
    assert _logs(outcome.gone) == []
    assert len(_logs(outcome.going)) == 3


def _the_broker_goes_on(outcome: Outcome, _: Profile) -> None:
    assert len(_logs(outcome.going)) == 1
    assert outcome.going < outcome.gone


def _the_topic_is_gone(outcome: Outcome, _: Profile) -> None:
    """topic-2 has messages in the log's first files only; mqadmin cleanUnusedTopic, after the deletion, takes what we
    take.
    """
    assert outcome.gone == outcome.going
    assert outcome.plan.folders == ("consumequeue/topic-2/0", "consumequeue/topic-2/1", "consumequeue/topic-2")
    left = {path.name for path in (outcome.root / "consumequeue").rglob("*") if path.is_dir()}
    assert left - {"topic-2"} == {"topic-0", "topic-1", "0", "1"}


def _the_extension_is_gone(outcome: Outcome, _: Profile) -> None:
    assert outcome.gone == outcome.going
    assert "consumequeue_ext" in outcome.kinds


def _batch_queues_go_by_their_units(outcome: Outcome, _: Profile) -> None:
    assert outcome.gone == outcome.going
    assert "batchconsumequeue" in outcome.kinds
    risen = {(rise.topic, rise.queue_id): rise.new_min_offset for rise in outcome.plan.rises}
    real = {(row["topic"], row["queueId"]): row["minOffset"] for row in outcome.real["queues"]}
    assert {key: real[key] for key in risen} == risen


EXTENDED = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2000"}
IN_BATCHES = {"mapperFileSizeBatchConsumeQueue": str(BATCH_SIZES.batchconsumequeue_file_size)}
Check = Callable[[Outcome, Profile], None]
# what the real store does otherwise than the plan, or on a store of another kind, and with which store
OTHERS: dict[str, tuple[str, Case, Check]] = {
    "one round": ("base", CASES[MORE_THAN_A_BATCH]._replace(rounds=1), _a_round_is_a_batch_of_the_plan),
    "one round of 3": (
        "base",
        Case(THE_HOUR | {"deleteFileBatchMax": "3"}, (OLD,) * 50, ALL_BUT_THE_LAST, rounds=1),
        _a_round_has_so_many_files,
    ),
    "the first held by a reader": ("base", Case(THE_HOUR | HELD, (OLD,) * 3, 3), _the_broker_waits),
    "a gap": ("base", Case(THE_HOUR, (OLD,) * 6, 5, _gap), _the_broker_goes_on),
    "a topic that is no more": (
        "topics",
        Case(THE_HOUR | {"cleanRetainedTopics": "topic-0,topic-1"}, (OLD,) * 5, 5, unused_topics=True),
        _the_topic_is_gone,
    ),
    "an extension": ("extended", Case(THE_HOUR | EXTENDED, (OLD,) * 9, 9), _the_extension_is_gone),
    "batch queues": (
        "batches",
        Case(THE_HOUR | IN_BATCHES, (OLD,) * 2, 2, sizes=for_harness(BATCH_SIZES)),
        _batch_queues_go_by_their_units,
    ),
}


def stores_of(version: str, folder: Path) -> dict[str, Path]:
    """The stores that the cases need."""
    broker, stores = RealRocketMQ(version), {name: folder / name for name in ("base", "topics", "extended", "batches")}
    broker.put(stores["base"], MESSAGES, geometry=SIZES, topics=2, queues_per_topic=2)
    broker.put(stores["extended"], MESSAGES, geometry=SIZES, topics=1, queues_per_topic=2, settings=EXTENDED)
    topics = ["topic-2"] * 100 + ["topic-0", "topic-1"] * (MESSAGES // 2)
    lines = [
        {"topic": topic, "queueId": at // 2 % 2, "body": "x" * 100, "properties": {"KEYS": f"k{at}"}}
        for at, topic in enumerate(topics)
    ]
    assert set(broker.put_lines(stores["topics"], lines, geometry=SIZES)) == {"PUT_OK"}
    (stores["topics"] / "config").mkdir(exist_ok=True)
    (stores["topics"] / "config/topics.json").write_text('{"topicConfigTable":{"topic-0":{},"topic-1":{}}}')
    put_batches(with_batch_topics(stores["batches"], ["topic-0"], BATCH_SIZES))
    return stores


@pytest.mark.parametrize("version", PROFILES)
def test_the_same_files_go(version: str, tmp_path: Path) -> None:
    """And queues begin at the same offsets."""
    stores = stores_of(version, tmp_path)
    others = {name: other for name, other in OTHERS.items() if name != "batch queues" or version == "5.3.3"}
    asked = {name: (stores["base"], case) for name, case in cases_of(version).items()}
    asked |= {name: (stores[store], case) for name, (store, case, _) in others.items()}
    blanks = Case({"deleteWhen": "04, 05"} | FORCED, (OLD,) * 3, 0)
    kept = _prepare(stores["base"], tmp_path / "blanks", blanks)
    before, conf = _files(kept), _conf(kept, blanks)
    found = outcomes(version, asked, tmp_path / "cases", [conf])
    assert _files(kept) == before
    with pytest.raises(BadRequest, match="deleteWhen"):
        read_broker_conf(conf)
    for name, case in cases_of(version).items():
        with about(name):
            the_same_files_went(found[name], case.goes)
            queues_begin_at_the_same_offsets(found[name], PROFILES[version])
    for name, (_, _, check) in others.items():
        with about(name):
            check(found[name], PROFILES[version])
    assert set().union(*(found[name].kinds for name in cases_of(version))) == {"commitlog", "consumequeue", "index"}
    assert found["one file only, and what is left of others"].kinds == {"consumequeue", "index"}
    a_store_whose_files_we_deleted_loads_with_the_same_offsets(version, found["expired, in the hour"])


def a_store_whose_files_we_deleted_loads_with_the_same_offsets(version: str, outcome: Outcome) -> None:
    ours = outcome.root.with_name("before")
    for path in outcome.going:
        (ours / path).unlink()
    after, theirs = (
        {
            "load": answer["load"],
            "ends": (answer["minPhyOffset"], answer["maxPhyOffset"]),
            "queues": [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in answer["queues"]],
        }
        for answer in RealRocketMQ(version).read_all([ours, outcome.root], start=True, geometry=SIZES, key_messages=0)
    )
    assert after == theirs
    assert after["load"] is True
    assert after["ends"][0] == outcome.plan.new_min_phy_offset


def test_the_bounds_of_the_disk_levels(tmp_path: Path) -> None:
    """5.x forces from the one on, and takes no messages from the other on."""
    confs = []
    for percent in LEVELS_ASKED:
        root = tmp_path / str(percent) / "store"
        root.parent.mkdir()
        said = {"diskSpaceCleanForciblyRatio": str(percent), "diskSpaceWarningLevelRatio": str(percent)}
        confs.append(_conf(root, Case(ANOTHER_HOUR | said, (), 0, rounds=0)))
    for percent, answer in zip(LEVELS_ASKED, RealRocketMQ("5.3.3").clean_all(confs), strict=True):
        settings = ExpirySettings(force_percent=percent, warning_percent=percent)
        force, warning = answer["forceLevel"], answer["warningLevel"]
        level = round(min(force, warning) * 100)
        found = [_pressure(settings, use).forces is not None for use in (level, level + 1)]
        told = [bool(_stops(settings, use)) for use in (round(warning * 100), round(warning * 100) + 1)]
        assert (found, told) == ([False, True], [False, True]), percent


def _pressure(settings: ExpirySettings, percent: float) -> Pressure:
    disk = DiskUse(Path("log"), percent)
    return pressure(settings, PROFILE_5_3, [disk], disk._replace(used_percent=0), 0)


def _stops(settings: ExpirySettings, percent: float) -> str:
    disk = DiskUse(Path("log"), percent)
    return stops_writing(settings, PROFILE_5_3, [disk], disk._replace(used_percent=0))


def test_delete_when_is_of_the_hosts_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM goes by TZ as we do; every version asks the JVM."""
    base = tmp_path / "base"
    RealRocketMQ("5.3.3").put(base, 1000, geometry=SIZES, topics=2, queues_per_topic=2)
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        asked = {
            goes: (base, Case({"deleteWhen": _hours(*ahead)}, (OLD,), goes))
            for ahead, goes in (((0, 1), 1), ((11, 12, 13), 0))
        }
        found = outcomes("5.3.3", {str(goes): case for goes, case in asked.items()}, tmp_path)
    finally:
        monkeypatch.undo()
        time.tzset()
    for goes, outcome in found.items():
        assert outcome.plan.time_zone == "IST (UTC+0530)"
        assert outcome.gone == outcome.going, goes
        assert bool(outcome.going) == bool(int(goes))
