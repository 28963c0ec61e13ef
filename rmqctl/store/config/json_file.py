"""The reader of the JSON files that rmqctl writes into a store.

The owner of the store may have replaced such a file with any content.
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
SIGNS_MAX = 4_000_000  # some 100,000 files of a journal


def read_json(storage: Storage, path: Path, of_type: Any, what: str) -> Any:
    """Return the content of the file at `path`, as a value of type `of_type`.

    Raises Unreadable if the file is not a regular file, is too large, is not JSON, or has a value of another type. The
    error text names `what` (a name for the file) and gives the reason.
    """
    try:
        text = storage.read_file(path, SIZE_MAX).decode()
        return msgspec.convert(bounded_json.loads(text, SIGNS_MAX), of_type)
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}", path=str(path)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise Unreadable(f"{what} is damaged: {error}", path=str(path)) from error


def can_be_read(text: bytes) -> bool:
    """Return whether `read_json` accepts a file as large as `text`.

    The file is not accepted if the text has too many bytes or too many signs (`bounded_json.check_signs`), or is not
    UTF-8.
    """
    try:
        bounded_json.check_signs(text.decode(), SIGNS_MAX)
    except ValueError:
        return False
    return len(text) <= SIZE_MAX
