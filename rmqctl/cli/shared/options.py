"""Arguments and options that several verbs share, and their values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.cli.output.render import progress, remark
from rmqctl.cli.shared.option_class import kept, kept_option, together
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.errors import BadRequest
from rmqctl.logfile.system.remote_storage import is_url, root_text
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.body.bodies import Bodies
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.read_only_store import ReadOnlyStore

F = TypeVar("F", bound=Callable[..., Any])
OFFSET_MAX = 2**63 - 1
OFFSET = click.IntRange(0, OFFSET_MAX)
COUNT = click.IntRange(0, 10**9)
POSITIVE = click.IntRange(1, 10**9)
THREADS_MAX = 256
CORES_USED_MAX = 8  # more threads would wait for the disk, and each thread holds buffers
PROFILES = ("4.7", "4.9", "5.3", "5.4")
VERSIONS_OF_PROFILES = "Profile 4.7: 4.0 to 4.9.0; 4.9: 4.9.1 to 4.9.8; 5.3: 5.0 to 5.3.4; 5.4: 5.4.0 and later."
RAW_HELP = "In CSV, do not put ' before texts that begin with = + - or @. A spreadsheet may run such texts as formulas."
OUTPUTS = ("table", "json", "jsonl", "csv")


class LocalPath(click.Path):
    """The type of a parameter that is a path of this machine.

    A URL is refused. Otherwise rmqctl could create a folder named s3: for a URL.
    """

    def __init__(self) -> None:
        # an unreadable path is no usage error: the open reports the path, with exit code 4
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as a Path. An empty path and a URL are usage errors."""
        text = os.fsdecode(value)
        if not text:
            self.fail("the path is empty", param, ctx)
        if is_url(text):
            self.fail(
                f"{text} is a URL, this needs a path of this host (`rmqctl job verify` and the like read by URLs)",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


_OFFSET_RANGE = re.compile(r"(?=.*\d)(\d{0,19})(?:(\.\.)(\d{0,19}))?", re.ASCII)


def _offset_range(text: str) -> tuple[int, int]:
    """Return the first and the last offset of a range such as 10..20."""
    found = _OFFSET_RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a range of queue offsets: use A..B, A.., ..B, or one offset")
    first, dots, last = found.groups()
    low = int(first or 0)
    high = min(int(last or OFFSET_MAX) if dots else low, OFFSET_MAX)
    if low > high:
        raise ValueError(f"{text!r} ends before it begins")
    return low, high


OFFSET_RANGE = Parsed("A..B", _offset_range)


# --broker-conf and --follow-links, for `open_store`
layout_options = together(
    kept_option(
        "--broker-conf",
        envvar="RMQCTL_BROKER_CONF",
        type=click.Path(path_type=Path),
        help="The broker's broker.conf, with file sizes, commit log folders and retention. Without this option, rmqctl "
        "takes the file sizes from the existing files.",
    ),
    kept_option("--follow-links", is_flag=True, help="Follow symbolic links to files and folders outside the store."),
)
store_argument = together(click.argument("store", type=LocalPath()), layout_options)
stores_argument = together(
    click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=LocalPath()), layout_options
)


def _msg_id(text: str) -> str:
    from rmqctl.format.host import parse_msg_id

    if "," in text:
        raise ValueError("several ids, as SendResult of a batch joins them: give them to --id")
    parse_msg_id(text)
    return text


def _ids(text: str) -> tuple[str, ...]:
    ids = tuple(one.strip() for one in text.split(",") if one.strip())
    if not ids:
        raise ValueError("it is empty")
    return ids


def _once(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Check that an option is given at most once, and return the value or None."""
    if len(values) > 1:
        raise click.BadParameter("give it once: each call looks up one message", param=option)
    return values[0] if values else None


def _one_key(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    return one_word(context, option, _once(context, option, values))


def one_word(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return a key, or None. One with a blank is a usage error: no message has it."""
    from rmqctl.format.properties import KEY_SEPARATOR

    words = (value or "").split(KEY_SEPARATOR)
    if len(words) > 1:
        one = next(filter(None, words), None)
        such = f", such as --key {one}" if one else ""
        what = "a blank separates two keys of a message, so no key has one: give one key"
        raise click.BadParameter(what + such, param=option)
    return value


id_options = together(
    click.option(
        "--id",
        "ids",
        type=Parsed("ids", _ids),
        metavar="ID[,ID...]",
        help="Any id of SendResult: an offsetMsgId or a msgId (UNIQ_KEY), or those of a batch, joined by commas.",
    ),
    click.option(
        "--key", multiple=True, callback=_one_key, help="A word of the message's KEYS, or the message's UNIQ_KEY."
    ),
    click.option(
        "--msg-id",
        type=Parsed("id", _msg_id),
        metavar="ID",
        help="The id that the broker gave the message (offsetMsgId of SendResult): 32 or 56 hex digits.",
    ),
    click.option(
        "--unique-key",
        multiple=True,
        callback=_once,
        help="The message's UNIQ_KEY: the id that the producer gave the message (msgId of SendResult).",
    ),
)


def _charset(text: str) -> str:
    """Return the name in lower case, if Python knows it as a charset."""
    name = text.lower()
    try:
        "a".encode(name)
        b"".decode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{text!r} is no charset that rmqctl knows; try gbk, gb18030, big5 or latin-1") from error
    return name


charset_option = click.option(
    "--charset", type=Parsed("NAME", _charset), help="The charset of bodies that are not UTF-8 text, such as gbk."
)
body_options = together(
    click.option(
        "--body",
        type=click.Choice(("none", "utf8", "hex", "base64")),
        help="Show bodies. `utf8` decompresses them (zlib, lz4, zstd) and shows text; `hex` and `base64` show the "
        "stored bytes.  [default: none; utf8 with --charset]",
    ),
    charset_option,
)


def bodies_of(body: str | None, charset: str | None, *, default: str = "utf8") -> Bodies:
    """Return how bodies are shown.

    `default` is the encoding if --charset is given, but not --body.
    """
    from rmqctl.format.body.bodies import Bodies

    return Bodies(body or (default if charset else "none"), charset)


def note_failed_bodies(bodies: Bodies) -> None:
    """Report on stderr the bodies that could not be decompressed."""
    if bodies.failed:
        what = counted(bodies.failed, "body", "bodies")
        remark(f"note: {what} could not be decompressed, and taken as stored; the first {bodies.failure}")


class _Output(click.Option):
    """-o: from the environment, it takes no format that only other verbs have."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        is_of_others = value in OUTPUTS and isinstance(self.type, click.Choice) and value not in self.type.choices
        return None if is_of_others else value


def output_option(*formats: str) -> Callable[[F], F]:
    """Return a decorator that adds -o, with the first format as the default.

    If csv is one of the formats, the decorator also adds --raw.
    """
    option = click.option(
        "-o",
        "--output",
        cls=_Output,
        type=click.Choice(formats),
        default=formats[0],
        envvar="RMQCTL_OUTPUT",
        help="The format of stdout.",
    )
    return together(option, kept_option("--raw", is_flag=True, help=RAW_HELP)) if "csv" in formats else option


def _broker_version(text: str) -> str:
    from rmqctl.format.profile import VERSIONS

    if text not in VERSIONS:
        raise ValueError(f"{text!r} is none of the versions from {VERSIONS[0]} to {VERSIONS[-1]}")
    return text


VERSION = Parsed("version", _broker_version)


def profile_option(text: str) -> Callable[[F], F]:
    """Return a decorator that adds --profile and --broker-version.

    `text` is the help of --profile, a group of versions. The verb gets the Profile of the one that is given, or None.
    """
    whole = f"{text} {VERSIONS_OF_PROFILES}  [default: as the store shows]"
    exact = (
        "The exact version of the broker, such as 5.1.1, instead of --profile: versions of one profile can start "
        "differently."
    )
    profile = click.option("--profile", type=click.Choice(PROFILES), callback=_profile_or_version, help=whole)
    version = kept_option("--broker-version", type=VERSION, is_eager=True, help=exact)
    return together(profile, version)


def profile_words(profile: Profile | None) -> str:
    """Return the option that gives `profile`, with a blank before it; "" for None."""
    if profile is None:
        return ""
    return f" --{'profile' if profile.label in PROFILES else 'broker-version'} {profile.label}"


def _profile_or_version(_: click.Context, option: click.Parameter, value: str | None) -> Profile | None:
    from rmqctl.format.profile import profile_of

    version: str | None = kept("broker_version")
    if version and value:
        raise click.BadParameter("give --profile or --broker-version, not both", param=option)
    named = version or value
    return profile_of(named) if named else None


def _cores() -> int:
    """Return the number of cores that this process may use, but at most 8."""
    return min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, CORES_USED_MAX
    )


verbose_option = kept_option(
    "-v", "--verbose", is_flag=True, help="On a terminal, show each row: nothing is grouped or hidden."
)
progress_option = kept_option(
    "--progress",
    "progress_mode",
    type=click.Choice(("auto", "json", "none")),
    default="auto",
    envvar="RMQCTL_PROGRESS",
    help="Progress on stderr: a bar on a terminal, JSON lines, or none.",
)
# --threads and --progress
scan_options = together(
    click.option(
        "--threads",
        type=click.IntRange(1, THREADS_MAX),
        default=_cores,
        envvar="RMQCTL_THREADS",
        show_default=False,
        help="The number of threads that read the log.  [default: one for each core, at most 8]",
    ),
    progress_option,
)
ignore_receipts_option = click.option(
    "--ignore-receipts",
    is_flag=True,
    help="Report a missing start of the log even if a receipt in STORE/rmqctl-clean.log says that `rmqctl clean` "
    "deleted this part of the log.",
)


def conf_of(store: Path, broker_conf: Path | None) -> BrokerConf:
    """Return the settings in the file of --broker-conf, or default settings.

    If broker.conf names another store or another log folder, or has no setting of a broker, a note is printed on
    stderr. Raises BadRequest.
    """
    from rmqctl.logfile.access.place import is_same
    from rmqctl.store.config.broker_conf import BrokerConf, read_broker_conf

    if broker_conf is None:
        return BrokerConf()
    conf = read_broker_conf(broker_conf)
    used = []
    if conf.ignored:
        values = ", ".join(f"{key}={value!r}" for key, value in conf.ignored.items())
        used.append(f"not a number, so that brokers take their default: {values}")
    if conf.foreign:
        used.append("rmqctl uses none of its settings. Is it the file of a broker?")
    if conf.store_root and not is_same(Path(conf.store_root), store):
        used.append(f"storePathRootDir is {conf.store_root}, but STORE is used: {store}")
    elsewhere = [path for path in conf.commitlog_paths if not is_below(Path(path), store)]
    own = store / "commitlog"
    if elsewhere and (used or os.access(own, os.F_OK)):
        used.append(f"the log is that of storePathCommitLog, {', '.join(elsewhere)}, not {own}")
    if used:
        remark(f"note: {broker_conf}: {'; '.join(used)}")
    return conf


def check_numbers(conf: BrokerConf) -> None:
    """Raise BadRequest for a setting that is no number, before what has no undo.

    A broker takes its default in silence, which may be other than was meant.
    """
    for key, value in conf.ignored.items():
        raise BadRequest(f"{key}={value!r} is not a number: correct it", path=conf.path)


def is_below(path: Path, store: Path) -> bool:
    """Return whether a path lies in a folder, with all links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(store))


def check_outside(path: Path, store: ReadOnlyStore, param_hint: str) -> None:
    """Check that a path to write is not inside a store or a folder of its log.

    Raises click.BadParameter.
    """
    if any(is_below(path, folder) for folder in (store.path.root, *store.path.commitlogs)):
        raise click.BadParameter(f"{path} is inside the store: choose another place", param_hint=param_hint)


def target_words(store: Path) -> str:
    """Return the arguments with which a proposed command opens the store, too."""
    words = [quoted(store)]
    if kept("broker_conf") is not None:
        words.append(f"--broker-conf {quoted(kept('broker_conf'))}")
    if kept("follow_links"):
        words.append("--follow-links")
    return " ".join(words)


def open_store(store: Path, *, log_only: bool = False, conf: BrokerConf | None = None) -> ReadOnlyStore:
    """Open `store` with the settings of --broker-conf and --follow-links.

    `conf` takes the place of --broker-conf. With `log_only`, the verb reads only the log.
    """
    from rmqctl.store.config.store_path import Layout
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    conf = conf_of(store, kept("broker_conf")) if conf is None else conf
    opened = ReadOnlyStore(store, conf, follow_links=kept("follow_links"), log_only=log_only)
    click.get_current_context().call_on_close(opened.close)
    if not opened.path.reads_queues:
        remark(f"note: {root_text(store)}: its queues are in RocksDB, and are not read: {opened.path.unread_databases}")
    elif (behind := opened.behind_of_database) > 0:
        remark(
            f"note: {root_text(store)}: its queues in RocksDB are {behind} bytes behind the log, as after a kill, "
            "until a start fills them: lag and queues are as they are now"
        )
    if opened.commit_log.queue.files and opened.path.shows_no_layout:
        remark(
            f"note: {root_text(store)}: it has neither queues nor topics.json, so whether its queues were in files, as "
            "is assumed, or in RocksDB (storeType=defaultRocksDB), only --broker-conf can tell"
        )
    if opened.path.config_databases and not opened.path.reads_databases:
        where = f"config/{opened.path.config_databases[0]}"
        how = opened.path.unread_databases
        remark(
            f"note: {root_text(store)}: topics, groups and offsets are in RocksDB ({where}), and are not read: {how}"
        )
    if opened.path.layout is Layout.DLEDGER:
        remark(
            f"note: {root_text(store)}: its log is a DLedger group's: entries that the group has not agreed on are "
            "shown, too"
        )
    return opened


def note_unread(store: ReadOnlyStore, where: str = "") -> None:
    """Report on stderr what was not read of a store. `where` begins each line."""
    for damage in store.foreign:
        remark(f"{where}{damage.path}: {damage.detail}")


def note_unfinished_change(store: ReadOnlyStore) -> None:
    """Report on stderr an unfinished change of rmqctl, or a damaged journal."""
    from rmqctl.errors import NeedsRecovery, Unreadable
    from rmqctl.store.journal.journals import check_finished, list_journals

    root = store.path.root
    try:
        entries = list_journals(store.storage, root)
        check_finished(root, entries)
    except (Unreadable, PermissionError) as error:
        remark(f"note: cannot tell whether a change was left unfinished: {error}")
        return
    except NeedsRecovery as error:
        remark(f"note: {error.what}; `rmqctl undo {quoted(root)}` brings it back")
        return
    for fault in (entry.fault for entry in entries if entry.fault is not None):
        remark(f"note: a change by rmqctl cannot be undone: {fault}")


@contextmanager
def scan_progress(store: ReadOnlyStore, what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[None]:
    """Show the progress of a scan of `total` bytes (None: the whole log) on stderr.

    With `quiet`, no progress is shown.
    """
    mode = "none" if quiet else kept("progress_mode")
    with progress(mode, store.commit_log.size if total is None else total, what) as advance:
        store.commit_log.on_progress = advance
        yield
