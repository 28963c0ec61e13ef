"""The common options of all jobs, and the Spark session for these options."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.shared.option_class import kept, kept_option
from rmqctl.cli.shared.options import LocalPath, layout_options
from rmqctl.errors import BadRequest
from rmqctl.logfile.system.remote_storage import is_remote, is_url, root_path
from rmqctl.spark.scan.split import SPLIT_MIB, SPLIT_MIB_MAX
from rmqctl.text import install_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])


class FolderOrUrl(LocalPath):
    """The type of a parameter that is a folder of this host, or a URL of a folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the folder or the URL as a Path."""
        text = os.fsdecode(value)
        path = root_path(text)
        return path if is_remote(path) else super().convert(path if is_url(text) else value, param, ctx)


def stores_argument(command: F) -> F:
    """Add the argument STORE..., and the options --broker-conf and --follow-links."""
    return click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=FolderOrUrl())(
        layout_options(command)
    )


def spark_options(command: F) -> F:
    """Add --master, --remote and --split-mib."""
    mib = click.IntRange(1, SPLIT_MIB_MAX)
    split = kept_option(
        "--split-mib",
        type=mib,
        default=SPLIT_MIB,
        help="The size, in MiB, of the part of the log that each task reads.",
    )
    return spark_target_options(split(command))


def spark_target_options(command: F) -> F:
    """Add --master and --remote."""
    remote = kept_option("--remote", help="The URL of a Spark Connect server, such as sc://HOST:15002.")
    master = kept_option(
        "--master",
        help="The Spark master, such as spark://HOST:7077, yarn or local[4].  [default: local[*], or the master of "
        "spark-submit]",
    )
    return master(remote(command))


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Open the Spark session that --master or --remote describes.

    Raises BadRequest if PySpark is not installed, and Unreadable if no Spark master or server answers.
    """
    master, remote = kept("master"), kept("remote")
    if master and remote:
        raise click.UsageError("give --master or --remote, not both")
    if find_spec("pyspark") is None:
        raise BadRequest("PySpark is not installed", hint=install_extra("spark"))
    from rmqctl.spark.session.session import Target, session

    # after Ctrl-C, py4j logs a traceback to the root logger; real errors arrive as exceptions
    logging.getLogger().addHandler(logging.NullHandler())
    with session(Target(master, remote), os.environ) as spark:
        yield spark
