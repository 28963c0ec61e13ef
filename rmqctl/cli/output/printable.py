"""Text from a store, made safe for a terminal.

Safe text cannot move the cursor, and cannot hide or reorder other text.
"""

from __future__ import annotations

import re

# Unicode's control and format characters, its line separators, every blank but U+0020 and the ideographic one, all that
# it shows as nothing (Default_Ignorable_Code_Point: fillers, variation selectors, tags; and the Braille
# blank); and lone surrogates
_INVISIBLE = (
    "\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)
_UNSAFE = re.compile(f"[\x00-\x1f{_INVISIBLE}]")
_UNSAFE_IN_JSON = re.compile(f"[{_INVISIBLE}]")
_BMP_END = 0x10000


def printable(text: str) -> str:
    r"""Return `text` with escapes for unsafe characters, such as `\x1b` or `\u202e`."""
    return _UNSAFE.sub(lambda match: _escaped(match[0]), text)


def printable_json(text: str) -> str:
    r"""Return JSON text with escapes for unsafe characters, such as `\u009b`.

    JSON itself escapes C0 control characters. The escapes do not change the meaning of the JSON text.
    """
    return _UNSAFE_IN_JSON.sub(lambda match: _json_escaped(match[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < _BMP_END else f"\\U{code:08x}"


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
