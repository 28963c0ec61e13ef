"""`rmqctl job export`: messages for other programs, as Parquet by topic and day, or as text."""

from __future__ import annotations

import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest
from rmqctl.jobs.message_schema import messages_of
from rmqctl.jobs.utc_time import day, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

COLUMNS = (
    "broker", "topic", "queueId", "queueOffset", "physicalOffset", "size", "bodyCrc", "bodyLength", "flag", "sysFlag", "bornTimestamp",
    "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "msgId", "tagsCode", "path", "properties",
)  # fmt: skip
PARQUET_COLUMNS = (*COLUMNS, "storeTime", "tags", "keys", "uniqKey")


def for_parquet(records: DataFrame) -> DataFrame:
    """The messages with all that they have, and `day` (UTC); bodies where `records` has them."""
    from pyspark.sql import functions as f

    wanted = [name for name in (*PARQUET_COLUMNS, "body") if name in records.columns]
    return messages_of(records).select(*wanted, day(f.col("storeTimestamp")).alias("day"))


def for_text(records: DataFrame) -> DataFrame:
    """The messages as `rmqctl dump` prints them, and their broker; bodies, where `records` has them, in base64."""
    from pyspark.sql import functions as f

    shown = [f.col(name) for name in COLUMNS]
    shown += [rfc3339(f.col(f"{name}Timestamp")).alias(f"{name}Time") for name in ("born", "store")]
    if "body" in records.columns:
        unbroken = f.translate(f.base64("body"), "\r\n", "")  # Spark breaks it into lines, as mail does
        shown += [unbroken.alias("body"), f.lit("base64").alias("bodyEncoding")]
    return messages_of(records).select(*shown)


def write(records: DataFrame, folder: Path, file_format: str) -> None:
    """Write the messages of `records` below `folder`, in place of what is there. An executor must see it under the same path."""
    from pyspark.sql import functions as f

    if file_format == "parquet":
        by_topic = for_parquet(records).sortWithinPartitions("topic", "day", "broker", "physicalOffset")
        by_topic.write.mode("overwrite").partitionBy("topic", "day").parquet(folder.as_uri())
    elif file_format == "jsonl":
        for_text(records).write.mode("overwrite").option("ignoreNullFields", value=False).json(folder.as_uri())
    else:
        as_text = for_text(records).withColumn("properties", f.to_json("properties"))
        as_text.write.mode("overwrite").option("header", value=True).option("escape", '"').csv(folder.as_uri())


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A path beside `target` to write to: it is `target` behind the block, or removed where the block fails.

    Raises BadRequest where `target` is there and is no empty folder.
    """
    target = target.absolute()
    _check_new(target)
    beside = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    try:
        yield beside
        _check_new(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _check_new(target: Path) -> None:
    if not target.parent.is_dir():
        raise BadRequest("no such folder", path=str(target.parent))
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise BadRequest("is there and is no empty folder", path=str(target), hint="--to names a new one")
