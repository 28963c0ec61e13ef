"""Copy a store into a bag, beside a running broker, too.

What leads to messages is copied before the messages: first the checkpoint, the configuration and the small files, then
timers, index and queues, and the log last. So no checkpoint is newer than the copied log, and each unit leads to a
message in it. In a folder, the newest file comes first: if it has data, the one before it is full already. In the other
order, a broker that begins a new file meanwhile would leave a gap.

A file is done when its line is in rmqctl-files.jsonl, on the disk, after the file itself; `--resume` copies the files
that are not done, and those that changed since.
"""

from __future__ import annotations

import json
import time
from errno import ELOOP
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.logfile.access.place import PRIVATE_FOLDER_MODE
from rmqctl.logfile.system.storage import Kind, Stamp, tree_of, within_time
from rmqctl.operations.acquire import bag
from rmqctl.store.config.store_path import COMMITLOG, DLEDGER_PREFIX, INDEX, QUEUE_PARTS, TIMER_LOG, TIMER_WHEEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rmqctl.operations.acquire.file_copy import FileCopier

BATCH_BYTES, BATCH_SECONDS = 256 * 1024 * 1024, 10.0  # copied since the last flush
_LATER = (TIMER_WHEEL, TIMER_LOG, INDEX, *QUEUE_PARTS, COMMITLOG)  # a part leads into those after it
Row = dict[str, Any]  # a line of rmqctl-files.jsonl


class Acquisition:
    """A copy of `roots` (folder to its name in data/) into DEST, the copier's target.

    `about` is the line of this run in rmqctl-files.jsonl. Raises OSError if DEST cannot be written, and BadRequest if
    it is not a bag that can be continued.
    """

    def __init__(self, copier: FileCopier, roots: Mapping[Path, str], about: Row) -> None:
        self._copier, self._roots, self._about = copier, roots, about
        self._source, self._target, self._dest = copier.source, copier.target, copier.target.root
        self.was_whole = False  # before `run`
        self._done: dict[str, Row] = {}
        self._pending: list[bytes] = []
        self._pending_bytes, self._flushed_at = 0, time.monotonic()
        self._list, self._list_end = -1, 0

    def run(self, *, resume: bool, sign: Callable[[bytes], bytes] | None = None) -> Row:
        """Copy what is not done, write the lists, and return what the bag has and lacks."""
        self._open_list(resume=resume)
        try:
            self.was_whole = self._target.entry(self._dest / bag.TAG_MANIFEST).kind is not Kind.MISSING
            if not self.was_whole:
                self._note(self._about)
                for path, bag_path, row in self._walk():
                    self._acquire(path, bag_path, row)
                self._flush()
                self._settle()
                self._write_tags(sign)
        finally:
            self._target.close(self._list)
        return self._result()

    def _open_list(self, *, resume: bool) -> None:
        path = self._dest / bag.FILES
        is_new = self._target.entry(path).kind is Kind.MISSING
        if self._target.listing(self._dest) and (is_new or not resume):
            hint = "choose a new folder" if is_new else "--resume goes on with it"
            raise BadRequest("DEST is not empty", path=str(self._dest), hint=hint)
        if is_new:
            self._target.make_folder(self._dest, PRIVATE_FOLDER_MODE)
            self._target.close(self._target.make_file(path))
        self._target.make_folder(self._dest / bag.DATA)
        self._list = self._target.open_for_writing(path)
        for end, row in bag.file_lines(self._target, self._list):
            self._list_end = end
            self._remember(row)
            if row.get("store", self._about["store"]) != self._about["store"]:
                raise BadRequest(f"DEST is a copy of {row['store']}", path=str(self._dest), hint="choose another")
        self._target.resize(self._list, self._list_end)

    def _walk(self) -> Iterator[tuple[Path, str, Row]]:
        """Yield what the roots hold, a folder before its contents, with paths in the bag.

        A folder is listed when it is reached: a live log has grown since the start.
        """
        waiting = [(root, f"{bag.DATA}/{name}") for root, name in reversed([*self._roots.items()])]
        seen = set()
        while waiting:
            path, bag_path = waiting.pop()
            names: list[str] = []
            try:
                row = self._source.details(path)
                if "target" in row and (self._source.follow_links or path in self._roots):
                    row = self._source.details(path, follow=True)
                if row["kind"] == "folder":
                    place = row["device"], row["inode"]
                    if place in seen:
                        raise OSError(ELOOP, "a link to a folder that is copied already", str(path))
                    seen.add(place)
                    names = self._source.names(path)  # sorted, and taken from their end
            except OSError as error:
                self._note_unreadable(bag_path, error)
                continue
            yield path, bag_path, row
            if bag_path.count("/") == 1:
                names.sort(key=_order, reverse=True)
            waiting += [(path / name, f"{bag_path}/{bag.payload_name(name)}") for name in names]

    def _acquire(self, path: Path, bag_path: str, row: Row) -> None:
        to, done = self._dest / bag_path, self._done.get(bag_path, {})
        if row["kind"] == "file":
            there = self._target.entry(to)
            if done.get("after") == row and (there.kind, there.size) == (Kind.FILE, done["size"]):
                return
            try:
                before = self._copier.open(path)
            except OSError as error:
                self._note_unreadable(bag_path, error)
                return
            row = self._copier.copy(to, before)
            self._target.set_stamp(to, _stamp(Kind.FILE, row, 0o600))
            self._pending_bytes += row["size"]
        elif row["kind"] == "folder" and self._target.entry(to).kind is Kind.MISSING:
            self._target.add_folder(to)
        elif row["kind"] == "link":
            row["isOutside"] = self._source.entry(path).kind is Kind.LINK_OUT
        raw = {"rawName": path.name.encode("utf-8", "surrogateescape").hex()} if to.name != path.name else {}
        self._note({"path": bag_path, **raw, **row})

    def _note_unreadable(self, bag_path: str, error: OSError) -> None:
        if "sha256" not in self._done.get(bag_path, {}):  # a copy of an earlier run is better than none
            self._note({"path": bag_path, "kind": "unreadable", "detail": error.strerror or str(error)})

    def _note(self, row: Row) -> None:
        self._remember(row)
        self._pending.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        if self._pending_bytes > BATCH_BYTES or time.monotonic() - self._flushed_at > BATCH_SECONDS:
            self._flush()

    def _remember(self, row: Row) -> None:
        if "path" in row:
            self._done[row["path"]] = {key: row[key] for key in row if key not in ("chunks", "holes")}

    def _flush(self) -> None:
        self._target.sync_file_system(self._list)
        lines = b"".join(self._pending)
        self._target.write(self._list, self._list_end, lines)
        self._target.sync(self._list)
        self._list_end += len(lines)
        self._pending.clear()
        self._pending_bytes, self._flushed_at = 0, time.monotonic()

    def _settle(self) -> None:
        """Give folders their times, after the last change in them.

        What a killed run began, and is gone from the store, is removed.
        """
        for path, stamp in tree_of(self._target, self._dest / bag.DATA):
            row = self._done.get("/".join(path.relative_to(self._dest).parts), {})
            if stamp.kind is not Kind.DIRECTORY and "sha256" not in row:
                self._target.remove_file(path)
            elif stamp.kind is Kind.DIRECTORY and "mode" in row:
                self._target.set_stamp(path, _stamp(Kind.DIRECTORY, row, 0o700))

    def _files(self) -> dict[str, Row]:
        return {path: row for path, row in self._done.items() if "sha256" in row}

    def _write_tags(self, sign: Callable[[bytes], bytes] | None) -> None:
        files = self._files()
        digests = {path: row["sha256"] for path, row in files.items()}
        contents = bag.tag_files(digests, sum(row["size"] for row in files.values()), self._about)
        lists = {bag.FILES: bag.digest_of(self._target, self._dest / bag.FILES)}
        lists[bag.MANIFEST] = sha256(contents[bag.MANIFEST]).hexdigest()
        if sign is not None:
            contents[bag.STATEMENT] = bag.signed_statement(lists, self._about, sign)
        lists |= {name: sha256(content).hexdigest() for name, content in contents.items()}
        for name, content in (*contents.items(), (bag.TAG_MANIFEST, bag.list_lines(lists))):
            self._target.replace_file(self._dest / name, content)

    def _result(self) -> Row:
        """Return the keys of the verb's document."""
        files = self._files()
        unreadable = [
            {"path": path, "detail": row.get("detail", "the disk cannot read it"), "ranges": _ranges(row)}
            for path, row in self._done.items()
            if row["kind"] == "unreadable" or row.get("unreadable")
        ]
        links = [row for row in self._done.values() if row["kind"] == "link"]
        return {
            "head": bag.digest_of(self._target, self._dest / bag.TAG_MANIFEST),
            "manifestSha256": bag.digest_of(self._target, self._dest / bag.MANIFEST),
            "copied": len(files),
            "bytes": sum(row["size"] for row in files.values()),
            "changed": [{"path": path} for path, row in files.items() if row["changed"]],
            "unreadable": unreadable,
            "links": [{key: row[key] for key in ("path", "target", "isOutside")} for row in links],
        }


def _ranges(row: Row) -> list[dict[str, int]]:
    return [{"begin": begin, "end": end} for begin, end in row.get("unreadable", [])]


def _order(name: str) -> int:
    rank = _LATER.index(name) + 1 if name in _LATER else 0
    return len(_LATER) if name.startswith(DLEDGER_PREFIX) else rank


def _stamp(kind: Kind, row: Row, least_mode: int) -> Stamp:
    """Return owner, mode and time for a copy, which its owner can read.

    No set-uid bit is kept.
    """
    mode = row["mode"] & 0o777 | least_mode
    return Stamp(kind, row["size"], within_time(row["mtime"]), mode, row["uid"], row["gid"], 0)
