"""Paths of stores that no file system of this host has: s3://bucket/store, gs://, abfs://, hdfs://.

As text they are URLs. As a Path, which would make one slash of two and look for it in the working directory, s3://bucket/store is
/:s3:/bucket/store; of a URL that names no host, hdfs:///store, it is /:hdfs:/@/store. A query (?endpoint_override=http://host:9000) is kept
with the host, its slashes as %2F: /:s3:/bucket?endpoint_override=http:%2F%2Fhost:9000/store. So the URL of every path below has it.
"""

from __future__ import annotations

import re
from pathlib import Path

from rmqctl.errors import BadRequest

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<rest>.+)", re.DOTALL | re.IGNORECASE)
_SCHEME = re.compile(r":[a-z][a-z0-9+.-]+:")
_CREDENTIALS = re.compile(r"[^/@]*:[^/]*@")
_NO_HOST = "@"
_QUERY, _SLASH_IN_QUERY = "?", "%2F"
FILE = "file"


def is_url(text: str) -> bool:
    """Whether a text is a URL, and no path."""
    return _URL.fullmatch(text) is not None


def root_path(text: str) -> Path:
    """The absolute path of what a URL, or a path, names. Raises BadRequest for another host's files, and for a password."""
    found = _URL.fullmatch(text)
    if found is None:
        return Path(text).absolute()
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme == FILE:
        if not rest.startswith("/"):
            raise BadRequest(f"{text}: a file of another host", hint=f"file:///{rest} is one of this host")
        return Path(rest)
    if _CREDENTIALS.match(rest):
        hint = "it would be shown: give it as that file system's own tools find it, like AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise BadRequest(f"a {scheme}:// URL with a password in it", hint=hint)
    place, mark, query = rest.partition(_QUERY)
    host, _, inner = (_NO_HOST + place if place.startswith("/") else place).partition("/")
    return Path("/", f":{scheme}:", host + mark + query.replace("/", _SLASH_IN_QUERY), inner.lstrip("/"))


def root_text(path: Path) -> str:
    """The same as people write it: a URL, or the path."""
    if not is_remote(path):
        return str(path)
    _, scheme, host, *rest = path.parts
    host, mark, query = host.partition(_QUERY)
    place = "/".join(("" if host == _NO_HOST else host, *rest))
    return f"{scheme[1:]}//{place}{mark}{query.replace(_SLASH_IN_QUERY, '/')}"


def is_remote(path: Path) -> bool:
    """Whether a path stands for a URL."""
    return len(path.parts) > 2 and path.is_absolute() and _SCHEME.fullmatch(path.parts[1]) is not None
