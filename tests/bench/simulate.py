"""The driver of `job verify` alone, with more stores and a longer log than this machine has.

The answers of executors are made up: a synthetic answer for each split of one huge log, and one for each of many small
stores. The driver does all its work on them: it opens stores, unpacks answers, proves that they cover the log, joins
runs of units and writes reports. What Spark's own scheduler costs a task is in the rows of `driver.py`.
"""

from __future__ import annotations

import os
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from click.testing import CliRunner

from rmqctl.cli.main import rmqctl
from rmqctl.forensics.audit.index_findings import IndexPart
from rmqctl.forensics.audit.part_audit import CheckedRun, RunSummary
from rmqctl.forensics.verify import Verification
from rmqctl.kernels.cq_unit_compare import RUNS
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from rmqctl.spark.question.verify import index_parts, whole_report
from rmqctl.spark.scan.cluster_scan import SPLIT_SIZE, ClusterScan
from rmqctl.spark.scan.log_split import Found, Reading
from rmqctl.spark.scan.split import Split
from rmqctl.spark.scan.task_answers import packed, unpacked
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.parallel_scan import Part
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.support.log_maker import Record, encode

SIMULATE_HEADINGS = ("the driver alone", "CPU seconds", "CPU", "bytes from tasks", "peak MB", "in an hour of one core")
FILE_SIZE = 1 << 30
FILES, STORES = 12_500, 10_000
SPLITS_OF_FILE = FILE_SIZE // SPLIT_SIZE
RECORDS = 100_000  # of a split
QUEUES, QUEUE_FILE_SIZE = 8, 6_000_000
KEYS = 3
ENTRIES_OF_FILE = 20_000_000
TOPIC = b"orders"
STORED = 1_795_252_516_848
UNIT, INDEX_HEADER = struct.Struct(">qiq"), struct.Struct(">qqqqii")
INDEX_FILES = FILES * SPLITS_OF_FILE * RECORDS * KEYS // ENTRIES_OF_FILE
SLOTS = 5_000_000
INDEX_FILE_SIZE = INDEX_HEADER.size + 4 * SLOTS + 20 * (ENTRIES_OF_FILE + 1)


class Spent(NamedTuple):
    """The cost for the driver: CPU seconds without the making of answers, bytes of answers, and peak memory (bytes)."""

    cpu: float
    answers: int
    peak: int


class _Executors:
    """Makes answers up, and counts their bytes and the CPU seconds of their making."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.answers = 0
        self._codec = pa.Codec("zstd", compression_level=1)

    def read(self, splits: Sequence[Split], _: Reading) -> dict[Split, Callable[[], Found]]:
        begin = time.thread_time()
        found = {split: self._answer(_found(split)) for split in splits}
        self.cpu += time.thread_time() - begin
        return found

    def report(self, report: bytes, _spark: object, calls: Sequence[object]) -> dict[int, Callable[[], Any]]:
        if len(calls) == 1:
            raise RuntimeError("a store has a job of its own: its answer would have another form")
        self.answers += len(report) * len(calls)
        return {number: partial(unpacked, report) for number in range(len(calls))}

    def _answer(self, found: Found) -> Callable[[], Found]:
        raw = packed(found)
        small = self._codec.compress(raw, asbytes=True)
        self.answers += len(small)
        return lambda: unpacked(self._codec.decompress(small, len(raw)))


def simulate_rows(work: Path) -> list[list[str]]:
    """A row for one huge log, and one for many small stores."""
    with _folder(work / "simulated") as folder:
        huge = _of_child(_one_log, _huge_store(folder))
    with _folder(work / "simulated") as folder:
        many = _of_child(_many_stores, *_small_stores(folder))
    splits = FILES * SPLITS_OF_FILE
    records = splits * RECORDS
    return [
        [
            f"one log of {FILES * FILE_SIZE / 1e12:.1f} TB, {splits:,} splits, {records:,} records",
            f"{huge.cpu:.1f}",
            f"{huge.cpu / records * 1e9:.2f} ns a record",
            f"{huge.answers / records:.4f} a record",
            f"{huge.peak / 1e6:.0f}",
            f"{3600 / huge.cpu * FILES * FILE_SIZE / 1e15:.1f} PB of log",
        ],
        [
            f"{STORES:,} small stores",
            f"{many.cpu:.1f}",
            f"{many.cpu / STORES * 1e3:.2f} ms a store",
            f"{many.answers / STORES:.0f} a store",
            f"{many.peak / 1e6:.0f}",
            f"{3600 / many.cpu * STORES:,.0f} stores",
        ],
    ]


def _one_log(store: Path) -> Spent:
    cache_where(find_cache)
    executors = _Executors()
    with closing(ReadOnlyStore(store)) as opened:
        Verification(opened).warm_up()
        before = _cpu()
        scan = ClusterScan(executors.read, opened)
        verification = Verification(opened, scan=scan.compare, index_parts=partial(index_parts, opened, scan))
        verification.run()
        report = verification.report
    if report.summary.messages != FILES * SPLITS_OF_FILE * RECORDS or report.findings:
        raise RuntimeError(f"the driver found something else: {report.summary}, {report.findings[:1]}")
    return Spent(_cpu() - before - executors.cpu, executors.answers, _peak())


def _many_stores(first: Path, *others: Path) -> Spent:
    with closing(ReadOnlyStore(first)) as opened:
        report = packed((whole_report(opened, level=3, receipts=True),))  # as a task of a shared job answers
    executors, before = _Executors(), _cpu()

    @contextmanager
    def no_spark(*_: object) -> Iterator[None]:
        yield

    with (
        patch("rmqctl.spark.scan.store_tasks.answers", partial(executors.report, report)),
        patch("rmqctl.cli.job.verify.spark_session", no_spark),
    ):
        words = ["job", "verify", *map(str, (first, *others)), "-o", "jsonl"]
        done = CliRunner().invoke(rmqctl, words, standalone_mode=False)
    if done.return_value != 0:
        raise RuntimeError(f"job verify: {done.return_value}, {done.output[-500:]}")
    return Spent(_cpu() - before, executors.answers, _peak())


def _found(split: Split) -> Found:
    """The answer to a split whose records are all confirmed."""
    number = split.file * SPLITS_OF_FILE + split.start // SPLIT_SIZE
    begin, size = split.start, split.stop - split.start
    is_last = split.stop >= FILE_SIZE
    first = np.zeros(QUEUES if number else 0, DISPATCH_COLUMNS)
    first["queue"] = np.arange(len(first))
    rest = np.zeros(0 if number else QUEUES, DISPATCH_COLUMNS)
    rest["queue"], rest["size"], rest["store_timestamp"] = np.arange(len(rest)), 100, STORED
    rest["physical_offset"] = np.arange(len(rest)) * 100
    per_queue = RECORDS // QUEUES
    confirmed = np.zeros(QUEUES, RUNS)
    confirmed["queue"] = np.arange(QUEUES)
    confirmed["start"], confirmed["end"] = number * per_queue, (number + 1) * per_queue
    run = CheckedRun(rest, first, confirmed, RunSummary(STORED, STORED, STORED, 0))
    base = split.file_from_offset
    items = [RecordRun(base + begin, size if not is_last else FILE_SIZE - begin, RECORDS, run)]
    end = min(split.stop, FILE_SIZE)
    files = 0 if number else INDEX_FILES  # the made up offsets of their entries are low
    index = IndexPart(base + begin, base + end, files=files, ends_missing=False)
    return Found(Part(begin, list(items), end, is_last), [(TOPIC, queue) for queue in range(QUEUES)], index)


def _huge_store(folder: Path) -> Path:
    """A store of holes, with the bytes that the driver reads: the ends of queues, and headers of index files."""
    store = folder / "store"
    (store / "commitlog").mkdir(parents=True)
    head = encode(Record(topic=TOPIC.decode()), 0)
    for number in range(FILES):
        _sparse(store / "commitlog" / f"{number * FILE_SIZE:020d}", FILE_SIZE, {0: head})
    units = FILES * SPLITS_OF_FILE * RECORDS // QUEUES
    log_end = FILES * FILE_SIZE
    for queue in range(QUEUES):
        files = -(-units * UNIT.size // QUEUE_FILE_SIZE)
        queue_folder = store / "consumequeue" / TOPIC.decode() / str(queue)
        queue_folder.mkdir(parents=True)
        for number in range(files):
            written = {0: UNIT.pack(queue * 100, 100, 0)} if number == 0 else {}
            if number == files - 1:
                written[(units - 1) * UNIT.size - number * QUEUE_FILE_SIZE] = UNIT.pack(log_end - 100 - queue, 100, 0)
            _sparse(queue_folder / f"{number * QUEUE_FILE_SIZE:020d}", QUEUE_FILE_SIZE, written)
    (store / "index").mkdir()
    for number in range(INDEX_FILES):
        ends = number * ENTRIES_OF_FILE, (number + 1) * ENTRIES_OF_FILE
        header = INDEX_HEADER.pack(STORED, STORED, *ends, SLOTS, ENTRIES_OF_FILE + 1)
        _sparse(store / "index" / f"2026{number:013}", INDEX_FILE_SIZE, {0: header})
    (store / "checkpoint").write_bytes(struct.pack(">qqq", *3 * [STORED]).ljust(4096, b"\0"))
    return store


def _sparse(path: Path, size: int, written: dict[int, bytes]) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        for at, data in written.items():
            file.seek(at)
            file.write(data)


def _small_stores(folder: Path) -> list[Path]:
    """Copies of one store, whose files are links."""
    first = unpack("497-basic", folder / "first")
    stores = [folder / f"{number:05}" for number in range(STORES - 1)]
    for store in stores:
        shutil.copytree(first, store, copy_function=os.link)
    return [first, *stores]


@contextmanager
def _folder(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _of_child(work: Callable[..., Spent], *arguments: Any) -> Spent:
    """Call a function in a process of its own, whose peak memory is only its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        return executor.submit(work, *arguments).result()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
