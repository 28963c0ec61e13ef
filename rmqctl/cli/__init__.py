"""The command line of rmqctl.

Each verb has one file. No other package prints or reads environment variables.
"""

import os
import sys


def _leave_current_folder() -> None:
    """Take nothing from the current folder by a relative entry of PYTHONPATH or PATH.

    `PYTHONPATH=$PYTHONPATH:/opt/lib` often has an empty one. The current folder may be a store, with modules and
    programs that anyone can put there. Processes that rmqctl starts do not get such entries either.
    """
    for name in ("PATH", "PYTHONPATH"):
        entries = os.environ.get(name, "").split(os.pathsep)
        if entries == [""]:  # as if it were not set
            continue
        relative = {entry for entry in entries if not entry.startswith(os.sep)}
        os.environ[name] = os.pathsep.join(entry for entry in entries if entry not in relative)
        for entry in relative if name == "PYTHONPATH" else ():
            if (folder := os.path.abspath(entry)) in sys.path:  # noqa: PTH100 -- an import of pathlib could be anybody's
                sys.path.remove(folder)


_leave_current_folder()
