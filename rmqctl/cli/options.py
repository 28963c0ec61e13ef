"""Arguments and options that several verbs share, and what they make of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.render import remark
from rmqctl.logfile.remote_path import is_url

if TYPE_CHECKING:
    from rmqctl.store.read_only_store import ReadOnlyStore

F = TypeVar("F", bound=Callable[..., Any])

OFFSET = click.IntRange(0, 2**63 - 1)
COUNT = click.IntRange(0, 10**9)
POSITIVE = click.IntRange(1, 10**9)
THREADS_MAX = 256
CORES_USED_MAX = 8  # more wait for the disk, and each holds buffers
BODIES = click.Choice(("none", "utf8", "hex", "base64"))
OUTPUTS = ("table", "json", "jsonl", "csv")


class LocalPath(click.Path):
    """A path of this host: of a URL no folder is made that is called s3:."""

    def __init__(self) -> None:
        # one that is not readable was not typed wrongly: opening it says so, with exit code 4
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path."""
        text = os.fsdecode(value)
        if is_url(text):
            self.fail(f"{text} is a URL, this needs a path of this host (`rmqctl job verify` and the like read by URLs)", param, ctx)
        return super().convert(value, param, ctx)


def store_argument(command: F) -> F:
    """STORE, and how it is laid out."""
    return click.argument("store", type=LocalPath())(layout_options(command))


def layout_options(command: F) -> F:
    """--broker-conf, --follow-links."""
    command = click.option("--follow-links", is_flag=True, help="Follow symbolic links that lead out of the store.")(command)
    return click.option(
        "--broker-conf",
        type=click.Path(path_type=Path),
        help="The broker's broker.conf: file sizes, commit log folders, retention. Without it they are read off the files.",
    )(command)


def output_option(*formats: str) -> Callable[[F], F]:
    """-o with the formats that make sense for a verb; the first is the default."""
    return click.option("-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="Format of stdout.")


def progress_option(command: F) -> F:
    """--progress."""
    choice = click.Choice(("auto", "json", "none"))
    text = "Progress on stderr: a bar on a terminal, JSON lines, or none."
    return click.option("--progress", "progress_mode", type=choice, default="auto", show_default=True, help=text)(command)


def threads_option(command: F) -> F:
    """--threads."""
    text = "Threads that read the log.  [default: one a core, at most 8]"
    return click.option("--threads", type=click.IntRange(1, THREADS_MAX), default=_cores, help=text)(command)


def _cores() -> int:
    """How many cores this process may use."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, CORES_USED_MAX)


def open_store(store: Path, broker_conf: Path | None, follow_links: bool) -> ReadOnlyStore:
    """The store that the shared options name."""
    from rmqctl.store.config import BrokerConf, read_broker_conf
    from rmqctl.store.read_only_store import ReadOnlyStore

    conf = read_broker_conf(broker_conf) if broker_conf is not None else BrokerConf()
    opened = ReadOnlyStore(store, conf, follow_links=follow_links)
    click.get_current_context().call_on_close(opened.close)
    return opened


def note_unfinished_change(store: ReadOnlyStore) -> None:
    """Say so, on stderr, where a change by rmqctl was left half done."""
    from rmqctl.errors import Unreadable
    from rmqctl.store.journals import unfinished, words_of_unfinished

    root = store.path.root
    try:
        entry = unfinished(store.storage, root)
    except Unreadable as error:
        remark(f"note: {error}")
        return
    if entry is not None:
        remark(f"note: {words_of_unfinished(entry)}; `rmqctl undo {root}` brings it back")
