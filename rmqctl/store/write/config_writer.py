"""config/*.json, written as a broker writes it.

The files are in fastjson's dialect. The previous content is kept in `.bak` (MixAll.string2File). To write the file, 4.x
renames a `.tmp` file, and 5.x overwrites the file. rmqctl uses a rename to replace the file and its `.bak`. Because of
these renames, each file is complete after a crash, with either the old or the new content.

A main file that is empty or broken does not become the `.bak`, because the existing `.bak` may be good. Brokers also
replace a good `.bak` by an empty or broken main file.
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
