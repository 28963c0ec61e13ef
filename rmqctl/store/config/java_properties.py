"""The values of a Java properties file, such as broker.conf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest
from rmqctl.logfile.access.place import is_path_text
from rmqctl.logfile.system.storage import Kind, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROKER_CONF_SIZE_MAX = 1024 * 1024
NUMBER_DIGITS_MAX = 15
_INT = re.compile("[+-]?[0-9]{1,99}")  # what Integer.parseInt takes of Latin-1: no blanks, not even at the end
_INT_MAX = 2**31 - 1


class JavaProperties:
    """The properties (keys and values) of the file at `path`.

    They come from `said` if it is given; the file is then not read, and `path` only named in error texts.

    Raises BadRequest if the file cannot be read. Every method raises BadRequest if the value of the key is not valid.
    """

    def __init__(self, path: Path, said: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._lines: dict[str, tuple[int, int]] = {}
        self._said = self._read() if said is None else said
        self._asked: set[str] = set()
        self.ignored: dict[str, str] = {}  # the values that brokers ignore, by key, of those that were asked for

    def lines_of(self, name: str) -> tuple[int, int]:
        """Return the first and the last line (from 1) that set a key, or (0, 0).

        Of several settings of a key, the last one counts.
        """
        return self._lines.get(name, (0, 0))

    def first_lines(self) -> dict[str, int]:
        """Return all names, each with the first line (from 1) of the setting that counts."""
        return {name: first for name, (first, _) in self._lines.items()}

    def text(self, name: str) -> str:
        """Return the value of the key `name`, or ""."""
        self._asked.add(name)
        return self._said.get(name, "").strip()

    def is_foreign(self, *others: str) -> bool:
        """Return whether there are properties, and all are unknown.

        A property is known if a method was asked for it, or if it is in `others`.
        """
        return (
            bool(self._said) and self._asked.isdisjoint(self._said) and not any(name in self._said for name in others)
        )

    def paths(self, name: str) -> tuple[str, ...]:
        """Return the paths in the comma-separated list of the key `name`, or none.

        Raises BadRequest if a path is not valid.
        """
        paths = tuple(path.strip() for path in self.text(name).split(",") if path.strip())
        for path in paths:
            self._check_path(name, path)
        return paths

    def path_of(self, name: str) -> str:
        """Return the path that the key `name` sets, or "" if the key is not set.

        Raises BadRequest if the path is not valid.
        """
        path = self.text(name).strip()
        self._check_path(name, path)
        return path

    def _check_path(self, name: str, path: str) -> None:
        if not is_path_text(path):
            raise BadRequest(f"{name}={path!r} is not a path", path=str(self.path))

    def flag(self, name: str) -> bool | None:
        """Return whether the value of a key is `true`, in any case; None if not set.

        As Boolean.parseBoolean has it, `true` with a blank behind it is false.
        """
        self._asked.add(name)
        return self._said[name].lower() == "true" if name in self._said else None

    def number(self, *names: str, least: int = 1) -> int | None:
        """Return the value of the first key in `names` that is set to a number, or None.

        What Java does not read as an int, brokers ignore in silence (MixAll.properties2Object); it goes to `ignored`.
        Raises BadRequest if the value is less than `least`.
        """
        for name in names:
            if name in self._said:
                self._asked.add(name)
                text = self._said[name]
                if not _INT.fullmatch(text) or abs(int(text)) > _INT_MAX:
                    self.ignored[name] = text
                elif int(text) < least:
                    raise BadRequest(f"{name}={text} is not a valid number", path=str(self.path))
                else:
                    return int(text)
        return None

    def _read(self) -> dict[str, str]:
        import javaproperties

        storage, path, said, line = Storage(self.path.parent, follow_links=True), self.path, {}, 1
        try:
            if storage.entry(path).kind is not Kind.FILE:
                raise BadRequest("broker.conf does not exist", path=str(path))
            text = storage.read_file(path, BROKER_CONF_SIZE_MAX).decode("latin-1")
            for part in javaproperties.parse(text):
                if isinstance(part, javaproperties.KeyValue):
                    said[part.key] = part.value
                    self._lines[part.key] = line, line + part.source.rstrip("\r\n").count("\n")
                line += part.source.count("\n")
        except OSError as error:
            raise BadRequest(f"broker.conf cannot be read: {error.strerror}", path=str(path)) from error
        except ValueError as error:
            raise BadRequest(f"not a broker.conf: {error}", path=str(path)) from error
        return said
