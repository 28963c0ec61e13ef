"""Read and write JSON in fastjson's dialect, as in brokers' configuration files."""

from __future__ import annotations

import json
import re
from typing import Any

from rmqctl.format.body import bounded_json

SIGNS_MAX = 2_000_000  # enough for about 500,000 fields, or 50,000 topics
BY_HAND_MAX = 100_000  # single quotes and slashes in a file that is not JSON: a person wrote them
# a whole string, with or without its closing quote, or a number before a colon; the match of a string is possessive,
# because a torn file would otherwise take quadratic time
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<![\w.+-])(-?\d+)(?=\s*:)', re.DOTALL)
# what all brokers read beyond JSON: a string in single quotes, comments, a comma after the last member
_BEYOND_JSON = re.compile(
    r"""("(?:[^"\\]|\\.)*+"?)|'([^'"\\]*+)'|//[^\n]*+|/\*.*?(?:\*/|\Z)|,(?=\s*[}\]])""", re.DOTALL
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def fastjson_loads(text: str) -> Any:
    """Parse JSON as fastjson writes it, or as it reads it (`plain_json`).

    Keys may be integers without quotes, as in `{0:375,1:375}`; they are returned as strings. Raises ValueError if the
    text is not JSON, is nested too deeply, or is too large.
    """
    bounded_json.check_signs(text, SIGNS_MAX)
    try:
        return _loads(text)
    except ValueError:
        if text.count("'") + text.count("/") > BY_HAND_MAX:
            raise
        plain = plain_json(text)
        if plain == text:
            raise
        return _loads(plain)


def plain_json(text: str) -> str:
    """Return a text as JSON, without what only fastjson reads.

    JSON is returned as it is. What goes: a byte order mark, comments, single quotes, a comma after the last member, and
    NULs at the end.
    """
    return _BEYOND_JSON.sub(
        lambda found: found[1] or ("" if found[2] is None else f'"{found[2]}"'),
        text.removeprefix("\ufeff").rstrip("\0"),
    )


def _loads(text: str) -> Any:
    has_only_quoted_keys = text.count('":') == text.count(":")  # most files; the search for bare keys takes longer
    quoted = text if has_only_quoted_keys else _STRING_OR_BARE_KEY.sub(lambda m: f'"{m[1]}"' if m[1] else m[0], text)
    return bounded_json.loads(quoted, 2 * SIGNS_MAX)  # quoted keys need more signs


def fastjson_dumps(value: Any, depth: int = 1, *, numbers_on_lines: bool = False) -> str:
    """Return JSON with tabs, as in the configuration files of a broker.

    A map with integer keys, which have no quotes, is written in one line, or `numbers_on_lines` (as in 5.5.0) with each
    entry on its own. Keys keep the order of the map; fastjson itself sorts the fields of a bean.
    """
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    end = "\n" + "\t" * (depth - 1) + "}"
    has_numbers = all(isinstance(key, int) for key in value)
    separator = "" if has_numbers and not numbers_on_lines else "\n" + "\t" * depth
    fields = (
        f"{separator}{key_text(key)}:{fastjson_dumps(inner, depth + 1, numbers_on_lines=numbers_on_lines)}"
        for key, inner in value.items()
    )
    return "{" + ",".join(fields) + end


def fastjson_bytes(text: str, charset: str = "utf-8") -> bytes:
    """Return a JSON text as bytes in a charset.

    If it cannot encode a character, or the text has a lone surrogate, all non-ASCII characters are escaped.
    """
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text).encode("ascii")


def key_text(key: str | int) -> str:
    """Return a map key as fastjson writes it: integers have no quotes."""
    return json.dumps(key)
