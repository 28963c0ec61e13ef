"""The configuration that a slave takes from its master.

A slave's SlaveSynchronize requests it:

| request | file in config/ | a slave |
|---|---|---|
| 21 | topics.json | replaces its file |
| 43 | consumerOffset.json | adds and overwrites entries |
| 45 | delayOffset.json | replaces its file |
| 201 | subscriptionGroup.json | replaces its file |
| 402 (5.x) | messageRequestMode.json | replaces its file |
| 60 (5.x) | timercheck | replaces its file |
| 61 (5.x) | timermetrics | replaces its file |

If topics.json or subscriptionGroup.json is missing or empty, the answer is an error, and the slave keeps its own table:
an empty one would make it delete its own. The answer to request 21 lacks the static topics of 5.x, because a slave does
not store them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.logfile.system.storage import Kind
from rmqctl.remoting.frame import FRAME_LENGTH_MAX, RemotingCommand
from rmqctl.remoting.request_code import RequestCode, ResponseCode
from rmqctl.store.config.config_file import (
    CONFIG_SIZE_MAX,
    DATA_VERSION,
    DELAY_OFFSETS_CONFIG,
    GROUP_TABLE,
    GROUPS_CONFIG,
    OFFSET_TABLE,
    OFFSETS_CONFIG,
    REQUEST_MODE_TABLE,
    REQUEST_MODES_CONFIG,
    TIMER_CHECK,
    TIMER_METRICS,
    TIMING_COUNT,
    TOPIC_TABLE,
    TOPICS_CONFIG,
)
from rmqctl.store.config.store_path import CONFIG

if TYPE_CHECKING:
    from rmqctl.operations.serve.served_log import ServedLog
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TIMER_CHECKPOINT_SIZE = 56  # bytes
HEADER_ROOM = 64 * 1024  # bytes of a frame for all but the body
NO_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}  # a slave of 5.x fails without any


class Table(NamedTuple):
    """A config file that answers a request."""

    name: str
    key: str
    usual: Mapping[str, Any] | None  # the answer without the file; None: an error
    is_sent_as_it_is: bool = False  # byte for byte, because a slave stores the bytes without a check


TABLES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: Table(TOPICS_CONFIG, TOPIC_TABLE, None),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Table(OFFSETS_CONFIG, OFFSET_TABLE, {}),  # a slave keeps its own offsets
    RequestCode.GET_ALL_DELAY_OFFSET: Table(DELAY_OFFSETS_CONFIG, OFFSET_TABLE, {}, is_sent_as_it_is=True),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Table(GROUPS_CONFIG, GROUP_TABLE, None),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Table(REQUEST_MODES_CONFIG, REQUEST_MODE_TABLE, {}),
    RequestCode.GET_TIMER_METRICS: Table(TIMER_METRICS, TIMING_COUNT, {}),
}


class Configuration:
    """The answers to a slave's requests, read from the store once.

    `problems` describes the tables that a slave will not get. `is_partial` is True if the file of a table cannot be
    read or is too large. Raises OSError.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        self.problems: list[str] = []
        self.is_partial = False
        self._answers = {int(code): self._answer(store, table) for code, table in TABLES.items()}
        self._answers[RequestCode.GET_TIMER_CHECK_POINT] = _timer_checkpoint(store)

    def answers(self, log: ServedLog, ha_port: int) -> dict[int, RemotingCommand]:
        """Return the answer to each request.

        They include the file size and the offsets of `log`, and the HA port `ha_port`.
        """
        own = {
            int(RequestCode.GET_BROKER_CONFIG): _broker_config(log, ha_port),
            int(RequestCode.GET_BROKER_RUNTIME_INFO): _runtime_info(log),
        }
        return self._answers | own

    def _answer(self, store: ReadOnlyStore, table: Table) -> RemotingCommand:
        config = store.config(table.name)
        content = config.content
        what = config.problem or f"config/{table.name} does not exist"
        if content is not None and table.usual is not None:
            content = {table.key: table.usual} | content
        if content is None or not (content.get(table.key) or table.usual is not None):
            self.is_partial |= bool(config.problem)
            return self._missing(f"{what}: slaves keep their own")
        if table.is_sent_as_it_is and config.source is not None:
            body = store.storage.read_file(config.source, CONFIG_SIZE_MAX)
        else:
            body = json.dumps({DATA_VERSION: NO_VERSION} | content, ensure_ascii=False, separators=(",", ":")).encode()
        if len(body) > FRAME_LENGTH_MAX - HEADER_ROOM:
            self.is_partial = True
            return self._missing(f"config/{table.name} is larger than the 16 MiB that a slave reads")
        return RemotingCommand(ResponseCode.SUCCESS, body=body)

    def _missing(self, what: str) -> RemotingCommand:
        self.problems.append(what)
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=what)


def _timer_checkpoint(store: ReadOnlyStore) -> RemotingCommand:
    path = store.path.part(CONFIG) / TIMER_CHECK
    if store.storage.entry(path).kind is Kind.FILE:
        raw = store.storage.read_start(path, TIMER_CHECKPOINT_SIZE)
        if len(raw) == TIMER_CHECKPOINT_SIZE:
            return RemotingCommand(ResponseCode.SUCCESS, body=raw)
    return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")


def _broker_config(log: ServedLog, ha_port: int) -> RemotingCommand:
    lines = {
        "brokerRole": "ASYNC_MASTER",
        "haListenPort": ha_port,
        "mappedFileSizeCommitLog": log.file_size,
    }
    body = "".join(f"{key}={value}\n" for key, value in lines.items())
    return RemotingCommand(ResponseCode.SUCCESS, body=body.encode())


def _runtime_info(log: ServedLog) -> RemotingCommand:
    table = {"commitLogMinOffset": str(log.begin), "commitLogMaxOffset": str(log.end)}
    return RemotingCommand(ResponseCode.SUCCESS, body=json.dumps({"table": table}).encode())
