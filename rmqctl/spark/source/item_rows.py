"""Make rows for blanks, for damage, and for very large messages.

The items of a log are its messages, blanks and damage. The column reader does not read very large messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqctl.format import properties
from rmqctl.format.body.message_row import damage_row, message_row
from rmqctl.format.message import Damage, Message
from rmqctl.format.timestamp import MAX_MS, MIN_MS
from rmqctl.spark.source.message_columns import US_PER_MS, body_text
from rmqctl.spark.source.message_schema import KIND_BLANK, KIND_DAMAGE, KIND_MESSAGE
from rmqctl.spark.source.source_stores import broker_of

if TYPE_CHECKING:
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class ItemRows:
    """Makes rows for the blanks, damage and very large messages of one store.

    Each row is a dict of columns. `root` is the folder of the store. `store` is a function that returns the open store.
    """

    def __init__(self, root: str, store: Callable[[], ReadOnlyStore]) -> None:
        self._store = store
        self._same = {"broker": broker_of(root), "store": root}

    def row(self, item: ScanItem, path: str) -> dict[str, Any]:
        """Return the row of a message, blank or damage.

        `path` is the path of the log file, in the form that findings use.
        """
        if isinstance(item, Message):
            row = message_row(item, path=path, tags_code=self._store().tags_code(item))
            return self._same | {"kind": KIND_MESSAGE} | row | _texts(item)
        if isinstance(item, Damage):
            row = damage_row(item, path=path)
            return self._same | {"kind": KIND_DAMAGE} | row | ({} if item.message is None else _texts(item.message))
        return self._same | {
            "kind": KIND_BLANK,
            "path": path,
            "physicalOffset": item.physical_offset,
            "size": item.size,
        }


def _texts(message: Message) -> dict[str, Any]:
    """Return the columns that `rmqctl dump` does not print or prints differently."""
    found = message.properties
    time = message.store_timestamp
    return {
        "storeTime": time * US_PER_MS if MIN_MS <= time <= MAX_MS else None,
        "tags": found.get(properties.TAGS),
        "keys": found.get(properties.KEYS),
        "uniqKey": found.get(properties.UNIQ_KEY),
        "properties": list(found.items()),
        "body": bytes(message.body),
        "bodyText": body_text(message),
    }
