"""Where the messages of a topic go: what the name servers, or one broker, say.

A producer has to believe a name server which brokers there are. So do we; their number and that of the queues are
bounded, and an answer that is not a route is an error.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import BadRequest, PeerError
from rmqctl.remoting.address import Address, parse_address
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient, RequestRefused
from rmqctl.remoting.request_code import RequestCode, ResponseCode
from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.config.topics import WRITE_NUMS
from rmqctl.store.write.topic_config import QUEUE_NUMS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Connect = Callable[[Address], RemotingClient]

MASTER_ID = "0"
PERM_WRITE = 2
MESSAGE_SIZE_MAX = 4 * 1024 * 1024  # maxMessageSize of a broker that does not tell its own


class Queue(NamedTuple):
    """A queue that can be written."""

    broker: Address
    topic: str
    queue_id: int


class Route(NamedTuple):
    """The brokers that take a topic's messages, in the order of their names.

    Each has its number of queues that can be written.
    """

    topic: str
    brokers: tuple[tuple[Address, int], ...]

    @property
    def queues(self) -> int:
        """Return the number of writable queues."""
        return sum(count for _, count in self.brokers)

    def queue_of(self, number: int) -> Queue:
        """Return the queue for the messages of the store's queue `number`.

        The queues are taken in turn, first all with the id 0, so that each broker gets its share.
        """
        ids = range(max(count for _, count in self.brokers))
        return next(
            islice((queue for queue_id in ids for queue in self.same_queues(queue_id)), number % self.queues, None)
        )

    def same_queues(self, queue_id: int) -> Iterator[Queue]:
        """Yield the queues with this id, one of each broker that has it."""
        return (Queue(broker, self.topic, queue_id) for broker, count in self.brokers if queue_id < count)


class NameServers:
    """Asks the first of several name servers that answers."""

    def __init__(self, addresses: Sequence[Address], connect: Connect) -> None:
        self._clients = [connect(address) for address in addresses]

    def route(self, topic: str) -> Route | None:
        """Return the route of a topic, or None if there is none.

        Raises PeerError if no name server answers.
        """
        failed: PeerError | None = None
        for client in self._clients:
            try:
                fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
                return self._route(topic, client, client.invoke(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields).body)
            except RequestRefused as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                failed = failed or refused
            except PeerError as error:
                error.hint = "check that a name server runs there, and that this is its port"
                failed = failed or error
        raise failed or BadRequest("give the address of a name server")

    @staticmethod
    def _route(topic: str, client: RemotingClient, body: bytes) -> Route | None:
        try:
            found = fastjson_loads(body.decode())
            masters = {
                str(row["brokerName"]): parse_address(row["brokerAddrs"][MASTER_ID])
                for row in found["brokerDatas"]
                if MASTER_ID in row["brokerAddrs"]
            }
            brokers = {
                str(row["brokerName"]): (masters[row["brokerName"]], _queues(row))
                for row in found["queueDatas"]
                if row["brokerName"] in masters
            }
        except (ValueError, KeyError, TypeError, AttributeError, BadRequest) as error:
            raise PeerError(f"its route of {topic} cannot be read: {error}", path=str(client.address)) from error
        return _made(topic, [brokers[name] for name in sorted(brokers)])


class OneBroker:
    """Asks a broker itself for its topics; all messages go to it."""

    def __init__(self, address: Address, connect: Connect) -> None:
        self._address, self._client = address, connect(address)
        self._topics: dict[str, Any] | None = None

    def route(self, topic: str) -> Route | None:
        """Return the route of a topic, or None if the broker has no such topic.

        Raises PeerError.
        """
        try:
            if self._topics is None:
                self._topics = dict(fastjson_loads(BrokerRequests(self._client).topics())["topicConfigTable"])
            row = self._topics.get(topic)
            return None if row is None else _made(topic, [(self._address, _queues(row))])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PeerError(f"its topics cannot be read: {error}", path=str(self._address)) from error


def _queues(row: dict[str, Any]) -> int:
    count, perm = row[WRITE_NUMS], row["perm"]
    if not (isinstance(count, int) and isinstance(perm, int) and 0 <= count <= QUEUE_NUMS_MAX):
        raise ValueError(f"{count} queues")
    return count if perm & PERM_WRITE else 0


def _made(topic: str, brokers: Sequence[tuple[Address, int]]) -> Route | None:
    found = Route(topic, tuple(broker for broker in brokers if broker[1]))
    return found if found.brokers else None


def message_size_max(client: RemotingClient) -> int:
    """Return the most bytes that a broker takes as a message.

    They are 4 MiB if it does not tell. Raises PeerError.
    """
    try:
        text = BrokerRequests(client).broker_config().get("maxMessageSize", "")
    except RequestRefused:
        text = ""
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 11 else MESSAGE_SIZE_MAX
