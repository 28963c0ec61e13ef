"""What a consumer subscribes to.

`*`, or tags as `TagA || TagB` (FilterAPI, and the broker's ExpressionMessageFilter for tags). A broker compares hash
codes alone, so that a message with another tag of the same hash goes through; the client compares the texts. SQL92
expressions are not here: they need the consumer's compiled filter.
"""

from __future__ import annotations

from rmqctl.errors import BadRequest
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.properties import hash_code

ALL = "*"
SEPARATOR = "||"


class Subscription:
    """Tags by an expression.

    Empty and `*` are all. Raises BadRequest for one that has separators only.
    """

    def __init__(self, expression: str = ALL) -> None:
        self._codes: frozenset[int] | None = None
        if expression in ("", ALL):
            return
        if not expression.replace(SEPARATOR, ""):
            raise BadRequest(f"{expression!r} names no tag", hint="a subscription is * or TagA || TagB")
        tags = (tag.strip() for tag in expression.split(SEPARATOR))
        self._codes = frozenset(hash_code(tag) for tag in tags if tag)

    def is_matched_by_consume_queue(self, tags_code: int) -> bool:
        """Return whether a unit's tagsCode matches the subscription.

        Only its low 32 bits are compared. An address matches: its extension is lost, so that the tags are not known.
        """
        if self._codes is None or is_ext_address(tags_code):
            return True
        return ((tags_code + 2**31) & 0xFFFFFFFF) - 2**31 in self._codes
