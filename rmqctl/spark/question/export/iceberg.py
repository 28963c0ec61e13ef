"""Write messages to an Iceberg table of a catalog of the Spark session.

The log is read twice. The first reading finds the records and proves that nothing was skipped. In the second, each task
compares what it reads with the first, and fails if anything differs. Spark and Iceberg commit the table in one step,
after all tasks have succeeded.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import BadRequest, RmqctlError, Unreadable
from rmqctl.spark.question.export.earlier_files import Mode
from rmqctl.spark.question.export.export_format import BODY_COLUMNS, PARQUET_COLUMNS
from rmqctl.spark.session.spark_error import one_line, own_error
from rmqctl.spark.source.message_schema import messages_of
from rmqctl.spark.source.message_source import ranges_to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage

MARK = "rmqctl-export"  # the table property of tables that exports have made
RUN = "rmqctl-run"  # in the summary of the snapshot of an export
_HINT = (
    "set spark.sql.catalog.{0}=org.apache.iceberg.spark.SparkCatalog, spark.sql.catalog.{0}.type and .warehouse, and "
    "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{1}_2.13:VERSION, in spark-defaults.conf or by "
    "--conf of spark-submit"
)


class Table(NamedTuple):
    """An Iceberg table to which an export goes."""

    name: str  # CATALOG.DATABASE.TABLE
    mode: Mode
    body: str  # as in ExportFormat
    file_size: int  # the wanted size of a file in bytes


def check(spark: SparkSession, table: Table) -> bool:
    """Check that an export is possible, and return whether the table exists.

    Raises BadRequest if the name is not valid, if the session has no such catalog, if Spark cannot load it, or if the
    mode does not allow to change the table.
    """
    catalog, _, rest = table.name.partition(".")
    if not catalog or not all(rest.split(".")) or "`" in table.name or "/" in table.name:
        raise BadRequest(f"{table.name} is not the name of a table", hint="--to CATALOG.DATABASE.TABLE")
    hint = _HINT.format(catalog, ".".join(spark.version.split(".")[:2]))
    if spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        raise BadRequest(f"the Spark session has no catalog {catalog}", hint=hint)
    try:
        exists = bool(spark.catalog.tableExists(_quoted(table.name)))
        marks = spark.sql(f"SHOW TBLPROPERTIES {_quoted(table.name)}").collect() if exists else []
    except _errors() as error:
        raise BadRequest(f"Spark cannot use the catalog {catalog}: {_reason(error)}", hint=hint) from error
    if exists and table.mode is Mode.ERROR:
        raise BadRequest(f"the table {table.name} already exists", hint="give --mode overwrite or append")
    if exists and table.mode is Mode.OVERWRITE and MARK not in {row["key"] for row in marks}:
        raise BadRequest(f"the table {table.name} was not made by an export", hint="give --to another table")
    return exists


def write(records: LogRecords, table: Table, read: Coverage, *, exists: bool) -> int:
    """Write the messages that an earlier reading has found to a table.

    `read` is what was read. Returns the number of new files. Raises Unreadable if the log has changed since, or if the
    table has another number of new rows, and BadRequest if Spark refuses the table.
    """
    columns = (*PARQUET_COLUMNS, *BODY_COLUMNS[table.body])
    options = {**records.options, "expected": ranges_to_json(read.ranges)}
    found = records._replace(columns=columns, options=options).table((), ranges=True)
    run = uuid.uuid4().hex
    try:
        _commit(messages_of(found).select(*columns), table, run, exists=exists)
        snapshots = records.spark.table(f"{_quoted(table.name)}.snapshots").where(f"summary['{RUN}'] = '{run}'")
        added = snapshots.select("summary").collect()
    except _errors() as error:
        raise _failed(error, table) from error
    summary = added[0]["summary"] if added else {}
    if int(summary.get("added-records", 0)) != read.counts.messages:
        raise Unreadable(
            f"the table {table.name} has {summary.get('added-records', 0)} new rows, and the log has "
            f"{read.counts.messages} messages",
            hint=f"the snapshot with {RUN} {run} in its summary is wrong: roll the table back to the one before it",
        )
    return int(summary.get("added-data-files", 0))


def _commit(messages: DataFrame, table: Table, run: str, *, exists: bool) -> None:
    from pyspark.sql.functions import col, partitioning

    writer = messages.writeTo(_quoted(table.name)).option("target-file-size-bytes", str(table.file_size))
    writer = writer.option(f"snapshot-property.{RUN}", run)
    if exists and table.mode is Mode.APPEND:
        writer.append()
        return
    writer = (
        writer.using("iceberg").tableProperty(MARK, "true").partitionedBy(col("topic"), partitioning.days("storeTime"))
    )
    if table.mode is Mode.OVERWRITE:
        writer.createOrReplace()
    else:
        writer.create()


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (Py4JError, PySparkException)


def _reason(error: Exception) -> str:
    # for an error of Java, py4j's own text begins with a line that says nothing
    java = getattr(error, "java_exception", None)
    return one_line(error) if java is None else str(java.toString()).strip().split("\n", 1)[0]


def _failed(error: Exception, table: Table) -> RmqctlError:
    return own_error(error) or BadRequest(f"Spark does not write the table {table.name}: {_reason(error)}")
