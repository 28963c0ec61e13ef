"""Check the files of queues and extensions: their lengths, names and sequence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.store.config.store_path import BATCHCONSUMEQUEUE, CONSUMEQUEUE
from rmqctl.store.read.consume_queue import BatchConsumeQueue, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FILES_FOR_A_MAJORITY = 3


def queue_file_findings(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings about the files of queues and extensions.

    The findings are about wrong file lengths, gaps between files, and wrong file names. A file name must be a multiple
    of a unit's size.
    """
    yield from _queues_in_both_folders(store)
    extensions = store.extensions
    usual = _usual_size(store)
    for key, queue in store.queues.items():
        problems = _file_problems(queue, usual)
        extension = extensions.get(key)
        problems |= {
            damage.path: (damage.code, damage.detail) for damage in (extension.queue.anomalies if extension else ())
        }
        for path, (code, what) in problems.items():
            yield Finding(code, path, None, what, topic=key[0], queue_id=key[1])


def _queues_in_both_folders(store: ReadOnlyStore) -> Iterator[Finding]:
    for topic, queue_id in store.conflicting_queues:
        is_in_both = isinstance(store.queues[topic, queue_id], ConsumeQueue)
        what = (
            f"the same queue is in {CONSUMEQUEUE}/, and only that one was checked"
            if is_in_both
            else f"the topic has other queues in {CONSUMEQUEUE}/"
        )
        path = f"{BATCHCONSUMEQUEUE}/{topic}/{queue_id}"
        yield Finding("queue-in-both-folders", path, None, what, topic=topic, queue_id=queue_id)


def _file_problems(queue: UnitQueue, usual: int | None) -> dict[str, tuple[str, str]]:
    """Return the problems of a queue's files: (code, detail) by the path of the file.

    `usual` is the size in bytes that most files of consume queues have, or None if no size has a majority.
    """
    is_batch, unit_size = isinstance(queue, BatchConsumeQueue), queue.unit_size
    problems = {damage.path: (damage.code, damage.detail) for damage in queue.queue.anomalies}
    for file in queue.queue.files:
        if file.file_from_offset % unit_size or file.size % unit_size:
            what = f"{file.size} bytes; name and length must be multiples of {unit_size}"
        elif not is_batch and usual is not None and file.size != usual:
            what = f"{file.size} bytes, most queue files have {usual}: no broker loads it"
        else:
            continue
        problems.setdefault(file.name, ("file-length", what))
    return problems


def _usual_size(store: ReadOnlyStore) -> int | None:
    """Return the size that more than half of the consume queues' files have.

    The result is None if no size has a majority, or if there are fewer than three files.
    """
    plain = [queue.queue for queue in store.queues.values() if isinstance(queue, ConsumeQueue)]
    sizes = [file.size_on_disk for files in plain for file in files.files]
    size, count = Counter(sizes).most_common(1)[0] if sizes else (0, 0)
    return size if len(sizes) >= FILES_FOR_A_MAJORITY and count * 2 > len(sizes) else None
