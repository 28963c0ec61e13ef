"""Golden stores and what became of them, read by the real RocketMQ: many by one JVM, which takes a second to start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rmqctl.store.config.file_sizes import Geometry as Sizes
from tests.real_store.harness import NO_SETTINGS, Geometry, RealRocketMQ, broker_conf
from tests.support.golden_store import geometry

Name = TypeVar("Name", bound=Hashable)


class Stored(NamedTuple):
    """A store that came from a golden one, or has its sizes. `settings` are further keys of its broker.conf."""

    golden: str
    root: Path
    settings: Mapping[str, str] = NO_SETTINGS


def for_harness(size: Sizes) -> Geometry:
    """Our sizes as the harness takes them: a queue file's in units."""
    return Geometry(size.commitlog_file_size, size.consumequeue_file_size // 20, size.index_slots, size.index_entries)


def sizes(golden: str) -> Geometry:
    """The sizes of a golden store's files."""
    return for_harness(geometry(golden))


def settings_of(golden: str) -> dict[str, str]:
    """Further keys of a golden store's broker.conf."""
    if "lmq" in golden:
        return {"enableLmq": "true", "enableMultiDispatch": "true"}
    return {"enableConsumeQueueExt": "true"} if "cqext" in golden else {}


def read_copies(
    version: str,
    stores: Mapping[Name, Stored],
    *,
    abort: bool | None = None,
    start: bool = False,
    key_messages: int = 1000,
    time_look_ups: bool = False,
) -> dict[Name, dict[str, Any]]:
    """Have a version read a copy of each store, as `RealRocketMQ.read` does.

    With `abort` or without it is what a copy starts; None leaves that file as it is.
    """
    with tempfile.TemporaryDirectory(prefix="rmqctl-copies-") as folder:
        confs = []
        for number, stored in enumerate(stores.values()):
            copy, conf = Path(folder, str(number)), Path(folder, f"{number}.conf")
            shutil.copytree(stored.root, copy)
            if abort is not None:
                (copy / "abort").unlink(missing_ok=True)
            if abort:
                (copy / "abort").touch()
            settings = settings_of(stored.golden) | dict(stored.settings)
            conf.write_text(broker_conf(copy, sizes(stored.golden), settings), encoding="ascii")
            confs.append(conf)
        answers = RealRocketMQ(version).read_confs(
            confs, start=start, key_messages=key_messages, time_look_ups=time_look_ups
        )
        return dict(zip(stores, answers, strict=True))


@contextmanager
def about(*names: object) -> Iterator[None]:
    """Have what fails say which store it is about."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"of {', '.join(map(str, names))}")
        raise
