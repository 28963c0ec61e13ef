"""The interface of the tasks that read the log for a rebuild in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.commit_log import ScanSummary
    from rmqctl.store.read.file_scan import RecordRun, ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    Route = Callable[[Any], Iterable[tuple[int, Callable[[Any], Any] | None]]]

T = TypeVar("T")


class LogTasks(Protocol):
    """Tasks that read the parts of one log, and keep the pieces that they make.

    All functions that are given to tasks must be functions of a module, or a `functools.partial` of a module's
    function. All methods raise RmqctlError if the tasks fail.
    """

    parts: int

    @property
    def keep_pieces(self) -> bool:
        """Return whether the tasks can keep pieces for other tasks."""

    def scan(self, summary: ScanSummary, builder: DispatchRequestBuilder) -> Iterator[ScanItem | RecordRun]:
        """Yield the items of the log, as `Rebuild` needs them. Nothing is kept."""

    def group(
        self, group_part: Callable[..., Any], *, with_keys: bool, with_tags: bool
    ) -> Iterator[ScanItem | RecordRun]:
        """Read each part in a task, call `group_part` there, and keep the pieces.

        `group_part` returns the items for the driver, and the pieces, each with a header. Yield the items, in log
        order. If a task guessed a wrong begin of its part, the record runs of this part have no result.
        """

    def gather(self, route: Route, count: int, work: Callable[..., T]) -> list[T]:
        """Give pieces to `count` tasks, and return the results of the tasks.

        Tasks without a piece have no result. `route` gets the header of a piece, and yields the number of each task
        that gets the piece. With the number, `route` yields a function that returns what the task gets of the piece, or
        None for the whole piece. A task calls `work` with the store, its number, and a list of what it got, in any
        order.
        """

    def examine(self, works: Sequence[Callable[[ReadOnlyStore], T]]) -> list[T]:
        """Call each function with the store in a task, and return the results in order."""

    def forget(self) -> None:
        """Drop the kept pieces."""
