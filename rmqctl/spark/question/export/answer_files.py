"""Write the answer of a query to files: Spark writes, `target` publishes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.spark.question.export.export_format import CSV, FORMULA, JSONL, SUFFIXES
from rmqctl.spark.question.export.part_files import PartFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# as Python's and most other programs read CSV: a quote in a text is doubled, and spaces around a text are kept
_OPTIONS = {
    CSV: {
        "header": "true",
        "escape": '"',
        "quoteAll": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }
}


def write_answer(answer: DataFrame, staging: str, file_format: str) -> list[PartFile]:
    """Write all rows of an answer to new files, and return the files.

    The files are below `staging`, a folder of this host. Every executor must have access to the folder under the same
    path. `file_format` is a name of SUFFIXES. In CSV, a text that looks like a formula gets a `'`. Raises the errors of
    Spark and OSError.
    """
    folder = Path(staging) / uuid.uuid4().hex
    if file_format == CSV:
        answer = answer.select(*(_without_formula(name, kind) for name, kind in answer.dtypes))
    writer = answer.write.format("json" if file_format == JSONL else file_format)
    writer.options(**_OPTIONS.get(file_format, {})).save(folder.as_uri())
    found = sorted(folder.glob(f"part-*{SUFFIXES[file_format]}"))
    return [PartFile(str(path), "", 0, path.stat().st_size) for path in found]


def _without_formula(name: str, kind: str) -> Column:
    from pyspark.sql import functions as f

    column = f.col(f"`{name.replace('`', '``')}`")
    if kind != "string":
        return column
    is_formula = f.substring(column, 1, 1).isin(*FORMULA)
    return f.when(is_formula, f.concat(f.lit("'"), column)).otherwise(column).alias(name)
