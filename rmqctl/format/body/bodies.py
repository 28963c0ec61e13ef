"""The bodies of messages: to show them, and to match them."""

from __future__ import annotations

import base64
import re
import threading
from typing import TYPE_CHECKING

from rmqctl.format.body.compression import BodyError, decompressed

if TYPE_CHECKING:
    from rmqctl.format.message import Message


class Bodies:
    """Reads and shows bodies, and counts those that it could not decompress.

    `encoding` is none, utf8 (decompressed, as text), hex or base64 (both as stored). `charset` is that of the text: a
    name that Python knows, or None for UTF-8. `failed` is the count, and `failure` says why the first one could not be
    decompressed. Any thread may call this object.
    """

    def __init__(self, encoding: str = "none", charset: str | None = None) -> None:
        self.encoding = encoding
        self.charset = charset
        self.failed = 0
        self.failure = ""
        self._lock = threading.Lock()

    def plain(self, message: Message) -> tuple[bytes, str | None]:
        """Return the decompressed body and None, or the stored one and why it is not."""
        try:
            return decompressed(message.sys_flag, message.body), None
        except BodyError as error:
            with self._lock:
                self.failed += 1
                self.failure = self.failure or f"at {message.physical_offset}: {error}"
            return bytes(message.body), str(error)

    def text(self, data: bytes) -> str:
        """Return a decompressed body as text; bytes not of the charset become U+FFFD."""
        return data.decode(self.charset or "utf-8", "replace")

    def columns(self, message: Message) -> dict[str, str]:
        """Return the keys of a row that concern the body."""
        if self.encoding == "none":
            return {}
        if self.encoding != "utf8":
            stored = message.body.hex() if self.encoding == "hex" else base64.b64encode(message.body).decode()
            return {"body": stored, "bodyEncoding": self.encoding}
        data, error = self.plain(message)
        row = {"body": self.text(data), "bodyEncoding": self.encoding}
        row |= {"bodyCharset": self.charset} if self.charset else {}
        return row | ({"bodyError": error} if error else {})


class BodyMatch:
    """The condition that a regular expression matches in a body.

    An expression of bytes is matched with the bytes, one of text with the text in `charset`. A body that cannot be
    decompressed is matched as stored, and counted in `bodies`. Raises re.error, OverflowError and RecursionError.
    """

    def __init__(self, expression: bytes | str, charset: str | None = None) -> None:
        self.bodies = Bodies(charset=charset)
        self._expression = expression
        self._text = re.compile(expression, re.DOTALL) if isinstance(expression, str) else None
        self._bytes = re.compile(expression, re.DOTALL) if isinstance(expression, bytes) else None

    def __reduce__(self) -> tuple[type[BodyMatch], tuple[bytes | str, str | None]]:
        return BodyMatch, (self._expression, self.bodies.charset)  # for tasks of Spark: a lock cannot be sent

    def is_in(self, message: Message) -> bool:
        """Return whether the expression matches in the body."""
        data, _ = self.bodies.plain(message)
        if self._text is not None:
            return self._text.search(self.bodies.text(data)) is not None
        return self._bytes is None or self._bytes.search(data) is not None


NO_BODIES = Bodies()
