"""What the page says about one store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.groups.document import document as lag_document
from rmqctl.forensics.groups.lag import Lag
from rmqctl.forensics.space.log_space import LogSpace
from rmqctl.forensics.space.space import HOUR_MS, Space
from rmqctl.forensics.survey.not_read import parts
from rmqctl.forensics.survey.survey import survey
from rmqctl.report.log_map import LogMap
from rmqctl.report.timeline import Timeline, shown_topics, step_of, timeline_of
from rmqctl.store.read.consumers.consumer_groups import is_broker_group

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqctl.operations.doctor.diagnosis import Diagnosis
    from rmqctl.report.log_map import Bar, Kind
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]


class Section(NamedTuple):
    """What the page says about one store; the documents are those of `-o json`."""

    doctor: Row
    diagnosis: Diagnosis
    info: Row
    space: Row  # of `du`
    bars: list[Bar]
    timeline: Timeline | None  # None: no message
    totals: list[Row]  # groupTotals of `lag`, most behind first, without the broker's own groups
    queues: list[Row]  # groups of `lag` that are not at the end of the queue, in the same order
    lag_unknown: str  # why `totals` and `queues` are empty, or ""
    incomplete: bool  # a part of the store could not be read

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of bytes that the map of the log shows."""
        return {kind for bar in self.bars for kind, size in bar.sizes.items() if size}

    @property
    def further(self) -> set[str]:
        """The keys of `totals` that are not 0 in all groups."""
        return {key for row in self.totals for key, value in row.items() if value}


class Gathering:
    """Gathers what the page says about a store after `doctor` has examined it.

    `doctor` is the document of `rmqctl doctor`, `expired` has the names of expired files, and `has_placeholders` says
    that the log has some. `log.warm_up` may be called before `run`.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        doctor: Row,
        diagnosis: Diagnosis,
        *,
        expired: Collection[str],
        has_placeholders: bool,
    ) -> None:
        self._store = store
        self._doctor = doctor
        self._diagnosis = diagnosis
        self._info = survey(store, parts(store))
        times = self._info["commitLog"]
        ends = [ms for ms in (times["firstStoreTimestamp"], times["lastStoreTimestamp"]) if ms is not None]
        self._step = step_of(min(ends), max(ends)) if len(ends) == 2 else HOUR_MS
        self._map = LogMap(store.commit_log.queue, expired)
        self.log = LogSpace(
            store.commit_log,
            topics_interval_ms=self._step,
            on_span=self._map.put,
            shows_placeholders=has_placeholders,
        )

    def run(self, threads: int) -> Section:
        """Scan the log, and return the section. Raises OSError."""
        store = self._store
        with store.storage.keeping_small_files():
            space = Space(store, "topic", self.log).document(threads)
            lag, unknown = self._lag()
        groups, topics = self.log.groups, self.log.topics
        shown = shown_topics(groups, len(topics))
        self._map.finish(shown)
        store.close()
        return Section(
            self._doctor,
            self._diagnosis,
            self._info,
            space,
            self._map.bars,
            timeline_of(groups, topics, shown, self.log.delays, self._step),
            _by_lag(lag["groupTotals"]),
            [row for row in _by_lag(lag["groups"]) if row["behind"] != 0 or row["outside"]],
            unknown,
            bool(store.partly_read or self.log.summary.incomplete or unknown),
        )

    def _lag(self) -> tuple[Row, str]:
        nothing: Row = {"groupTotals": [], "groups": []}
        if not self._store.path.reads_queues:
            return nothing, f"its queues are in RocksDB, and were not read: {self._store.path.unread_databases}"
        lag = Lag(self._store)
        return lag_document(lag, str(self._store.path.root)), "; ".join(lag.problems)


def _by_lag(rows: list[Row]) -> list[Row]:
    shown = [row for row in rows if not is_broker_group(row["group"])]
    return sorted(shown, key=lambda row: -(row["behind"] or 0))
