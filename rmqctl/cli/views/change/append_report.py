"""The output of `rmqctl append`, while it stores messages and at the end."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_document, print_table, remark, remark_fields, to_json
from rmqctl.cli.shared.verb import drop_output
from rmqctl.errors import BadRequest, ChangeFailed, ExitCode
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmqctl.operations.append.appender import Appender, Refused
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.write.put_message import AppendMessageResult


class AppendReport:
    """The report of what `rmqctl append` stores and refuses in the store `root`.

    If the output is JSON Lines, each stored message has its own line. `source` is the name of the file with the lines.
    `source` is "" for stdin, and None for a single message from options. If stdout fails, the append still ends
    cleanly, and stderr reports the failure.
    """

    def __init__(self, root: Path, source: str | None, output: str) -> None:
        self.lines_refused = 0
        self._root = root
        self._source = source
        self._output = output
        self._output_error: OSError | None = None
        self._is_closed = False
        self._close_error: OSError | None = None
        self._started = time.perf_counter()
        self._told: Refused | None = None
        self._same_up_to = 0  # the last line after `_told` with the same fault

    def is_over(self, *, stop_on_error: bool) -> bool:
        """Return whether stdout failed, or a line was refused with --stop-on-error."""
        return self._output_error is not None or (stop_on_error and self.lines_refused > 0)

    def stored(self, appended: AppendMessageResult) -> None:
        """Print one line for each stored message if the output is JSON Lines."""
        if self._output != "jsonl":
            return
        for number, (offset, message_id) in enumerate(
            zip(appended.physical_offsets, appended.msg_id.split(","), strict=True)
        ):
            row = {
                "topic": appended.topic, "queueId": appended.queue_id, "queueOffset": appended.logics_offset + number,
                "physicalOffset": offset, "msgId": message_id, "storeTimestamp": appended.store_timestamp,
            }  # fmt: skip
            self._to_stdout(print, to_json(row))

    def refused(self, refused: Refused) -> None:
        """Report lines whose messages were not stored.

        For successive lines with the same fault, the first line and the number of the last line are reported.
        """
        first, last = refused.lines[0], refused.lines[-1]
        self.lines_refused += len(refused.lines)
        if self._source is None:
            self._told = refused
            return
        if self._told is not None and refused.why == self._told.why and first == self._same_up_to + 1:
            self._same_up_to = last
            return
        self._tell_same()
        self._told, self._same_up_to = refused, last
        remark(f"{_lines(first, last)}: not stored: {refused.why}")

    def _tell_same(self) -> None:
        if self._told is not None and self._same_up_to > self._told.lines[-1]:
            remark(f"{_lines(self._told.lines[-1] + 1, self._same_up_to)}: not stored, for the same reason")

    def close(self, store: MessageStore, *, keeps_empty: bool) -> None:
        """Close the store, and keep an OSError for `print_all`.

        `keeps_empty` is passed to MessageStore.close.
        """
        try:
            store.close(keeps_empty=keeps_empty)
            self._is_closed = True
        except OSError as error:
            self._close_error = error

    def print_all(self, store: MessageStore, appender: Appender, left_out: Counter[str], next_line: int | None) -> None:
        """Print the queues, the counts, the state of the store, and how to continue.

        `left_out` counts the messages of topics that were left out. `next_line` is the number of the first line that
        append has not processed, or None after the last line.
        """
        seconds = time.perf_counter() - self._started
        if self._source is not None:
            self._tell_same()
        stats = store.stats.document() if store.stats is not None else None
        if self._source is not None or appender.stored:
            self._to_stdout(_print_queues, self._root, appender, self.lines_refused, left_out, self._output, stats)
            self._to_stdout(sys.stdout.flush)
        if left_out:
            topics = ", ".join(f"{topic} {count}" for topic, count in sorted(left_out.items()))
            what = f"left out, because a broker would deliver them again: {counted(left_out.total(), 'message')}"
            remark(f"{what} ({topics}); --with-system-topics takes them")
        if store.topic_configs.problem:
            remark(f"config/topics.json is unchanged and lacks the new topics: {store.topic_configs.problem}")
        if stats is not None:
            remark_fields(_flat(stats))
        if appender.unqueued:
            how = f"`rmqctl dump {quoted(self._root)} --transaction prepared` or rollback shows them"
            remark(
                f"{appender.unqueued} prepared or rollback messages are only in the log, in no queue, as with "
                f"brokers; {how}"
            )
        if store.is_removed:
            remark(f"{self._root} was not created: no message was stored")
        if not self._is_closed:
            why = f" ({self._close_error.strerror})" if self._close_error is not None else ""
            how = f"`rmqctl recover {quoted(self._root)}` makes them whole"
            remark(f"queues and index are incomplete{why}, and `abort` remains: {how}")
        if self._source is not None or appender.stored:
            speed = (
                f" in {seconds:.2f} s: {appender.stored / max(seconds, 1e-9):,.0f} a second"
                if stats is not None
                else ""
            )
            refused = f", {self.lines_refused} refused" if self.lines_refused else ""
            stored = counted(appender.stored, "message")
            remark(f"{stored} appended as {store.profile.label} does{refused}{speed}{self._end(appender, next_line)}")

    def _end(self, appender: Appender, next_line: int | None) -> str:
        """Return why the append ended early, and at which line to resume, as text."""
        words = []
        if self._output_error is not None and not isinstance(self._output_error, BrokenPipeError):
            words.append(f"the output could not be written: {self._output_error.strerror}")
        if appender.ended is not None:
            words.append(f"ended at line {next_line}: {appender.ended.why}")
        if self._source is not None and next_line is not None:
            how = f" (`tail -n +{next_line} {shlex.quote(self._source)}`)" if self._source else ""
            words.append(f"go on with line {next_line}{how}")
        return "".join(f"; {what}" for what in words)

    def exit_code(self, appender: Appender) -> ExitCode:
        """Return the exit code.

        Raises BadRequest or ChangeFailed if a single message from options was not stored.
        """
        if self._source is None and appender.ended is not None:
            raise ChangeFailed(f"not stored: {appender.ended.why}", path=str(self._root))
        if self._source is None and self._told is not None:
            raise BadRequest(f"not stored: {self._told.why}")
        if isinstance(self._output_error, BrokenPipeError):
            return ExitCode.PIPE_CLOSED
        failed = (
            self.lines_refused or self._output_error is not None or appender.ended is not None or not self._is_closed
        )
        return ExitCode.PARTIAL if failed else ExitCode.CLEAN

    def _to_stdout(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call `write`, which writes to stdout. If an earlier write failed, do nothing."""
        if self._output_error is not None:
            return
        try:
            write(*arguments)
        except OSError as error:
            self._output_error = error
            drop_output()


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _flat(stats: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each statistic that is not 0.

    The name of a statistic for one bucket or one topic ends with the bucket or the topic.
    """
    for name, value in stats.items():
        for key, number in value.items() if isinstance(value, dict) else (("", value),):
            if number:
                yield f"{name} {key}".rstrip(), number


def _print_queues(
    root: Path,
    appender: Appender,
    lines_refused: int,
    left_out: Counter[str],
    output: str,
    stats: dict[str, Any] | None,
) -> None:
    rows = [
        (topic, queue_id, growth.first, growth.next) for (topic, queue_id), growth in sorted(appender.queues.items())
    ]
    if output == "json":
        named = [dict(zip(("topic", "queueId", "firstOffset", "nextOffset"), row, strict=True)) for row in rows]
        counts: dict[str, Any] = {
            "messages": appender.stored, "inNoQueue": appender.unqueued, "refusedLines": lines_refused,
            "leftOutTopics": [{"topic": topic, "messages": count} for topic, count in sorted(left_out.items())],
        }  # fmt: skip
        print_document(
            "append", {"store": str(root), "queues": named} | counts | ({"stats": stats} if stats is not None else {})
        )
    elif output == "table" and rows:
        print_table(["TOPIC", "QUEUE", "FIRST", "NEXT", "MESSAGES"], [[*row, row[3] - row[2]] for row in rows])
