"""The stores that a data source reads, and their layout.

The options `path` and `paths` name them. A name may be a glob pattern, which can match several stores.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from rmqctl.errors import BadRequest, NotAStore
from rmqctl.forensics.message_filter import Filter
from rmqctl.logfile.system.remote_storage import is_remote, root_path, root_text
from rmqctl.store.config.broker_conf import BrokerConf, read_broker_conf
from rmqctl.store.read.read_only_store import ReadOnlyStore

_STORE = "store"
_OPTIONS = ("path", "paths", "brokerConf", "followLinks", "columns")
NARROWING = ("topics", "since", "until", "fromOffset", "toOffset")  # the options of `filter_of`
OFFSET_MAX = 10**18 - 1
MS_PER_SECOND = 1000
_SUFFIXES = ("", "k", "m", "g", "t")
_BYTES = re.compile(r"(\d{1,19})([kmgt]?)b?", re.IGNORECASE | re.ASCII)
# Spark 4.0 to 4.3 does not give the options of CREATE TABLE to a data source in Python
_HOW_TO_NAME_A_STORE = (
    'spark.read.format("rocketmq").load("/data/rocketmq/store"), or for a table that CREATE TABLE made: '
    "SELECT * FROM records WITH (path '/data/rocketmq/store')"
)


class SourceStores(NamedTuple):
    """The stores that a data source reads."""

    roots: tuple[str, ...]  # absolute paths, or URLs
    conf: BrokerConf  # the layout of all stores; values that it does not set come from the files of each store
    follow_links: bool

    @contextmanager
    def opened(self, root: str, *, log_only: bool = True) -> Iterator[ReadOnlyStore]:
        """Open the store at `root` for the block.

        Without `log_only`, its queues are needed, too. Raises NotAStore, LayoutNotSupported or Unreadable.
        """
        with closing(
            ReadOnlyStore(root_path(root), self.conf, follow_links=self.follow_links, log_only=log_only)
        ) as store:
            yield store


def stores_of(options: Mapping[str, str], others: Sequence[str] = ()) -> SourceStores:
    """Return the stores that are named in the options.

    The options are `path`, `paths` (a JSON list, which `load` makes), `brokerConf` and `followLinks`, and the source's
    `others`. Raises BadRequest if no store is named, if there is no such option, or if an option is not valid. Raises
    NotAStore if a pattern matches nothing.
    """
    _check_names(options, (*_OPTIONS, *others))
    patterns = json.loads(options["paths"]) if "paths" in options else []
    patterns += [options["path"]] if options.get("path") else []
    if not patterns:
        raise BadRequest("no store is named", hint=_HOW_TO_NAME_A_STORE)
    roots = [root for pattern in patterns for root in _roots(pattern)]
    conf = read_broker_conf(Path(options["brokerConf"])) if options.get("brokerConf") else BrokerConf()
    return SourceStores(tuple(dict.fromkeys(roots)), conf, is_true(options, "followLinks"))


def _check_names(options: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise BadRequest if an option has another name.

    Spark passes names in lower case. It ignores options that no one reads, so a misspelled one would have no effect.
    """
    known = {name.lower(): name for name in names}
    for given in options:
        if given.lower() not in known:
            nearest = get_close_matches(given.lower(), known, 1)
            hint = f"did you mean {known[nearest[0]]}?" if nearest else f"its options are {', '.join(names)}"
            raise BadRequest(f"the source has no option {given}", hint=hint)


def _roots(pattern: str) -> list[str]:
    """Return the store at a path, or the stores that match a pattern.

    A URL or an existing path is never a pattern. Raises NotAStore if nothing matches.
    """
    path = root_path(pattern)
    if not glob.has_magic(pattern) or is_remote(path) or path.exists():
        return [root_text(path)]
    found = sorted(glob.glob(str(path)))  # noqa: PTH207 -- Path.glob takes no absolute pattern
    if not found:
        raise NotAStore("nothing matches", path=pattern)
    return found


def broker_of(root: str) -> str:
    """Return the value of the column `broker` for the rows of a store.

    It is the name of the store's folder, or if that is `store`, of the parent folder.
    """
    path = Path(root)
    return path.parent.name if path.name == _STORE else path.name


def filter_of(options: Mapping[str, str]) -> Filter:
    """Return what the options NARROWING select.

    Raises BadRequest if one is not valid, or if no record can meet all of them.
    """
    topics = options.get("topics")
    names = frozenset(filter(None, map(str.strip, (topics or "").split(","))))
    if topics is not None and not names:
        raise BadRequest("topics names none", hint="names of topics, separated by commas")
    times = [None if name not in options else milliseconds(name, options[name]) for name in ("since", "until")]
    places = [
        None if name not in options else number(options, name, 0, 0, OFFSET_MAX) for name in ("fromOffset", "toOffset")
    ]
    for (low, high), (first, last) in zip((times, places), (NARROWING[1:3], NARROWING[3:]), strict=True):
        if low is not None and high is not None and low > high:
            raise BadRequest(f"no record can match: {first} is after {last}")
    return Filter(topics=names, since=times[0], until=times[1], from_offset=places[0], to_offset=places[1])


def charset_of(options: Mapping[str, str]) -> str | None:
    """Return the option `charset`, or None.

    Raises BadRequest if Python does not know it.
    """
    name = options.get("charset")
    try:
        "a".encode(name or "utf-8")
    except (LookupError, ValueError) as error:
        raise BadRequest(f"charset is {name!r}", hint="such as gbk, gb18030, big5 or latin-1") from error
    return name


def milliseconds(name: str, text: str, others: str = "") -> int:
    """Return the option `name`, a time (RFC 3339), in ms since 1970.

    A decimal number is already in ms. `others` are further values that the option may have, for the error. Raises
    BadRequest.
    """
    if text.isascii() and text.isdecimal() and len(text) <= len(str(OFFSET_MAX)):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(text)
    except ValueError as error:
        raise BadRequest(
            f"{name} is {text!r}", hint=f"{others}a time such as 2026-11-21T09:15:16.848Z, or ms since 1970"
        ) from error
    return int(moment.timestamp() * MS_PER_SECOND)


def is_true(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return whether the option `name` is set to `true`.

    Case makes no difference, as in Spark's own options. Raises BadRequest if the value is neither `true` nor `false`.
    """
    text = options.get(name, default).lower()
    if text not in ("true", "false"):
        raise BadRequest(f"{name} is {options[name]!r}, neither true nor false")
    return text == "true"


def number(options: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return the option `name` as a whole number, or `default`.

    Raises BadRequest if it is not a whole number in [low, high].
    """
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not low <= int(text) <= high:
        raise BadRequest(f"{name} is {text!r}", hint=f"a whole number from {low} to {high}")
    return int(text)


def number_of_bytes(options: Mapping[str, str], name: str) -> int | None:
    """Return the option `name` as a number of bytes, written as Spark does.

    The suffixes k, m, g and t are powers of 1024. None if the option is not set. Raises BadRequest if the value is not
    a number of bytes from 1 to 2^63 - 1.
    """
    text = options.get(name)
    if text is None:
        return None
    found = _BYTES.fullmatch(text)
    size = int(found[1]) << 10 * _SUFFIXES.index(found[2].lower()) if found else 0
    if not 1 <= size < 2**63:
        raise BadRequest(f"{name} is {text!r}", hint="a number of bytes such as 500m or 1g")
    return size
