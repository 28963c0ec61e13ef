"""A consumer's subscription expression: `*`, or tags such as `TagA || TagB`.

It is parsed as by RocketMQ's FilterAPI. A broker (ExpressionMessageFilter) compares only the hash codes of tags; the
client then compares the tags, because two tags can have the same hash code. SQL92 expressions are not supported: only a
broker has the compiled filter of a consumer.
"""

from __future__ import annotations

from rmqctl.errors import BadRequest
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.format.properties import hash_code

ALL = "*"
SEPARATOR = "||"


class Subscription:
    """The tags that a subscription expression selects.

    An empty expression and `*` select all messages. Raises BadRequest for an expression that consists only of
    separators.
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
        """Return whether the tagsCode of a unit matches the subscription.

        Only the low 32 bits of `tags_code` are compared. The address of an extension unit always matches: its tags are
        not known.
        """
        if self._codes is None or is_ext_address(tags_code):
            return True
        return ((tags_code + 2**31) & 0xFFFFFFFF) - 2**31 in self._codes
