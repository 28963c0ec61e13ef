"""Read the JSON files that rmqctl writes into a store.

They are checked, because anyone with access to the store can change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rmqctl.errors import Unreadable
from rmqctl.format.body import bounded_json

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

SIZE_MAX = 64 * 1024 * 1024
SIGNS_MAX = 4_000_000  # enough for about 100,000 files of a journal


def read_json(storage: Storage, path: Path, of_type: Any, what: str) -> Any:
    """Return the content of the JSON file at `path` as a value of `of_type`.

    Raises Unreadable if it is not a regular file, is too large, is not JSON, or has a value of another type; the error
    text contains `what` (a name for the file) and the reason.
    """
    try:
        text = storage.read_file(path, SIZE_MAX).decode()
        return msgspec.convert(bounded_json.loads(text, SIGNS_MAX), of_type)
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}", path=str(path)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise Unreadable(f"{what} is damaged: {error}", path=str(path)) from error


def can_be_read(text: bytes) -> bool:
    """Return whether a file with the content `text` is small enough for `read_json`.

    It is not with too many bytes or signs (`bounded_json.check_signs`), nor if it is not UTF-8.
    """
    try:
        bounded_json.check_signs(text.decode(), SIGNS_MAX)
    except ValueError:
        return False
    return len(text) <= SIZE_MAX
