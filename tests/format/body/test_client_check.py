"""Which messages clients reject: as MessageDecoder.decodes of 4.9.7 and 5.3.3 was seen to."""

from __future__ import annotations

import zlib

import pytest

from rmqctl.format.body.client_check import LZ4_START, ZSTD_START, has_bad_compression, has_bad_port
from rmqctl.format.message import Message, decode
from tests.support.log_maker import Record, encode

ZLIB = zlib.compress(b"hello world" * 50)


def message(body: bytes, sys_flag: int, changed: dict[int, int] | None = None) -> Message:
    raw = bytearray(encode(Record(body=body, sys_flag=sys_flag), 0))
    for at, port in (changed or {}).items():
        raw[at : at + 4] = port.to_bytes(4, signed=True)
    found = decode(bytes(raw), 0, 0, len(raw))
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize("at", [52, 68], ids=["born", "store"])
@pytest.mark.parametrize(
    ("port", "rejected"), [(0, False), (65535, False), (65536, True), (-1, True), (2**31 - 1, True)]
)
def test_ports(at: int, port: int, rejected: bool) -> None:
    assert has_bad_port(message(b"hello", 0, {at: port})) is rejected


@pytest.mark.parametrize(
    ("body", "sys_flag", "rejected"),
    [
        (ZLIB, 0x001, False),
        (ZLIB, 0x301, False),
        (ZLIB, 0x101, True),
        (ZLIB, 0x401, True),
        (ZLIB, 0x701, True),
        (LZ4_START + b"...", 0x101, False),
        (LZ4_START + b"...", 0x001, True),
        (ZSTD_START + b"...", 0x201, False),
        (b"hello", 0x201, True),
        (b"hello", 0x001, True),
        (b"x", 0x001, True),
        (b"", 0x401, False),
        (b"hello", 0x400, False),
    ],
)
def test_compressed_bodies(body: bytes, sys_flag: int, rejected: bool) -> None:
    assert has_bad_compression(message(body, sys_flag)) is rejected


@pytest.mark.parametrize("level", range(10))
def test_every_level_of_zlib_is_known(level: int) -> None:
    assert not has_bad_compression(message(zlib.compress(b"hello world" * 50, level), 1))
