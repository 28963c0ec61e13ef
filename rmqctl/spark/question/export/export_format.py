"""The formats of an export, and their columns.

Parquet has one folder for each topic and day. JSON Lines and CSV have the fields that `rmqctl dump` prints, the broker
and the store.
"""

from __future__ import annotations

import base64
import csv
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.message import RECORD_KEYS, TIME_KEYS
from rmqctl.format.timestamp import rfc3339
from rmqctl.text import no_formula

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("broker", "store", *(key for key in RECORD_KEYS if key not in TIME_KEYS))
PARQUET_COLUMNS = (*COLUMNS, "storeTime", "tags", "keys", "uniqKey")
TEXT_COLUMNS = (*COLUMNS, *TIME_KEYS)
# what cannot be decompressed is exported as stored
BODY_COLUMNS = {"binary": ("body",), "utf8": ("body", "bodyText"), "json": ("body", "bodyText"), "none": ()}
BODY_KEYS = {"none": (), "json": ("body", "bodyEncoding", "bodyJson")}
PARQUET, JSONL, CSV = "parquet", "jsonl", "csv"
SUFFIXES = {PARQUET: ".parquet", JSONL: ".json", CSV: ".csv"}  # as Spark names its files
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""")  # what Hive and Spark escape


class ExportFormat(NamedTuple):
    """A format, and what it contains."""

    name: str  # PARQUET, JSONL or CSV
    body: str  # "binary" (as stored), "utf8" (decompressed, as text), "json" (of JSON Lines: as a value) or "none"
    raw: bool = False  # else a text in CSV that looks like a formula gets a `'`

    @property
    def suffix(self) -> str:
        """The end of the names of files."""
        return SUFFIXES[self.name]

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of `rocketmq` that the format needs."""
        return (*(PARQUET_COLUMNS if self.name == PARQUET else COLUMNS), *BODY_COLUMNS[self.body])

    @property
    def header(self) -> bytes:
        """The bytes with which each file begins."""
        return _csv([dict(zip(self._text_keys, self._text_keys, strict=True))]) if self.name == CSV else b""

    def lines(self, rows: Iterable[dict[str, Any]]) -> bytes:
        """Return messages as JSON Lines or CSV. `rows` have the columns `needed`."""
        import msgspec.json

        shown = map(self._shown, rows)
        if self.name == JSONL:
            return msgspec.json.Encoder().encode_lines(shown)
        as_text = (row | {"properties": msgspec.json.encode(row["properties"]).decode()} for row in shown)
        return _csv(as_text if self.raw else map(without_formulas, as_text))

    @property
    def _text_keys(self) -> tuple[str, ...]:
        return (*TEXT_COLUMNS, *BODY_KEYS.get(self.body, ("body", "bodyEncoding")))

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the broker, and what `rmqctl dump --body base64` prints."""
        row |= {"properties": dict(row["properties"])}
        row |= {key: rfc3339(row[f"{key}stamp"]) for key in TIME_KEYS}
        value = compact_json(row["bodyText"]) if self.body == "json" else None
        if value is not None:
            row |= {"body": None, "bodyEncoding": "json"}
        elif self.body != "none" and row.get("bodyText") is None:
            row |= {"body": base64.b64encode(row["body"]).decode(), "bodyEncoding": "base64"}
        elif self.body != "none":
            row |= {"body": row["bodyText"], "bodyEncoding": "utf8"}
        row["bodyJson"] = value
        return {key: row[key] for key in self._text_keys}


def without_formulas(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a `'` before each text that begins with = + - or @."""
    return {name: no_formula(value) if isinstance(value, str) else value for name, value in row.items()}


def compact_json(text: str | None) -> Any:
    """Return the JSON in a text on one line (msgspec.Raw), or None."""
    import msgspec.json

    try:
        msgspec.json.decode(text or "")
        return msgspec.Raw(msgspec.json.format(text or "", indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return None


def partition(topic: str, day: str | None) -> str:
    """Return the folder of a topic's messages of one day, as Hive names it.

    A character that Hive does not allow becomes %XX. `day` is None for a time that is not a date.
    """
    return f"topic={_escaped(topic)}/day={day or NO_PARTITION}"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text) or NO_PARTITION


def _csv(rows: Iterable[dict[str, Any]]) -> bytes:
    lines = _Lines()
    csv.writer(lines, lineterminator="\r\n").writerows(row.values() for row in rows)
    return "".join(lines).encode()


class _Lines(list[str]):
    """Lines that end with LF, from a CSV writer that ends lines with CR LF.

    Python's writer quotes a text with CR only if CR is in the end of its own lines. Many readers end a line at CR.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")
