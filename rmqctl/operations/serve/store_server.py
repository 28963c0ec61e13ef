"""A server that sends an offline store to real slaves, as a master does.

It changes no file, and listens on four ports of one address:

    HA             the log (store/ha)
    P, P-2         the configuration; slaves ask for the topics at P-2
    name server    answers a slave's registration with the addresses of the server
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from rmqctl.errors import BadRequest
from rmqctl.operations.serve.configuration import Configuration
from rmqctl.operations.serve.name_server import NameServer
from rmqctl.operations.serve.notices import Notices
from rmqctl.operations.serve.registered_slaves import RegisteredSlaves
from rmqctl.operations.serve.served_log import ServedLog
from rmqctl.operations.serve.served_slaves import ServedSlaves
from rmqctl.remoting.address import Address
from rmqctl.remoting.request_code import RequestCode
from rmqctl.remoting.server import ConnectionWatch, RemotingServer
from rmqctl.store.config.ha_config import USUAL_HA
from rmqctl.store.ha.ha_service import HAService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.serve.access import Access
    from rmqctl.remoting.frame import RemotingCommand
    from rmqctl.remoting.server import Handler
    from rmqctl.store.read.read_only_store import ReadOnlyStore

VIP_PORT_BELOW = 2  # slaves ask for the topics at the remoting port minus 2
PORT_TRIES = 100
CHECK_SECONDS = 1.0  # between two looks at the files
CRASHED = "the store was not shut down cleanly: serve sends the log up to the last record of its last file"
TOPICS = frozenset({int(RequestCode.GET_ALL_TOPIC_CONFIG)})  # asked at P-2
OTHERS = frozenset(
    {
        int(RequestCode.GET_ALL_CONSUMER_OFFSET),
        int(RequestCode.GET_ALL_DELAY_OFFSET),
        int(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    }
)
ASKED_BY_REPLICATE = frozenset({int(RequestCode.GET_BROKER_CONFIG), int(RequestCode.GET_BROKER_RUNTIME_INFO)})
COPY_SECONDS = 600.0
SETTLE_SECONDS = 2.0  # a slave stores the last answer, and a slave of 5.x asks for some more


class RequestsSeen:
    """The codes of the requests that have arrived on each open connection.

    A request does not name the slave that sent it. A slave keeps one connection to the port P, and one to P-2. For each
    host and port, the connections are counted on which all expected requests have arrived; the smaller of a host's two
    counts is the number of slaves with the configuration.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Address, dict[int, float]] = {}  # the time of the first request with each code
        self._copied: dict[str, float] = {}  # the time of a host's last request that only `rmqctl replicate` sends

    def note(self, peer: Address, code: int) -> None:
        """Record that a request with this code has arrived on a connection."""
        with self._lock:
            self._asked.setdefault(peer, {}).setdefault(code, time.monotonic())
            if code in ASKED_BY_REPLICATE:
                self._copied[peer.host] = time.monotonic()

    def forget(self, peer: Address) -> None:
        """Forget a connection that ended."""
        with self._lock:
            self._asked.pop(peer, None)

    def is_copied_to(self, host: str) -> bool:
        """Return whether `rmqctl replicate` ran on a host in the last 10 minutes."""
        with self._lock:
            return time.monotonic() - self._copied.get(host, -COPY_SECONDS) < COPY_SECONDS

    def configured(self) -> dict[str, int]:
        """Return, for each host, how many slaves have got the configuration."""
        settled = time.monotonic() - SETTLE_SECONDS
        topics, others = defaultdict[str, int](int), defaultdict[str, int](int)
        with self._lock:
            for peer, asked in self._asked.items():
                codes = {code for code, when in asked.items() if when < settled}
                topics[peer.host] += codes >= TOPICS
                others[peer.host] += codes >= OTHERS
        return {host: min(count, others[host]) for host, count in topics.items()}


class Ports(NamedTuple):
    """The ports to listen on; 0 stands for any free port."""

    ha: int = 0
    remoting: int = 0
    namesrv: int = 0


FREE_PORTS = Ports()


class ServedSlave(NamedTuple):
    """A connected slave."""

    address: str
    max_offset: int  # the end of its log in bytes, or -1 before its first report
    has_log: bool
    is_configured: bool


class StoreServer:
    """Serve `store` to the slaves that `access` allows.

    `ports` has the ports in use. `notices` has remarks for the operator. `problems` describes the tables that slaves
    will not get, and an unclean shutdown of the store. `is_partial` is that of Configuration. Raises the errors of
    ServedLog, and BadRequest if a port cannot be used.
    """

    def __init__(self, store: ReadOnlyStore, access: Access, ports: Ports = FREE_PORTS) -> None:
        self._store = store
        self._fingerprint = store.fingerprint()
        self._checked = time.monotonic()
        self.notices = Notices()
        self.log = ServedLog(store)
        configuration = Configuration(store)
        self._seen = RequestsSeen()
        self._access = access
        self._opened = contextlib.ExitStack()
        self._opened.callback(self.log.close)
        try:
            slaves = RegisteredSlaves(self.notices)
            policy = ServedSlaves(self.log, slaves, self._seen.is_copied_to, access.accepts, self.notices)
            conf = USUAL_HA._replace(listen_port=ports.ha)
            with self._listening("--ha-port", ports.ha):
                self._ha = HAService(self.log.source, conf, policy, access.address)
            self._ha.start()
            self._opened.callback(self._ha.shutdown)
            answers = configuration.answers(self.log, self._ha.port)
            handlers = {code: self._handler(answer) for code, answer in answers.items()}
            with self._listening("--remoting-port", ports.remoting):
                remoting = self._remoting_servers(ports.remoting, handlers)
            ha, at = Address(access.address, self._ha.port), Address(access.address, remoting[0].port)
            names = NameServer(ha, at, self.log.file_size, slaves, access.accepts, self.notices)
            with self._listening("--namesrv-port", ports.namesrv):
                self._servers = [*remoting, self._server(ports.namesrv, names.handlers)]
        except (BadRequest, OSError):
            self._opened.close()
            raise
        self.is_partial = configuration.is_partial
        self.problems = [*configuration.problems, *([CRASHED] if store.path.has_abort else [])]
        self.ports = Ports(self._ha.port, remoting[0].port, self._servers[-1].port)

    def __enter__(self) -> Self:
        for server in self._servers:
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def slaves(self) -> list[ServedSlave]:
        """Return the slaves that are connected now.

        Raises ChangedSince if another program changed the store, OSError if the files of the store cannot be examined,
        and the error of a failed request handler, which is a bug in rmqctl.
        """
        if time.monotonic() - self._checked >= CHECK_SECONDS:
            self._store.check_as_it_was(self._fingerprint)
            self._checked = time.monotonic()
        for server in self._servers:
            if server.failure is not None:
                raise server.failure
        configured = Counter(self._seen.configured())
        found = []
        for slave in self._ha.connection_list:
            host = slave.client_address.rpartition(":")[0]
            has_log = slave.slave_ack_offset >= self.log.end
            is_configured = configured[host] > 0
            configured[host] -= is_configured
            found.append(ServedSlave(slave.client_address, slave.slave_ack_offset, has_log, is_configured))
        return found

    @contextlib.contextmanager
    def _listening(self, option: str, port: int) -> Iterator[None]:
        # an OSError becomes a BadRequest, whose hint names `option`, unless `port` is 0
        try:
            yield
        except OSError as error:
            what = Address(self._access.address, port) if port else self._access.address
            hint = f"give another {option}" if port else ""
            raise BadRequest(f"cannot listen on {what}: {error.strerror}", hint=hint) from error

    def _handler(self, answer: RemotingCommand) -> Handler:
        def handle(request: RemotingCommand, peer: Address) -> RemotingCommand:
            self._seen.note(peer, request.code)
            return answer

        return handle

    def _remoting_servers(self, port: int, handlers: dict[int, Handler]) -> list[RemotingServer]:
        # P and P-2 must both be free: if `port` is 0, search for such two. Raises OSError
        for _ in range(1 if port else PORT_TRIES):
            first = self._server(port, handlers)
            try:
                return [first, self._server(first.port - VIP_PORT_BELOW, handlers)]
            except OSError:
                first.close()
                if port:
                    raise
        raise OSError(0, "no free pair of ports")

    def _server(self, port: int, handlers: dict[int, Handler]) -> RemotingServer:
        watch = _Watch(self._seen, self.notices)
        server = RemotingServer(self._access.address, port, handlers, accepts=self._access.accepts, watch=watch)
        self._opened.callback(server.close)
        return server


class _Watch(ConnectionWatch):
    def __init__(self, seen: RequestsSeen, notices: Notices) -> None:
        self._seen = seen
        self._notices = notices

    def refused(self, peer: Address, why: str) -> None:
        self._notices.add(f"refused: {peer.host}: {why}")

    def closed(self, peer: Address, fault: str) -> None:
        self._seen.forget(peer)
        if fault:
            self._notices.add(f"note: the connection of {peer.host} ended: {fault}")
