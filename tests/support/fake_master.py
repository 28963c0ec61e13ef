"""A master for tests: the HA side and the answers to requests, of a log in memory; also bad masters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rmqctl.forensics.verify import verify
from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.request_code import RequestCode
from rmqctl.remoting.server import RemotingServer
from rmqctl.store.config.ha_config import HAConf
from rmqctl.store.ha.ha_service import HAService
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.support.ha_slave import MemoryLog
from tests.support.mirror_log import log_bytes

Behaviour = Callable[[socket.socket], None]  # what a master does with a connection to its HA port
VERSION = "V4_9_7"
TEXTS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: '{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"OrderPaid":{'
    '"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"OrderPaid","topicSysFlag":0,'
    '"writeQueueNums":4}}}',
    RequestCode.GET_ALL_CONSUMER_OFFSET: '{"offsetTable":{"OrderPaid@billing":{0:1}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: '{"offsetTable":{}}',
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: '{"dataVersion":{"counter":1,"timestamp":1},"subscriptionGroupTable":'
    '{"billing":{"groupName":"billing"}}}',
}
NOT_OF_THIS_LOG = {"offset-beyond-queue"}  # the configuration of the fake master is always the same


class HAPort:
    """A port where each connection is handled by `behave`, in a thread of its own, and then closed."""

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.add(connection)
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self._behave(connection)
            connection.shutdown(socket.SHUT_RDWR)
        self._connections.discard(connection)
        connection.close()


class FakeMaster:
    """A master of `log`; `behave` replaces what its HA port does, `settings` its configuration.

    `log` may grow and change. `texts` are the bodies of answers.
    """

    def __init__(
        self, log: MemoryLog, behave: Behaviour | None = None, settings: Mapping[str, str] = {}, version: str = VERSION
    ) -> None:
        self.log = log
        self.settings = dict(settings)
        self.version = version
        self.texts: dict[int, str] = {int(code): text for code, text in TEXTS.items()}
        self.max_offset: int | None = None  # what request 28 says, where it is not the log's
        self._behave = behave
        self._held = ExitStack()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        conf = HAConf(listen_port=0, send_heartbeat_interval_ms=100)
        self.ha: HAPort | HAService = HAPort(self._behave) if self._behave else HAService(self.log, conf)
        self._held.enter_context(self.ha)
        handlers = dict.fromkeys((*self.texts, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO))
        self._server = RemotingServer("127.0.0.1", 0, {int(code): self._answer for code in handlers})
        self._server.start()
        self._held.callback(self._server.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def grow(self, data: bytes) -> None:
        """Let the log be `data` from now on, and send what is new."""
        self.log.data = data
        if isinstance(self.ha, HAService):
            self.ha.wait_notify_object.wakeup_all()

    def _answer(self, request: RemotingCommand, _: Address) -> RemotingCommand:
        return RemotingCommand(0, body=self._body(request.code).encode())

    def _body(self, code: int) -> str:
        if code == RequestCode.GET_BROKER_CONFIG:
            said = {
                "haListenPort": str(self.ha.port),
                "mappedFileSizeCommitLog": str(self.log.file_size),
                "brokerRole": "ASYNC_MASTER",
                "maxHashSlotNum": "100",
                "maxIndexNum": "400",
                "mappedFileSizeConsumeQueue": "1000",
                **self.settings,
            }
            return "".join(f"{key}={value}\n" for key, value in said.items())
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            end = self.log.max_offset if self.max_offset is None else self.max_offset
            said = {"commitLogMinOffset": str(self.log.min_offset), "commitLogMaxOffset": str(end)}
            return json.dumps({"table": said | {"brokerVersionDesc": self.version}})
        return self.texts[code]


def log_of(name: str, tmp_path: Path) -> MemoryLog:
    """A golden log, from its first byte to its end."""
    root = unpack(name, tmp_path / "golden")
    log = ReadOnlyStore(root).commit_log
    return MemoryLog(log_bytes(root), log.queue.file_size, log.min_offset)


def golden_store(tmp_path: Path) -> ReadOnlyStore:
    """The store that `log_of` unpacked."""
    (root,) = (tmp_path / "golden").iterdir()
    return ReadOnlyStore(root)


def codes(root: Path) -> set[str]:
    """What is wrong with a copy; a key of the fake configuration, and times that golden stores lack, aside."""
    return {finding.code for finding in verify(ReadOnlyStore(root)).findings}
