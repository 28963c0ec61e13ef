"""Make Arrow arrays from the columns of good messages.

This needs no Python object for each message. Texts that are not valid UTF-8 go through the one-record decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format import host
from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.message import tags_code
from rmqctl.format.timestamp import MAX_MS, MIN_MS
from rmqctl.kernels import row_scan
from rmqctl.kernels.row_scan import TextTable
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqctl.format.message import Message
    from rmqctl.logfile.column_reader import Columns

VALUES = frozenset({"tagsCode", "tags", "keys", "uniqKey"})  # columns from the properties
_SCHEDULE = SCHEDULE_TOPIC.encode()
US_PER_MS = 1000


class MessageColumns:
    """Makes Arrow arrays for the columns `names` of scanned messages.

    Not for two threads at the same time. `constants` are the columns that have one value in all rows. `scheduled`
    returns the tagsCode of a message of SCHEDULE_TOPIC_XXXX. `bodies` makes their text.
    """

    def __init__(
        self,
        names: Sequence[str],
        constants: dict[str, str | None],
        scheduled: Callable[[Message], int],
        bodies: Bodies = NO_BODIES,
    ) -> None:
        self._bodies = bodies
        self._names = names
        self._constants = constants
        self._scheduled = scheduled
        self._with_values = not VALUES.isdisjoint(names)
        self._topics = _Texts(lambda raw: raw.decode("utf-8", "replace"))
        self._hosts = _Texts(lambda raw: str(host.decode(raw)))

    def arrays(self, columns: Columns) -> list[Any]:
        """Return one Arrow array for each column of `names`."""
        import pyarrow as pa

        rows = _Rows(columns, self._topics, self._hosts, self._scheduled, self._bodies, with_values=self._with_values)
        constants = self._constants | {"path": columns.path}
        return [
            pa.repeat(pa.scalar(constants[name], pa.string()), len(columns.rows))
            if name in constants
            else _MAKERS[name](rows)
            for name in self._names
        ]


class _Texts:
    """A table of texts, such as topics or hosts, each converted once for all rows."""

    def __init__(self, shown: Callable[[bytes], str]) -> None:
        self.table = TextTable()
        self._shown = shown
        self._texts: list[str] = []
        self._array: Any = None

    def taken(self, numbers: Any) -> Any:
        import pyarrow as pa

        if self._array is None or len(self._texts) < len(self.table.texts):
            self._texts += map(self._shown, self.table.texts[len(self._texts) :])
            self._array = pa.array(self._texts, pa.string())
        return self._array.take(pa.array(np.ascontiguousarray(numbers)))


class _Rows:
    """The rows of a record run, with the data that several columns need."""

    def __init__(
        self,
        columns: Columns,
        topics: _Texts,
        hosts: _Texts,
        scheduled: Callable[[Message], int],
        bodies: Bodies,
        *,
        with_values: bool,
    ) -> None:
        self._bodies = bodies
        self.columns = columns
        self.rows = columns.rows
        self.topics = topics
        self.hosts = hosts
        self._scheduled = scheduled
        self._with_values = with_values

    @cached_property
    def described(self) -> Any:
        return row_scan.describe(
            self.columns.buffer, self.rows, self.topics.table, self.hosts.table, with_values=self._with_values
        )

    def scanned(self, field: str) -> Any:
        import pyarrow as pa

        return pa.array(np.ascontiguousarray(self.rows[field]))

    def head(self, field: str) -> Any:
        """Return a numeric field that `row_scan.describe` reads."""
        import pyarrow as pa

        return pa.array(np.ascontiguousarray(self.described[field]))

    def offsets(self) -> Any:
        import pyarrow as pa

        return pa.array(self.rows["position"] + self.columns.physical_offset)

    def sizes(self) -> Any:
        import pyarrow as pa

        return pa.array(self.rows["size"].astype(np.int64))

    @staticmethod
    def times(of_rows: Any) -> Any:
        """Return times (ms since 1970) as Arrow timestamps in microseconds (UTC).

        One is null if the number in the record is not a valid date.
        """
        import pyarrow as pa

        ms = np.ascontiguousarray(of_rows)
        is_date = (ms >= MIN_MS) & (ms <= MAX_MS)
        return pa.array(np.where(is_date, ms, 0) * US_PER_MS, pa.int64(), mask=~is_date).cast(pa.timestamp("us", "UTC"))

    def topic(self) -> Any:
        return self.topics.taken(self.described["topic"])

    def host(self, field: str) -> Any:
        return self.hosts.taken(self.described[field])

    def msg_ids(self) -> Any:
        return _texts(*row_scan.msg_ids(self.columns.buffer, self.columns.physical_offset, self.rows))

    def tags_codes(self) -> Any:
        import pyarrow as pa

        codes = self.described["tags_code"].copy()
        for row in np.flatnonzero(~self.described["is_text"]).tolist():
            codes[row] = tags_code(self.columns.message(row).properties)
        for number, topic in enumerate(self.topics.table.texts):
            if topic == _SCHEDULE:
                for row in np.flatnonzero(self.described["topic"] == number).tolist():
                    codes[row] = self._scheduled(self.columns.message(row))
        return pa.array(codes)

    def value(self, field: str, name: str) -> Any:
        """Return one property of each message, null where it is missing."""
        import pyarrow as pa

        lengths = self.described[f"{field}_length"]
        found = _texts(
            *row_scan.gather(self.columns.buffer, self.described[f"{field}_start"], lengths), present=lengths > 0
        )
        if _is_text(found):
            return found
        return pa.array([self.columns.message(row).properties.get(name) for row in range(len(self.rows))], pa.string())

    def properties(self) -> Any:
        import pyarrow as pa

        offsets, pairs = row_scan.pairs(self.columns.buffer, self.rows)
        names = _texts(*row_scan.gather(self.columns.buffer, pairs["name_start"], pairs["name_length"]))
        values = _texts(*row_scan.gather(self.columns.buffer, pairs["value_start"], pairs["value_length"]))
        if _is_text(names) and _is_text(values):
            return pa.MapArray.from_arrays(pa.array(offsets), names, values)
        decoded = [list(self.columns.message(row).properties.items()) for row in range(len(self.rows))]
        return pa.array(decoded, pa.map_(pa.string(), pa.string()))

    def bodies(self) -> Any:
        import pyarrow as pa

        offsets, data = row_scan.gather(self.columns.buffer, self.rows["body_start"], self.rows["body_length"])
        return pa.Array.from_buffers(pa.binary(), len(self.rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def body_texts(self) -> Any:
        import pyarrow as pa

        texts = [body_text(self.columns.message(row), self._bodies) for row in range(len(self.rows))]
        return pa.array(texts, pa.string())


_MAKERS: dict[str, Callable[[_Rows], Any]] = {
    "physicalOffset": _Rows.offsets,
    "size": _Rows.sizes,
    "topic": _Rows.topic,
    "queueId": lambda rows: rows.scanned("queue_id"),
    "queueOffset": lambda rows: rows.scanned("queue_offset"),
    "bodyCrc": lambda rows: rows.head("body_crc"),
    "bodyLength": lambda rows: rows.scanned("body_length"),
    "flag": lambda rows: rows.head("flag"),
    "sysFlag": lambda rows: rows.scanned("sys_flag"),
    "bornTimestamp": lambda rows: rows.head("born_timestamp"),
    "bornTime": lambda rows: rows.times(rows.described["born_timestamp"]),
    "bornHost": lambda rows: rows.host("born_host"),
    "storeTimestamp": lambda rows: rows.scanned("store_timestamp"),
    "storeTime": lambda rows: rows.times(rows.rows["store_timestamp"]),
    "storeHost": lambda rows: rows.host("store_host"),
    "reconsumeTimes": lambda rows: rows.head("reconsume_times"),
    "preparedTransactionOffset": lambda rows: rows.head("prepared_transaction_offset"),
    "msgId": _Rows.msg_ids,
    "tagsCode": _Rows.tags_codes,
    "tags": lambda rows: rows.value("tags", "TAGS"),
    "keys": lambda rows: rows.value("keys", "KEYS"),
    "uniqKey": lambda rows: rows.value("uniq_key", "UNIQ_KEY"),
    "properties": _Rows.properties,
    "body": _Rows.bodies,
    "bodyText": _Rows.body_texts,
}


def body_text(message: Message, bodies: Bodies) -> str | None:
    """Return the text that `rmqctl dump --body utf8` shows.

    None for a body that cannot be decompressed.
    """
    data, error = bodies.plain(message)
    return None if error is not None else bodies.text(data)


def _texts(offsets: Any, data: Any, present: Any = None) -> Any:
    """Return the successive texts in `data` as an Arrow array.

    `offsets` has the position where each text begins, and the end of the last one. `present` is False for each text
    that becomes null (None: no text does).
    """
    import pyarrow as pa

    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _is_text(array: Any) -> bool:
    import pyarrow as pa

    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
