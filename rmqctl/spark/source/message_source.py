"""The data source `rocketmq`, which reads the logs of stores in splits.

Spark's planner and tasks call this module. All its settings are options of the data source.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.forensics.message_filter import Filter
from rmqctl.spark.scan.coverage import Range, range_of
from rmqctl.spark.scan.json_option import from_json
from rmqctl.spark.scan.pieces import Pieces, pieces_from_json
from rmqctl.spark.scan.record_counts import RecordCounts
from rmqctl.spark.scan.split import MIB, SPLIT_MIB, SPLIT_MIB_MAX, Split, splits_of
from rmqctl.spark.source.bounded_splits import NO_BOUNDS, Bounds, splits_within
from rmqctl.spark.source.message_schema import DIVISIONS, Blocks, Division, Sends, Unconfirmed
from rmqctl.spark.source.source_stores import NARROWING, charset_of, filter_of, is_true, number, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.format.message import Damage
    from rmqctl.spark.source.message_schema import Summary
    from rmqctl.spark.source.split_rows import RowReading

INTERVAL_MS_MAX = 366 * 86_400_000


class Task(NamedTuple):
    """The input of one task."""

    part: Split | Pieces | Wrong  # a split, pieces of a file, or the damage between files
    of: int  # the number of tasks: Spark copies the reader before it is known
    expected: Range | None = None  # the task fails if it reads another range, or finds other counts


class Wrong(NamedTuple):
    """The damage between the files of a log, such as a missing file.

    It belongs to no split, so a separate task makes its rows.
    """

    root: str  # folder of the store
    damages: tuple[Damage, ...]


class MessageSource:
    """The source of `spark.read.format("rocketmq")`, with its `columns`.

    | option | |
    |---|---|
    | `path`, `paths`, `brokerConf`, `followLinks` | define the stores |
    | `splitMiB` | MiB of the log that each task reads |
    | `topics`, `since`, `until`, `fromOffset`, `toOffset` | select messages (`filter_of`) |
    | `charset` | of bodyText, such as gbk |
    | `ranges` | adds a row of kind 'range' for each split |
    | `splits` | the splits to read, in the form of `splits_to_json` |
    | `expected` | the same, with what an earlier reading found in them (`ranges_to_json`); needs `ranges` |
    | `pieces` | pieces of files to read in place of splits (`pieces_to_json`) |

    Without `splits`, `expected` and `pieces`, the source makes the splits, and leaves out what `splits_within` knows to
    be out of range. `wanted` selects messages, too, but leaves out no split. Raises BadRequest if an option is not
    valid, and NotAStore if a pattern in `path` or `paths` matches nothing.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = ("splitMiB", *NARROWING, "charset", "ranges", "splits", "expected", "pieces")

    def __init__(self, options: Mapping[str, str], columns: Sequence[str], wanted: Filter | None = None) -> None:
        self._stores = stores_of(options, self.OPTIONS)
        self._columns = tuple(columns)
        self._ranges = is_true(options, "ranges")
        self._split_size = number(options, "splitMiB", SPLIT_MIB, 1, SPLIT_MIB_MAX) * MIB
        self._given = splits_from_json(options["splits"]) if "splits" in options else None
        self._pieces = pieces_from_json(options["pieces"]) if "pieces" in options else None
        self._expected = ranges_from_json(options["expected"]) if "expected" in options else {}
        self._given = [*self._expected] or self._given
        self._charset = charset_of(options)
        asked = filter_of(options)
        self._bounds = Bounds.of(asked)
        self._wanted = (*(() if asked == Filter() else (asked,)), *(() if wanted is None else (wanted,)))
        self._pushed: Filter | None = None
        self._summary: Summary | None = None

    def want(self, wanted: Filter) -> None:
        """Set a filter for the messages that the source yields.

        More messages than `wanted` selects may be yielded. With the option `ranges`, `wanted` is ignored, because each
        split must report a range.
        """
        self._pushed = None if self._ranges else wanted

    def tasks(self) -> list[Task]:
        """Return the tasks for all stores.

        Each split that may have wanted messages gets one, and each store with damage between log files one more. Raises
        the errors of ReadOnlyStore if a store cannot be opened.
        """
        wrong: list[Wrong] = []
        splits: list[Split] = []
        for root in self._stores.roots:
            with self._stores.opened(root, log_only=not isinstance(self._summary, Unconfirmed)) as store:
                if self._pieces is None and self._bounds != NO_BOUNDS:
                    splits += splits_within(store.commit_log, store.path.root, self._split_size, self._bounds)
                elif self._pieces is None:
                    splits += splits_of(store.commit_log, store.path.root, self._split_size)
                damages = tuple(store.commit_log.queue.anomalies)
                wrong += [Wrong(root, damages)] if damages else []
        if self._pieces is not None:
            return _numbered([*wrong, *self._pieces])
        splits = splits if self._given is None else self._given
        if self._ranges and not splits:  # also report that a log without files was read
            splits = [Split(root, "", 0, 0, 0, "", 0, 1) for root in self._stores.roots]
        tasks = _numbered([*wrong, *filter(self._may_have, splits)])
        return [
            task._replace(expected=self._expected.get(task.part)) if isinstance(task.part, Split) else task
            for task in tasks
        ]

    def read(self, task: Task) -> Iterator[Any]:
        """Return the record batches of a task."""
        from rmqctl.spark.source.split_rows import RowReading  # imports numba, which Spark's planner does not need

        stores = self._stores
        wanted = self._wanted if self._pushed is None else (*self._wanted, self._pushed)
        reading = RowReading(
            self._columns, stores.conf, stores.follow_links, self._ranges, task.of, wanted, self._summary, self._charset
        )
        batches = part_batches(task.part, reading)
        return batches if task.expected is None else _checked(batches, task.expected)

    def _may_have(self, split: Split) -> bool:
        # the task may read beyond the end of the split, up to the end of the file
        if self._pushed is None:
            return True
        low, high = self._pushed.from_offset, self._pushed.to_offset
        behind = split.file_from_offset + split.size
        return (low is None or behind >= low) and (high is None or split.file_from_offset + split.start < high)


class GroupSource(MessageSource):
    """The source of `spark.read.format("rocketmq-groups")`.

    It adds two options to those of `rocketmq`: `by` is `queue` (the default), `topic` or `broker`, and `intervalMs` is
    the length of an interval of store time in ms. Without `intervalMs`, groups are not divided by time.
    """

    OPTIONS = (*MessageSource.OPTIONS, "by", "intervalMs")

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        by = options.get("by", "queue")
        if by not in DIVISIONS:
            raise BadRequest(f"by is {by!r}", hint=f"one of {', '.join(DIVISIONS)}")
        self._summary = Division(by, number(options, "intervalMs", 0, 0, INTERVAL_MS_MAX))


class SendSource(MessageSource):
    """The source of the format `rmqctl-sends`, for `job duplicates`.

    It adds the option `allTopics` to those of `rocketmq`.
    """

    OPTIONS = (*MessageSource.OPTIONS, "allTopics")

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._summary = Sends(self._stores.roots, is_true(options, "allTopics"))


class BlockSource(MessageSource):
    """The source of the format `rmqctl-blocks`, for `job diff`.

    It adds the option `bodies` to those of `rocketmq`.
    """

    OPTIONS = (*MessageSource.OPTIONS, "bodies")

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._summary = Blocks(is_true(options, "bodies"))


class UnconfirmedSource(MessageSource):
    """The source of the format `rmqctl-unconfirmed`, for `job lost`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._summary = Unconfirmed()


def _numbered(parts: Sequence[Split | Pieces | Wrong]) -> list[Task]:
    return [Task(part, len(parts)) for part in parts]


def part_batches(part: Split | Pieces | Wrong, reading: RowReading, *, exact: bool = False) -> Iterator[Any]:
    """Return the record batches of one part of the log.

    With `exact`, a split must consist of whole messages, blanks and damages; else its first record is searched for.
    """
    from rmqctl.spark.source.split_rows import damage_batches, piece_batches, split_batches

    if isinstance(part, Wrong):
        return damage_batches(part.root, part.damages, reading)
    if isinstance(part, Pieces):
        return piece_batches(part, reading)
    return split_batches(part, reading, exact=exact)


def _checked(batches: Iterator[Any], expected: Range) -> Iterator[Any]:
    """Yield the record batches of a task, which end with the row of its range.

    Raises Unreadable if the range is not the `expected` one.
    """
    detail = None
    for batch in batches:
        detail = batch.column("detail")[len(batch) - 1].as_py()
        yield batch
    found = range_of(detail or "")
    if (found.begin, found.end, found.counts) != (expected.begin, expected.end, expected.counts):
        raise Unreadable(
            "the log has changed since it was read for the first time",
            path=expected.split.path,
            hint="try again on a copy of the store",
        )


def ranges_to_json(ranges: Sequence[Range]) -> str:
    """Return the ranges of splits as JSON text for the option `expected`."""
    return json.dumps([found for found in ranges if found.split.path])


def ranges_from_json(text: str) -> dict[Split, Range]:
    """Return the ranges from a text that `ranges_to_json` made, by their splits.

    Raises BadRequest if the text is not a list of ranges.
    """

    def by_split(ranges: Any) -> dict[Split, Range]:
        found = [
            Range(Split(*split), begin, end, of, RecordCounts(*counts)) for split, begin, end, of, counts in ranges
        ]
        return {one.split: one for one in found}

    return from_json(text, "expected", by_split, f"{__name__}.ranges_to_json makes one", "ranges")


def splits_to_json(splits: Sequence[Split]) -> str:
    """Return a list of splits as JSON text for the option `splits`."""
    return json.dumps(splits)


def splits_from_json(text: str) -> list[Split]:
    """Return the splits from a text that `splits_to_json` made.

    Raises BadRequest if the text is not a list of splits.
    """
    hint = f"{__name__}.splits_to_json makes one"
    return from_json(text, "splits", lambda splits: [Split(*split) for split in splits], hint)
