"""Stand-ins for what a session meets: a java, and a listener that is no Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def java(folder: Path, version: str) -> Path:
    """A stand-in that says its version, and its arguments."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    binary.chmod(0o755)
    return folder


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """HOST:PORT of one that takes a connection, and says `answer` after it heard something; None: says nothing, up to
    the block's end.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                if answer is None:
                    ended.wait()
                else:
                    connection.sendall(answer)

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()
