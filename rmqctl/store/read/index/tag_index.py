"""Find out whether the index of a store has entries for TAGS.

Brokers write them since 5.4.0 (IndexService.buildIndex), and a 5.4 broker finds no message by tag without them. So a
store with a sign of 5.4 needs them: the signs are such entries, and the folders of 5.4 in
`rmqctl.store.config.store_path.SIGNS_OF_5`. If the store may be of 5.3 or of 5.4, the user must give the broker
version.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from rmqctl.errors import BadRequest
from rmqctl.format import properties
from rmqctl.format.index_entry import ENTRY_FIRST, key_hash, tag_key_hash
from rmqctl.format.message import Message
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.config.store_path import SIGNS_OF_5

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.index_entry import IndexEntry
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.store_path import StorePath
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.index.index_service import IndexFile, IndexService

SAMPLE_ENTRIES = 512  # the newest entries of the newest index file
SAMPLE_PLACES, SAMPLE_AT_EACH = 16, 8  # in the newest file, and in each of SAMPLE_FILES older files
SAMPLE_FILES = 4
SAMPLE_RECORDS = 64
TAGS_IN_INDEX = "TAGS in the index"


class IndexedStore(Protocol):
    """The attributes of `ReadOnlyStore` that this module uses."""

    @property
    def storage(self) -> Storage: ...  # noqa: D102 -- as in ReadOnlyStore

    @property
    def path(self) -> StorePath: ...  # noqa: D102

    @property
    def commit_log(self) -> CommitLog: ...  # noqa: D102

    @property
    def index(self) -> IndexService: ...  # noqa: D102

    @property
    def tags_are_indexed(self) -> bool | None: ...  # noqa: D102


def signs_of_5_4(store: IndexedStore) -> list[str]:
    """Return the signs that a broker of 5.4 or later wrote the store."""
    found = [sign for sign in store.path.version_signs() if SIGNS_OF_5.get(sign, "") >= "5.4"]
    return found + ([TAGS_IN_INDEX] if store.tags_are_indexed else [])


def tags_are_indexed(store: IndexedStore) -> bool | None:
    """Return whether a sample of the index has an entry for TAGS.

    One message with such an entry is enough for True, as older messages may have none. Messages without TAGS do not
    count, nor those whose TAGS have the hash of one of their keys. None if no message of the sample counts.

    The sample has the newest entries of the index, and because these may all belong to messages without TAGS, older
    ones from many places. Raises Unreadable.
    """
    found = None
    for entries in _samples(store):
        for message, hashes in _messages_of(store, entries):
            is_indexed = _tags_are_among(message, hashes)
            if is_indexed:
                return True
            found = found if is_indexed is None else False
    return found


def _tags_are_among(message: Message, hashes: set[int]) -> bool | None:
    """Return whether `hashes`, from a message's entries, have that of its TAGS.

    None if 5.4 writes no index entry for them, or if one of the message's keys has the same hash.
    """
    found = message.properties
    tags = _tags_of(message)
    if not tags:
        return None
    tag_hash = tag_key_hash(message.topic, tags)
    keys = {*properties.keys(found), found.get(properties.UNIQ_KEY, "")}
    return None if tag_hash in {key_hash(message.topic, key) for key in keys} else tag_hash in hashes


def _tags_of(message: Message) -> str:
    """Return the TAGS for which 5.4 writes an index entry, or ""."""
    return (
        ""
        if transaction_type(message.sys_flag) is TransactionType.ROLLBACK
        else message.properties.get(properties.TAGS, "")
    )


def newest_indexed(store: IndexedStore) -> Iterator[tuple[Message, set[int]]]:
    """Yield the messages to which the newest index entries point.

    Each comes with the key hashes of its index entries. Raises Unreadable.
    """
    for index_file in store.index.files[-1:]:
        yield from _messages_of(store, _newest_entries(index_file, SAMPLE_ENTRIES))


def indexes_tags(store: IndexedStore, profile: Profile | None = None) -> bool:
    """Return whether rmqctl must write index entries for TAGS.

    The profile says so; without one, signs in the store decide. Raises BadRequest if `profile` is None, and a 5.x store
    with TAGS does not show whether 5.3 or 5.4 wrote it.
    """
    if profile is not None:
        return profile.indexes_tags
    if signs_of_5_4(store):
        return True
    if store.path.version_signs() and store.tags_are_indexed is None and _log_has_tags(store):
        what = (
            "cannot tell which broker version wrote this store: 5.4 and later index TAGS, others do not, and no "
            "index shows it"
        )
        raise BadRequest(what, path=str(store.path.root), hint="give --profile 5.3 or --profile 5.4")
    return False


def _samples(store: IndexedStore) -> Iterator[list[IndexEntry]]:
    """Yield the newest entries, then some from many places of the newest index files."""
    files = store.index.files
    for index_file in files[-1:]:
        yield _newest_entries(index_file, SAMPLE_ENTRIES)
    for index_file in reversed(files[-1 - SAMPLE_FILES :]):
        yield from _spread_entries(index_file)


def _newest_entries(index_file: IndexFile, count: int) -> list[IndexEntry]:
    try:
        return list(index_file.newest_entries(count))
    except OSError:  # an unreadable file shows no sign; verify reports the file
        return []
    finally:
        index_file.file.close()


def _spread_entries(index_file: IndexFile) -> Iterator[list[IndexEntry]]:
    try:
        header = index_file.header()
        end = header.index_count if header is not None else 0
        for first in range(ENTRY_FIRST, end, max(end // SAMPLE_PLACES, SAMPLE_AT_EACH)):
            yield list(index_file.entries(first, min(first + SAMPLE_AT_EACH, end)))
    except OSError:
        return
    finally:
        index_file.file.close()


def _messages_of(store: IndexedStore, entries: list[IndexEntry]) -> Iterator[tuple[Message, set[int]]]:
    found: defaultdict[int, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.phy_offset].add(entry.key_hash)
    for offset, hashes in found.items():
        message = _message_at(store, offset)
        if message is not None:
            yield message, hashes


def _message_at(store: IndexedStore, offset: int) -> Message | None:
    try:
        return store.commit_log.message_at(offset)
    except OSError:
        return None


def _log_has_tags(store: IndexedStore) -> bool:
    """Examine only the first records of some log files."""
    files = store.commit_log.files_in_use()
    for file in files[:: max(len(files) // SAMPLE_FILES, 1)]:
        for found in islice(store.commit_log.scan(start=file.file_from_offset, stop=file.end), SAMPLE_RECORDS):
            if isinstance(found, Message) and _tags_of(found):
                return True
    return False
