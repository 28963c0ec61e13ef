"""The placeholders that a repair writes into the log, and what they replace."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.operations.placeholder.blocks import are_served
from rmqctl.operations.placeholder.planner import Placeholders
from rmqctl.operations.repair.missing_files import messages_between
from rmqctl.store.recovery.data_loss import NO_RECORDS, DataLoss
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.message import Damage
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REPLACED_FILES_MAX = 10_000  # missing files; each is a separate change in the journal


class Replacements:
    """Plans placeholders, for at most `limit` bytes, and counts what they replace."""

    def __init__(self, store: ReadOnlyStore, profile: Profile, builder: DispatchRequestBuilder, limit: int) -> None:
        self.placeholders = Placeholders(store, profile)
        self.bytes = 0  # of the log that get placeholders
        self.lost = DataLoss()
        self.of_queues: Counter[QueueKey] = Counter()
        self._store = store
        self._builder = builder
        self._limit = limit
        self._files = 0

    def check_limit(self, damages: list[Damage], good: int) -> None:
        """Raise BadRequest if `damages`, before the record at `good`, are too large."""
        log = self._store.commit_log
        needed = self.bytes + sum(damage.size for damage in damages)
        self._files += sum(damage.size // log.queue.file_size for damage in damages if damage.code == "file-gap")
        if needed <= self._limit and self._files <= REPLACED_FILES_MAX:
            return
        limit, hint = counted(self._limit, "byte"), "; --placeholders-limit SIZE raises the limit"
        if self._files > REPLACED_FILES_MAX:
            limit, hint = counted(REPLACED_FILES_MAX, "file"), ""
        begin, end = damages[0].physical_offset, damages[-1].end
        missing = f" of {counted(self._files, 'missing file')}" if self._files else ""
        told = f"queues have {counted(messages_between(self._store, begin, end), 'message')} there"
        raise BadRequest(
            f"placeholders are needed for {counted(needed, 'byte')} of the log up to {end}{missing}, more than the "
            f"limit of {limit}; {told}; nothing was changed",
            path=log.path_of(good),
            hint=f"if this file does not belong to this log, move it away{hint}",
        )

    def replace(self, damages: list[Damage], before: int, good: int, take: Callable[[DispatchColumns], None]) -> None:
        """Plan the placeholders for `damages`, and pass them to `take`.

        `before` and `good` are the physical offsets of the good records around them. Raises ValueError as
        `Placeholders.replace` does, and has then planned nothing.
        """
        blocks = self.placeholders.replace(damages, before, good)
        size = 0
        for block in blocks:
            described = self._builder.take(block.columns())
            if len(described.messages):
                take(described)
            served = described.messages[are_served(described.messages)]
            size += int(served["size"].sum(dtype=np.int64))
            for number, count in zip(*np.unique(served["queue"], return_counts=True), strict=True):
                self.of_queues[self._builder.keys[number]] += int(count)
        removed = [damage for damage in damages if damage.message is not None or damage.code not in NO_RECORDS]
        records = max(sum(block.served for block in blocks), len(removed))
        removed_bytes = max(size, sum(damage.size for damage in removed))
        self.lost = DataLoss(self.lost.records + records, self.lost.bytes + removed_bytes)
        self.bytes += sum(damage.size for damage in damages)

    def replace_torn_end(self, torn: Damage, before: int) -> None:
        """Replace the log's last record, whose properties are torn.

        The placeholder keeps the properties that are complete, so no message is lost.
        """
        self.placeholders.replace([torn], before, torn.end)
        self.bytes += torn.size
