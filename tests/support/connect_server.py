"""A Spark Connect server on loopback, from the pip package, with two threads for tasks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rmqctl.spark.session.session import java_home
from tests.support.spark_process import LOOPBACK, Done, SparkProcess, in_one_session, started_rmqctl, without_our_code

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer(NamedTuple):
    """One that runs."""

    url: str

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """`rmqctl` with these arguments in a process of its own: one that has been a client of Connect's is nothing
        else any more.
        """
        return started_rmqctl(arguments, {**os.environ, **LOOPBACK})

    def run(self, lines: Sequence[Sequence[object]]) -> list[Done]:
        """What command lines leave, each a job of one client."""
        return in_one_session(lines, {**os.environ, **LOOPBACK}, remote=self.url)


@contextmanager
def started(folder: Path) -> Iterator[ConnectServer]:
    """A server up to the end of the block."""
    environ = without_our_code(folder) | {"JAVA_HOME": str(java_home(os.environ, folder / "java"))}
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    arguments = ["--class", SERVER, "--master", "local[2]", *options, "spark-internal"]
    with SparkProcess("spark-submit", arguments, environ, folder / "server.log") as server:
        port = server.said(r"Spark Connect server started at: \S+:(\d+)")
        yield ConnectServer(f"sc://127.0.0.1:{port}")
