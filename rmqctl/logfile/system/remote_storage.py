"""Read access to a store that is not on a file system of this host.

It is in S3, Google Cloud Storage, Azure Storage, HDFS, or any other file system that pyarrow can open by a URL. A
Python Path cannot contain a URL: it merges the two slashes, and takes it for a relative path. So s3://bucket/store
becomes the path /:s3:/bucket/store, and a URL without a host, such as hdfs:///store, becomes /:hdfs:/@/store. A URL's
query, for example ?endpoint_override=http://host:9000, follows the host, with %2F for slashes:
/:s3:/bucket?endpoint_override=http:%2F%2Fhost:9000/store. The path of every file in the store contains it.
"""

from __future__ import annotations

import errno
import re
import threading
from contextlib import contextmanager, suppress
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.storage import Entry, Kind, Stamp, Storage
from rmqctl.text import install_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.fs

    from rmqctl.logfile.system.storage import Closeable, DiskSpace

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<rest>.+)", re.DOTALL | re.IGNORECASE)
_SCHEME = re.compile(r":[a-z][a-z0-9+.-]+:")
_CREDENTIALS = re.compile(r"[^/@]*:[^/]*@")
_NO_HOST = "@"
_QUERY, _SLASH_IN_QUERY = "?", "%2F"
_HERE = (":fsspec+local:", ":fsspec+file:")
FILE = "file"
READ_SIZE = 256 * 1024  # bytes
READ_SIZE_IN_ORDER = 4 * 1024 * 1024  # for a read that continues the last one


def is_url(text: str) -> bool:
    """Return whether a text is a URL and not a path."""
    return _URL.fullmatch(text) is not None


def root_path(text: str) -> Path:
    """Return the absolute path for a text that is a URL or a path.

    Raises BadRequest for a file:// URL of another host, and for a URL with a password.
    """
    found = _URL.fullmatch(text)
    if found is None:
        return Path(text).absolute()
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme == FILE:
        if not rest.startswith("/"):
            raise BadRequest(f"{text}: a file of another host", hint=f"file:///{rest} is one of this host")
        return Path(rest)
    if _CREDENTIALS.match(rest):
        hint = (
            "it would be shown: give it as that file system's own tools find it, like AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
        raise BadRequest(f"a {scheme}:// URL with a password in it", hint=hint)
    place, mark, query = rest.partition(_QUERY)
    host, _, inner = (_NO_HOST + place if place.startswith("/") else place).partition("/")
    return Path("/", f":{scheme}:", host + mark + query.replace("/", _SLASH_IN_QUERY), inner.lstrip("/"))


def root_text(path: Path) -> str:
    """Return the root of a store as users write it: a URL or a path."""
    if not is_remote(path):
        return str(path)
    _, scheme, host, *rest = path.parts
    host, mark, query = host.partition(_QUERY)
    place = "/".join(("" if host == _NO_HOST else host, *rest))
    return f"{scheme[1:]}//{place}{mark}{query.replace(_SLASH_IN_QUERY, '/')}"


def is_remote(path: Path) -> bool:
    """Return whether a path stands for a URL (see `root_path`)."""
    return len(path.parts) > 2 and path.is_absolute() and _SCHEME.fullmatch(path.parts[1]) is not None


def place_of(path: Path) -> Path:
    """Return the same path for all spellings of a place, to compare places.

    The query of a URL is left out. A URL for files of this host, such as fsspec+local:///mnt, becomes a path.
    """
    if not is_remote(path):
        return path.resolve()
    _, scheme, host, *rest = path.parts
    host = host.partition(_QUERY)[0]
    if scheme in _HERE:
        return Path("/", "" if host == _NO_HOST else host, *rest).resolve()
    return Path("/", scheme, host, *rest).resolve()


NS_PER_MS = 1_000_000


GOOGLES = ("gs://", "gcs://")


RETRY_SECONDS = 15


_NUMBERS = {FileNotFoundError: errno.ENOENT, NotADirectoryError: errno.ENOTDIR}


def storage_of(root: Path, *, follow_links: bool) -> Storage:
    """Return read access to the store at `root`.

    Raises BadRequest if the kind of URL is unknown, and OSError if no server answers.
    """
    return RemoteStorage(root) if is_remote(root) else Storage(root, follow_links=follow_links)


class RemoteStorage(Storage):
    """Read access to a store by a URL; links, holes and locks are not visible in it.

    The folder of the store is listed once, and entries in it are taken from this listing. The listing of a folder in it
    also lists all folders below; each of these listings answers one call. Raises OSError if the file system does not
    answer, and BadRequest if pyarrow knows no file system for the URL.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.follow_links = False
        self.named = [root]
        self._opened: dict[int, Closeable] = {}
        self._files: dict[int, ReadAhead] = {}
        self._top: dict[str, Entry] | None = None
        self._below: dict[Path, list[Entry]] = {}
        self._numbers = count()
        self._lock = threading.Lock()
        self._system, inner = _system_of(root_text(root))
        self._inner = inner.rstrip("/")

    def trust(self, folder: Path) -> None:
        """Do nothing, because no link leads out of a remote store."""
        del folder

    def display(self, path: Path) -> str:
        """Return `path` relative to the store, or as a URL if it is outside the store."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else root_text(path)

    def entry(self, path: Path) -> Entry:
        """Return the entry at `path`; its kind is MISSING outside the store too.

        Raises OSError, but not for a missing file.
        """
        return self._listed(path) or self._entry_now(path)

    def _entry_now(self, path: Path) -> Entry:
        if path.is_relative_to(self.root):
            with suppress(NotADirectoryError), os_errors(path):  # a file has the place of a parent folder
                return _entry(path, self._system.get_file_info(self._at(path)))
        return Entry(path.name, path, Kind.MISSING)

    def listing(self, folder: Path) -> list[Entry]:
        """Return the entries of a folder, sorted by name; none if it does not exist.

        Raises OSError.
        """
        if folder == self.root:
            return list(self._top_entries(again=True).values())
        listed = self._listed(folder)
        if listed is not None:
            return [] if listed.kind is Kind.MISSING else self._listing_with_folders(folder)
        return self._below.pop(folder) if folder in self._below else self._listing_now(folder)

    def _listing_now(self, folder: Path) -> list[Entry]:
        from pyarrow.fs import FileSelector

        found: list[Any] = []
        if folder.is_relative_to(self.root):
            with suppress(NotADirectoryError), os_errors(folder):
                found = self._system.get_file_info(FileSelector(self._at(folder), allow_not_found=True))
        return sorted((_entry(folder / one.base_name, one) for one in found), key=attrgetter("name"))

    def _listing_with_folders(self, folder: Path) -> list[Entry]:
        """Keep the entries of all folders below, or list only this folder if that fails."""
        from pyarrow.fs import FileSelector

        above = self._at(folder).strip("/")
        try:
            with os_errors(folder):
                infos = self._system.get_file_info(FileSelector(self._at(folder), recursive=True))
        except OSError:  # for example, because of a name in one of the folders
            return self._listing_now(folder)
        entries = [_entry(folder / info.path.strip("/").removeprefix(above).strip("/"), info) for info in infos]
        below: dict[Path, list[Entry]] = {entry.path: [] for entry in entries if entry.kind is Kind.DIRECTORY}
        below[folder] = []
        for entry in sorted(entries, key=attrgetter("name")):
            below[entry.path.parent].append(entry)
        self._below |= below
        return self._below.pop(folder)

    def _listed(self, path: Path) -> Entry | None:
        """Return the entry at `path` if the listing of the store's folder shows its kind.

        None for the folder itself, for an existing folder's content, and outside the store.
        """
        if path == self.root or not path.is_relative_to(self.root):
            return None
        name, *below = path.relative_to(self.root).parts
        found = self._top_entries().get(name)
        if found is None:
            return Entry(path.name, path, Kind.MISSING)
        return None if below else found

    def _top_entries(self, *, again: bool = False) -> dict[str, Entry]:
        if self._top is None or again:
            self._top = {entry.name: entry for entry in self._listing_now(self.root)}
        return self._top

    def stamp(self, path: Path) -> Stamp | None:
        """Return the size and time of the file at `path`; None if it does not exist.

        Raises OSError.
        """
        entry = self._entry_now(path)
        return (
            None if entry.kind is Kind.MISSING else Stamp(entry.kind, entry.size, entry.mtime * NS_PER_MS, 0, 0, 0, 0)
        )

    def disk_space(self, path: Path) -> DiskSpace | None:
        """Return None, because a remote store does not report its disk space."""
        del path
        return None

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted. Raises OSError."""
        return [entry.name for entry in self.listing(folder)]

    def open(self, path: Path | str) -> int:
        """Open a file for reading, and return a number that serves as descriptor.

        Raises OSError.
        """
        path = Path(path)
        with os_errors(path):
            return self._kept(self._system.open_input_file(self._at(path)))

    def duplicate(self, descriptor: int) -> int:
        """Return another number for the same open file, as `os.dup` does."""
        return self._kept(self._files[descriptor].file)

    def close(self, descriptor: int) -> None:
        """Close the open file that has the number `descriptor`."""
        with self._lock:
            self._files.pop(descriptor, None)

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`; fewer only at the end of the file.

        Raises OSError.
        """
        with os_errors(self.root):
            data: bytes = self._files[descriptor].read_at(size, position)
        return data

    def read_into(self, descriptor: int, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `position` on, and return their number.

        They are fewer at the file's end.
        """
        data = self.read(descriptor, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def next_data(self, descriptor: int, position: int) -> int | None:
        """Return `position`, or None at or after the file's end."""
        return position if position < self._files[descriptor].size() else None

    def lock_holder(self, path: Path) -> int | None:
        """Return None, because locks are not visible in a remote store."""
        del path
        return None

    def share_lock(self, path: Path) -> None:
        """Return None, because a remote store has no locks."""
        del path

    def _kept(self, file: Any) -> int:
        with self._lock:
            number = next(self._numbers)
            self._files[number] = ReadAhead(file)
        return number

    def _at(self, path: Path) -> str:
        return "/".join((self._inner, *path.relative_to(self.root).parts))


def file_system(path: Path) -> tuple[Any, str]:
    """Return pyarrow's file system for a path, and the path in this file system.

    `path` is one of this host, or stands for a URL. Raises BadRequest if pyarrow knows no file system for the URL, and
    OSError if no server answers.
    """
    if is_remote(path):
        return _system_of(root_text(path))
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem(), str(path)


def _system_of(url: str) -> tuple[Any, str]:
    try:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise BadRequest(f"a store by a URL needs pyarrow: {url}", hint=install_extra("spark")) from error
    try:
        found: tuple[Any, str] = FileSystem.from_uri(_that_ends(url))
    except OSError as error:
        raise _os_error(error, url) from error
    except (ArrowException, ValueError, ImportError) as error:
        raise BadRequest(
            f"{url}: {str(error).splitlines()[0]}", hint="s3://, gs://, abfs:// and hdfs:// are known"
        ) from error
    return found


def _that_ends(url: str) -> str:
    """Give a URL of Google Cloud Storage a time limit for retries.

    Without one, pyarrow retries for many minutes if no server answers, and no signal can stop it.
    """
    if not url.startswith(GOOGLES) or "retry_limit_seconds=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={RETRY_SECONDS}"


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors into OSErrors whose text has one line.

    They have no error number, a text of several lines, and for Azure Storage are not OSErrors. pyarrow cannot use file
    names that are not UTF-8.
    """
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        raise _os_error(error, root_text(path)) from error
    except UnicodeError as error:
        raise OSError(errno.EILSEQ, "a name there is not UTF-8, and pyarrow reads no other", root_text(path)) from error


def _os_error(error: Exception, url: str) -> OSError:
    strerror, number = (error.strerror, error.errno) if isinstance(error, OSError) else (None, None)
    what = (strerror or str(error) or type(error).__name__).splitlines()[0]
    known = (number for kind, number in _NUMBERS.items() if isinstance(error, kind))
    return OSError(next(known, number or errno.EIO), what, url)


def _entry(path: Path, info: Any) -> Entry:
    from pyarrow.fs import FileType

    kinds = {FileType.File: Kind.FILE, FileType.Directory: Kind.DIRECTORY, FileType.NotFound: Kind.MISSING}
    size = info.size or 0
    return Entry(path.name, path, kinds.get(info.type, Kind.OTHER), size, size, (info.mtime_ns or 0) // NS_PER_MS)


class ReadAhead:
    """An open file that keeps the bytes of its last request.

    A request costs some 20 ms before the first byte arrives; in this time, an object store sends 2 MiB. So it asks for
    READ_SIZE or READ_SIZE_IN_ORDER bytes if the caller needs fewer.
    """

    def __init__(self, file: pyarrow.fs.NativeFile) -> None:
        self.file = file
        self._kept = (0, b"")

    def size(self) -> int:
        """Return the length of the file in bytes."""
        size: int = self.file.size()
        return size

    def read_at(self, size: int, position: int) -> bytes:
        """Return `size` bytes at `position`; fewer only at the end of the file.

        Raises pyarrow's errors.
        """
        start, kept = self._kept
        end = position + size
        if not start <= position <= end <= start + len(kept):
            end = min(end, self.size())  # some file systems need a request for the size
        if not start <= position <= end <= start + len(kept):
            ahead = READ_SIZE_IN_ORDER if kept and start <= position <= start + len(kept) else READ_SIZE
            start, kept = self._kept = position, self.file.read_at(max(size, ahead), position)
        return kept[position - start : position - start + size]
