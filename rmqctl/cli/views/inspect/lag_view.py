"""The output of `rmqctl lag`, as tables, as rows or as one JSON document."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.cli.output.render import print_columns, print_document, print_rows, print_verdict
from rmqctl.cli.output.tone import Tone
from rmqctl.errors import ExitCode, outcome
from rmqctl.forensics.groups.document import document
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.store.read.consumers.consumer_groups import is_broker_group
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.forensics.groups.lag import Bound, Lag, QueueLag
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
Cells = dict[str, "Callable[[Row], Any]"]
NO_OFFSET, GROUPS_NAMED = "none", 4
ENDS = ("group", "topic", "queueId", "minOffset", "maxOffset")
OLDEST = ("oldestStoreTimestamp", "oldestStoreTime", "oldestAgeMs")
KEYS = (*ENDS, "offset", "behind", *OLDEST, "outside", "popped")
OUTSIDE = {"before": "before the queue's begin", "after": "after the queue's end"}
MEANINGS = {
    "before": "messages that the group has not consumed were deleted",
    "after": "the group may skip new messages (`rmqctl explain offset-beyond-queue`)",
}


class LagReport(NamedTuple):
    """The lag of a store's groups, ready for output.

    `document` has the keys of the JSON document, and `remarks` has the lines for stderr. `knows_group` is False if the
    store does not know the group of the question.
    """

    document: Row
    remarks: list[str]
    exit_code: ExitCode
    knows_group: bool = True


def lag_report(store: ReadOnlyStore, lag: Lag, shown: str, bound: Bound | None) -> LagReport:
    """Return the report on the lag of a store.

    `shown` is the name of the store in the output. If a queue exceeds `bound`, the exit code is FINDINGS.
    """
    over = lag.over(bound) if bound is not None else []
    remarks = [*_remarks(store, lag), *_remark_over(over)]
    return LagReport(document(lag, shown), remarks, outcome(incomplete=lag.incomplete, findings=bool(over)))


def print_lag(report: LagReport, output: str) -> None:
    """Print the report on one store, without its remarks."""
    document = report.document
    if output == "json":
        print_document("lag", document)
    elif output == "table":
        if document["groups"]:
            totals = [row for row in document["groupTotals"] if row["behind"] or row["behindAtLeast"]]
            behind = [row for row in totals if not is_broker_group(row["group"])] or totals
            named = ", ".join(f"{row['group']} {_behind(row)}" for row in behind[:GROUPS_NAMED])
            more = f" and {len(behind) - GROUPS_NAMED} more" if len(behind) > GROUPS_NAMED else ""
            print_verdict(
                f"behind: {named}{more}" if behind else "no group is behind", Tone.ATTENTION if behind else Tone.GOOD
            )
            print_columns(document["groupTotals"], group_cells())
            print()
            print_columns(document["groups"], queue_cells())
    else:
        print_rows("lag", "groups", document["groups"], output, KEYS, {}, head={})


def group_cells() -> Cells:
    """Return the columns of the table that has a row for each group."""
    cells: Cells = {"GROUP": itemgetter("group"), "BEHIND": _behind, **_age_cells()}
    cells |= {"RETRY": itemgetter("retryDepth"), "DELAYED": itemgetter("retriesDelayed")}
    return cells | {"DLQ": itemgetter("dlqDepth"), "POPPED": itemgetter("popped")}


def queue_cells() -> Cells:
    """Return the columns of the table that has a row for each queue of each group."""
    ends = zip(("GROUP", "TOPIC", "QUEUE", "MIN", "MAX"), ENDS, strict=True)
    cells: Cells = {heading: itemgetter(key) for heading, key in ends}
    cells |= {"OFFSET": _offset, "BEHIND": itemgetter("behind"), **_age_cells()}
    return cells | {
        "POPPED": lambda row: row["popped"] or None,
        "OUTSIDE": lambda row: OUTSIDE.get(row["outside"]),
    }


def _age_cells() -> Cells:
    return {"OLDEST": itemgetter("oldestStoreTime"), "AGE": _age}


def _age(row: Row) -> str | None:
    return None if row["oldestAgeMs"] is None else duration(row["oldestAgeMs"])


def _behind(row: Row) -> int | str:
    return f"≥ {row['behind']}" if row["behindAtLeast"] else int(row["behind"])


def _offset(row: Row) -> int | str:
    return NO_OFFSET if row["offset"] is None else int(row["offset"])


def _remarks(store: ReadOnlyStore, lag: Lag) -> Iterator[str]:
    """Yield what was not read, and which offsets are outside their queues."""
    if not lag.queues:
        has_groups = bool(lag.groups.known)
        yield "no queue to show" if has_groups else "no file in config/ names a consumer group"
    if lag.unlisted:
        from rmqctl.forensics.groups.queue_ends import unlisted_in_words

        yield unlisted_in_words(lag.unlisted)
    for outside, meaning in MEANINGS.items():
        yield from _remark_outside([row for row in lag.queues if row.outside == outside], meaning)
    expired = {total.group: total.expired_unread for total in lag.totals if total.expired_unread}
    if expired:
        named = ", ".join(f"{group} {count}" for group, count in expired.items())
        yield f"{counted(sum(expired.values()), 'message')} expired unread: {named}"
    if lag.clock_falls:
        more = f"; {len(lag.clock_falls) - 1} more like it" if len(lag.clock_falls) > 1 else ""
        yield f"{lag.clock_falls[-1].words}{more}: ages are by the clock of the log's end"
    for topic, due in sorted(lag.timers.items()):
        yield f"{counted(len(due), 'timer message')} to come in {topic}, the next due at {rfc3339(min(due))}"
    yield from _remark_unknown_age(lag.of_unknown_age())
    yield from lag.problems
    yield from (f"{damage.path}: {damage.detail}" for damage in store.foreign)


def _remark_outside(rows: list[QueueLag], meaning: str) -> Iterator[str]:
    """Yield a line on the first row of `rows`, with the number of further rows."""
    for first in rows[:1]:
        where = f"{first.group} in {first.topic}/{first.queue_id} is at {first.offset}"
        queue = f"the queue has [{first.min_offset}, {first.max_offset})"
        yield f"{where}, {OUTSIDE[first.outside or '']} ({queue}): {meaning}{_more_like_it(rows)}"


def _remark_unknown_age(rows: list[QueueLag]) -> Iterator[str]:
    """Yield a line on the first row of `rows`, with the number of further rows."""
    for first in rows[:1]:
        where = f"{first.group} in {first.topic}/{first.queue_id}"
        what = "the oldest message that the group has not consumed cannot be read, so its age is not known"
        yield f"{where}: {what} (`rmqctl verify` says why){_more_like_it(rows)}"


def _more_like_it(rows: list[QueueLag]) -> str:
    return f"; {len(rows) - 1} more like it" if len(rows) > 1 else ""


def _remark_over(over: list[QueueLag]) -> Iterator[str]:
    for first in over[:1]:
        how_far = OUTSIDE.get(first.outside or "", f"{counted(first.behind or 0, 'message')} behind")
        where = f"the first is {first.group} in {first.topic}/{first.queue_id}, {how_far}"
        yield f"{counted(len(over), 'queue')} over --max-behind; {where}"
