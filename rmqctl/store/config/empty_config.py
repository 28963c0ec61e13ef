"""The config files without entries that are valid to a broker.

A broker reads the `.bak` if a file does not exist, has 0 bytes, or is not valid. A broker exits if the `.bak` is not
valid either (ConfigManager.load). If a file is valid, but has no entries, a broker does not read the `.bak`. The JSON
parser decides which other texts mean "no entries" to a broker:

| text | fastjson 1 (brokers up to 5.3.4) | fastjson 2 (5.4.0 and later) |
|---|---|---|
| `null` | no entries | no entries |
| `[]` | no entries | not valid |
| only blanks | no entries, but not valid in one file (see below) | not valid |

fastjson 1 parses most files with generated code, which accepts blanks. Without generated code, it does not accept
blanks: in subscriptionGroup.json (4.7.1 to 5.0.0) and in consumerOffset.json (5.0.0 to 5.3.4).
"""

from __future__ import annotations

from pathlib import Path

from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.config.config_file import BACKUP_SUFFIX, CONFIG_SIZE_MAX, GROUPS_CONFIG, OFFSETS_CONFIG

_BLANKS = b" \t\r\n"
_REFUSES_BLANKS = {PROFILE_4_7: GROUPS_CONFIG, PROFILE_4_9: GROUPS_CONFIG, PROFILE_5_3: OFFSETS_CONFIG}  # fastjson 1


def starts_empty(storage: Storage, folder: Path, name: str, profile: Profile) -> bool:
    """Return whether a broker starts without the entries of config/`name`.

    The caller knows that rmqctl can read neither the file nor its `.bak`. The result is False if the broker exits.
    """
    main, backup = (_read(storage, folder / (name + suffix)) for suffix in ("", BACKUP_SUFFIX))
    return not backup or any(_has_no_entries(text, name, profile) for text in (main, backup))


def _read(storage: Storage, path: Path) -> bytes:
    """Return the bytes of a file, or b"" if the file does not exist.

    For a file that cannot be read, the result is a text that is not valid.
    """
    try:
        return storage.read_file(path, CONFIG_SIZE_MAX) if storage.entry(path).kind is Kind.FILE else b""
    except OSError:
        return b"?"


def _has_no_entries(text: bytes, name: str, profile: Profile) -> bool:
    """Return whether a text is valid to a broker, and has no entries."""
    stripped = text.strip(_BLANKS)
    if stripped == b"null":
        return True
    if profile not in _REFUSES_BLANKS:
        return False
    has_only_blanks = bool(text) and not stripped
    return stripped == b"[]" or (has_only_blanks and name != _REFUSES_BLANKS[profile])
