"""Write the files config/*.json in the same way as a broker.

They use fastjson's dialect of JSON, and the previous content is kept in the `.bak` (MixAll.string2File). 4.x renames a
`.tmp` file, 5.x overwrites the config file. rmqctl replaces it, and its `.bak`, by a rename: after a crash, a config
file has its old or its new content completely.

Unlike a broker, rmqctl does not replace the `.bak` by an empty or broken config file, because the existing `.bak` may
be good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.store.config.config_file import CONFIG_SIZE_MAX, load_config
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage


def write_config(storage: WritableStorage, folder: Path, name: str, content: dict[str, Any]) -> None:
    """Write config/`name`. Raises OSError."""
    path = folder / name
    if load_config(storage, folder, name).source == path:
        storage.replace_file(folder / f"{name}.bak", storage.read_file(path, CONFIG_SIZE_MAX))
    storage.replace_file(path, fastjson_bytes(fastjson_dumps(content)))
