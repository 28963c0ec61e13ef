"""Shell completion of the topics, groups and codes that a user types.

The shell completes arguments and options whose names are in TYPES. Verbs contain no code for completion. Completion
must be fast and silent. Completion lists folders and reads small files, but never reads the log. After an error,
completion proposes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.printable import printable
from rmqctl.errors import EXIT_CODE_MEANINGS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
PROPOSED_MAX = 1000


class NameType(click.types.StringParamType):
    """The type of a parameter whose value the shell completes.

    The function `names` returns the possible values and their meanings. The meaning of a value may be an empty text.
    """

    def __init__(self, names: Callable[[click.Context], Mapping[str, str]]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Propose the names that begin with `incomplete`, or no names after an error.

        A name is left out if a terminal cannot show it as it is, or if it would be read as an option.
        """
        from click.shell_completion import CompletionItem

        unfit = ("-",) if isinstance(param, click.Argument) else ()
        try:
            found = [
                (name, meaning)
                for name, meaning in self._names(ctx).items()
                if name.startswith(incomplete) and not name.startswith(unfit) and printable(name) == name
            ]
        except (OSError, ValueError):
            return []
        return [CompletionItem(name, help=meaning or None) for name, meaning in found[:PROPOSED_MAX]]


def complete_names(parameters: Iterable[click.Parameter]) -> None:
    """Add completion to the parameters that TYPES lists."""
    for parameter in parameters:
        if parameter.type is click.STRING and parameter.name in TYPES:
            parameter.type = TYPES[parameter.name]


def _store_of(context: click.Context) -> Path:
    """Return the store in an incomplete command line.

    If the last option has no value yet, click leaves the store in `args`. Raises ValueError if the command line has no
    store.
    """
    typed = context.params.get("store") or (context.params.get("stores") or context.args or [None])[0]
    if typed is None:
        raise ValueError("no store yet")
    return Path(typed)


def _topics(context: click.Context) -> dict[str, str]:
    """Return the topics that have queues. If no topic has a queue, read topics.json."""
    store = _store_of(context)
    folders = [store / folder for folder in QUEUE_FOLDERS]
    found = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()}
    return dict.fromkeys(sorted(found or _table(store, "topics.json", "topicConfigTable")), "")


def _groups(context: click.Context) -> dict[str, str]:
    """Return the groups in consumerOffset.json and in subscriptionGroup.json."""
    store = _store_of(context)
    with_offset = {key.partition("@")[2] for key in _table(store, "consumerOffset.json", "offsetTable")} - {""}
    configured = set(_table(store, "subscriptionGroup.json", "subscriptionGroupTable"))
    return dict.fromkeys(sorted(with_offset | configured), "")


def _table(store: Path, name: str, key: str) -> dict[str, Any]:
    """Load the file `name` of config/ as a broker does, and return its table `key`."""
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.config_file import load_config, table

    return table(load_config(Storage(store), store / "config", name), key)


def _codes(_: click.Context) -> dict[str, str]:
    """Return the codes that `explain` knows, each with its meaning."""
    from rmqctl.forensics.doctor.causes import CAUSES
    from rmqctl.forensics.finding import CATALOGUE, TERMS

    found = {code: explained.meaning.split(". ")[0] for code, explained in (CATALOGUE | TERMS).items()}
    found |= {code: cause.means.split(". ")[0] for code, cause in CAUSES.items()}
    return found | {str(int(code)): meaning for code, meaning in EXIT_CODE_MEANINGS.items()}


TYPES = {
    "topic": NameType(_topics),
    "topics": NameType(_topics),
    "group": NameType(_groups),
    "groups": NameType(_groups),
    "code": NameType(_codes),
}
