"""A log whose topics are names that a browser or a terminal might act on."""

from __future__ import annotations

from pathlib import Path

from tests.support.log_maker import Record, encode

HOSTILE = (
    "<script>alert(1)</script>",
    '"onmouseover="alert(1)',
    "safe\u202eexe.",
    "{{ 7 * 7 }}",
    "</title><img src=x>",
)


def hostile_store(tmp_path: Path, topics: list[str], *, scattered: bool = False) -> Path:
    """A log with a message of each topic, in two intervals or scattered over a century."""
    out, end = [], 0
    for number, topic in enumerate(topics):
        stored = number * 20_000_000 if scattered else 1_795_252_516_848 + number
        out.append(
            encode(
                Record(topic=topic, body=bytes(len(topics) - number if number < 9 else 1), store_timestamp=stored), end
            )
        )
        end += len(out[-1])
    folder = tmp_path / "hostile" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(b"".join(out).ljust(1 << 26, b"\0"))
    return folder.parent
