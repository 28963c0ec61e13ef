"""The user of the operating system that changes the files of a store.

If root changes a store of another user, the process changes its user to the owner of the store.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import rmqctl
from rmqctl.cli.output.render import import_late_ones, remark
from rmqctl.cli.shared.option_class import kept, kept_option
from rmqctl.errors import ChangeFailed
from rmqctl.text import quoted

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from rmqctl.logfile.access.owner import Owner

ROOT_BECOMES_THE_OWNER = (
    "If root starts rmqctl, rmqctl switches to the user that owns STORE before the first write, and says so in one "
    "line. New files belong to that user. rmqctl then has only the rights of that user. Therefore a symbolic link in "
    "the store cannot lead rmqctl to a file that only root may change. If the files of the store belong to several "
    "users, rmqctl changes nothing (exit 4): chown the files, or give --as-root to stay root."
)
WHICH_USER = (
    "Run it as the user that the broker runs as, or as root.",
    ROOT_BECOMES_THE_OWNER,
    "Any other user must be able to write to all that the change touches; this is checked before the first change.",
)
WHICH_USER_DRY_RUN = "--dry-run only reads. As root it reports as which user the change itself would run."


as_root_option = kept_option(
    "--as-root",
    is_flag=True,
    help="Stay root, even if the store belongs to another user, or if its files belong to several users.",
)


def takes_as_root(command: click.Command) -> bool:
    """Return whether a verb has the option --as-root."""
    return any("--as-root" in parameter.opts for parameter in command.params)


def act_as_owner(store: Path, logs: Sequence[Path] = ()) -> None:
    """If root runs the verb, change to the owner of the store, and report the owner.

    Call this function before a file of the store is opened for writing. Call this function after all imports, because
    the owner may have no right to read the modules. `logs` are the folders of the log outside the store. Raises
    ChangeFailed if the files of the store belong to several users. With --as-root, the process keeps its user.
    """
    act_as_owner_of({store: logs})


def act_as_owner_of(stores: Mapping[Path, Sequence[Path]]) -> None:
    """If root runs the verb, change to the user that owns all stores.

    `stores` maps each store to the log folders outside the store. Raises ChangeFailed if the stores belong to several
    users.
    """
    from rmqctl.logfile.access.owner import Owner, become

    owners = {store: other_owner(store, logs) for store, logs in stores.items()}
    if len(set(owners.values())) > 1:
        who = ", ".join(f"{quoted(store)} to {owner or Owner(0, 0)}" for store, owner in owners.items())
        hint = "rebuild the stores of each user by themselves, or give --as-root to go on as root"
        raise ChangeFailed(f"the stores belong to several users: {who}; nothing was changed", hint=hint)
    owner = next(iter(owners.values()))
    if owner is not None:
        import_late_ones()
        _import_package()
        become(owner, [folder for store, logs in stores.items() for folder in (store, *logs)])
        remark(f"running as {owner}, the owner of the store{'s' if len(stores) > 1 else ''}")


def _import_package() -> None:
    """Import every module of rmqctl that a verb without Spark may need.

    After the change of the user, the process may have no right to read the files of rmqctl.
    """
    for module in pkgutil.walk_packages(rmqctl.__path__, "rmqctl.", onerror=lambda _: None):
        if not module.name.startswith(("rmqctl.spark", "rmqctl.cli.job", "rmqctl.__main__")):
            importlib.import_module(module.name)


def note_owner(store: Path, logs: Sequence[Path] = ()) -> None:
    """Report as which user rmqctl would make the change without --dry-run.

    If `other_owner` raises ChangeFailed, report that the change would be refused.
    """
    try:
        owner = other_owner(store, logs)
    except ChangeFailed as error:
        remark(f"the change itself would be refused: {error}")
    else:
        if owner is not None:
            remark(f"the change itself would run as {owner}, the owner of the store")


def other_owner(store: Path, logs: Sequence[Path]) -> Owner | None:
    """Return the owner of the store, or None if the process keeps its user.

    Raises ChangeFailed if the files belong to several users, if their owner cannot be read, or if they lie in a copy of
    `rmqctl acquire`.
    """
    from rmqctl.logfile.access.owner import Owner, is_root, owner_of, owners_in

    for folder in (store, *logs):
        _check_is_no_evidence(folder)
    if not is_root() or kept("as_root"):
        return None
    try:
        owner, owners = owner_of(store), owners_in((store, *logs))
    except OSError as error:
        raise ChangeFailed(
            f"its owner cannot be read: {error.strerror}; nothing was changed", path=str(error.filename)
        ) from error
    if owners - {owner.uid}:
        who = ", ".join(str(Owner(uid, uid)) for uid in sorted(owners))
        hint = f"run `chown -R {owner.uid} {quoted(store)}`, or give --as-root to go on as root"
        raise ChangeFailed(f"its files belong to several users: {who}; nothing was changed", path=str(store), hint=hint)
    return owner if owner.uid else None


def _check_is_no_evidence(folder: Path) -> None:
    if hint := copy_of_evidence(folder):
        raise ChangeFailed("it is evidence, of `rmqctl acquire`: nothing was changed", path=str(folder), hint=hint)


def copy_of_evidence(folder: Path) -> str:
    """Return how to copy a folder that lies in a bag of `acquire`, or ""."""
    from rmqctl.operations.acquire.bag import DATA, FILES

    real = folder.resolve()
    for above in (real, *real.parents):
        if above.name == DATA and (above.parent / FILES).is_file():
            name = (real / "x").relative_to(above).parts[0]
            return f"work on a copy: `cp -a --sparse=always {quoted(above / name)} COPY`"
    return ""
