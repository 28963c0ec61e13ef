"""Read a bag again, and name what has changed: files, and ranges of 1 MiB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.storage import Kind, Storage, tree_of
from rmqctl.operations.acquire import bag
from rmqctl.operations.acquire.bag import CHUNK, ZEROS

if TYPE_CHECKING:
    from collections.abc import Callable

_WINDOW = 64  # chunks that wait for a thread
_TYPO = 2  # a damaged digest differs in that many letters, that of another content in about 60


class _Expected(NamedTuple):
    sha256: str
    chunks: list[str] | None  # None if rmqctl-files.jsonl cannot be trusted


class Attestation:
    """A check of the bag in `storage.root`.

    Raises BadRequest if it is none, or not finished. `advance` is called with numbers of bytes that were read; all are
    `size`.
    """

    def __init__(self, storage: Storage, threads: int) -> None:
        self._storage, self._root = storage, storage.root
        self._pool = ThreadPoolExecutor(threads)
        self._sizes = {
            "/".join(path.relative_to(self._root).parts): stamp.size if stamp.kind is Kind.FILE else None
            for path, stamp in tree_of(storage, self._root)
            if stamp.kind is not Kind.DIRECTORY
        }
        self.size = sum(size or 0 for size in self._sizes.values())
        self.advance: Callable[[int], None] = lambda _: None
        self._matched = 0
        self._head: str | None = None
        self._changed: list[dict[str, Any]] = []
        self._missing: list[str] = []
        if not self._sizes.keys() & {bag.TAG_MANIFEST, bag.MANIFEST, bag.BAGIT}:
            is_unfinished = bag.FILES in self._sizes
            what = "a copy that is not finished" if is_unfinished else "not a copy of `rmqctl acquire`"
            hint = "`rmqctl acquire STORE DEST --resume` goes on with it" if is_unfinished else ""
            raise BadRequest(what, path=str(self._root), hint=hint)

    def run(self) -> dict[str, Any]:
        """Read all files, and return the keys of the verb's document. Raises OSError."""
        expected = self._expected()
        with self._pool:
            for path, row in expected.items():
                self._check(path, row)
        lost = {expected[path].sha256: path for path in reversed(self._missing) if path in expected}
        moved, new = [], []
        for path in sorted(self._sizes.keys() - expected.keys() - self._tags):
            source = lost.pop(self._digest(path), None) if self._sizes[path] is not None else None
            if source is None:
                new.append(path)
            else:
                moved.append({"path": path, "from": source})
                self._missing.remove(source)
        found = {"head": self._head, "matched": self._matched, "changed": self._changed}
        return {**found, "moved": moved, "missing": self._missing, "new": new, "bytes": self.size}

    def _expected(self) -> dict[str, _Expected]:
        """Check the lists, and return what the best of them says of the files in data/."""
        listed, is_exact = bag.read_list(self._storage, self._root / bag.TAG_MANIFEST)
        covered = {*bag.REQUIRED_TAGS, *({bag.STATEMENT} & listed.keys())}
        self._tags = {*covered, bag.TAG_MANIFEST}
        is_exact = is_exact and listed.keys() == covered
        for name in sorted(covered & self._sizes.keys()):
            digest = self._digest(name)
            differs = sum(ours != theirs for ours, theirs in zip_longest(digest, listed.get(name, digest)))
            is_exact = is_exact and not 0 < differs <= _TYPO
            self._judge(name, [(0, self._sizes[name] or 0)] if differs > _TYPO else [])
        if bag.TAG_MANIFEST in self._sizes:
            self._head = self._digest(bag.TAG_MANIFEST)
            self._judge(bag.TAG_MANIFEST, [] if is_exact else [(0, self._sizes[bag.TAG_MANIFEST] or 0)])
        self._missing += sorted(self._tags - self._sizes.keys())
        if bag.FILES in self._sizes and bag.FILES not in {row["path"] for row in self._changed}:
            return self._of_files()
        digests, _ = bag.read_list(self._storage, self._root / bag.MANIFEST)
        return {path: _Expected(digest, None) for path, digest in digests.items()}

    def _of_files(self) -> dict[str, _Expected]:
        descriptor = self._storage.open(self._root / bag.FILES)
        try:
            rows = {str(row.get("path")): row for _, row in bag.file_lines(self._storage, descriptor)}
        finally:
            self._storage.close(descriptor)
        return {
            path: _Expected(row["sha256"], row["chunks"])
            for path, row in rows.items()
            if isinstance(row.get("sha256"), str) and isinstance(row.get("chunks"), list)
        }

    def _check(self, path: str, row: _Expected) -> None:
        size = self._sizes.get(path)
        if size is None:
            self._missing.append(path)
        elif row.chunks is None:
            self._judge(path, [(0, size)] if self._digest(path) != row.sha256 else [])
        else:
            pairs = enumerate(zip_longest(row.chunks, self._chunks(path, size)))
            wrong = [number * CHUNK for number, (was, now) in pairs if was != now]
            self._judge(path, [(at, min(at + CHUNK, size) if at < size else at + CHUNK) for at in wrong])

    def _judge(self, path: str, ranges: list[tuple[int, int]]) -> None:
        """Count a file without ranges that differ as matched, and another as changed."""
        if ranges:
            self._changed.append({"path": path, "ranges": [{"begin": begin, "end": end} for begin, end in ranges]})
        else:
            self._matched += 1

    def _chunks(self, path: str, size: int) -> list[str]:
        descriptor = self._storage.open(self._root / path)
        try:
            digest = partial(_chunk_digest, self._storage, descriptor, size)
            count, found = -(-size // CHUNK), list[str]()
            for first in range(0, count, _WINDOW):
                numbers = range(first, min(first + _WINDOW, count))
                found += self._pool.map(digest, numbers) if count > 1 else map(digest, numbers)
                self.advance(min(size - first * CHUNK, _WINDOW * CHUNK))
        finally:
            self._storage.close(descriptor)
        return found

    def _digest(self, path: str) -> str:
        self.advance(self._sizes[path] or 0)
        return bag.digest_of(self._storage, self._root / path)


def _chunk_digest(storage: Storage, descriptor: int, size: int, number: int) -> str:
    begin, end = number * CHUNK, number * CHUNK + CHUNK
    if end <= size:
        data = storage.next_data(descriptor, begin)
        if data is None or data >= end:  # a hole
            return ZEROS
    return sha256(storage.read(descriptor, begin, CHUNK)).hexdigest()
