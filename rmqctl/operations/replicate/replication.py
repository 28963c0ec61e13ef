"""Copy the log and then the configuration of a live master, repeatedly.

    1. the log is pulled up to the end that the master has reported
    2. the offsets of groups are fetched, and the master reports the end of its log again
    3. the log is pulled up to the new end; topics and groups are fetched, and written together with the offsets

With `once`, the replication ends there. Without it, the pull of the log continues, and steps 2 and 3 are repeated every
10 s, as in a slave of 4.9.

The configuration is fetched as SlaveSynchronize does:

| request | file in config/ | |
|---|---|---|
| 21 | topics.json | replaces the mirror's file |
| 21 | topicQueueMapping.json | 5.x; the static topics, if the master has any; a real slave does not copy this file |
| 201 | subscriptionGroup.json | replaces the mirror's file |
| 43 | consumerOffset.json | replaces the mirror's file |
| 45 | delayOffset.json | replaces the mirror's file |
| 402 | messageRequestMode.json | 5.x |
| 61 | timermetrics | 5.x |
| 60 | timercheck | 5.x; binary |

The offset of a group must not be after the end of a queue in the mirror: offsets are fetched before a pull of the log,
and written after it. Topics and groups are fetched after the log, because a broker only serves messages of topics that
are in topics.json.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import PeerError
from rmqctl.format.message import Damage
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.replicate.log_pull import LogPull, Progress, connect, damaged_master, known_bytes
from rmqctl.operations.replicate.master import ask_range
from rmqctl.operations.replicate.mirror_epochs import MirrorEpochs
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import (
    DATA_VERSION,
    DELAY_OFFSETS_CONFIG,
    GROUPS_CONFIG,
    OFFSETS_CONFIG,
    QUEUE_MAPPING_TABLE,
    QUEUE_MAPPINGS_CONFIG,
    REQUEST_MODES_CONFIG,
    TIMER_CHECK,
    TIMER_METRICS,
    TOPIC_TABLE,
    TOPICS_CONFIG,
)
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps, fastjson_loads
from rmqctl.store.engine.flush import FlushIntervals, FlushRealTimeService
from rmqctl.store.ha.auto_switch_ha_client import AutoSwitchHAClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqctl.operations.replicate.master import LogRange, Master
    from rmqctl.remoting.address import Address
    from rmqctl.remoting.broker_requests import BrokerRequests
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.ha.ha_client import HAClient
    from rmqctl.store.ha.received_log import ReceivedPart

SYNC_INTERVAL = 10.0  # seconds between two fetches of the configuration
ASK_INTERVAL = 5.0  # seconds between two questions for the master's end
RECONNECT_WAIT = 5.0  # seconds
WAIT = 0.1  # seconds to wait for bytes
_MAPPINGS, _MAPPINGS_VERSION = "topicQueueMappingDetailMap", "mappingDataVersion"  # keys of the answer to request 21
ConfigTexts = dict[str, bytes]  # the content of files in config/, by name


class HowToReplicate(NamedTuple):
    """The options of the user."""

    once: bool
    as_slave: bool
    rate: int = 0  # bytes a second; 0: no limit


FLUSH_INTERVAL = 1.0  # seconds, as a broker's flushIntervalConsumeQueue


FLUSH_INTERVAL_BUSY = 10.0  # seconds, while bytes arrive


@dataclass
class Replication:
    """Replicates `master` into `store`, until `is_over` returns True.

    With `how.once`, it also ends when the store has all data of the master.
    """

    store: MessageStore
    root: Path
    master: Master
    requests: BrokerRequests
    how: HowToReplicate
    is_over: Callable[[], bool]
    note: Callable[[str], None]  # called with a line for the user
    on_progress: Callable[[Progress], None]  # called after each step
    on_joined: Callable[[], None] = lambda: None  # called when the mirror's last bytes match the master's log
    progress: Progress = field(default_factory=Progress)
    has_joined: bool = False
    _asked: LogRange | None = None
    _asked_at: float = 0.0
    _synced_at: float = 0.0
    _waiting: ConfigTexts | None = None  # offsets that were fetched at `_waiting_for`
    _waiting_for: int = 0
    _flushed_at: float = field(default_factory=time.monotonic)
    _flushed_to: int = 0
    _began_at: float = 0.0
    _written: ConfigTexts = field(default_factory=dict)
    _is_done: bool = False
    _is_lost: bool = False

    def __post_init__(self) -> None:
        self._epochs = MirrorEpochs(self.root)

    def run(self) -> None:
        """Copy the log and the configuration until the replication ends.

        Raises PeerError if the master cannot be reached or breaks the protocol. Without `once`, a connection that
        breaks after `on_joined` is opened again. Raises NeedsRecovery if the mirror cannot be continued from the
        master's log, and OSError if the file system fails.
        """
        flusher = FlushRealTimeService(self.store.log_queue, FlushIntervals(), self.store.note_flushed)
        flusher.start()
        try:
            while not (self.is_over() or self._is_done):
                self._run_connection()
        finally:
            flusher.shutdown()

    def _run_connection(self) -> None:
        try:
            asked = self._ask()
            log = self.store.log_queue
            known = known_bytes(log.files, log.max_offset, asked, str(self.master.address))
            self._wait_for_puts(is_resumed=known is not None)
            with connect(self.master) as client:
                pull = LogPull(client, self.master, asked.min_offset, known, self._store, self.how.rate)
                if isinstance(client, AutoSwitchHAClient) and known is not None:
                    self._epochs.check(client.epochs, str(self.master.address))
                while not (self.is_over() or self._is_done):
                    self._step(client, pull)
        except PeerError as error:
            if self.how.once or not self.has_joined:
                raise
            if not self._is_lost:
                self.note(f"{error}; trying again every {RECONNECT_WAIT:g} seconds")
            self._is_lost = True
            self._pause(RECONNECT_WAIT)

    def _wait_for_puts(self, *, is_resumed: bool) -> None:
        """Pause for as long as a put can wait for an acknowledgement.

        The mirror's first report names the offset where the pull begins. A SYNC_MASTER takes it as the acknowledgement
        of all puts before, and a mirror must not acknowledge any.
        """
        if is_resumed and not self.how.as_slave:
            self._pause(self.master.longest_put)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.is_over():
            time.sleep(WAIT)

    def _step(self, client: HAClient, pull: LogPull) -> None:
        self._began_at = self._began_at or time.monotonic()
        count = pull.step(WAIT)
        if count:
            self.progress.seconds = time.monotonic() - self._began_at
        if isinstance(client, AutoSwitchHAClient):
            self._epochs.write(client.epochs, self.store.max_phy_offset)
        failure = self.store.failure
        if failure is not None:
            raise failure
        if count and self.how.as_slave and pull.is_joined:
            self.store.flush_log()
            client.report(self.store.max_phy_offset)
        now = time.monotonic()
        is_due = now - self._flushed_at >= (FLUSH_INTERVAL_BUSY if count else FLUSH_INTERVAL)
        if is_due and self._flushed_to != self.store.max_phy_offset:
            self.store.flush()
            self._flushed_at, self._flushed_to = time.monotonic(), self.store.max_phy_offset
        if now - self._asked_at >= ASK_INTERVAL:
            asked = self._ask()
            pull.check_stall(asked)
            pull.check_whole(asked)
        if pull.is_joined and self._is_lost:
            self.note("connected again")
            self._is_lost = False
        if pull.is_joined and not self.has_joined:
            self.on_joined()
            self.has_joined = True
        if pull.is_joined and self._has_all_known():
            self._synchronize(now)
        self.on_progress(self.progress)

    def _store(self, part: ReceivedPart) -> None:
        if isinstance(part.item, Damage):
            raise damaged_master(part.item)
        self.store.append_to_commit_log(part.offset, part.data, part.item)
        self.progress.bytes += len(part.data)
        self.progress.messages += part.messages
        self.progress.max_offset = self.store.max_phy_offset

    def _ask(self) -> LogRange:
        self._asked = ask_range(self.master.address, self.requests)
        self._asked_at = time.monotonic()
        self.progress.master_offset = self._asked.max_offset
        return self._asked

    def _has_all_known(self) -> bool:
        return self._asked is not None and self.store.max_phy_offset >= self._asked.max_offset

    def _synchronize(self, now: float) -> None:
        # offsets are fetched every 10 s, and written when the log is long enough
        if self._waiting is None and (not self._synced_at or now - self._synced_at >= SYNC_INTERVAL):
            self._waiting = fetch_offsets(self.master.address, self.requests)
            self._waiting_for = self._ask().max_offset
        if self._waiting is not None and self.store.max_phy_offset >= self._waiting_for:
            texts = self._waiting | fetch_names(self.master.address, self.requests)
            write_texts(self.root, {name: text for name, text in texts.items() if text != self._written.get(name)})
            self._written = texts
            self._waiting, self._synced_at = None, now
            self._is_done = self.how.once


def close_store(store: MessageStore) -> None:
    """Close the store after another error, and hide an OSError of the close."""
    with suppress(OSError):
        store.close()


def fetch_offsets(address: Address, requests: BrokerRequests) -> ConfigTexts:
    """Return the files with the offsets of groups, delay levels and timers.

    Raises PeerError.
    """
    texts: dict[str, str | None] = {
        OFFSETS_CONFIG: requests.consumer_offsets(),
        DELAY_OFFSETS_CONFIG: requests.delay_offsets(),
        TIMER_METRICS: requests.timer_metrics(),
    }
    found = _checked(address, texts)
    checkpoint = requests.timer_checkpoint()
    return found if checkpoint is None else found | {TIMER_CHECK: _without_timer_log(checkpoint)}


def _without_timer_log(checkpoint: bytes) -> bytes:
    """Adapt timercheck to a store that lacks the master's timer log.

    lastTimerLogFlushPos and lastTimerQueueOffset become 0: a broker then builds the timer log from the first message of
    the timer topic. It may deliver a timer message twice, but loses none.
    """
    return checkpoint[:8] + bytes(16) + checkpoint[24:]


def fetch_names(address: Address, requests: BrokerRequests) -> ConfigTexts:
    """Return the files with topics and groups.

    Raises PeerError.
    """
    texts: dict[str, str | None] = {
        GROUPS_CONFIG: requests.subscription_groups(),
        REQUEST_MODES_CONFIG: requests.message_request_modes(),
    }
    topics = _object(address, TOPICS_CONFIG, requests.topics())
    wanted = {key: topics[key] for key in (DATA_VERSION, TOPIC_TABLE) if key in topics}
    found = _checked(address, texts) | {TOPICS_CONFIG: fastjson_bytes(fastjson_dumps(wanted))}
    if _MAPPINGS in topics and _MAPPINGS_VERSION in topics:
        table = {DATA_VERSION: topics[_MAPPINGS_VERSION], QUEUE_MAPPING_TABLE: topics[_MAPPINGS]}
        found[QUEUE_MAPPINGS_CONFIG] = fastjson_bytes(fastjson_dumps(table))
    return found


def write_texts(root: Path, texts: ConfigTexts) -> None:
    """Replace files of config/, each in one step.

    An empty table of static topics is written only if the file already exists. Raises OSError.
    """
    storage = WritableStorage(root)
    folder = root / store_path.CONFIG
    storage.make_folder(folder)
    for name, text in texts.items():
        is_empty = name == QUEUE_MAPPINGS_CONFIG and not fastjson_loads(text.decode())[QUEUE_MAPPING_TABLE]
        if not is_empty or storage.entry(folder / name).kind is Kind.FILE:
            storage.replace_file(folder / name, text)


def _checked(address: Address, texts: dict[str, str | None]) -> ConfigTexts:
    known = {name: text for name, text in texts.items() if text}
    for name, text in known.items():
        _object(address, name, text)
    return {name: text.encode() for name, text in known.items()}


def _object(address: Address, name: str, text: str) -> dict[str, object]:
    try:
        found = fastjson_loads(text)
    except ValueError as error:
        raise PeerError(f"the broker's {name} is not JSON: {error}", path=str(address)) from error
    if not isinstance(found, dict):
        raise PeerError(f"the broker's {name} is not a JSON object", path=str(address))
    return found
