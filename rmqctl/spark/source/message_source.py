"""The data source `rocketmq`: the splits of all stores, and the reading.

Spark's planner and Spark's tasks call this module. Everything that the module needs is in the options of the data
source.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.spark.scan.split import Split, splits_of
from rmqctl.spark.scan.split_size import MIB, SPLIT_MIB, SPLIT_MIB_MAX
from rmqctl.spark.source.message_schema import DIVISIONS, Division
from rmqctl.spark.source.source_stores import is_true, number, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.message import Damage
    from rmqctl.spark.source.split_rows import RowReading

INTERVAL_MS_MAX = 366 * 86_400_000


class Task(NamedTuple):
    """The input of one task.

    `part` is a split, or the damage between files. `of` is the number of tasks. The number is stored in each task and
    not in the reader, because Spark copies the reader before the number is known.
    """

    part: Split | Wrong
    of: int


class Wrong(NamedTuple):
    """The damage in the sequence of a log's files, such as a missing file.

    `root` is the folder of the store. A separate task makes the rows of this damage, because the damage belongs to no
    split.
    """

    root: str
    damages: tuple[Damage, ...]


class MessageSource:
    """The source of `spark.read.format("rocketmq")`.

    `columns` are the columns of the schema.

    The options `path`, `paths`, `brokerConf` and `followLinks` define the stores. `splitMiB` is the number of MiB of
    the log that each task reads. `ranges` adds a row of kind 'range' for each split. `splits` gives the splits to read,
    as `splits_to_json` writes them. Without `splits`, the source makes the splits.

    Raises BadRequest if an option is not valid, and NotAStore if nothing matches a pattern.
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._stores = stores_of(options)
        self._columns = tuple(columns)
        self._ranges = is_true(options, "ranges")
        self._split_size = number(options, "splitMiB", SPLIT_MIB, 1, SPLIT_MIB_MAX) * MIB
        self._given = splits_from_json(options["splits"]) if "splits" in options else None
        self._wanted: Filter | None = None
        self._division: Division | None = None

    def want(self, wanted: Filter) -> None:
        """Let this source leave out messages that `wanted` does not select.

        Messages are left out only if the filter can be applied cheaply. With the option `ranges`, the filter `wanted`
        is ignored, because each split must report its range.
        """
        self._wanted = None if self._ranges else wanted

    def tasks(self) -> list[Task]:
        """Return the tasks for all stores.

        There is a task for each split that may have wanted items. There is also a task for each store with damage in
        the sequence of its log's files. Raises the errors of opening the stores.
        """
        wrong: list[Wrong] = []
        splits: list[Split] = []
        for root in self._stores.roots:
            with self._stores.opened(root) as store:
                splits += splits_of(store.commit_log, store.path.root, self._split_size)
                damages = tuple(store.commit_log.queue.anomalies)
                wrong += [Wrong(root, damages)] if damages else []
        splits = splits if self._given is None else self._given
        if self._ranges and not splits:  # a log without files is read, too, and says so
            splits = [Split(root, "", 0, 0, 0, "", 0, 1) for root in self._stores.roots]
        parts: list[Split | Wrong] = [*wrong, *filter(self._may_have, splits)]
        return [Task(part, len(parts)) for part in parts]

    def read(self, task: Task) -> Iterator[Any]:
        """Return the record batches of a task."""
        from rmqctl.spark.source.split_rows import RowReading  # numba: Spark's planner does without

        stores = self._stores
        reading = RowReading(
            self._columns, stores.conf, stores.follow_links, self._ranges, task.of, self._wanted, self._division
        )
        return part_batches(task.part, reading)

    def _may_have(self, split: Split) -> bool:
        """Return whether a wanted item may begin in a split.

        The task of a split also reads the items after the last record of the split. These items may begin anywhere up
        to the end of the file.
        """
        if self._wanted is None:
            return True
        low, high = self._wanted.from_offset, self._wanted.to_offset
        behind = split.file_from_offset + split.size
        return (low is None or behind >= low) and (high is None or split.file_from_offset + split.start < high)


class GroupSource(MessageSource):
    """The source of `spark.read.format("rocketmq-groups")`.

    The options are those of `rocketmq`, and `by` and `intervalMs`. `by` is `queue` (the default), `topic` or `broker`.
    `intervalMs` is the length of an interval of store time. Without `intervalMs`, groups are not divided by time.
    """

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        by = options.get("by", "queue")
        if by not in DIVISIONS:
            raise BadRequest(f"by is {by!r}", hint=f"one of {', '.join(DIVISIONS)}")
        self._division = Division(by, number(options, "intervalMs", 0, 0, INTERVAL_MS_MAX))


def part_batches(part: Split | Wrong, reading: RowReading, *, exact: bool = False) -> Iterator[Any]:
    """Return the record batches of what one task reads.

    `exact` says that a split begins where an item begins, and ends where an item ends. Otherwise, the task looks for
    the first record of the split.
    """
    from rmqctl.spark.source.split_rows import damage_batches, split_batches

    if isinstance(part, Wrong):
        return damage_batches(part.root, part.damages, reading)
    return split_batches(part, reading, exact=exact)


def splits_to_json(splits: Sequence[Split]) -> str:
    """Return these splits as text for the option `splits`."""
    return json.dumps(splits)


def splits_from_json(text: str) -> list[Split]:
    """Return the splits that `splits_to_json` wrote.

    Raises BadRequest for any other text.
    """
    try:
        splits = [Split(*split) for split in json.loads(text)]
    except (TypeError, ValueError) as error:
        raise BadRequest(
            "the option `splits` is no list of splits",
            hint="rmqctl.spark.source.message_source.splits_to_json makes one",
        ) from error
    return splits
