"""A wide store, of very many queues with few messages each: what a queue costs.

CPU time is measured, of the whole command: on a busy machine the time that passes says little of so many small steps.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.bench.command import peak_memory, run
from tests.bench.stores import load_seconds
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
    *(f"seconds of the real {version} / ours, {QUEUE_COUNTS[0]:,}" for version in BROKERS),
)


def wide_rows(work: Path, runs: int) -> list[list[str]]:
    """A row a command; the look-up's numbers are `rmqctl --help`'s times."""
    stores = [_wide_store(work, count) for count in QUEUE_COUNTS]
    loads = [load_seconds(stores[0], version, GEOMETRY) for version in BROKERS]
    rows = []
    for what, (verb, *options) in COMMANDS.items():
        commands = [[verb, str(store), *options] for store in stores]
        seconds = [_cpu_seconds(command, runs) for command in commands]
        costs = [one / count for one, count in zip(seconds, QUEUE_COUNTS, strict=True)]
        grows = [after / before for before, after in pairwise(costs)][-1]
        peak = peak_memory(commands[-1]) / 1e6
        ratios = [load / run(commands[0]).seconds for load in loads]
        cells = [*(f"{cost * 1000:.3f}" for cost in costs), f"{grows:.2f}", f"{peak:.0f}"]
        rows.append([what, *cells, *(f"{ratio:.1f}" for ratio in ratios)])
    first = _cpu_seconds(["--help"], runs)
    look_ups = [_cpu_seconds(["query", str(store), "--topic", _topic(7), "--key", "order-7"], runs) for store in stores]
    rows.append([f"{LOOK_UP}, x `--help`", *(f"{found / first:.2f}" for found in look_ups), "", "", "", ""])
    return rows


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
