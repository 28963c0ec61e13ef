"""Send messages in batches.

Only one is on its way at a time, so that a kill leaves at most one in doubt. The messages of one source queue all go to
one queue of the target, in their order: to the queue with the number of the source queue, of all queues taken in turn,
or with `keep_queue` to the one with the same id.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.errors import PeerError
from rmqctl.format.body.inner_batch import InnerMessage, inner_messages
from rmqctl.operations.send.route import message_size_max
from rmqctl.remoting.client import RequestRefused
from rmqctl.remoting.request_code import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmqctl.operations.send.outgoing import Outgoing
    from rmqctl.operations.send.receipts import Receipts, Row
    from rmqctl.operations.send.route import Connect, NameServers, OneBroker, Queue, Route
    from rmqctl.remoting.address import Address
    from rmqctl.remoting.client import RemotingClient
    from rmqctl.remoting.frame import RemotingCommand

BATCH_BYTES = 1024 * 1024  # of a batch; a larger message goes alone
PENDING_BYTES = 32 * 1024 * 1024  # of all batches that are not full
GROUP_MESSAGES, GROUP_BYTES = 16_384, 8 * 1024 * 1024  # between two flushes of the receipts to disk
FIRST_GROUP = 1024  # messages: the broker waits for them
BATCH_TOPIC_MAX = 127  # characters; brokers take no batch for a longer topic
PAUSES = (0.5, 2.0)  # seconds before the second and the third try
PRODUCER_GROUP = "rmqctl-send"  # the name of the producer's group
_NOT_SAFE = ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT
_STORED = (ResponseCode.SUCCESS, *_NOT_SAFE)
_TRY_AGAIN = (ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY)  # the message was not stored


@dataclass
class Tally:
    """What came of the messages, in numbers of messages."""

    skipped: int = 0  # have a receipt already
    selected: Counter[str] = field(default_factory=Counter)  # by topic
    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)  # other than SEND_OK; these are sent
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by topic and why


class _Batch:
    def __init__(self, queue: Queue, sys_flag: int) -> None:
        self.queue, self.sys_flag = queue, sys_flag
        self.messages: list[Outgoing] = []
        self.count = self.size = 0
        self.first = 0  # the number of its first record in the group

    def add(self, message: Outgoing) -> None:
        self.messages.append(message)
        self.count += message.messages
        self.size += len(message.data)


class Targets:
    """The routes of topics, and what their brokers take; each is asked once.

    `source` says where topics are. Methods raise PeerError.
    """

    def __init__(self, source: NameServers | OneBroker, connect: Connect, *, keep_queue: bool) -> None:
        self._source, self._connect, self._keep_queue = source, connect, keep_queue
        self._known: dict[str, Route | None] = {}
        self._places: dict[tuple[str, int], Queue | str] = {}
        self._brokers: dict[Address, tuple[RemotingClient, int]] = {}

    def route(self, topic: str) -> Route | None:
        """Return the route of a topic, or None."""
        if topic not in self._known:
            self._known[topic] = self._source.route(topic)
        return self._known[topic]

    def queues(self, topic: str) -> int | None:
        """Return the number of a topic's queues; None if it was not asked for."""
        route = self._known.get(topic)
        return route.queues if route else 0 if topic in self._known else None

    def broker(self, address: Address) -> tuple[RemotingClient, int]:
        """Return the client of a broker, and the most bytes that it takes as a message."""
        if address not in self._brokers:
            with self._connect(address) as asking:
                self._brokers[address] = self._connect(address), message_size_max(asking)
        return self._brokers[address]

    def place(self, message: Outgoing) -> Queue | str:
        """Return the queue for a message, or why there is none."""
        key = message.topic, message.queue_id
        if key not in self._places:
            route = self.route(message.topic)
            if route is None:
                self._places[key] = "the cluster has no such topic"
            elif not self._keep_queue:
                self._places[key] = route.queue_of(key[1])
            else:
                lacks = f"no queue {key[1]}: the topic has {route.queues}"
                self._places[key] = next(route.same_queues(key[1]), lacks)
        return self._places[key]


class Sender:
    """Sends messages, with a receipt for each.

    A batch has at most `batch` messages, `rate` is the most messages a second (0: no limit), `on_doubt` hears of
    messages that may have arrived without an answer, and `is_over` says when to stop after the batch on its way.
    """

    def __init__(
        self,
        targets: Targets,
        receipts: Receipts,
        on_failed: Callable[[str], None],
        on_doubt: Callable[[Mapping[str, Row]], None],
        is_over: Callable[[], bool],
        *,
        batch: int,
        rate: int,
    ) -> None:
        self.tally = Tally()
        self._targets, self._receipts = targets, receipts
        self._batch_max = min(batch, rate) if rate else batch
        self._rate, self._on_failed, self._on_doubt, self._is_over = rate, on_failed, on_doubt, is_over
        self._pending: dict[Queue, _Batch] = {}
        self._pending_size = self._group_size = 0  # bytes
        self._group: list[_Batch] = []
        self._group_max = FIRST_GROUP
        self._leaving: deque[_Batch] = deque()  # the group before
        self._on_its_way: _Batch | None = None
        self._has_left = False  # the request with it, so that the broker may have stored it
        self._free_at = time.monotonic()  # when the rate allows the next batch

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Send all messages that have no receipt.

        Raises PeerError if a broker cannot be reached, or takes nothing: what has no receipt is sent by the next run.
        """
        try:
            for queue, message in self._placed(self._unsent(messages)):
                self._add(queue, message)
            while self._pending and not self._is_over():
                self._close(next(iter(self._pending)))
            self._send_group()
            self._send_group()  # the last one
        finally:
            self._take_answer()

    def count(self, messages: Iterable[Outgoing]) -> None:
        """Count what would be sent, and find out where to.

        Raises PeerError if nobody says where to; the messages are counted all the same.
        """
        unsent = self._unsent(messages)
        try:
            deque(self._placed(unsent), maxlen=0)
        finally:
            deque(unsent, maxlen=0)

    def _unsent(self, messages: Iterable[Outgoing]) -> Iterator[Outgoing]:
        """Count all messages, and yield those that have no receipt."""
        for message in messages:
            if self._is_over():
                return
            self.tally.selected[message.topic] += message.messages
            if self._receipts.has(message):
                self.tally.skipped += message.messages
            else:
                yield message

    def _placed(self, unsent: Iterable[Outgoing]) -> Iterator[tuple[Queue, Outgoing]]:
        """Yield each message that has a queue; count the others."""
        for message in unsent:
            place = self._targets.place(message)
            if isinstance(place, str):
                self.tally.failed[message.topic, place] += message.messages
            elif self._is_too_large(message, limit := self._targets.broker(place.broker)[1]):
                self._fail(message, f"larger than the broker's maxMessageSize, {limit} bytes")
            else:
                yield place, message

    @staticmethod
    def _is_too_large(message: Outgoing, limit: int) -> bool:
        may_be = message.messages == 1 and len(message.data) > limit
        return may_be and len(next(inner_messages(message.data)).body) > limit

    def _add(self, queue: Queue, message: Outgoing) -> None:
        batch = self._pending.get(queue)
        if batch is not None and (
            batch.sys_flag != message.sys_flag
            or batch.size + len(message.data) > BATCH_BYTES
            or batch.count + message.messages > self._batch_max
        ):
            self._close(queue)
            batch = None
        if batch is None:
            batch = self._pending[queue] = _Batch(queue, message.sys_flag)
        batch.add(message)
        self._pending_size += len(message.data)
        if batch.count >= self._batch_max or batch.size >= BATCH_BYTES:
            self._close(queue)
        elif self._pending_size > PENDING_BYTES:
            self._close(next(iter(self._pending)))

    def _close(self, queue: Queue) -> None:
        batch = self._pending.pop(queue)
        self._pending_size -= batch.size
        last = self._group[-1] if self._group else None
        batch.first = last.first + len(last.messages) if last else 0
        self._group.append(batch)
        self._group_size += batch.size
        self._send_next()
        if batch.first + len(batch.messages) >= self._group_max or self._group_size >= GROUP_BYTES:
            self._send_group()

    def _send_group(self) -> None:
        """Send the rest of the group before, and begin this one."""
        while self._leaving and not self._is_over():
            self._send_next()
        self._take_answer()
        self._receipts.begin(message for batch in self._group for message in batch.messages)
        self._leaving, self._group, self._group_size = deque(self._group), [], 0
        self._group_max = min(2 * self._group_max, GROUP_MESSAGES)

    def _send_next(self) -> None:
        """Send a batch, which the broker stores while the next one is made."""
        self._take_answer()
        if self._leaving and not self._is_over():
            batch = self._leaving.popleft()
            self._wait_for(batch.count)
            self._receipts.mark(range(batch.first, batch.first + len(batch.messages)))
            self._on_its_way = batch
            with suppress(PeerError):  # _answer tries again
                self._request(batch)

    def _take_answer(self) -> None:
        batch, self._on_its_way = self._on_its_way, None
        if batch is not None:
            self._finish(batch)

    def _finish(self, batch: _Batch) -> None:
        try:
            self._deliver(batch)
        except RequestRefused as refused:
            if refused.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            if len(batch.messages) == 1:
                self._fail(batch.messages[0], refused.what)
                return
            for number, message in enumerate(batch.messages, batch.first):  # which one does the broker not take?
                alone = _Batch(batch.queue, batch.sys_flag)
                alone.add(message)
                self._receipts.mark(range(number, number + 1))
                self._finish(alone)

    def _fail(self, message: Outgoing, why: str) -> None:
        self.tally.failed[message.topic, why] += message.messages
        self._on_failed(f"not sent: the message at {message.physical_offset}: {why}")

    def _wait_for(self, count: int) -> None:
        if self._rate:
            now = time.monotonic()
            time.sleep(max(self._free_at - now, 0))
            self._free_at = max(self._free_at, now) + count / self._rate

    def _deliver(self, batch: _Batch) -> None:
        answer = self._answer(batch)
        try:
            rows = _receipts(batch, answer)
        except (KeyError, ValueError) as error:
            self._doubt()
            path = str(batch.queue.broker)
            raise PeerError(f"the answer has no place of the messages: {error}", path=path) from error
        self._receipts.add(rows)
        self.tally.sent += batch.count
        if answer.code != ResponseCode.SUCCESS:
            self.tally.statuses[ResponseCode(answer.code).name] += batch.count

    def _request(self, batch: _Batch) -> None:
        client, _ = self._targets.broker(batch.queue.broker)
        client.connect()
        self._has_left = True
        client.request(*_request(batch))

    def _answer(self, batch: _Batch) -> RemotingCommand:
        """Return the answer to a batch, sent again where none comes."""
        client, _ = self._targets.broker(batch.queue.broker)
        for pause in (*PAUSES, None):
            try:
                if not self._has_left:
                    self._request(batch)
                return client.answer(_STORED)
            except RequestRefused as refused:
                if refused.code not in _TRY_AGAIN or pause is None:
                    raise
                if refused.code == ResponseCode.GO_AWAY:
                    client.close()
            except PeerError:
                if self._has_left:
                    self._doubt()
                if pause is None:
                    raise
            finally:
                self._has_left = False
            time.sleep(pause or 0)
        raise AssertionError  # the last try returned or raised

    def _doubt(self) -> None:
        self._receipts.doubt()
        self._on_doubt(self._receipts.in_doubt)


def _request(batch: _Batch) -> tuple[RequestCode, dict[str, str], bytes]:
    """Return code, fields and body of the request for a batch.

    The fields are those of SendMessageRequestHeaderV2. A large message goes alone: a batch of one needs more room.
    """
    is_alone = batch.count == 1 and (batch.size > BATCH_BYTES or len(batch.queue.topic) > BATCH_TOPIC_MAX)
    flag, body, pairs, *_ = next(inner_messages(batch.messages[0].data)) if is_alone else InnerMessage(0, b"", b"")
    topic, queue_id, now = batch.queue.topic, batch.queue.queue_id, time.time_ns() // 1_000_000
    # the third is the topic after which a missing one is made: itself, so that none is
    values = (PRODUCER_GROUP, topic, topic, 4, queue_id, batch.sys_flag, now, flag, pairs.decode("utf-8", "replace"), 0)
    fields = dict(zip("abcdefghijkm", (*map(str, values), "false", str(not is_alone).lower()), strict=True))
    code = RequestCode.SEND_MESSAGE_V2 if is_alone else RequestCode.SEND_BATCH_MESSAGE
    if not is_alone:
        body = b"".join(message.data for message in batch.messages)
    return code, fields, body


def _receipts(batch: _Batch, answer: RemotingCommand) -> list[Row]:
    """Return the receipts of a batch.

    Raises KeyError or ValueError if the answer does not have them.
    """
    fields = answer.ext_fields
    ids, first, queue_id = fields["msgId"].split(","), int(fields["queueOffset"]), int(fields["queueId"])
    if len({*ids}) != batch.count:  # also if the batch is too long for a log file: brokers drop it, and say SEND_OK
        raise ValueError(f"{len({*ids})} ids for {batch.count} messages")
    senders = [message for message in batch.messages for _ in range(message.messages)]
    status = {} if answer.code == ResponseCode.SUCCESS else {"status": ResponseCode(answer.code).name}
    return [
        {
            "physicalOffset": message.physical_offset,
            "topic": batch.queue.topic,
            "queueId": queue_id,
            "queueOffset": number,
            "offsetMsgId": offset_msg_id,
            "msgId": message.msg_id,
            **status,
        }
        for number, (message, offset_msg_id) in enumerate(zip(senders, ids, strict=True), first)
    ]
