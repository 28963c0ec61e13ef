"""Attributes findings to causes, by pure functions.

Damage to the log comes first: findings on units and index entries that point into it are its consequences. What it does
not explain gets separate causes, one for each topic, file, or way in which queues are damaged.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rmqctl.forensics.doctor.causes import RANK
from rmqctl.forensics.doctor.group import DamagedRanges, Group
from rmqctl.forensics.doctor.queue_clues import misnamed_records, other_keys, replaced_file, with_other_tags
from rmqctl.forensics.finding import Finding
from rmqctl.format.message import BAD_PHYSICAL_OFFSET
from rmqctl.logfile.mapped_file_queue import EMPTY_FILE, OFFSET_MAX
from rmqctl.logfile.system.rocksdb import OF_ROCKSDB
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.store.config.store_path import ABORT, CHECKPOINT, CONFIG, CONSUMEQUEUE, INDEX, ROCKSDB_FOLDER, SIGN_OF_5_4
from rmqctl.store.read.consumers.consumer_offsets import DELAY_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqctl.forensics.doctor.store_facts import StoreFacts
    from rmqctl.store.config.topics import QueueKey

DANGLING, MISSING, LENGTH = "dangling-unit", "missing-unit", "file-length"
FILE_FINDINGS = frozenset({"file-gap", LENGTH, "file-overlap"})
# code of a finding -> the cause that it names, and whether each path gets a cause of its own
NAMED_CAUSES = {
    "link-not-followed": ("unreadable-part", True),
    "unreadable": ("unreadable-part", True),
    "unfinished-change": ("change-unfinished", False),
    "log-missing": ("log-gone", False),
    "log-joint": ("logs-joined", False),
    "queue-in-both-folders": ("two-queue-types", True),
    "queue-type": ("two-queue-types", True),
    "file-overlap": ("log-file-misplaced", True),
    BAD_PHYSICAL_OFFSET: ("log-file-misplaced", True),
    "bad-port": ("messages-rejected", True),
    "bad-compression": ("messages-rejected", True),
    "bad-queue-offset": ("record-misnumbered", True),
    "field-changed": ("fields-changed", True),
    "bytes-behind-end": ("log-tail-unclean", True),
    "foreign-file": ("foreign-files", False),
    "bad-journal": ("journal-damaged", True),
    "database-log": ("database-rows-lost", True),
    "config-invalid": ("config-damaged", True),
    "backup-newer": ("config-rolled-back", True),
    "config-empty": ("config-emptied", True),
    "config-missing": ("config-lost", True),
    "backup-larger": ("config-shrunk", True),
    "topic-unlisted": ("topics-lost", False),
    "queue-database-differs": ("queue-database-behind", False),
    "queue-unreadable": ("queue-unread", False),
    "timer-beyond-queue": ("timer-ahead", False),
    "entries-missing": ("committed-gone", False),
    "dledger-refused": ("dledger-file-wrong", False),
    "twin-queue-offset": ("queue-twins", True),
    "disk-over-limit": ("disk-full", False),
    "conf-size": ("broker-conf-wrong", False),
    "lmq-offsets-missing": ("offsets-unread", False),
    "delay-overdue": ("delay-stalled", False),
    "half-overdue": ("half-stalled", False),
    "half-database-dangling": ("half-rows-wrong", False),
    "timer-files-missing": ("timer-gone", False),
    "timer-undelivered": ("timer-stalled", False),
    "timer-file-length": ("timer-refused", True),
    "timer-repeats": ("timer-behind", False),
    "compaction-files": ("compaction-refused", True),
    "compaction-not-loaded": ("compaction-unloaded", True),
    "compaction-record": ("compaction-damaged", True),
    "compaction-missing": ("compaction-gone", False),
    "compaction-beyond-queue": ("compaction-ahead", False),
    "compaction-position": ("compaction-stalled", False),
    "offset-went-back": ("group-went-back", False),
    "store-times-fall": ("clock-went-back", False),
    "epochs-invalid": ("controller-files-wrong", True),
    "epochs-beyond-log": ("controller-files-wrong", True),
    "identity-invalid": ("controller-files-wrong", True),
    "checkpoint-missing": ("checkpoint-wrong", False),
    "checkpoint-length": ("checkpoint-wrong", False),
    "checkpoint-behind": ("checkpoint-wrong", False),
    "checkpoint-ahead": ("checkpoint-wrong", False),
    "abort": ("broker-died", False),
} | dict.fromkeys(
    (
        "bad-magic", "bad-size", "bad-length", "bad-body-crc", "bad-property-crc", "bad-blank-size", "bad-entry",
        "no-blank", "torn-properties", "hole",
    ),
    ("record-damaged", True),
)  # fmt: skip
# findings of queues, index and groups, which may be consequences of another cause
DEPENDENT = frozenset(
    {
        DANGLING, MISSING, "unit-mismatch", "unit-size", "unit-tags-code", "unit-order", "unit-hole", "unit-behind-end",
        "unit-lost-message", "ext-missing", "index-length", "index-header", "index-chain", "index-order", "index-time",
        "index-dangling", "index-missing", "index-database-dangling", "index-database-missing", "offset-beyond-queue",
    }
)  # fmt: skip
# findings that follow from a joint of two logs, beside the dependent ones
OF_JOINT = frozenset({"bad-queue-offset", "twin-queue-offset", "store-times-fall"})
# findings on a log file that follow from its wrong name
OF_RENAMED = frozenset({"foreign-file", BAD_PHYSICAL_OFFSET, "file-gap", "file-overlap", "log-start-missing"})
# what a queue shows if a crash of the machine took its last pages
LOST_BY_CRASH = frozenset({MISSING, LENGTH, "unit-hole"})
# causes of a store whose files are not of one moment
OF_COPY = frozenset({"log-tail-gone", "queue-ahead", "queue-behind", "queue-gone", "index-damaged", "checkpoint-wrong"})
AHEAD_OF_LOG = frozenset({DANGLING, "unit-behind-end"})


def attribute(findings: Iterable[Finding], facts: StoreFacts) -> list[Group]:
    """Return the causes of the findings, the most important cause first."""
    attribution = _Attribution(facts)
    joint_first = sorted(findings, key=lambda finding: finding.code != "log-joint")
    dependent = [finding for finding in joint_first if not attribution.take(finding)]
    attribution.take_dependent(dependent)
    return attribution.ranked()


class _Attribution:
    def __init__(self, facts: StoreFacts) -> None:
        self._facts = facts
        self._groups: dict[tuple[str, str], Group] = {}
        self._ranges = DamagedRanges()
        self._misnamed: set[int] = set()
        self._touching: dict[QueueKey, Group] = {}
        self._right = {
            path: str(PurePosixPath(path).with_name(right.name)) for path, (_, right) in facts.renamed.items()
        }
        self._renamed = self._group_of_renamed()
        self._joined: Group | None = None

    def take(self, finding: Finding) -> bool:
        # False, with nothing added, if the finding may be a consequence of another cause
        if finding.code in DEPENDENT or (finding.code in FILE_FINDINGS and finding.topic is not None):
            return False
        if self._renamed is not None and self._follows_from_name(finding):
            self._renamed.findings.append(finding)
            if finding.code == "file-gap":  # the end of the file before the gap is covered, too
                self._damaged(self._renamed, _range_of(finding))
        elif finding.code == "file-gap":
            self._gap(finding)
        elif finding.code == LENGTH:
            self._length(finding)
        elif finding.code == "log-start-missing":
            self._head(finding)
        else:
            self._named(finding)
        return True

    def take_dependent(self, findings: Sequence[Finding]) -> None:
        # while log files have wrong names, queues, index and groups cannot be compared with the log
        if self._renamed is not None:
            self._renamed.consequences += findings
            self._follow_from_death()
            return
        if self._joined is not None:
            for finding in findings:
                (self._covering(finding) or self._joined).consequences.append(finding)
            self._follow_from_death()
            return
        self._tail(findings)
        of_index, of_groups = [], []
        of_queue: dict[QueueKey, list[Finding]] = {}
        for finding in findings:
            if finding.code == "offset-beyond-queue":
                of_groups.append(finding)
            elif (covering := self._covering(finding)) is not None:
                covering.consequences.append(finding)
            elif finding.code.startswith("index-"):
                of_index.append(finding)
            elif finding.topic is not None and finding.queue_id is not None:
                of_queue.setdefault((finding.topic, finding.queue_id), []).append(finding)
        self._queues(of_queue)
        self._index_findings(of_index)
        self._touching = self._groups_by_queue() if of_groups else {}
        for finding in of_groups:
            self._group_offset(finding)
        self._follow_from_death()

    def ranked(self) -> list[Group]:
        return sorted(self._groups.values(), key=lambda group: (RANK[group.code], group.physical_offset))

    def _group(self, code: str, key: str = "") -> Group:
        return self._groups.setdefault((code, key), Group(code))

    def _damaged(self, group: Group, ranges: Iterable[tuple[int, int]]) -> None:
        for begin, end in ranges:
            group.ranges.append((begin, end))
            self._ranges.add(begin, end, group)

    def _named(self, finding: Finding) -> None:
        code, is_each = NAMED_CAUSES[finding.code]
        is_of_queues = finding.path in (CONSUMEQUEUE, ROCKSDB_FOLDER) and OF_ROCKSDB in finding.detail
        folders = (f"{CONSUMEQUEUE}/", f"{ROCKSDB_FOLDER}/")
        if is_of_queues or (finding.code == "database-log" and finding.path.startswith(folders)):
            code = "database-damaged"
        elif OF_ROCKSDB in finding.detail and finding.path.startswith(f"{CONFIG}/"):
            code = "config-database-damaged"
        if finding.code == BAD_PHYSICAL_OFFSET and finding.count == 1:
            code = "record-damaged"  # records of another place of the log come in runs, with one error for all
        if code == "config-lost" and finding.path.endswith(TOPICS_CONFIG):
            code, is_each = NAMED_CAUSES["topic-unlisted"]
        covering = self._covering(finding) if code in ("record-damaged", "log-tail-unclean") else None
        if code == "checkpoint-wrong":
            covering = self._renamed or self._groups.get(("committed-gone", ""))
        if self._joined is not None and finding.code in OF_JOINT:
            self._joined.consequences.append(finding)
            return
        if covering is not None and (covering.code != code or finding.path not in covering.named):
            covering.consequences.append(finding)
            self._damaged(covering, _range_of(finding))
            return
        rolled_back = self._groups.get(("config-rolled-back", finding.path))
        if code == "group-went-back" and rolled_back is not None:
            rolled_back.consequences.append(finding)
            return
        group = self._group(code, finding.path if is_each else "")
        is_of_queue = code in ("queue-unread", "group-went-back")
        group.add(finding, f"{finding.topic}/{finding.queue_id}" if is_of_queue else finding.path)
        is_unread_log = code == "unreadable-part" and finding.topic is None and bool(finding.size)
        if code == "logs-joined":
            self._joined = group
        if code == "committed-gone":
            self._damaged(group, [(finding.physical_offset or 0, OFFSET_MAX)])
        if code in ("record-damaged", "logs-joined") or is_unread_log:
            self._damaged(group, _range_of(finding))

    def _gap(self, finding: Finding) -> None:
        begin = finding.physical_offset or 0
        end = begin + (finding.size or 0)
        paths = self._facts.files_between(begin, end)
        if self._renamed is not None and self._are_renamed(paths):
            self._renamed.consequences.append(finding)
            return
        group = self._group("log-file-gone", str(begin))
        self._damaged(group, [(begin, end)])
        for path in paths:
            group.add(finding, path)
        group.findings = [finding]

    def _are_renamed(self, paths: Sequence[str]) -> bool:
        return bool(paths) and all(path in self._right.values() for path in paths)

    def _follows_from_name(self, finding: Finding) -> bool:
        if finding.code not in OF_RENAMED:
            return False
        at = finding.physical_offset
        if finding.path in self._right or finding.code != "file-overlap" or at is None:
            return finding.path in self._right
        return any(begin <= at < end for path in self._right for begin, end in self._facts.ranges_of(path))

    def _group_of_renamed(self) -> Group | None:
        if not self._right:
            return None
        group = self._group("log-file-renamed")
        group.named = dict.fromkeys(self._right)
        for path, right in self._right.items():
            begin = int(PurePosixPath(right).name)
            self._damaged(group, [(begin, begin + self._facts.log_file_size), *self._facts.ranges_of(path)])
        return group

    def _length(self, finding: Finding) -> None:
        at = finding.physical_offset or 0
        is_empty_end = finding.path == self._facts.log_files.get(at) and at == self._facts.bases[-1]
        code = "log-file-empty" if is_empty_end and finding.size == self._facts.log_file_size else "log-file-length"
        group = self._group(code, finding.path)
        group.add(finding, finding.path)
        base = self._facts.base_of.get(finding.path, at)
        if at - base < self._facts.log_file_size:  # a file that is too long lacks nothing
            self._damaged(group, _range_of(finding))

    def _head(self, finding: Finding) -> None:
        # after a `rebuild` that accepts the loss, queues begin with their first message, and the finding is gone
        begin, end = self._facts.oldest_unit, self._facts.log_begin
        paths = self._facts.files_between(begin, end) if begin is not None else [finding.path]
        if self._renamed is not None and self._are_renamed(paths):
            self._renamed.consequences.append(finding)
            return
        group = self._group("log-head-gone")
        group.findings.append(finding)
        group.named = dict.fromkeys(paths)

    def _tail(self, findings: Sequence[Finding]) -> None:
        # the end of the log is lost if a unit points exactly to the place where the log ends
        end = self._facts.log_end
        behind = [
            finding
            for finding in findings
            if finding.code == DANGLING and finding.physical_offset is not None and finding.physical_offset >= end
        ]
        offsets = [finding.physical_offset or 0 for finding in behind]
        if min(offsets, default=-1) != end:
            return
        paths = self._facts.files_between(end, max(offsets) + 1)
        group = self._group("log-tail-gone")
        self._damaged(group, [(end, OFFSET_MAX)])
        group.named = dict.fromkeys(paths)

    def _covering(self, finding: Finding) -> Group | None:
        """Return the damage to the log that explains a finding, or None.

        It explains one on a queue or on the index that points into unreadable bytes, and one on the log that overlaps
        or touches them.
        """
        of_index = ("index-missing", "index-database-missing")
        if finding.code in of_index or (finding.code == MISSING and finding.count > 1):
            return None
        if finding.code == MISSING and (finding.topic, finding.queue_id) not in self._facts.queue_ends:
            return None
        at = finding.physical_offset
        if at is None:
            return None
        if finding.topic is not None or finding.size is None:
            return self._ranges.at(at)
        return self._ranges.near(at, at + finding.size)

    def _queues(self, of_queue: dict[QueueKey, list[Finding]]) -> None:
        misnamed = misnamed_records(of_queue)
        numbers = self._records("record-of-another-queue", [one for found in misnamed.values() for _, one in found])
        self._misnamed = set(misnamed)
        rest = {key: [one for one in found if id(one) not in numbers] for key, found in of_queue.items()}
        rest = {key: found for key, found in rest.items() if found}
        replaced, of_tags = replaced_file(rest, self._facts), with_other_tags(rest)
        for key, found in rest.items():
            if replaced is not None:
                self._group("log-file-replaced", replaced).consequences += found
            else:
                self._queue(key, found, has_other_tags=key in of_tags)
        if replaced is not None and rest:
            group = self._group("log-file-replaced", replaced)
            group.named = {replaced: None}
            self._damaged(group, self._facts.ranges_of(replaced))

    def _records(self, code: str, findings: Sequence[Finding]) -> set[int]:
        """Attribute findings to changed records of log files; return the `id` of each."""
        for finding in findings:
            path = self._facts.file_of(finding.physical_offset or 0)
            self._group(code, path).add(finding, path)
        return {id(finding) for finding in findings}

    def _queue(self, key: QueueKey, findings: list[Finding], *, has_other_tags: bool) -> None:
        codes = {finding.code for finding in findings}
        if not self._facts.queue_ends:
            group = self._group("queues-gone")
        elif key not in self._facts.queue_ends:
            group = self._group("queue-gone", key[0])
        elif MISSING in codes and codes <= {MISSING, LENGTH} and self._is_behind(key, findings):
            group = self._group("queue-behind")
        elif all((*key, finding.physical_offset) in self._facts.twins for finding in findings):
            group = self._group("queue-twins", f"{CONSUMEQUEUE}/{key[0]}/{key[1]}")
        elif not self._facts.missed.get(key) and all(one.detail.startswith(EMPTY_FILE) for one in findings):
            group = self._group("queue-file-empty")
        elif codes <= AHEAD_OF_LOG:
            group = self._group("queue-ahead", f"{key[0]}/{key[1]}")
        elif has_other_tags:
            group = self._group("queue-with-other-tags", f"{key[0]}/{key[1]}")
        else:
            group = self._group("queue-damaged", " ".join(sorted(codes)))
        for finding in findings:
            group.add(finding, f"{CONSUMEQUEUE}/{key[0]}/{key[1]}")

    def _index_findings(self, findings: Sequence[Finding]) -> None:
        rest = []
        for finding in findings:
            if finding.physical_offset not in self._misnamed:
                rest.append(finding)
                continue
            path = self._facts.file_of(finding.physical_offset)  # the topic is a part of what the index hashes
            self._group("record-of-another-queue", path).consequences.append(finding)
        numbers = self._records("record-with-other-keys", other_keys(rest))
        for finding in rest:
            if id(finding) not in numbers:
                self._index(finding)

    def _index(self, finding: Finding) -> None:
        covering = self._covering(finding)
        if covering is not None:
            covering.consequences.append(finding)
        else:
            of_files = "index-damaged" if self._facts.has_index else "index-gone"
            code = "index-database-wrong" if finding.path == SIGN_OF_5_4 else of_files
            self._group(code).add(finding, finding.path or INDEX)

    def _is_behind(self, key: QueueKey, findings: Sequence[Finding]) -> bool:
        missing = [finding.queue_offset for finding in findings if finding.code == MISSING]
        return all(place is not None and place >= self._facts.queue_ends[key] for place in missing)

    def _groups_by_queue(self) -> dict[QueueKey, Group]:
        found: dict[QueueKey, Group] = {}
        for group in self._groups.values():
            for finding in (*group.findings, *group.consequences):
                if finding.topic is not None and finding.queue_id is not None:
                    found.setdefault((finding.topic, finding.queue_id), group)
        return found

    def _group_offset(self, finding: Finding) -> None:
        touching = self._touching.get((finding.topic or "", finding.queue_id or 0))
        if touching is not None:
            touching.consequences.append(finding)
            return
        code = "delay-ahead" if finding.path.endswith(DELAY_OFFSET) else "group-ahead"
        self._group(code, finding.path).add(finding, finding.path)

    def _follow_from_death(self) -> None:
        """Attribute missing units and index entries to the broker's crash.

        It is the cause if the next start of the broker fills queues and index. Units that this does not fill are a
        cause of their own, and the crash follows.
        """
        died = self._groups.get(("broker-died", ""))
        if died is None:
            return
        died.findings = [Finding("abort", ABORT, None, f"the file exists; {self._facts.checkpoint}")]
        died.named = dict.fromkeys((ABORT, CHECKPOINT))
        if self._facts.copied:
            first = self._facts.log_files[self._facts.bases[0]]
            died.findings.append(Finding("abort", first, None, self._facts.copied))
        of_death = {"queue-behind", "queue-gone", "index-damaged", "index-database-wrong"}
        left_by_death = {MISSING, "index-missing", "index-database-missing"}
        if self._facts.in_rocksdb:
            of_death |= {"queues-gone", "checkpoint-wrong"}
            left_by_death |= {"checkpoint-missing"}
        for place, group in [*self._groups.items()] if self._facts.is_healed else ():
            is_filled = {found.code for found in group.findings} <= left_by_death
            if is_filled and group.code in of_death:
                died.consequences += group.findings
                del self._groups[place]
        if self._facts.copied and any(group.code in OF_COPY for group in self._groups.values()):
            self._follow_from_copy(died)
            return
        for group in self._groups.values():
            is_of_queue = group.code in ("queue-behind", "queue-damaged")
            if is_of_queue and {found.code for found in group.findings} <= LOST_BY_CRASH:
                group.consequences += [*died.findings, *died.consequences]
                del self._groups["broker-died", ""]
                return

    def _follow_from_copy(self, died: Group) -> None:
        """Attribute what a copy's files do not have in common to the copying."""
        del self._groups["broker-died", ""]
        copied = self._group("copied-live")
        copied.findings, copied.consequences = died.findings, died.consequences
        for place, group in [*self._groups.items()]:
            begin = min((begin for begin, _ in group.ranges), default=-1)
            if group.code in OF_COPY or (group.code == "record-damaged" and begin >= self._facts.log_end):
                copied.consequences += [*group.findings, *group.consequences]
                del self._groups[place]


def _range_of(finding: Finding) -> list[tuple[int, int]]:
    at = finding.physical_offset
    return [] if at is None else [(at, at + (finding.size or 1))]
