"""The bag that `acquire` writes, and `attest` reads: a BagIt folder (RFC 8493).

| in DEST | what it holds |
|---|---|
| `data/NAME/` | the files of the store; NAME is the name of its folder |
| `manifest-sha256.txt` | SHA-256 and path of each file in data/ |
| `rmqctl-files.jsonl` | a line a run (clock, host, command, tool), and a line a file, link or folder of the store, in the order of copying; if a path has several, the last one holds |
| `bag-info.txt`, `bagit.txt` | number of bytes and files; version of BagIt |
| `rmqctl-statement.dsse.json` | with --sign: an in-toto Statement over both lists, in a DSSE envelope |
| `tagmanifest-sha256.txt` | SHA-256 and path of the five above; written last, and so the sign of a whole bag |

The SHA-256 of tagmanifest-sha256.txt is the head: who knows it can tell any other bag from this one.

Queues of RocketMQ have names such as `%RETRY%group`. BagIt 1.0 wants `%25` for each `%` in a manifest, which neither
`sha256sum -c` nor any validator that we know of understands; before 1.0, paths were written as they are. So a bag with
a `%` in a path says that it is one of version 0.97. Names that no manifest can hold (with a line end, or not UTF-8)
are escaped in data/ itself (`payload_name`).
"""  # noqa: E501 -- a table

from __future__ import annotations

import base64
import json
import re
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

DATA = "data"
FILES, MANIFEST, TAG_MANIFEST = "rmqctl-files.jsonl", "manifest-sha256.txt", "tagmanifest-sha256.txt"
BAGIT, INFO, STATEMENT = "bagit.txt", "bag-info.txt", "rmqctl-statement.dsse.json"
REQUIRED_TAGS = (BAGIT, INFO, MANIFEST, FILES)
CHUNK = 1024 * 1024  # bytes under one SHA-256
ZEROS = sha256(bytes(CHUNK)).hexdigest()
NAME_MAX = 255
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_UNFIT = re.compile(r"[^ -~]|=(?=[0-9A-F]{2})|%(?=0[AaDd])| $")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def payload_name(name: str) -> str:
    """Return the name in data/ of a file or folder of the store.

    It is the same, but for the bytes that a line of a manifest cannot hold, or that `bagit` decodes: `=0A` for a line
    feed. No two names of a folder become one.
    """

    def escape(found: re.Match[str]) -> str:
        letter = found[0]
        if letter > "~" and letter.isprintable():
            return letter
        return "".join(f"={byte:02X}" for byte in letter.encode("utf-8", "surrogateescape"))

    safe = _UNFIT.sub(escape, name)
    is_short = len(safe.encode()) <= NAME_MAX
    return safe if is_short else f"={blake2b(name.encode('utf-8', 'surrogateescape'), digest_size=32).hexdigest()}"


def list_lines(digests: Mapping[str, str]) -> bytes:
    """Return the text of a manifest, which `sha256sum -c` reads."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def read_list(storage: Storage, path: Path) -> tuple[dict[str, str], bool]:
    """Return a manifest, path to SHA-256, and whether it is as we write it.

    Empty and False without the file. Raises OSError.
    """
    try:
        data = storage.read_start(path, storage.details(path)["size"])
    except FileNotFoundError:
        return {}, False
    found = [line for text in data.decode(errors="replace").split("\n") if (line := _LINE.fullmatch(text))]
    digests = {line[2]: line[1] for line in found}
    return digests, list_lines(digests) == data


def file_lines(storage: Storage, descriptor: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line of rmqctl-files.jsonl, with the position of its end.

    They end before the first line that is not whole, as a kill leaves it. Raises OSError.
    """
    position, rest = 0, b""
    while data := storage.read(descriptor, position + len(rest), CHUNK):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                return
            position += len(line) + 1
            if isinstance(row, dict):
                yield position, row


def tag_files(digests: Mapping[str, str], size: int, about: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the contents of manifest, bag-info.txt and bagit.txt.

    `size` is the sum of all files in bytes, `about` the line of the run in rmqctl-files.jsonl.
    """
    version = "0.97" if any("%" in path for path in digests) else "1.0"
    info = f"Bag-Software-Agent: rmqctl {about['version']}\nBagging-Date: {about['startedAt'][:10]}\n"
    return {
        MANIFEST: list_lines(digests),
        INFO: f"{info}Payload-Oxum: {size}.{len(digests)}\n".encode(),
        BAGIT: f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode(),
    }


def signed_statement(digests: Mapping[str, str], about: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    """Return a DSSE envelope with an in-toto Statement on the files `digests`.

    `sign` gets the bytes that DSSE wants signed, its pre-authentication encoding (PAE), and returns the signature.
    """
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "urn:rmqctl:acquire:1",
        "predicate": about,
    }
    payload = json.dumps(statement).encode()
    encoded = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    signature = {"keyid": "", "sig": base64.b64encode(sign(encoded)).decode()}
    envelope = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(payload).decode(), "signatures": [signature]}
    return json.dumps(envelope, indent=2).encode() + b"\n"


def digest_of(storage: Storage, path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    whole, position = sha256(), 0
    descriptor = storage.open(path)
    try:
        while data := storage.read(descriptor, position, 4 * CHUNK):
            whole.update(data)
            position += len(data)
    finally:
        storage.close(descriptor)
    return whole.hexdigest()
