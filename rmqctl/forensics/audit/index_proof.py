"""Prove that the index is right, by checks of its files and of parts of the log.

Several processes can make the checks at the same time. The chains, the order and the header of an index file are
checked without the log (`prove_file`). The keys of a part of the log are compared only with the index entries of this
part (`prove_part`). `join_checks` proves that all checks together leave out no index entry.

If the check of a part fails, its findings are those of the whole log, unless a part beside it fails, too: then one
finding may continue in the next part. If other checks fail, only `IndexAudit` can tell, which needs all messages in log
order.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.forensics.audit.index_audit import IndexAudit, TagsCounts
from rmqctl.forensics.audit.index_entries import IndexEntries
from rmqctl.forensics.finding import Finding
from rmqctl.format.message import Damage
from rmqctl.store.config.store_path import INDEX
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqctl.store.read.file_scan import ScanItem, ZeroTail
    from rmqctl.store.read.index.index_service import IndexFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class FileProof(NamedTuple):
    """The check of one index file.

    `first` and `last` are the physical offsets in the first and the last entry, or 0 if the file has no entry.
    """

    is_right: bool
    entries: int
    first: int
    last: int


class PartProof(NamedTuple):
    """The check of the keys in one part of the log.

    The part has the physical offsets [begin, end). `entries` is the number of compared index entries.
    """

    findings: tuple[Finding, ...]
    begin: int
    end: int
    entries: int
    tags: TagsCounts


class JoinedChecks(NamedTuple):
    """The result of all checks: the findings in log order, and the counts for TAGS."""

    findings: tuple[Finding, ...]
    tags: TagsCounts


def prove_file(store: ReadOnlyStore, name: str) -> FileProof:
    """Check the index file with the name `name`.

    The file counts as not right if this process cannot read it.
    """
    try:
        found = [file for file in store.index.files if file.file.name == name]
    except Unreadable:
        found = []
    if not found:
        return FileProof(is_right=False, entries=0, first=0, last=0)
    entries = IndexEntries(store)
    for _ in entries.checked(found):
        pass
    is_right = not entries.findings
    first, last = _ends(found[0]) if entries.entries and is_right else (0, 0)
    return FileProof(is_right, entries.entries, first, last)


def _ends(file: IndexFile) -> tuple[int, int]:
    header = file.header()
    return (header.begin_phy_offset, header.end_phy_offset) if header is not None else (0, 0)


def prove_part(
    store: ReadOnlyStore,
    builder: DispatchRequestBuilder,
    begin: int,
    end: int,
    items: Iterable[ScanItem | RecordRun | ZeroTail],
) -> PartProof:
    """Compare the keys of a part of the log with the index.

    The part has the physical offsets [begin, end). The results of the record runs must be DispatchColumns with the
    hashes of the keys, made by `builder`.
    """
    try:
        audit = IndexAudit(store, builder, part=(begin, end))
    except Unreadable as error:
        unread = Finding("unreadable", store.storage.display(store.path.part(INDEX)), None, str(error))
        return PartProof((unread,), begin, end, 0, TagsCounts())
    compare(audit, builder, items)
    return PartProof(tuple(audit.findings), begin, end, audit.entries, audit.tags)


def compare(
    audit: IndexAudit, builder: DispatchRequestBuilder, items: Iterable[ScanItem | RecordRun | ZeroTail]
) -> None:
    """Compare all messages of `items` with the index, and finish the audit."""
    for item in builder.runs(items):
        if isinstance(item, RecordRun):
            audit.on_messages(item.result)
        elif isinstance(item, Damage) and item.message_in_its_place is not None:
            audit.on_messages(builder.of(item.message_in_its_place))
    audit.finish()


def join_checks(store: ReadOnlyStore, files: Sequence[FileProof], parts: Sequence[PartProof]) -> JoinedChecks | None:
    """Join all checks of a store.

    `files` and `parts` are in order. The result is None if only `IndexAudit` can tell.
    """
    try:
        return joined(files, parts, _expired_entries(store))
    except OSError:  # IndexAudit meets the same file, and reports it
        return None


def joined(files: Sequence[FileProof], parts: Sequence[PartProof], expired: int) -> JoinedChecks | None:
    """Return the result of all checks, or None if only `IndexAudit` can tell.

    `files` and `parts` are in order. `expired` is the number of entries of messages before the log's start.
    """
    if not all(proof.is_right for proof in files):
        return None
    filled = [proof for proof in files if proof.entries]
    are_in_order = all(before.last <= after.first for before, after in pairwise(filled))
    do_overlap = any(before.end > after.begin for before, after in pairwise(parts))
    if not are_in_order or do_overlap or not _stand_alone(parts):
        return None
    if sum(proof.entries for proof in files) != expired + sum(proof.entries for proof in parts):
        return None  # an entry leads to no part of the log
    tags: TagsCounts | None = TagsCounts()
    for proof in parts:
        tags = tags.with_next(proof.tags) if tags is not None else None
    return JoinedChecks(tuple(finding for proof in parts for finding in proof.findings), tags) if tags else None


def _stand_alone(parts: Sequence[PartProof]) -> bool:
    """Return whether no finding of a part can continue in another part.

    A wrong header concerns all parts with entries of its file.
    """
    said = [proof for proof in parts if proof.entries or proof.findings]
    touch = any(before.findings and after.findings for before, after in pairwise(said))
    codes = {finding.code for proof in said for finding in proof.findings}
    return not touch and not codes & {"index-header", "unreadable"}


def _expired_entries(store: ReadOnlyStore) -> int:
    """Return the number of index entries of messages before the log's start.

    The entries of each file must be in order. Raises OSError.
    """
    begin, count = store.commit_log.min_offset, 0
    for file in store.index.files:
        header = file.header()
        if header is not None and header.begin_phy_offset < begin:
            count += file.first_reaching(begin, header.index_count) - 1
        file.file.close()
    return count
