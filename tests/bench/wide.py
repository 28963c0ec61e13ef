"""A wide store, of very many queues with few messages each: what a queue costs.

CPU time is measured, of the whole command: on a busy machine the time that passes says little of so many small steps.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.command import peak_memory, run
from tests.bench.stores import load_of_copy
from tests.real_store.harness import Geometry

QUEUE_COUNTS = (8_000, 16_000, 80_000)
QUEUES_OF_TOPIC, MESSAGES_OF_QUEUE = 8, 2
GEOMETRY = Geometry(commitlog_file_size=1 << 26, queue_file_units=300, index_slots=100_000, index_entries=400_000)
COMMANDS = {
    "info": ["info"],
    "verify": ["verify"],
    "recover --dry-run": ["recover", "--dry-run"],
    "rebuild --dry-run": ["rebuild", "all", "--dry-run"],
    "clean --dry-run": ["clean", "--dry-run"],
}
LOOK_UP = "query --key"
BROKERS = ("4.9.7", "5.3.3")
WIDE_HEADINGS = (
    "CPU time, ms a queue",
    *(f"{count:,} queues" for count in QUEUE_COUNTS),
    f"{QUEUE_COUNTS[-1]:,} against {QUEUE_COUNTS[-2]:,}",
    f"peak MB, {QUEUE_COUNTS[-1]:,}",
)
WHOLE_PROCESS, OF_IT_LOAD, WHOLE_COMMAND = "whole process of the real ", "of it, load by the real ", ", whole command"
LOADED = ("verify", "recover --dry-run")
LOAD_HEADINGS = (
    f"{QUEUE_COUNTS[0]:,} queues",
    "seconds",
    "CPU seconds",
    *(f"x {version}, {time}" for time in ("seconds", "CPU seconds") for version in BROKERS),
)


class Cost(NamedTuple):
    """The seconds that passed, and the CPU seconds of all threads."""

    seconds: float
    cpu: float

    def less(self, start: Cost) -> Cost:
        """The cost without that of a start."""
        return Cost(self.seconds - start.seconds, self.cpu - start.cpu)


def wide_rows(work: Path, runs: int) -> list[list[str]]:
    """A row a command; the look-up's numbers are `rmqctl --help`'s times."""
    stores = [_wide_store(work, count) for count in QUEUE_COUNTS]
    rows = []
    for what, (verb, *options) in COMMANDS.items():
        commands = [[verb, str(store), *options] for store in stores]
        seconds = [_cpu_seconds(command, runs) for command in commands]
        costs = [one / count for one, count in zip(seconds, QUEUE_COUNTS, strict=True)]
        grows = [after / before for before, after in pairwise(costs)][-1]
        peak = peak_memory(commands[-1]) / 1e6
        cells = [*(f"{cost * 1000:.3f}" for cost in costs), f"{grows:.2f}", f"{peak:.0f}"]
        rows.append([what, *cells])
    first = _cpu_seconds(["--help"], runs)
    look_ups = [_cpu_seconds(["query", str(store), "--topic", _topic(7), "--key", "order-7"], runs) for store in stores]
    rows.append([f"{LOOK_UP}, x `--help`", *(f"{found / first:.2f}" for found in look_ups), "", ""])
    return rows


def load_rows(work: Path, runs: int) -> list[list[str]]:
    """Rows that compare verify and recover with the load of a real broker, of the same store and in turns.

    A whole command is compared with the whole process of a broker's JVM that only loads the store. A command less the
    start is compared with `DefaultMessageStore.load()` in that JVM, and so is the first row. Less the start means: less
    the same command with a store of 8 queues, which needs no kernels. The first row is what no program can do without:
    each queue's folder listed, each file opened, examined, read and closed.
    """
    store, small = _wide_store(work, QUEUE_COUNTS[0]), _wide_store(work, QUEUES_OF_TOPIC)
    costs: dict[str, list[Cost]] = defaultdict(list)
    for _ in range(runs):
        costs["a loop that lists and reads the queue files"].append(_bare_loop(store / "consumequeue"))
        for version in BROKERS:
            load = load_of_copy(store, version, GEOMETRY)
            costs[f"{WHOLE_PROCESS}{version}"].append(Cost(load.seconds, load.cpu))
            costs[f"{OF_IT_LOAD}{version}"].append(Cost(load.report.seconds, load.report.cpu_seconds))
        for what in LOADED:
            verb, *options = COMMANDS[what]
            whole, start = (_cost_of([verb, str(one), *options]) for one in (store, small))
            costs[f"{what}{WHOLE_COMMAND}"].append(whole)
            costs[f"{what}, less the start"].append(whole.less(start))
    medians = {
        what: Cost(median(one.seconds for one in found), median(one.cpu for one in found))
        for what, found in costs.items()
    }
    rows = []
    for what, found in medians.items():
        is_whole = what.startswith(WHOLE_PROCESS) or what.endswith(WHOLE_COMMAND)
        brokers = [medians[f"{WHOLE_PROCESS if is_whole else OF_IT_LOAD}{version}"] for version in BROKERS]
        seconds = [f"{broker.seconds / found.seconds:.1f}" for broker in brokers]
        cpu = [f"{broker.cpu / found.cpu:.1f}" for broker in brokers]
        rows.append([what, f"{found.seconds:.2f}", f"{found.cpu:.2f}", *seconds, *cpu])
    return rows


def _cost_of(arguments: list[str]) -> Cost:
    found = run(arguments, keep_output=False)
    return Cost(found.seconds, found.cpu)


def _bare_loop(queues: Path) -> Cost:
    """List the folder of each queue, and open, examine, read and close each file, with nothing around the calls."""
    folders = [str(folder) for topic in queues.iterdir() for folder in topic.iterdir()]
    began, cpu_began = time.perf_counter(), time.process_time()
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                descriptor = os.open(entry.path, os.O_RDONLY)
                os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                os.close(descriptor)
    return Cost(time.perf_counter() - began, time.process_time() - cpu_began)


def _topic(number: int) -> str:
    return f"topic-{number:05}"


def _wide_store(work: Path, queues: int) -> Path:
    """A store of this many queues; written once, by rmqctl."""
    store = work / f"wide-{queues}"
    if not store.exists():
        making, conf, lines = (work / f"wide-{queues}.{name}" for name in ("making", "conf", "jsonl"))
        shutil.rmtree(making, ignore_errors=True)
        conf.write_text("".join(f"{key}={value}\n" for key, value in GEOMETRY.broker_conf().items()))
        topics = queues // QUEUES_OF_TOPIC
        with lines.open("w") as file:
            for number in range(queues * MESSAGES_OF_QUEUE):
                topic, queue = number % topics, number // topics % QUEUES_OF_TOPIC
                message = {"topic": _topic(topic), "queueId": queue, "properties": {"KEYS": f"order-{topic}"}}
                file.write(json.dumps(message | {"body": "x" * 100}) + "\n")
        run(["append", str(making), "--create", "--broker-conf", str(conf), "--from", str(lines)])
        conf.unlink()
        lines.unlink()
        making.rename(store)
    return store


def _cpu_seconds(arguments: list[str], runs: int) -> float:
    """The median of the CPU time (user and system) of a command."""
    return median(run(arguments, keep_output=False).cpu for _ in range(runs))
