"""Import numba so that numba ignores the settings file `.numba_config.yaml`.

numba reads it from the current folder when it is imported, and again at each compilation. It can set the folder from
which numba loads compiled code, and if the current folder is a store, anybody may have put it there. Only this module
imports numba, which still reads the environment variables `NUMBA_*`.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _no_yaml() -> Iterator[None]:
    """Prevent numba from importing YAML, without which it cannot read the file.

    Its warning about `.numba_config.yaml` is not shown.
    """
    before = {name: sys.modules.pop(name) for name in ("yaml",) if name in sys.modules}
    sys.modules["yaml"] = None  # type: ignore[assignment]  # Python's way to say that an import fails
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        del sys.modules["yaml"]
        sys.modules.update(before)


with _no_yaml():
    from numba import config, from_dtype, njit, types
    from numba.extending import intrinsic

setattr(config, "_config_fname", "")  # noqa: B010 -- when it compiles

__all__ = [
    "config",
    "from_dtype",
    "intrinsic",
    "njit",
    "types",
]
