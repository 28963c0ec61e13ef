"""numba without the settings of a file `.numba_config.yaml`.

numba reads this file from the current folder during the import of numba, and again at each compilation. The file can
set the folder from which numba loads compiled code. The current folder may be a store, so anybody may have written the
file `.numba_config.yaml`. Only this module imports numba. The user's own settings (NUMBA_... in the environment) still
have effect.
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
    """Make numba unable to import YAML.

    numba then cannot read `.numba_config.yaml`, and prints a warning about this file.
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
