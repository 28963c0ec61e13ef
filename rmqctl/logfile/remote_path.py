"""Paths of stores that no file system of this host has: s3://bucket/store, gs://, abfs://, hdfs://.

As text they are URLs. As a Path, which would make one slash of two and look for it in the working directory, s3://bucket/store is
/s3:/bucket/store; of a URL that names no host, hdfs:///store, it is /hdfs:/@/store.
"""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/(?P<rest>/.+)", re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")
_NO_HOST = "@"
FILE = "file"


def root_path(text: str) -> Path:
    """The absolute path of what a URL, or a path, names."""
    found = _URL.fullmatch(text)
    if found is None:
        return Path(text).absolute()
    scheme, rest = found["scheme"], found["rest"][1:]
    if scheme == FILE:
        return Path(rest).absolute()
    return Path("/", f"{scheme}:", _NO_HOST if rest.startswith("/") else "", rest.lstrip("/"))


def root_text(path: Path) -> str:
    """The same as people write it: a URL, or the path."""
    if not is_remote(path):
        return str(path)
    _, scheme, host, *rest = path.parts
    return f"{scheme}//{'/'.join(('' if host == _NO_HOST else host, *rest))}"


def is_remote(path: Path) -> bool:
    """Whether a path stands for a URL."""
    return len(path.parts) > 2 and path.is_absolute() and _SCHEME.fullmatch(path.parts[1]) is not None
