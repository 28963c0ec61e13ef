"""Change single values in a JSON text of fastjson's dialect.

All other bytes stay as they are: the order of the members, white space and unknown values. What is not JSON goes, such
as comments (`plain_json`): a broker drops it, too, when it next writes the file.

A new member gets the white space of the one before it: in `{0:375,1:375}` it is added on the same line, and where each
member is on its own line (as in 5.5.0), it gets its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.store.config.fastjson import fastjson_dumps, key_text, plain_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TOKEN = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++)', re.DOTALL)
_NUMBER_ON_A_LINE = re.compile(r"\n\t++-?\d++:")
_OPENING, _CLOSING = ("{", "["), ("}", "]")


class _Member(NamedTuple):
    """The positions of a JSON member's key and value in the text."""

    key_begin: int
    value_begin: int
    end: int


class _Object(NamedTuple):
    """The positions of a JSON object's braces and members in the text."""

    begin: int
    close: int
    members: dict[str, _Member]


def with_members(text: str, path: Sequence[str], members: Mapping[Any, Any]) -> str:
    """Return the JSON text with `members` in the object at `path`.

    An existing member gets the new value; a new one is added at the end of the object. Missing objects in `path` are
    added. Integer keys of `members` are written without quotes. `text` must be a JSON object that `fastjson_loads`
    accepts.
    """
    text = plain_json(text)
    found = _object_at(text, text.index("{"))
    for depth, key in enumerate(path):
        member = found.members.get(key)
        if member is None or text[member.value_begin] != "{":
            for inner in reversed(path[depth + 1 :]):
                members = {inner: members}
            return _with(text, found, depth, {key: members})
        found = _object_at(text, member.value_begin)
    return _with(text, found, len(path), members)


def _with(text: str, found: _Object, depth: int, members: Mapping[Any, Any]) -> str:
    """`depth` is the number of objects that contain the object `found`."""
    on_lines = _NUMBER_ON_A_LINE.search(text) is not None
    values = {key: fastjson_dumps(value, depth + 2, numbers_on_lines=on_lines) for key, value in members.items()}
    pieces, at = [], 0
    existing = sorted((found.members[str(key)], value) for key, value in values.items() if str(key) in found.members)
    for member, value in existing:
        pieces += [text[at : member.value_begin], value]
        at = member.end
    news = {key: value for key, value in values.items() if str(key) not in found.members}
    if news:
        last = max(found.members.values(), default=None)
        compact = not on_lines and all(isinstance(key, int) for key in news)
        line = "" if compact else "\n" + "\t" * (depth + 1)
        space = line if last is None else _space_before(text, last.key_begin)
        added = ",".join(f"{space}{key_text(key)}:{value}" for key, value in news.items())
        if last is None:
            pieces += [text[at : found.begin + 1], added, "\n" + "\t" * depth]
            at = found.close
        else:
            pieces += [text[at : last.end], ",", added]
            at = last.end
    return "".join([*pieces, text[at:]])


def _space_before(text: str, at: int) -> str:
    before = text[:at]
    return before[len(before.rstrip()) :]


def _object_at(text: str, begin: int) -> _Object:
    """Use the later of two members with the same key, as fastjson does."""
    members: dict[str, _Member] = {}
    key = _token(text, begin + 1)
    while key[1] != "}":
        if key[1] != ",":
            value = _token(text, _token(text, key.end()).end())
            end = _end_of_value(text, value)
            name = json.loads(key[1]) if key[1].startswith('"') else key[1]
            members[name] = _Member(key.start(1), value.start(1), end)
            key = _token(text, end)
        else:
            key = _token(text, key.end())
    return _Object(begin, key.start(1), members)


def _end_of_value(text: str, token: re.Match[str]) -> int:
    depth = 0
    while True:
        depth += (token[1] in _OPENING) - (token[1] in _CLOSING)
        if depth == 0:
            return token.end()
        token = _token(text, token.end())


def _token(text: str, at: int) -> re.Match[str]:
    found = _TOKEN.match(text, at)
    if found is None:
        raise ValueError(f"no JSON at character {at}")
    return found
