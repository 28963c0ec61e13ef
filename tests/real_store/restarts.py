"""Many restarts by the real store of one version: one JVM that stays, starts each store that it is given, and says what
the start came to.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real_store import java_build
from tests.real_store.harness import java_command

HEAP = "4g"  # a record that claims 2 GiB gets an array of 2 GiB before it is found bad
STORES_A_JVM = 300  # threads, maps and descriptors of stores that were shut down are not all given back
HANGS_MAX = 20  # stores that a JVM may have given up


class Restarts:
    """The store of `version`. A start that takes longer than `seconds` hangs.

    An answer has `load`, and where it is true minPhyOffset, maxPhyOffset and `queues`; a queue has topic, queueId,
    minOffset, maxOffset, and `places`, one after the other the queue offset, physical offset and size of each message
    that getMessage gives. `error` says why the start failed, in the phase `failedIn`. `hangs` is the phase in which the
    start hangs, `reputFrom` where dispatch waits.
    """

    def __init__(self, version: str, seconds: int) -> None:
        self._class_path = java_build.prepare_store(version)
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="rmqctl-restarts-", ignore_cleanup_errors=True)
        self._machines: list[_Machine] = []
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in self._machines:
            machine.close()
        self._folder.cleanup()

    def ask(self, conf: Path) -> Future[dict[str, Any]]:
        """Start the store that a broker.conf is for; it is changed. RuntimeError where the JVM dies."""
        if not self._machines or self._machines[-1].is_worn_out:
            if self._machines:
                self._machines[-1].close_later()
            self._machines = [machine for machine in self._machines if machine.is_alive]
            folder = Path(self._folder.name) / str(self._asked)
            folder.mkdir()
            command = java_command(self._class_path, "Restarts", folder, {"seconds": self._seconds}, HEAP)
            self._machines.append(_Machine(command, folder))
        self._asked += 1
        return self._machines[-1].ask(conf)


class _Machine:
    """One JVM."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._asked = self._hangs = 0
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_worn_out(self) -> bool:
        return not self.is_alive or self._asked >= STORES_A_JVM or self._hangs >= HANGS_MAX

    def ask(self, conf: Path) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._asked += 1
            number = self._asked
            self._waiting[number] = future
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{number}\t{conf}\n")
            self._process.stdin.flush()
        except OSError:
            self._fail()
        return future

    def close_later(self) -> None:
        """It ends when it has answered all."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._hangs += "hangs" in answer
            with self._lock:
                future = self._waiting.pop(answer.pop("number"))
            future.set_result(answer)
        self._fail()

    def _fail(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        log = java_build.last_lines(self._log.read_text(encoding="utf-8", errors="replace"))
        for future in waiting.values():
            future.set_exception(RuntimeError(f"the JVM died:\n{log}"))
