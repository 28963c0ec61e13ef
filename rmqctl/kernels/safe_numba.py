"""numba, without the settings that it takes from a file `.numba_config.yaml` in the folder that a command is run in.

That folder may be a store, and the file anybody's: it says where compiled code comes from. numba reads it while it is
imported, and again whenever it compiles. Only this module imports numba. The user's own settings, NUMBA_... in the
environment, stay.
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
    """Without YAML numba cannot read the file, and says so in a warning."""
    before = {name: sys.modules.pop(name) for name in ("yaml",) if name in sys.modules}
    sys.modules["yaml"] = None  # type: ignore[assignment]  # Python's way to say that an import fails
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        del sys.modules["yaml"]
        sys.modules.update(before)


with _no_yaml():
    from numba import config, njit, types
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, UserProvidedCacheLocator
    from numba.extending import intrinsic

setattr(config, "_config_fname", "")  # noqa: B010 -- when it compiles

__all__ = [
    "CompileResultCacheImpl",
    "FunctionCache",
    "NullCache",
    "UserProvidedCacheLocator",
    "config",
    "intrinsic",
    "njit",
    "types",
]
