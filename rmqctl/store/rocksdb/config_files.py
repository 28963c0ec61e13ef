"""A broker's configuration in RocksDB, shown as the JSON files of other brokers.

Topics, groups and consumer offsets are in one of these databases of config/; the other files of config/ are files:

| databases | brokers | rows |
|---|---|---|
| topics, subscriptionGroups, consumerOffsets | 5.2 and later, storeType=defaultRocksDB | name or topic@group: JSON |
| metadata | 5.4 and later, with useSingleRocksDBForAllConfigs | the same, in three families |
| rdb | 5.3.2 and later, configManagerVersion=v2 | see below |

In rdb, a key begins with 01, table2, 02, where table 1 has the offsets, 3 the topics and 4 the groups. For a topic or
group, nameLen2 and the name follow, and the value is 01 and JSON. For an offset, it is groupLen2, group, 01, topicLen2,
topic, 01, queueId4, and the value is the offset8.
"""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY, OF_ROCKSDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.logfile.system.rocksdb import Database

V1, SINGLE, V2 = ("topics", "subscriptionGroups", "consumerOffsets"), ("metadata",), ("rdb",)
LAYOUTS = (V1, SINGLE, V2)
TOPICS, GROUPS, OFFSETS = "topics.json", "subscriptionGroup.json", "consumerOffset.json"
SHOWN = (TOPICS, GROUPS, OFFSETS)
_TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", OFFSETS: "offsetTable"}
FAMILIES = {TOPICS: "topic", GROUPS: "subscriptionGroup", OFFSETS: "consumerOffset"}  # of SINGLE
_OWN_DATABASES = dict(zip(_TABLES, V1, strict=True))
_TABLES_OF_V2 = {TOPICS: 3, GROUPS: 4, OFFSETS: 1}
_JSON = b"\1"


class ConfigFiles:
    """The files of config/ that brokers with databases do not have.

    `layout` is one of LAYOUTS, and `opened` opens a database by its name in config/.
    """

    def __init__(self, opened: Callable[[str], Database], layout: tuple[str, ...]) -> None:
        self._opened = opened
        self._layout = layout
        self._known: dict[str, bytes | OSError] = {}

    def hides(self, names: tuple[str, ...]) -> bool:
        """Return whether a name is one of the files, or its `.bak`."""
        return len(names) == 1 and names[0].removesuffix(".bak") in _TABLES

    def names(self, names: tuple[str, ...]) -> list[str] | None:
        """Return the names of the files."""
        return list(_TABLES) if not names else None

    def size(self, names: tuple[str, ...]) -> int | None:
        """Return 0, or None for a `.bak`: the database may be unreadable."""
        return 0 if names[0] in _TABLES else None

    def content(self, names: tuple[str, ...]) -> bytes:
        """Return the JSON text of a file."""
        name = names[0]
        if name not in self._known:
            try:
                self._known[name] = self._read(name)
            except OSError as error:  # each try to open a damaged database takes a second
                self._known[name] = error
        known = self._known[name]
        if isinstance(known, OSError):
            raise known
        return known

    def _read(self, name: str) -> bytes:
        rows = _offsets(self._rows(name)) if self._layout == V2 and name == OFFSETS else self._rows(name)
        entries = {key.decode("utf-8", "replace"): self._entry(name, key, text) for key, text in rows}
        return json.dumps({_TABLES[name]: entries}).encode()

    def _rows(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield what the rows of a table have: a name, and the JSON of its entry."""
        if self._layout == V2:
            prefix = b"\1" + _TABLES_OF_V2[name].to_bytes(2, "big") + b"\2"
            for key, value in self._opened(V2[0]).rows(prefix=prefix):
                if name == OFFSETS:
                    yield key[len(prefix) :], value
                elif value.startswith(_JSON):
                    yield key[len(prefix) + 2 :], value[len(_JSON) :]
            return
        single = self._layout == SINGLE
        database = self._opened(SINGLE[0] if single else _OWN_DATABASES[name])
        for key, value in database.rows(FAMILIES[name] if single else DEFAULT_FAMILY):
            yield key, value

    def _entry(self, name: str, key: bytes, text: bytes) -> Any:
        """Return the entry of a row. Raises OSError if it is no JSON object."""
        try:
            found = json.loads(text)
            entry = found[_TABLES[OFFSETS]] if name == OFFSETS and self._layout != V2 else found
            if isinstance(entry, dict):
                return entry
        except (ValueError, RecursionError, KeyError, TypeError):
            pass
        what = f"{OF_ROCKSDB}the row {key[:64]!r} of {FAMILIES[name]} is no JSON object"
        raise OSError(errno.EIO, what)


def _offsets(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield `topic@group` and the JSON of its offsets by queueId, for rows of V2."""
    found: dict[bytes, dict[str, int]] = {}
    for key, value in rows:
        group, rest = _text(key)
        topic, queue_id = _text(rest[1:])
        of_group = found.setdefault(topic + b"@" + group, {})
        of_group[str(int.from_bytes(queue_id[1:5], "big"))] = int.from_bytes(value[:8], "big", signed=True)
    return ((name, json.dumps(offsets).encode()) for name, offsets in found.items())


def _text(raw: bytes) -> tuple[bytes, bytes]:
    """Split what begins with a length of 2 bytes and a text of this length."""
    end = 2 + int.from_bytes(raw[:2], "big")
    return raw[2:end], raw[end:]
