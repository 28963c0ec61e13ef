"""Write the answer of a query to files: Spark writes, `target` publishes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.spark.question.export.export_format import CSV, JSONL, SUFFIXES
from rmqctl.spark.question.export.part_files import PartFile
from rmqctl.text import FORMULA_SIGNS, no_formula

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

    They are below `staging`, a folder of this host to which every executor must have access under the same path.
    `file_format` is a name of SUFFIXES. In CSV, bytes are base64, and a text or a name that looks like a formula gets a
    `'`. Raises Unreadable if the files of the executors are not in the folder, the errors of Spark, and OSError.
    """
    folder = Path(staging) / uuid.uuid4().hex
    if file_format == CSV:
        answer = answer.select(*(_for_csv(name, kind) for name, kind in answer.dtypes))
    writer = answer.write.format("json" if file_format == JSONL else file_format)
    writer.options(**_OPTIONS.get(file_format, {})).save(f"file:{folder}")  # Spark does not decode a URI
    found = sorted(folder.glob(f"part-*{SUFFIXES[file_format]}"))
    if not found:  # Spark writes at least one file
        raise Unreadable(
            "the files that Spark wrote are not there", path=staging, hint="all executors must see DIR under this path"
        )
    return [PartFile(str(path), "", 0, path.stat().st_size) for path in found]


def _for_csv(name: str, kind: str) -> Column:
    from pyspark.sql import functions as f

    column = f.col(f"`{name.replace('`', '``')}`")
    if kind == "string":
        is_formula = f.substring(column, 1, 1).isin(*FORMULA_SIGNS)
        column = f.when(is_formula, f.concat(f.lit("'"), column)).otherwise(column)
    elif kind == "binary":
        column = f.translate(f.base64(column), "\r\n", "")  # some versions of Spark break the line
    return column.alias(no_formula(name))
