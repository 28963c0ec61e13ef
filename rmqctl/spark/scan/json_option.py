"""Options of a data source that are lists in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def from_json(text: str, option: str, make: Callable[[Any], T], hint: str, what: str = "") -> T:
    """Return what `make` makes of the list in `text`, the value of an option.

    `make` may raise TypeError or ValueError. Raises BadRequest with `hint` if it does, or if `text` is no JSON. `what`
    are the items of the list (default: the name of the option).
    """
    try:
        return make(json.loads(text))
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the option `{option}` is no list of {what or option}", hint=hint) from error
