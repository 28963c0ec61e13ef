"""Rows of the items that cannot be read by the column reader.

These items are blanks, damage, and messages that are too large for the column reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqctl.forensics.message_row import damage_row, message_row
from rmqctl.format import properties
from rmqctl.format.message import Damage, Message
from rmqctl.format.timestamp import MAX_MS, MIN_MS
from rmqctl.spark.source.message_columns import US_PER_MS
from rmqctl.spark.source.message_schema import KIND_BLANK, KIND_DAMAGE, KIND_MESSAGE
from rmqctl.spark.source.source_stores import broker_of

if TYPE_CHECKING:
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class ItemRows:
    """A maker of rows for items of the store at `root`.

    Each row is a dict of columns. `store` returns the open store, which is needed for values that the log does not
    have.
    """

    def __init__(self, root: str, store: Callable[[], ReadOnlyStore]) -> None:
        self._store = store
        self._same = {"broker": broker_of(root), "store": root}

    def row(self, item: ScanItem, path: str) -> dict[str, Any]:
        """Return the row of an item.

        `path` is the path of the item's file, as findings name this file.
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
    """Return the columns that `rmqctl dump` lacks or shows in another form."""
    found = message.properties
    time = message.store_timestamp
    return {
        "storeTime": time * US_PER_MS if MIN_MS <= time <= MAX_MS else None,
        "tags": found.get(properties.TAGS),
        "keys": found.get(properties.KEYS),
        "uniqKey": found.get(properties.UNIQ_KEY),
        "properties": list(found.items()),
        "body": bytes(message.body),
    }
