"""A queue of files of equal size, each named by the offset of its first byte.

They are in one folder, or spread over several. Brokers load a queue only if every file has the right length.
`anomalies` lists faults in the sequence of files, `foreign` the folder entries that are not files of the queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.format.message import MAGIC_OFFSET, MAGIC_V1, MAGIC_V2, MIN_SIZE, PHYSICALOFFSET_OFFSET, Damage
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.logfile.system.plain_folders import PlainFile
    from rmqctl.logfile.system.storage import Entry, Storage

FILE_NAME_DIGITS = 20
OFFSET_MAX = 2**63 - 1
JAVA_INT_MAX = 2**31 - 1  # the type of file sizes, such as mappedFileSizeCommitLog
LINK_TEXT = "a symbolic link out of the store; --follow-links follows it"
EMPTY_FILE = "the file is empty"
_LOADED_BY = {
    True: "no broker loads it",
    False: "brokers up to 5.1.2 do not load it, later ones delete it where it is the last one",
}


def is_file_name(name: str) -> bool:
    """Return whether a file name is an offset of 20 digits, as in RocketMQ."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


class MappedFileQueue:
    """The files in `folders`, in the order of their offsets.

    `file_size` is the length in bytes that a file should have: `configured`, or derived from the files. What a file has
    after it is not read. `plain` has the files of the only folder, if the caller has listed it. Raises OSError if a
    folder cannot be listed.
    """

    __slots__ = (
        "_bases",
        "_configured",
        "_folders",
        "_unnamed",
        "allocated",
        "anomalies",
        "file_size",
        "files",
        "foreign",
        "storage",
    )

    def __init__(
        self,
        storage: Storage,
        folders: Sequence[Path | str],
        configured: int | None = None,
        plain: list[PlainFile] | None = None,
    ) -> None:
        self.storage = storage
        self._folders = tuple(map(str, folders))  # smaller than Paths: a store may have 200,000 queues
        self._configured = configured
        self.files: list[MappedFile] = []
        self._list(plain)

    @classmethod
    def of_file(cls, file: MappedFile, storage: Storage) -> MappedFileQueue:
        """Return a queue of this file alone."""
        queue = cls(storage, (), file.size)
        queue._set_files([file], [])
        return queue

    def refresh(self) -> None:
        """List the queue's folders again, as a running broker may have changed them.

        Raises OSError.
        """
        self.close()
        self._list(None)

    def _list(self, plain: list[PlainFile] | None) -> None:
        if plain is None and len(self._folders) == 1:
            parent, _, name = self._folders[0].rpartition("/")
            plain = next(self.storage.plain_folders(parent, [name]))
        if plain is not None and self._use(self._folders[0], plain):
            return
        listing = _Listing(self.storage)
        for folder in self._folders:
            listing.add(Path(folder))
        self.allocated = listing.allocated
        self.foreign = tuple(listing.foreign)
        self._unnamed = tuple(listing.unnamed)
        self._set_files([listing.files[base] for base in sorted(listing.files)], listing.overlaps)

    def _use(self, folder: str, plain: list[PlainFile]) -> bool:
        """Use these files of a folder, sorted by name, if all belong to the queue."""
        files = []
        allocated = 0
        for name, size, allocated_to_file, _ in plain:
            if not is_file_name(name) or (base := int(name)) + size > OFFSET_MAX:
                return False
            files.append(MappedFile(self.storage, f"{folder}/{name}", base, size))
            allocated += allocated_to_file
        self.allocated = allocated
        self.foreign = self._unnamed = ()
        self._set_files(files, [])
        small_files = self.storage.small_files
        if small_files is not None:
            for file, (_, size, _, content) in zip(files, plain, strict=True):
                if content is not None and file.size == size:
                    small_files.keep(file, content)
        return True

    def _set_files(self, files: list[MappedFile], overlaps: list[Damage]) -> None:
        self.files = files
        self.file_size = self._configured or _common_size(files)
        for file in files:
            if file.size_on_disk > self.file_size:
                file.size = self.file_size
        self.anomalies = (*overlaps, *self._faults_in_sequence())
        self._bases = tuple([file.file_from_offset for file in files])

    @property
    def min_offset(self) -> int:
        """Return the offset of the first file; 0 without files."""
        return self._bases[0] if self._bases else 0

    @property
    def small_content(self) -> bytes | None:
        """Return the content of the only file, without the zeros at its end, or None.

        None if there is not exactly one file, or the storage does not cache it. Raises OSError.
        """
        return self.files[0].content if len(self.files) == 1 else None

    @property
    def end(self) -> int:
        """Return the offset after the last file; 0 without files."""
        return self.files[-1].end if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that contains the byte at `offset`."""
        file = self.at_or_before(offset)
        return file if file is not None and offset < file.end else None

    def at_or_before(self, offset: int) -> MappedFile | None:
        """Return the last file that begins at or before `offset`."""
        at = bisect_right(self._bases, offset) - 1
        return self.files[at] if at >= 0 else None

    def set_aside(self) -> list[tuple[Path, Path]]:
        """Return the log files that were probably renamed, with their right paths.

        Such a file has `file_size` bytes. Its name begins with that of a missing file, such as FILE.bak; or it is
        another number, and the file begins with a record of a missing file.
        """
        taken = set(self._bases)
        found: dict[int, Path] = {}
        for entry in self._unnamed:
            base = self._base_of(entry) if entry.size == self.file_size else None
            if base is not None and base not in taken and (base - self.min_offset) % self.file_size == 0:
                found.setdefault(base, entry.path)
        return [(path, path.with_name(f"{base:0{FILE_NAME_DIGITS}d}")) for base, path in sorted(found.items())]

    def _base_of(self, entry: Entry) -> int | None:
        if not entry.name.isdecimal():
            name = entry.name[:FILE_NAME_DIGITS]
            return int(name) if is_file_name(name) else None
        with closing(MappedFile(self.storage, entry.path, 0, entry.size)) as file:
            head = file.read(0, MIN_SIZE)
        magic = int.from_bytes(head[MAGIC_OFFSET : MAGIC_OFFSET + 4], "big")
        stored = head[PHYSICALOFFSET_OFFSET : PHYSICALOFFSET_OFFSET + 8]
        return int.from_bytes(stored, "big") if magic in (MAGIC_V1, MAGIC_V2) else int(entry.name)

    def close(self) -> None:
        """Close the descriptors of all files."""
        for file in self.files:
            file.close()

    def _faults_in_sequence(self) -> Iterator[Damage]:
        """Yield gaps, overlaps and wrong lengths."""
        expected: int | None = None
        for file in self.files:
            base = file.file_from_offset
            if expected is not None and base != expected:
                code, what = (
                    ("file-gap", "missing before this file")
                    if base > expected
                    else ("file-overlap", "given twice by this file")
                )
                low, high = sorted((base, expected))
                detail = f"{high - low} bytes from {low} on are {what}"
                yield Damage(code, low, high - low, detail, path=file.name)
            size = file.size_on_disk
            if size != self.file_size or not size:
                detail = f"{_length_words(size, self.file_size)}: {_LOADED_BY[bool(size)]}"
                missing = abs(self.file_size - size)
                yield Damage("file-length", base + file.size, missing, detail, path=file.name)
            elif file.size > JAVA_INT_MAX:
                detail = f"the file has {file.size} bytes; a broker's files have at most {JAVA_INT_MAX}"
                yield Damage("file-length", base, file.size, detail, path=file.name)
            expected = base + max(self.file_size, 1)


class _Listing:
    """The entries of a queue's folders, sorted by what they are.

    `files` has the files of the queue by their offsets, `overlaps` a Damage for each further file with the same offset,
    `unnamed` the files that are not named by an offset.
    """

    def __init__(self, storage: Storage) -> None:
        self.files: dict[int, MappedFile] = {}
        self.overlaps: list[Damage] = []
        self.foreign: list[Damage] = []
        self.unnamed: list[Entry] = []
        self.allocated = 0
        self._storage = storage

    def add(self, folder: Path) -> None:
        entries = self._storage.listing(folder)
        if not entries:
            self._check_is_folder(folder)
        for entry in entries:
            self._add(entry)

    def _check_is_folder(self, folder: Path) -> None:
        kind = self._storage.entry(folder).kind
        if kind is Kind.LINK_OUT:
            self._add_foreign("link-not-followed", LINK_TEXT, folder)
        elif kind in (Kind.FILE, Kind.OTHER):
            self._add_foreign("foreign-file", f"{kind.value} where a folder of files should be", folder)

    def _add(self, entry: Entry) -> None:
        if entry.kind is Kind.LINK_OUT:
            self._add_foreign("link-not-followed", LINK_TEXT, entry.path)
            return
        if entry.kind is not Kind.FILE or not is_file_name(entry.name) or int(entry.name) + entry.size > OFFSET_MAX:
            self.unnamed += [entry] if entry.kind is Kind.FILE else []
            detail = f"{entry.kind.value} that is not named by an offset of 20 digits"
            self._add_foreign("foreign-file", detail, entry.path)
            return
        base = int(entry.name)
        self.allocated += entry.allocated
        if base in self.files:
            detail = f"the same offset as {self.files[base].name}"
            path = self._storage.display(entry.path)
            self.overlaps.append(Damage("file-overlap", base, entry.size, detail, path=path))
            return
        self.files[base] = MappedFile(self._storage, entry.path, base, entry.size)

    def _add_foreign(self, code: str, detail: str, path: Path) -> None:
        self.foreign.append(Damage(code, 0, 0, detail, path=self._storage.display(path)))


def _length_words(size: int, usual: int) -> str:
    """`usual` is the length that the file should have, or 0 if all files are empty."""
    if size:
        return f"the file has {size} bytes, it should have {usual}"
    return f"{EMPTY_FILE}, it should have {usual} bytes" if usual else EMPTY_FILE


def _common_size(files: list[MappedFile]) -> int:
    """Return the most likely file length of the queue.

    It is the most frequent of the files' lengths and the differences between successive names. Of several, in this
    order: one that divides all offsets in the names, that of an existing file, the larger one.
    """
    if len(files) == 1:
        return files[0].size
    sizes = Counter(file.size for file in files if file.size)
    votes = sizes + Counter(after.file_from_offset - before.file_from_offset for before, after in pairwise(files))
    most = max(votes.values(), default=0)

    def rank(size: int) -> tuple[bool, bool, int]:
        return not any(file.file_from_offset % size for file in files), size in sizes, size

    return max((size for size, count in votes.items() if count == most), key=rank, default=0)
