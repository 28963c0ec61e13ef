"""The real RocketMQ message store: writes a store, loads it, or says what consumers get from it, each in a JVM of its
own.

Whatever opens a store recovers it, and recovery writes: give `load` and `read` a copy. Needs a JDK 17, and Maven for
the first use of a version.

broker = RealRocketMQ("5.3.3") broker.put(store, 10_000, crash=True) broker.load(store).seconds
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import javaproperties

from tests.real_store import java_build
from tests.real_store.ports import held_port

VERSIONS = ("4.7.1", "4.9.7", "5.3.3")
KILLED = 137
SECONDS_A_STORE = 60  # of several that one JVM reads: one that takes longer hangs
# mapped files are cleaned and locked through the JDK's own classes
JDK_PACKAGES = ("java.nio", "sun.nio.ch", "jdk.internal.ref")
# for programs that nobody times: a JVM that lives for seconds compiles more than it runs
FOR_A_SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# 4.x, and 5.x with its own copy of logback: otherwise they log every request
LOGBACK_CONF_KEYS = ("logback.configurationFile", "rmq.logback.configurationFile")
LOGBACK_CONF = Path(__file__).parent / "logback.xml"
# an old store or a full disk must not make it delete files; port 0: two can run at once; each flush of 5.x's timer
# wheel compares 38 MB, a fifth of a CPU's time where it flushes every second
SETTINGS = {
    "fileReservedTime": "876000",
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
    "haListenPort": "0",
    "timerFlushIntervalMs": "30000",
}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
CHECKS_MAX = 4
# delays, retries and transactions that take seconds; a message of the last level is never due
TRAFFIC_SETTINGS = {
    "messageDelayLevel": "1s 2s " + "1s " * 15 + "2h",
    "transactionCheckInterval": "1500",
    "transactionTimeOut": "1000",
    "transactionCheckMax": str(CHECKS_MAX),
    "transactionOpBatchInterval": "300",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": "102400",
}


class Geometry(NamedTuple):
    """Sizes of a store's files; the broker's own by default. A store loads only with those that it was written with."""

    commitlog_file_size: int = 1 << 30
    """Bytes."""
    queue_file_units: int = 300_000
    """Units of 20 bytes."""
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000

    def broker_conf(self) -> dict[str, str]:
        """As keys and values of a broker.conf."""
        return {
            "mappedFileSizeCommitLog": str(self.commitlog_file_size),
            "mappedFileSizeConsumeQueue": str(self.queue_file_units * 20),
            "maxHashSlotNum": str(self.index_slots),
            "maxIndexNum": str(self.index_entries),
        }


BROKER_GEOMETRY = Geometry()
TRAINING = Geometry(65536, 50, 100, 400)


class PutReport(NamedTuple):
    """What was put: `seconds` for the puts alone, without the JVM's start and what dispatch needed afterwards."""

    messages: int
    seconds: float
    max_phy_offset: int


class QueueRange(NamedTuple):
    """A queue and its queue offsets [min, max)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class LoadReport(NamedTuple):
    """What `DefaultMessageStore.load()` came to, and how long it, and dispatch where the store was started, took.

    `cpu_seconds` is the CPU time of all threads of the JVM in these `seconds`.
    """

    loaded: bool
    seconds: float
    cpu_seconds: float
    min_phy_offset: int
    max_phy_offset: int
    queues: tuple[QueueRange, ...]


class TrafficReport(NamedTuple):
    """What clients logged, and what mqadmin's consumerProgress said of their groups in the end.

    The key `event` of an event is sent, end (of a transaction), check, consumed, suspended (not consumed), popped,
    recalled or offset (the last one of a group). `progress` is as in `RealRocketMQ.consumer_progress`.
    """

    events: list[dict[str, Any]]
    progress: list[dict[str, Any]]


class RealRocketMQ:
    """The store of one version. `heap` is the JVM's -Xmx, `timeout` seconds for each call; `timed`, for puts and loads
    that are timed or many, has it compile as a broker's does.

    Methods raise RuntimeError when Java, javac or Maven is missing or fails, TimeoutError when a store hangs.
    `settings` are further keys of a broker.conf, such as `{"enableLmq": "true"}`; like a broker, the store ignores
    those that it does not know.
    """

    def __init__(self, version: str, *, heap: str = "2g", timeout: float = 600, timed: bool = False) -> None:
        self.version = version
        self.heap = heap
        self.timeout = timeout
        self.timed = timed

    def prepare(self) -> str:
        """Resolve, compile and archive what is missing; the other methods do so, too. Returns the class path."""
        archive_option(self.version)
        return java_build.prepare(self.version)

    def put(
        self,
        store: Path,
        count: int,
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        body_size: int = 100,
        key_words: int = 1,
        topics: int = 4,
        queues_per_topic: int = 4,
        tags: int = 3,
        seed: int = 1,
        crash: bool = False,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> PutReport:
        """Append messages to a store, new or not, from one thread.

        Topics are `topic-0`…, spread at random as the queues are; tags `Tag0`…; KEYS `order-N user1-R user2-R`…,
        `key_words` of them. Bodies are random bytes. `seed` gives the same messages again, timestamps aside. The store
        is shut down, or with `crash` dies after dispatch has caught up and the log is flushed: abort stays, and the
        file allocated ahead.
        """
        shape = {
            "bodySize": body_size,
            "keyWords": key_words,
            "topics": topics,
            "queuesPerTopic": queues_per_topic,
            "tags": tags,
        }
        options = {"count": count, **shape, "seed": seed, "crash": crash}
        said = self._run("Put", store, geometry, settings, options, exit_code=KILLED if crash else 0)
        return PutReport(said["count"], said["seconds"], said["maxPhyOffset"])

    def put_lines(
        self,
        store: Path,
        messages: Sequence[Mapping[str, Any]],
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        crash: bool = False,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> list[str]:
        """Append messages given as lines of `rmqctl append`: topic, queueId, sysFlag, body (text), properties.

        Return each put's status.
        """
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-lines-", encoding="utf-8") as file:
            for message in messages:
                found = [
                    message["topic"],
                    message.get("queueId", 0),
                    message.get("sysFlag", 0),
                    message.get("body", ""),
                ]
                found += [word for pair in message.get("properties", {}).items() for word in pair]
                file.write("\t".join(map(str, found)) + "\n")
            file.flush()
            options: dict[str, int | str] = {"lines": file.name, "crash": crash}
            statuses: list[str] = self._run(
                "PutLines", store, geometry, settings, options, exit_code=KILLED if crash else 0
            )
        return statuses

    def load(
        self,
        store: Path,
        *,
        start: bool = False,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> LoadReport:
        """Load a store: recovery, and nothing else. With `start` it is started, too, and dispatched to the end."""
        said = self._run("Load", store, geometry, settings, {"start": start})
        queues = tuple(
            QueueRange(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in said["queues"]
        )
        return LoadReport(
            said["loaded"], said["seconds"], said["cpuSeconds"], said["minPhyOffset"], said["maxPhyOffset"], queues
        )

    def read(
        self,
        store: Path,
        *,
        start: bool = False,
        geometry: Geometry = BROKER_GEOMETRY,
        key_messages: int = 1000,
        time_look_ups: bool = False,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> dict[str, Any]:
        """All that a store says, in the shape of the golden stores' `*.expected.json`; the whole is kept in memory.

        With `start` a store that loads is also started, dispatched to the end and shut down; no delayed message is
        delivered. `keyQueries` asks for KEYS and UNIQ_KEY of the first `key_messages` messages that have any, under
        every topic. `time_look_ups` adds `offsetsByTime` to each queue: pairs of a time and getOffsetInQueueByTime of
        it, for every store time of a message, a millisecond before and after it, and a day before the first and after
        the last.
        """
        options = {"start": start, "keyMessages": key_messages, "timeLookUps": time_look_ups}
        document: dict[str, Any] = self._run("Read", store, geometry, settings, options)
        return document

    def read_all(
        self,
        stores: Sequence[Path],
        *,
        start: bool = False,
        geometry: Geometry = BROKER_GEOMETRY,
        key_messages: int = 1000,
        time_look_ups: bool = False,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> list[dict[str, Any]]:
        """As `read` of each store, by one JVM; `{"error": WHAT}` of a store that fails, or hangs."""
        with tempfile.TemporaryDirectory(prefix="rmqctl-confs-") as folder:
            confs = [Path(folder) / f"{number}.conf" for number in range(len(stores))]
            for conf, store in zip(confs, stores, strict=True):
                conf.write_text(broker_conf(store, geometry, settings), encoding="ascii")
            return self.read_confs(confs, start=start, key_messages=key_messages, time_look_ups=time_look_ups)

    def read_confs(
        self,
        confs: Sequence[Path],
        *,
        start: bool = False,
        key_messages: int = 1000,
        time_look_ups: bool = False,
        seconds: int = SECONDS_A_STORE,
    ) -> list[dict[str, Any]]:
        """As `read_all` of the stores that broker.confs are for (see `broker_conf`), each with sizes and settings of
        its own.

        A store that takes longer than `seconds` hangs.
        """
        options: dict[str, int | str] = {"start": start, "seconds": seconds}
        options |= {"keyMessages": key_messages, "timeLookUps": time_look_ups}
        return self._run_confs("ReadAll", confs, options)

    def clean_all(self, confs: Sequence[Path]) -> list[dict[str, Any]]:
        """Each store that a broker.conf is for is loaded and deletes files, as it would every 10 seconds: loaded,
        minPhyOffset, queues.

        And of 5.x `forceLevel` and `warningLevel` of the disk, from 0 to 1. Keys of ours in a broker.conf:
        `cleanRounds`, how often; `cleanManually` (true), as after mqadmin's deleteExpiredCommitLog;
        `cleanForciblyRatio`, the system property diskSpaceCleanForciblyRatio; `cleanHoldsFirst` (true), somebody reads
        in the log's first file and does not end; `cleanRetainedTopics` (with commas), then mqadmin's cleanUnusedTopic
        where only these are known.
        """
        return self._run_confs("Clean", confs, {})

    def serve(
        self,
        store: Path,
        topics: Mapping[str, int],
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> dict[str, Any]:
        """What a client gets from a broker on a store, over the wire: `queues` and `messages` of `topics`, and
        look-ups.

        `topics` are those to consume in this order (LMQ's not first: a client finds the broker by another topic), each
        as soon as it has so many messages; a broker may have delayed ones to deliver. `messages` are as in `read`, with
        bodies decompressed as clients do; `byId` has each of them again, looked up by its message id; `byKey` the
        physical offsets found by KEYS of the first messages; a queue's `offsetsByTime` pairs of a time and the offset
        for it. The broker is not shut down.
        """
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-topics-", encoding="ascii") as file:
            file.writelines(f"{topic} {count}\n" for topic, count in topics.items())
            file.flush()
            served: dict[str, Any] = self._run("Serve", store, geometry, settings, {"topics": file.name})
        return served

    def consume(
        self,
        store: Path,
        consumers: Sequence[tuple[str, str, int]],
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> list[dict[str, Any]]:
        """What consumers get from a broker on a store: a row a queue with group, topic, queueId, offsets and bodies.

        A consumer is (group, topic, number of messages to wait for). Where the broker has no offset of its group, it
        begins with a queue's first message. `bodies` are the CRC-32 of each body, decompressed. RuntimeError where the
        broker does not load the store.
        """
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-consumers-", encoding="ascii") as file:
            file.writelines(f"{group} {topic} {count}\n" for group, topic, count in consumers)
            file.flush()
            rows: list[dict[str, Any]] = self._run("Consume", store, geometry, settings, {"consumers": file.name})
        return rows

    def consumer_progress(
        self,
        store: Path,
        groups: Sequence[str],
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> list[dict[str, Any]]:
        """What mqadmin's consumerProgress shows of each group with a broker on a store.

        A row a queue: group, topic, queueId, brokerOffset, consumerOffset. The broker is not shut down.
        """
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-groups-", encoding="utf-8") as file:
            file.writelines(f"{group}\n" for group in groups)
            file.flush()
            rows: list[dict[str, Any]] = self._run("ConsumerProgress", store, geometry, settings, {"groups": file.name})
        return rows

    def traffic(
        self,
        store: Path,
        count: int,
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> TrafficReport:
        """Have a real broker write a store, used by real clients with message trace; return the clients' own log.

        `count` orders are sent: plain, twice, delayed, failing once or for ever; beside them transactions, batches and,
        with 5.x, timers and POP. The groups ledger (all), billing (by tags, with failures), audit (30 of each queue)
        and poppers consume. `TRAFFIC_SETTINGS` make all that take seconds.
        """
        report = self._run("Traffic", store, geometry, {**TRAFFIC_SETTINGS, **settings}, {"count": count})
        return TrafficReport(report["events"], report["progress"])

    def timers(
        self,
        store: Path,
        count: int,
        seconds: int,
        *,
        geometry: Geometry = BROKER_GEOMETRY,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> set[str]:
        """Have a broker of 5.x send itself `count` timer messages, run for `seconds` more, and die as by kill -9.

        They go to the topic `timed`, with KEYS timer0, timer1, ...; returns the keys of those that are deleted.
        """
        prefix = "timed+" if self.version.startswith("5.3.") else ""  # appendTopicForTimerDeleteKey of later versions
        options: dict[str, int | str] = {"count": count, "seconds": seconds, "deletePrefix": prefix}
        report = self._run("Timers", store, geometry, settings, options, exit_code=KILLED)
        return set(report["deleted"])

    def ask(
        self, store: Path, questions: Sequence[tuple[str | int, ...]], *, geometry: Geometry = BROKER_GEOMETRY
    ) -> list[Any]:
        """The loaded store's answer to each question.

        `("get", topic, queueId, offset, maxMessages, tags)`: status, nextBeginOffset, minOffset, maxOffset,
        physicalOffsets; `("time", topic, queueId, timestamp)`: an offset, -9 where the store fails; `("query", topic,
        key, maxMessages, begin, end)`: physical offsets.
        """
        return self.ask_all([(store, geometry, questions)])[0]

    def ask_all(self, asked: Sequence[tuple[Path, Geometry, Sequence[tuple[str | int, ...]]]]) -> list[list[Any]]:
        """As `ask` of each store, by one JVM."""
        with tempfile.TemporaryDirectory(prefix="rmqctl-questions-") as folder:
            confs = [Path(folder) / f"{number}.conf" for number in range(len(asked))]
            for conf, (store, geometry, questions) in zip(confs, asked, strict=True):
                conf.write_text(broker_conf(store, geometry, NO_SETTINGS), encoding="ascii")
                lines = ["\t".join(map(str, question)) + "\n" for question in questions]
                Path(f"{conf}.questions").write_text("".join(lines), encoding="utf-8")
            return self._run_confs("Ask", confs, {})

    def _run_confs(self, program: str, confs: Sequence[Path], options: Mapping[str, int | str]) -> list[Any]:
        """What a program says of the store of each broker.conf."""
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-confs-", encoding="utf-8") as listed:
            listed.writelines(f"{conf}\n" for conf in confs)
            listed.flush()
            answers: list[Any] = self._run_program(program, {"confs": listed.name, **options})
        return answers

    def _run(
        self,
        program: str,
        store: Path,
        geometry: Geometry,
        settings: Mapping[str, str],
        options: Mapping[str, int | str],
        *,
        exit_code: int = 0,
    ) -> Any:
        with tempfile.NamedTemporaryFile("w", prefix="rmqctl-conf-", encoding="ascii") as file:
            file.write(broker_conf(store, geometry, settings))
            file.flush()
            return self._run_program(program, {"conf": file.name, **options}, exit_code=exit_code)

    def _run_program(self, program: str, options: Mapping[str, int | str], *, exit_code: int = 0) -> Any:
        how = () if self.timed else FOR_A_SHORT_LIFE
        return self._run_java(program, options, (*how, archive_option(self.version)), exit_code)

    def train(self, archive: Path) -> None:
        """Archive the classes that a broker and its clients load."""
        with tempfile.TemporaryDirectory(prefix="rmqctl-training-") as folder:
            conf, consumers = Path(folder, "broker.conf"), Path(folder, "consumers")
            conf.write_text(broker_conf(Path(folder, "store"), TRAINING, NO_SETTINGS), encoding="ascii")
            consumers.write_text("group TBW102 0\n", encoding="ascii")
            options = {"conf": str(conf), "consumers": str(consumers)}
            self._run_java("Consume", options, (*FOR_A_SHORT_LIFE, f"-XX:ArchiveClassesAtExit={archive}"))

    def _run_java(
        self, program: str, options: Mapping[str, int | str], of_java: Sequence[str], exit_code: int = 0
    ) -> Any:
        class_path = java_build.prepare(self.version)
        with (
            tempfile.TemporaryDirectory(prefix="rmqctl-real-store-") as folder,
            held_port() as name_server_port,
            held_port() as broker_port,
        ):
            ports = {"nameServerPort": name_server_port, "brokerPort": broker_port}
            properties = {"out": f"{folder}/out.json", **ports, **options}
            command = java_command(class_path, program, Path(folder), properties, self.heap, of_java)
            self._call(program, command, Path(folder), exit_code)
            return json.loads((Path(folder) / "out.json").read_text(encoding="ascii"))

    def _call(self, program: str, command: list[str], folder: Path, exit_code: int) -> None:
        log = folder / "log"
        what = f"{program} with RocketMQ {self.version}"
        with log.open("wb") as file:
            try:
                code = subprocess.run(
                    command, cwd=folder, stdout=file, stderr=file, timeout=self.timeout, check=False
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"{what} took longer than {self.timeout:.0f} s:\n{_last_lines(log)}") from error
        if code != exit_code:
            raise RuntimeError(f"{what} ended with {code}:\n{_last_lines(log)}")


def archive_option(version: str) -> str:
    """As java_build.archive."""
    return java_build.archive(version, RealRocketMQ(version).train)


def java_command(
    class_path: str,
    program: str,
    folder: Path,
    options: Mapping[str, int | str],
    heap: str,
    of_java: Sequence[str] = FOR_A_SHORT_LIFE,
) -> list[str]:
    """The command line of a program; `folder` is its user.home, below which the real store logs."""
    properties = {"user.home": folder, **dict.fromkeys(LOGBACK_CONF_KEYS, LOGBACK_CONF), **options}
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in JDK_PACKAGES]
    options_of_java = [f"-Xmx{heap}", *of_java, *opened]
    defined = [f"-D{key}={value}" for key, value in properties.items()]
    return [java_build.tool("java"), *options_of_java, *defined, "-cp", class_path, program]


def geometry_of(conf: Mapping[str, str]) -> Geometry:
    """Return the sizes that the keys of a broker.conf say."""
    queue_file_units = int(conf["mappedFileSizeConsumeQueue"]) // 20
    return Geometry(
        int(conf["mappedFileSizeCommitLog"]), queue_file_units, int(conf["maxHashSlotNum"]), int(conf["maxIndexNum"])
    )


def broker_conf(store: Path, geometry: Geometry, settings: Mapping[str, str]) -> str:
    """The text of a broker.conf."""
    root = store.absolute()
    paths = {"storePathRootDir": str(root), "storePathCommitLog": str(root / "commitlog")}
    return javaproperties.dumps({**paths, **SETTINGS, **geometry.broker_conf(), **settings}, timestamp=False)


def _last_lines(log: Path) -> str:
    return java_build.last_lines(log.read_text(encoding="utf-8", errors="replace"))
