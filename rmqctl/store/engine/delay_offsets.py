"""config/delayOffset.json: the offset up to which each delay level is delivered.

Each queue of SCHEDULE_TOPIC_XXXX belongs to one delay level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.store.config.config_file import load_config, table
from rmqctl.store.read.consumers.consumer_offsets import DELAY_OFFSET
from rmqctl.store.write.config_writer import write_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.logfile.system.writable_storage import WritableStorage

UPDATES_PER_VERSION = 200  # delayOffsetUpdateVersionStep


class DelayOffsets:
    """The next queue offset of each delay level, from delayOffset.json in `folder`.

    A delay level that is not listed begins at queue offset 0. In 5.x, the file has a dataVersion, which is increased
    after every 200 updates. `now` returns the time for it in ms since 1970.

    Raises Unreadable if neither delayOffset.json nor its .bak can be loaded. A broker that cannot load the file, and
    has no .bak or an empty one, delivers all delayed messages a second time.
    """

    def __init__(self, storage: WritableStorage, folder: Path, profile: Profile, now: Callable[[], int]) -> None:
        self._storage = storage
        self._folder = folder
        self._now = now
        config = load_config(storage, folder, DELAY_OFFSET)
        if config.content is None:
            hint = "put a good copy there; without any, all delayed messages that are still there are delivered again"
            raise Unreadable(config.problem, path=str(config.path), hint=hint)
        known = table(config, "offsetTable").items()
        levels = [(level, offset) for level, offset in known if level.isdecimal() and len(level) < 10]
        self._offsets = {int(level): offset for level, offset in levels if isinstance(offset, int)}
        self._version = self._version_of(table(config, "dataVersion")) if profile.versions_delay_offsets else None
        self._updates = 0
        self._written = True

    def get(self, level: int) -> int:
        """Return the queue offset at which the delivery of a delay level continues."""
        return self._offsets.get(level, 0)

    def update(self, level: int, offset: int) -> None:
        """Record that a delay level is delivered up to a queue offset."""
        self._offsets[level] = offset
        self._written = False
        self._updates += 1
        if self._version is not None and self._updates % UPDATES_PER_VERSION == 0:
            self._version |= {"counter": self._version["counter"] + 1, "timestamp": self._now()}

    def persist(self) -> None:
        """Write delayOffset.json, if an offset changed. Raises OSError."""
        if self._written:
            return
        self._written = True
        offsets = {"offsetTable": dict(sorted(self._offsets.items()))}
        version = {"dataVersion": self._version} if self._version is not None else {}
        try:
            write_config(self._storage, self._folder, DELAY_OFFSET, version | offsets)
        except OSError:
            self._written = False
            raise

    def _version_of(self, known: dict[str, int]) -> dict[str, int]:
        usual = {"counter": 0, "stateVersion": 0, "timestamp": self._now()}
        return usual | {name: value for name, value in known.items() if name in usual and isinstance(value, int)}
