"""Text from a store made fit for a terminal: nothing in it can move the cursor, hide, or reorder what is shown."""

from __future__ import annotations

import re

# C0, DEL, C1; zero-width and bidirectional controls; line separators; BOM; lone surrogates (undecodable file names)
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    r"""`text` with unsafe characters as `\x1b` or `\u202e`."""
    return _UNSAFE.sub(lambda match: _escaped(match[0]), text)


def printable_json(text: str) -> str:
    r"""JSON text (its C0 characters are escaped already) with the other unsafe ones as `\u009b`; it stays the same JSON."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
