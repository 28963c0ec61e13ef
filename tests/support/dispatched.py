"""What dispatch makes of a log: the bytes of its queues and of its index."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from rmqctl.format.index_entry import INDEX_HEADER
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.read.index.index_service import IndexService


def only_log(source: Path, target: Path) -> Path:
    """A copy of a store's log, checkpoint left out: what a broker has after its queues and index were deleted."""
    target.mkdir()
    shutil.copytree(source / "commitlog", target / "commitlog")
    return target


def queue_bytes(root: Path) -> dict[str, bytes]:
    """The used part of every queue's files; queues that have no unit are as good as none."""
    paths = [path for part in ("consumequeue", "batchconsumequeue") for path in sorted((root / part).rglob("0*"))]
    files = {str(path.relative_to(root)): path.read_bytes().rstrip(b"\0") for path in paths if path.is_file()}
    return {name: data for name, data in files.items() if data}


def index_content(root: Path) -> list[bytes]:
    """The index files in order, with header, slots and the entries that count."""
    contents = []
    with closing(IndexService(Storage(root), root / "index")) as index:
        for file in index.files:
            header = file.header()
            assert header is not None
            entries = b"".join(data for _, data in file.entry_blocks(header.index_count, 1000))
            contents.append(
                INDEX_HEADER.struct.pack(*header) + b"".join(data for _, data in file.slot_blocks()) + entries
            )
    return contents
