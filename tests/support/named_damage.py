"""Whether a cause that doctor names is the damage that a case did to its store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Operation = dict[str, Any]


def is_named(cause: dict[str, Any], operations: Iterable[Operation]) -> bool:
    """Whether summary or evidence name what one of the operations changed; `abort` counts only on its own."""
    operations = [one for one in operations if one["path"] != "abort"] or [{"path": "abort"}]
    said = json.dumps([cause["summary"], cause["evidence"]])
    return any(_names(said, operation) for operation in operations)


def _names(said: str, operation: Operation) -> bool:
    folder, *rest = operation["path"].split("/")
    if not rest:
        return folder in said or (folder == "consumequeue" and "consume queue" in said)
    if folder == "commitlog" and "offset" in operation:
        begin = int(rest[-1]) + int(operation["offset"])
        near = (abs(int(number) - begin) for number in re.findall(r"\b\d+\b", said))
        return operation["path"] in said or min(near, default=1) == 0
    return operation["path"] in said or (folder == "consumequeue" and f"{rest[0]}/{rest[1]}" in said)
