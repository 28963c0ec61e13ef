"""`rmqctl job export`: write messages for other programs.

The format is Parquet (partitioned by topic and day), JSON Lines or CSV.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.format.message import RECORD_KEYS, TIME_KEYS
from rmqctl.spark.question.utc_time import day, rfc3339
from rmqctl.spark.source.message_schema import messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

COLUMNS = ("broker", *(key for key in RECORD_KEYS if key not in TIME_KEYS))
MARKER = "rmqctl-export"
PARQUET_COLUMNS = (*COLUMNS, "storeTime", "tags", "keys", "uniqKey")


def for_parquet(records: DataFrame) -> DataFrame:
    """Return the messages with the columns of a Parquet export.

    The column `day` is the day of the store time in UTC. The column `body` is included if `records` has a column
    `body`.
    """
    from pyspark.sql import functions as f

    wanted = [name for name in (*PARQUET_COLUMNS, "body") if name in records.columns]
    return messages_of(records).select(*wanted, day(f.col("storeTimestamp")).alias("day"))


def for_text(records: DataFrame) -> DataFrame:
    """Return the messages with the fields that `rmqctl dump` prints, and the broker.

    The bodies are included, in base64, if `records` has the column `body`.
    """
    from pyspark.sql import functions as f

    shown = [f.col(name) for name in COLUMNS]
    shown += [rfc3339(f.col(f"{name}Timestamp")).alias(f"{name}Time") for name in ("born", "store")]
    if "body" in records.columns:
        unbroken = f.translate(f.base64("body"), "\r\n", "")  # Spark breaks base64 into lines, as in mail
        shown += [unbroken.alias("body"), f.lit("base64").alias("bodyEncoding")]
    return messages_of(records).select(*shown)


def without_formulas(rows: DataFrame) -> DataFrame:
    """Return the rows with a `'` before each text that begins with = + - or @."""
    from pyspark.sql import functions as f

    def safe(name: str) -> Column:
        return f.when(f.col(name).rlike("^[=+@-]"), f.concat(f.lit("'"), name)).otherwise(f.col(name))

    return rows.withColumns({name: safe(name) for name, kind in rows.dtypes if kind == "string"})


def write(records: DataFrame, folder: Path, file_format: str, *, raw: bool = False) -> None:
    """Write the messages of `records` to `folder`.

    The previous content of `folder` is replaced. Every executor must have access to `folder` under the same path.
    `file_format` is parquet, jsonl or csv. In CSV without `raw`, a text that looks like a formula gets a `'` at the
    beginning.
    """
    from pyspark.sql import functions as f

    if file_format == "parquet":
        by_topic = for_parquet(records).sortWithinPartitions("topic", "day", "broker", "physicalOffset")
        by_topic.write.mode("overwrite").partitionBy("topic", "day").parquet(folder.as_uri())
    elif file_format == "jsonl":
        for_text(records).write.mode("overwrite").option("ignoreNullFields", value=False).json(folder.as_uri())
    else:
        as_text = for_text(records).withColumn("properties", f.to_json("properties"))
        as_text = as_text if raw else without_formulas(as_text)
        as_text.write.mode("overwrite").option("header", value=True).option("escape", '"').csv(folder.as_uri())


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a path for the export; after the block, rename the path to `target`.

    If the block fails, the path is removed.

    The path lies in a hidden folder beside `target`. The hidden folder has a marker file. The marker file stays locked
    while the export runs. All data is flushed to disk before the path is renamed. After a crash, `target` has either
    the whole export or nothing.

    Raises BadRequest if `target` exists and is not an empty folder, or if the parent folder does not exist. Raises
    OSError.
    """
    target = target.absolute()
    _check_new(target)
    hidden = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    hidden.mkdir()
    try:
        with (hidden / MARKER).open("x", encoding="utf-8") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX)
            yield hidden / "messages"
            _check_new(target)
            _sync_tree(hidden / "messages")
            (hidden / "messages").rename(target)
            _sync(target.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


class Leftovers(NamedTuple):
    """The hidden folders of earlier exports, found beside a target.

    `removed` lists the removed folders of killed exports. `unknown` lists the folders that were not removed, because
    another program may have made them.
    """

    removed: list[Path]
    unknown: list[Path]


def remove_leftovers(target: Path) -> Leftovers:
    """Remove the hidden folders that killed exports have left beside `target`.

    A folder without rmqctl's marker is not removed. Raises BadRequest if an export to `target` is still running. Raises
    OSError.
    """
    target = target.absolute()
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}")
    found = Leftovers([], [])
    for folder in sorted(target.parent.iterdir()) if target.parent.is_dir() else []:
        if name.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            marked = _is_abandoned(folder)
            if marked:
                shutil.rmtree(folder)
            (found.removed if marked else found.unknown).append(folder)
    return found


def _is_abandoned(folder: Path) -> bool:
    """Return whether a hidden folder belongs to an export that was killed.

    The result is True if the folder has rmqctl's marker, and no process locks the marker. The result is False if the
    folder has no marker, or if the marker cannot be opened. Raises BadRequest if an export locks the marker.
    """
    try:
        marker = os.open(folder / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait until it ends, or choose another --to"
        raise BadRequest("another export to the same folder is running", path=str(folder), hint=hint) from None
    finally:
        os.close(marker)
    return True


def _sync_tree(folder: Path) -> None:
    """Flush a folder and all its content to disk. Raises OSError."""
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(inner, name))
        _sync(Path(inner))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_new(target: Path) -> None:
    if not target.parent.is_dir():
        raise BadRequest("no such folder", path=str(target.parent))
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise BadRequest("already exists and is not an empty folder", path=str(target), hint="give --to a new folder")
