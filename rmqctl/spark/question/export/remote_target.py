"""The folder of an export by a URL, such as s3://bucket/messages.

An object store cannot rename a folder. Tasks therefore write to a folder `_rmqctl-RUN` in the target, which readers of
a data set skip. When all messages are written, each file is moved to its place, and at last the file `_MANIFEST` is
replaced, which names all files of the export. A reader of `_MANIFEST` has the earlier export or the new one at every
moment, also if the export is killed. Other readers may see a part of the files while they are moved.

A running export writes the marker file in its folder again every HEARTBEAT_SECONDS. If the files in another folder
`_rmqctl-RUN` are not older than ABANDONED_SECONDS, by the clock of the server, another export may be running, and the
new one is refused. An older folder belongs to a killed export: it is removed, and so are the files that this export has
moved, if `_MANIFEST` does not name them.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest, RmqctlError, Unreadable
from rmqctl.logfile.system.remote_storage import file_system, os_errors, root_text
from rmqctl.spark.question.export.earlier_files import MANIFEST, MARKER, SUCCESS, Leftovers, Mode, check_replaceable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rmqctl.spark.question.export.part_files import PartFile

MOVES_AT_ONCE = 16
HEARTBEAT_SECONDS = 15
ABANDONED_SECONDS = 120
NS_PER_SECOND = 1_000_000_000
_STAGING = re.compile(r"_rmqctl-(?P<run>[0-9a-f]{32})/.*", re.DOTALL)


class RemoteTarget:
    """A URL to which an export goes.

    `target` is the path that stands for it. `suffix` is the end of the names of files. `left` is what killed exports
    had left. Raises BadRequest if pyarrow does not know the URL, and OSError if no server answers.
    """

    def __init__(self, target: Path, mode: Mode, suffix: str) -> None:
        self.left = Leftovers([], [])
        self._target = target
        self._mode = mode
        self._suffix = suffix
        self._run = uuid.uuid4().hex
        self._folder = f"_rmqctl-{self._run}"
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="export", daemon=True)
        self._system, inner = file_system(target)
        self._inner = inner.rstrip("/")

    @property
    def staging(self) -> str:
        """The folder to which tasks write, as a URL."""
        return root_text(self._target / self._folder)

    def begin(self) -> None:
        """Make the folder to which tasks write, and remove what killed exports have left.

        Raises BadRequest if the mode does not allow an export to the URL, or if another export may be running. Raises
        OSError.
        """
        if not any(map(_STAGING.fullmatch, self._listed())):
            self._checked()  # before anything is written to a folder that may be someone else's
        with os_errors(self._target):
            self._system.create_dir(self._at(self._folder), recursive=True)
            self._write(f"{self._folder}/{MARKER}", b"")  # its time is the server's
        try:
            self._remove_killed()
            self._checked()
        except (RmqctlError, OSError):
            self.remove_staging()
            raise
        self._heart.start()

    def _beat(self) -> None:
        """Write the marker again from time to time.

        Return when the export ends, or when another export has removed the folder.
        """
        while not self._ended.wait(HEARTBEAT_SECONDS):
            with suppress(OSError), os_errors(self._target):  # the next time may be better
                if not self._is_marked():
                    return
                self._write(f"{self._folder}/{MARKER}", b"")

    def _is_marked(self) -> bool:
        from pyarrow.fs import FileType

        found = self._system.get_file_info(self._at(f"{self._folder}/{MARKER}"))
        return bool(found.type == FileType.File)

    def _remove_killed(self) -> None:
        runs = self._killed()
        if runs:
            self._take_back(*runs)
        with os_errors(self._target):
            for run in runs:
                self._system.delete_dir(self._at(f"_rmqctl-{run}"))
                self.left.removed.append(root_text(self._target / f"_rmqctl-{run}"))

    def _killed(self) -> list[str]:
        """Return the runs of killed exports that have left a folder in the target.

        The folder of this export must have its marker. Raises BadRequest if another export may be running.
        """
        times: defaultdict[str, list[Any]] = defaultdict(list)
        for name, info in self._listed().items():
            if (found := _STAGING.fullmatch(name)) is not None:
                times[found["run"]].append(info.mtime_ns)
        now = times.pop(self._run, [None])
        for run, written in times.items():
            if None in (*now, *written) or max(now) - max(written) < ABANDONED_SECONDS * NS_PER_SECOND:
                raise BadRequest(
                    "another export to the same URL may be running",
                    path=root_text(self._target / f"_rmqctl-{run}"),
                    hint=f"wait until it ends; if it was killed, try again after {ABANDONED_SECONDS} s",
                )
        return sorted(times)

    def publish(self, files: Sequence[PartFile]) -> None:
        """Move the files of the tasks to their places, and name them in `_MANIFEST`.

        With `Mode.APPEND`, all earlier files are kept. With `Mode.OVERWRITE`, they are removed at last. `_SUCCESS` is
        missing in the meantime. Raises BadRequest if the target has other files than exports write. Raises OSError.
        """
        earlier = self._checked()
        if not self._is_marked():
            raise BadRequest("another export has removed the folder of this one", path=self.staging, hint="try again")
        kept = self._entries_of(earlier) if self._mode is Mode.APPEND else []
        with os_errors(self._target):
            self._delete(name for name in earlier if name == SUCCESS)
            new = self._moved(files)
            self._write(MANIFEST, json.dumps({"files": [*kept, *new]}).encode())
            if self._mode is not Mode.APPEND:
                self._delete(name for name in earlier if name not in (MANIFEST, SUCCESS))
            self._write(SUCCESS, b"")

    def withdraw(self) -> None:
        """Remove the files that this export has moved to their places.

        Those that `_MANIFEST` names are kept. If the target has other files, `_SUCCESS` is written again. Raises
        OSError.
        """
        left = self._take_back(self._run)
        if any(name.endswith(self._suffix) and not _STAGING.fullmatch(name) for name in left):
            with os_errors(self._target):
                self._write(SUCCESS, b"")

    def _take_back(self, *runs: str) -> set[str]:
        """Remove the files that some exports have moved; return the names of those left.

        Files that `_MANIFEST` names are kept.
        """
        listed = self._listed()
        named = {one["path"] for one in self._manifest(listed)}
        gone = {name for name in listed.keys() - named if any(f"-{run}." in name for run in runs)}
        with os_errors(self._target):
            self._delete(gone)
        return listed.keys() - gone

    def remove_staging(self) -> None:
        """Remove the folder to which tasks write. Raises OSError."""
        self._ended.set()
        if self._heart.is_alive():
            self._heart.join()  # it would make the folder again
        with suppress(FileNotFoundError), os_errors(self._target):
            self._system.delete_dir(self._at(self._folder))

    def _checked(self) -> dict[str, Any]:
        """Return the files in the target, as `_listed`, without those that tasks write.

        Raises BadRequest if the mode does not allow an export to the target.
        """
        found = {name: info for name, info in self._listed().items() if not _STAGING.fullmatch(name)}
        check_replaceable(root_text(self._target), found, self._mode, self._suffix)
        return found

    def _listed(self) -> dict[str, Any]:
        from pyarrow.fs import FileSelector, FileType

        with os_errors(self._target):
            entries = self._system.get_file_info(FileSelector(self._inner, recursive=True, allow_not_found=True))
        start = len(self._inner) + 1
        return {one.path[start:]: one for one in entries if one.type == FileType.File}

    def _manifest(self, listed: Iterable[str]) -> list[dict[str, Any]]:
        """Raise Unreadable if the content of `_MANIFEST` is not valid."""
        if MANIFEST not in listed:
            return []
        with os_errors(self._target), self._system.open_input_file(self._at(MANIFEST)) as stream:
            text = stream.read()
        try:
            return [{**one, "path": str(one["path"])} for one in json.loads(text)["files"]]
        except (ValueError, TypeError, KeyError) as error:
            raise Unreadable("is not the manifest of an export", path=root_text(self._target / MANIFEST)) from error

    def _entries_of(self, listed: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of all earlier files for the manifest.

        It does not name files that came by another way, as by an export to the same folder as a path.
        """
        named = self._manifest(listed)
        known = {one["path"] for one in named}
        others = sorted(name for name in listed if name.endswith(self._suffix) and name not in known)
        return [*named, *({"path": name, "bytes": listed[name].size} for name in others)]

    def _moved(self, files: Sequence[PartFile]) -> list[dict[str, Any]]:
        for name in sorted({part.partition for part in files}):
            self._system.create_dir(self._at(name), recursive=True)
        entries = [
            {"path": part.name(number, self._run, self._suffix), "bytes": part.size, "messages": part.messages}
            for number, part in enumerate(files)
        ]
        staged = [self._inner + part.path.removeprefix(str(self._target)) for part in files]
        with ThreadPoolExecutor(MOVES_AT_ONCE) as executor:
            list(executor.map(self._system.move, staged, [self._at(str(entry["path"])) for entry in entries]))
        return entries

    def _delete(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(MOVES_AT_ONCE) as executor:
            list(executor.map(self._system.delete_file, map(self._at, names)))

    def _write(self, name: str, data: bytes) -> None:
        with self._system.open_output_stream(self._at(name)) as stream:
            stream.write(data)

    def _at(self, name: str) -> str:
        return f"{self._inner}/{name}" if name else self._inner


@contextmanager
def remote_target(target: Path, mode: Mode, suffix: str) -> Iterator[RemoteTarget]:
    """Yield a RemoteTarget; remove its staging folder after the block.

    What killed exports have left is removed first. If the block fails, the files that it has moved are removed, too.

    Raises BadRequest if `mode` does not allow an export to the URL, if pyarrow does not know the URL, or if another
    export may be running. Raises OSError.
    """
    found = RemoteTarget(target, mode, suffix)
    found.begin()
    is_done = False
    try:
        yield found
        is_done = True
    finally:
        if not is_done:
            found.withdraw()  # if this fails, the staging folder stays, and the next export removes the files
        found.remove_staging()
