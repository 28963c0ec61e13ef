"""`rmqctl job rebuild`: a task of Spark for each store builds the new files.

The driver checks what the task built, shows the plan, and makes the change
(`rmqctl.operations.rebuild.rebuild_in_task`).
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

import rmqctl
from rmqctl.cli.job.by_store.preparation import prepared
from rmqctl.cli.job.by_store.relayed_progress import RelayedProgress
from rmqctl.cli.job.spark_options import spark_session, spark_target_options, stores_argument
from rmqctl.cli.output.complaint import report_error
from rmqctl.cli.output.printable import printable
from rmqctl.cli.shared.confirm import change_options, check_can_ask
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import open_store, output_option, profile_option, progress_option
from rmqctl.cli.shared.run_as import act_as_owner_of, other_owner
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.verbs.change.rebuild import WHAT, RebuildOptions, selection
from rmqctl.cli.views.change.rebuild_run import HowToRebuild, RebuildRun, check_store, warm_up_kernels
from rmqctl.cli.views.change.repair_view import REPAIR_VERB
from rmqctl.errors import BadRequest, ChangeFailed, ExitCode, RmqctlError
from rmqctl.logfile.system.remote_storage import is_remote, root_text
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.format.profile import Profile
    from rmqctl.operations.rebuild.rebuild_in_task import BuiltInTask, Refused
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore


# exit codes of stores, from the best to the worst; all others are worse
BEST_FIRST = (int(ExitCode.CLEAN), int(ExitCode.REPAIRED), int(ExitCode.FINDINGS))


@click.command(
    cls=Verb,
    short_help="The same as `rmqctl rebuild`, for many stores.",
    exit_codes=REPAIR_VERB,
    examples="""
        # show what would change in each of many stores
        rmqctl job rebuild /mnt/incident/broker-*/store --dry-run
        # make the change, with a cluster whose workers also have access to /mnt
        rmqctl job rebuild /mnt/incident/broker-*/store --master spark://spark1:7077 --yes
        # undo the change
        rmqctl undo /mnt/incident/broker-a/store --yes
    """,
)
@stores_argument
@click.option(
    "--what",
    type=click.Choice(WHAT),
    default="all",
    help="What to rebuild: the queues, the index, or all.",
)
@click.option(
    "--all-topics", is_flag=True, help="Also rebuild queues of deleted topics, which config/topics.json does not list."
)
@profile_option("Write the index as brokers of this version do.")
@spark_target_options
@change_options
@output_option("table", "json", "jsonl")
@progress_option
def command(
    stores: tuple[Path, ...],
    what: str,
    all_topics: bool,
    profile: Profile | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> int:
    """Rebuild queues and index from the log with Spark.

    `rmqctl job rebuild` and `rmqctl rebuild` write identical files. One task of Spark builds one store, and up to 8
    stores are built at the same time. For one store after the other, rmqctl shows the plan, asks for confirmation, and
    makes the change. `rmqctl undo` can undo the change. A problem with one store does not stop the rebuild of the other
    stores. The exit code is the worst exit code of all stores: 0 is the best code, then 3, then 1, then the other codes
    in ascending order. rmqctl checks all stores before it starts Spark. Ctrl-C ends the job: changes that are made
    stay, and all other stores are unchanged.

    Every executor must have access to STORE under the same path, and needs the libraries of rmqctl (numba, numpy, ...).
    rmqctl sends its own code to the executors. The tasks of Spark write the new queues and the new index beside the old
    files, in STORE/.rmqctl. After a check, the new files replace the old files. If the executors have no right to write
    there, this machine writes the new files. If a worker dies, another worker runs the same task again. This job needs
    the extra `spark`.

    If root runs this job without --as-root, rmqctl and Spark run as the owner of the store. Without --as-root, all
    stores of a job must belong to one user. The owner of the stores must have the right to read Python, rmqctl and
    Java.
    """
    if len(stores) > 1 and kept("broker_conf") is not None:
        raise click.UsageError("--broker-conf describes one broker: give only one STORE")
    if len(stores) > 1 and output == "json":
        raise click.UsageError("-o json prints one document: for several stores, use -o jsonl, one line each")
    _check_different(stores)
    selected = selection(what, RebuildOptions(all_topics=all_topics))
    how = HowToRebuild(dry_run, yes, output, 1, selected, profile=profile)

    ready: dict[Path, _Ready] = {}
    codes = {store: _attempt(partial(_look, store, ready, dry_run=dry_run)) for store in stores}
    if ready:
        check_can_ask(yes=yes or dry_run)
        from rmqctl.spark.scan.store_tasks import warm_up_tasks

        warmed_up(warm_up_kernels)
        warmed_up(warm_up_tasks)
        if not dry_run:
            _act_as_owner_with_spark({store: one.logs for store, one in ready.items()})
        with spark_session() as spark:
            headed = len(stores) > 1 and output == "table"
            codes.update(_rebuild_all(ready, how, spark, headed=headed))
    return max(codes.values(), key=_badness)


def _check_different(stores: Sequence[Path]) -> None:
    """Raise UsageError if two paths lead to the same store.

    A lock does not keep two changes of this process apart.
    """
    found: dict[tuple[int, int], Path] = {}
    for store in dict.fromkeys(stores):
        with suppress(OSError):  # reported when the store is opened
            stat = store.stat()
            first = found.setdefault((stat.st_dev, stat.st_ino), store)
            if first != store:
                raise click.UsageError(f"{quoted(first)} and {quoted(store)} are the same store: give it once")


@contextmanager
def _opened(store: Path) -> Iterator[tuple[ReadOnlyStore, Fingerprint]]:
    """Open a store for a rebuild. Yield the store and a fingerprint of its files.

    Raises BadRequest if the store is a URL.
    """
    if is_remote(store):
        raise BadRequest(
            "only a store on this host's own file systems can be rebuilt", path=root_text(store), hint="copy it"
        )
    opened = open_store(store)
    try:
        fingerprint = opened.fingerprint()
        check_store(opened)
        yield opened, fingerprint
    finally:
        opened.close()


def _look(store: Path, ready: dict[Path, _Ready], *, dry_run: bool) -> int:
    """Check that a store may be rebuilt, and add the store to `ready`.

    Raises RmqctlError if the store may not be rebuilt.
    """
    with _opened(store) as (found, _):
        if not dry_run:
            other_owner(found.path.root, found.path.commitlogs)
        ready[store] = _Ready(found.path.commitlogs, found.commit_log.size)
        return int(ExitCode.CLEAN)


def _act_as_owner_with_spark(stores: Mapping[Path, Sequence[Path]]) -> None:
    """Change to the user that owns the stores, before Spark starts.

    Spark's JVM and workers share files, so all of them must run as one user. Raises ChangeFailed if the stores belong
    to several users, or if the owner has no access to a file that Spark needs.
    """
    needed = [Path(sys.executable), Path(rmqctl.__file__), *_pyspark()]
    act_as_owner_of(stores)
    for path in needed:
        if not os.access(path, os.R_OK):
            hint = "install rmqctl where that user may read it, or give --as-root"
            raise ChangeFailed(
                "the owner of the store cannot read it, so Spark cannot run as that user",
                path=str(path),
                hint=hint,
            )


def _pyspark() -> Iterator[Path]:
    """Yield the file that Python would import as PySpark, if PySpark is installed."""
    found = find_spec("pyspark")
    if found is not None and found.origin is not None:
        yield Path(found.origin)


class _Ready(NamedTuple):
    """A store that may be rebuilt, with the folders of its log.

    `log_size` is in bytes.
    """

    logs: Sequence[Path]
    log_size: int


class _Begun(NamedTuple):
    """The rebuild of a store, and everything that is open for it."""

    run: RebuildRun
    opened: ExitStack


def _rebuild_all(
    ready: Mapping[Path, _Ready], how: HowToRebuild, spark: SparkSession, *, headed: bool
) -> Iterator[tuple[Path, int]]:
    """Rebuild several stores at the same time.

    Yield each store, in order, and its exit code.
    """
    from rmqctl.spark.session.session import cancel_jobs

    progress = {store: RelayedProgress() for store in ready}
    build = partial(_build, how=how, spark=spark, progress=progress)
    with prepared(list(ready), build, partial(cancel_jobs, spark), lambda begun: begun.opened.close()) as result_of:
        for store, one in ready.items():
            shown = partial(progress[store].shown, kept("progress_mode"), one.log_size, "rebuild")
            yield store, _attempt(partial(_finish, store, result_of, how, shown, headed=headed))


def _build(store: Path, *, how: HowToRebuild, spark: SparkSession, progress: Mapping[Path, RelayedProgress]) -> _Begun:
    """Open a store, and let a task of Spark build the new files."""
    with ExitStack() as stack:
        found, fingerprint = stack.enter_context(_opened(store))
        found.commit_log.on_progress = progress[store].advance  # if this machine has to read the log
        in_task = partial(_in_task, spark, found, progress[store].advance)
        run = stack.enter_context(RebuildRun(found, fingerprint, replace(how, in_task=in_task)))
        run.build()
        return _Begun(run, stack.pop_all())


def _in_task(
    spark: SparkSession,
    store: ReadOnlyStore,
    advance: Callable[[int], None],
    work: Callable[[ReadOnlyStore], BuiltInTask | Refused],
) -> BuiltInTask | Refused:
    """Call `work` with the store in a task of Spark."""
    from rmqctl.operations.rebuild.rebuild_in_task import BuiltInTask
    from rmqctl.spark.scan.store_tasks import in_tasks

    with in_tasks(spark, {store: work}) as jobs:
        found = jobs[store]()
    if isinstance(found, BuiltInTask):
        advance(store.commit_log.size)
    return found


def _finish(
    store: Path,
    result_of: Callable[[Path], _Begun],
    how: HowToRebuild,
    shown: Callable[[], AbstractContextManager[None]],
    *,
    headed: bool,
) -> int:
    """Wait for the new files of a store, show the plan, and make the change."""
    with nullcontext() if how.dry_run else ChangeInterruption(more_follows=True) as interruption:
        with shown():
            run, opened = result_of(store)
        with opened:
            run.note_assumed_sizes()
            if headed:
                print(f"{printable(str(store))}:")
            return run.look() if interruption is None else run.make(interruption)


def _attempt(one: Callable[[], int]) -> int:
    """Run the work on one store, and return the exit code for the store.

    An error is reported, and does not stop the work on the other stores.
    """
    try:
        return one()
    except BrokenPipeError:  # nobody reads the plans any more
        raise
    except (RmqctlError, OSError) as error:
        return report_error(error)


def _badness(code: int) -> int:
    return BEST_FIRST.index(code) if code in BEST_FIRST else len(BEST_FIRST) + code
