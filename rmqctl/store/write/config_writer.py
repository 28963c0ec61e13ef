"""Write the files config/*.json in the same way as a broker.

Config files use fastjson's dialect of JSON. The previous content of a config file is kept in its `.bak`
(MixAll.string2File). To write a config file, 4.x renames a `.tmp` file, and 5.x overwrites the config file. rmqctl
replaces a config file or its `.bak` by a rename. Therefore, after a crash, a config file has either its complete old
content or its complete new content.

rmqctl does not replace the `.bak` by an empty or broken config file, because the existing `.bak` may be good. A broker
replaces the `.bak` without a check.
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
