"""The JSON files that rmqctl leaves in a store, read back.

Whoever owns the store may have replaced them with anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rmqctl.errors import Unreadable
from rmqctl.store.config import bounded_json

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

SIZE_MAX = 64 * 1024 * 1024
SIGNS_MAX = 4_000_000  # some 100,000 files of a journal


def read_json(storage: Storage, path: Path, of_type: Any, what: str) -> Any:
    """Return the content of the file at `path`, of type `of_type`.

    Raises Unreadable, which says that `what` is damaged, and why: not a regular file, too large, not JSON, or a value
    of another type.
    """
    try:
        text = storage.read_file(path, SIZE_MAX).decode()
        return msgspec.convert(bounded_json.loads(text, SIGNS_MAX), of_type)
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error.strerror}", path=str(path)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise Unreadable(f"{what} is damaged: {error}", path=str(path)) from error


def can_be_read(text: bytes) -> bool:
    """Return whether `read_json` accepts a file of this size."""
    try:
        bounded_json.check_signs(text.decode(), SIGNS_MAX)
    except ValueError:
        return False
    return len(text) <= SIZE_MAX
