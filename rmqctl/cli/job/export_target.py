"""The folder to which `job export` and `job sql` write, with its options."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import remark
from rmqctl.errors import BadRequest
from rmqctl.logfile.system.remote_storage import is_remote, place_of, root_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rmqctl.spark.question.export.local_target import LocalTarget
    from rmqctl.spark.question.export.remote_target import RemoteTarget

MODES = click.Choice(("error", "overwrite", "append"))


@contextmanager
def export_target(
    target: Path, stores: Sequence[Path], mode: str, suffix: str, *, one_file: bool = False
) -> Iterator[LocalTarget | RemoteTarget]:
    """Remove what killed exports have left, and yield the target of an export.

    It is a folder, in which `suffix` is the end of the names of files, or a file of this host. Raises BadRequest if the
    target is inside a store, or if `mode` does not allow the export. Raises OSError.
    """
    from rmqctl.spark.question.export.earlier_files import Mode
    from rmqctl.spark.question.export.local_target import FileTarget, local_target
    from rmqctl.spark.question.export.remote_target import remote_target

    for store in stores:
        if place_of(target).is_relative_to(place_of(store)):
            raise BadRequest(
                "is inside the store",
                path=root_text(target),
                hint="choose a folder outside the store: rmqctl never writes into a store that it inspects",
            )
    opened: Callable[..., AbstractContextManager[LocalTarget | RemoteTarget]]
    opened = remote_target if is_remote(target) else local_target
    if one_file:
        opened = partial(local_target, kind=FileTarget)
    with opened(target, Mode(mode), suffix) as there:
        for folder in there.left.removed:
            remark(f"{folder}: removed, a killed export had left it")
        for folder in there.left.unknown:
            remark(f"{folder}: an export that was killed may have left it; remove it yourself if nothing uses it")
        yield there
