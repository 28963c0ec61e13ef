"""Make a short row for each message that may have been stored more than once.

It has a hash and the place of the message. Rows with equal hashes are read again, because different messages can have
equal hashes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.message import Message
from rmqctl.format.properties import UNIQ_KEY
from rmqctl.kernels import row_scan
from rmqctl.kernels.row_scan import TextTable
from rmqctl.kernels.send_hash import send_hash, send_hashes, topic_seed
from rmqctl.spark.source.message_schema import KIND_SEND, SEND_COLUMNS, record_batch
from rmqctl.store.config.topics import GROUP_PREFIXES, SCHEDULE_TOPIC, SYSTEM_PREFIXES

if TYPE_CHECKING:
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.spark.scan.split import Split
    from rmqctl.spark.source.message_schema import Sends
    from rmqctl.store.read.file_scan import ScanItem

# where brokers keep copies of messages by design: delays, half messages and their placeholders, retries, dead letters
BROKERS_OWN_TOPICS = f"^({SCHEDULE_TOPIC}$|{'|'.join((*SYSTEM_PREFIXES, *GROUP_PREFIXES))})"


class SendRows:
    """Makes a row of SEND_COLUMNS for each message of a split that has a UNIQ_KEY.

    `schema` is the pyarrow schema of the rows.
    """

    def __init__(self, split: Split, schema: Any, sends: Sends) -> None:
        self._schema = schema
        self._all_topics = sends.all_topics
        self._base = split.file_from_offset
        number = sends.roots.index(split.root)
        self._same = {"kind": KIND_SEND, "storeNumber": number, "fileNumber": split.file}
        self._topics, self._hosts = TextTable(), TextTable()
        self._seeds = np.zeros(0, np.uint64)
        self._is_searched = np.zeros(0, np.bool_)

    def of_run(self, columns: Columns) -> Any:
        """Return the record batch of a record run, or None if no message has a UNIQ_KEY."""
        described = row_scan.describe(columns.buffer, columns.rows, self._topics, self._hosts, with_values=True)
        self._know_topics()
        found = np.flatnonzero((described["uniq_key_length"] > 0) & self._is_searched[described["topic"]])
        if not len(found):
            return None
        rows, described = columns.rows[found], described[found]
        starts, lengths = described["uniq_key_start"], described["uniq_key_length"]
        topics = self._seeds[described["topic"]]
        hashes, is_ascii = send_hashes(
            columns.buffer, starts, lengths, topics, described["body_crc"], rows["body_length"]
        )
        for at in np.flatnonzero(~is_ascii).tolist():  # not each text is valid UTF-8
            hashes[at] = _hash_of(columns.message(int(found[at])), hashes[at])
        place = rows["position"] + (columns.physical_offset - self._base)
        return self._batch({"position": place, "hash": hashes})

    def of_item(self, item: ScanItem, path: str) -> list[dict[str, Any]]:
        """Return the row of a message that is too large for a record run."""
        del path
        if not isinstance(item, Message) or UNIQ_KEY not in item.properties or not self._searches(item.topic):
            return []
        return [self._same | {"position": item.physical_offset - self._base, "hash": _hash_of(item, 0)}]

    def rest(self) -> Any:
        """Return None, because `of_run` and `of_item` have already returned all rows."""
        return None

    def _batch(self, columns: dict[str, Any]) -> Any:
        same = dict.fromkeys(SEND_COLUMNS) | self._same
        return record_batch(self._schema, columns, same, len(columns["hash"]))

    def _searches(self, topic: str) -> bool:
        return self._all_topics or re.search(BROKERS_OWN_TOPICS, topic) is None

    def _know_topics(self) -> None:
        texts = self._topics.texts[len(self._seeds) :]
        if texts:
            new = [text.decode("utf-8", "replace") for text in texts]
            self._seeds = np.append(self._seeds, np.array([topic_seed(topic) for topic in new], np.uint64))
            self._is_searched = np.append(self._is_searched, [self._searches(topic) for topic in new])


def _hash_of(message: Message, default: int) -> int:
    key = message.properties.get(UNIQ_KEY)
    return default if key is None else send_hash(message.topic, key, message.body_crc, len(message.body))
