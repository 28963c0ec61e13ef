"""Compressed bodies: what the real client of 5.3.3 wrote is read, and what no client can decompress is said."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import zstandard
from lz4 import frame

from rmqctl.format.body.compression import PLAIN_SIZE_MAX, BodyError, decompressed

ZLIB, OLD_ZLIB, LZ4, ZSTD = 0x301, 0x1, 0x101, 0x201
# setCompressType of the real client, with a body that repeats `needle-in-body `
OF_CLIENTS = {
    ZLIB: "785eedc7b10980301000c055e46b53d8661be5530812259d88bb3b8770d7dd13e7c836a22e735c6b468dde5a1eadecbd6c67de93aaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaea2f1aef075436da09",
    LZ4: "04224d1860707355000000ff127b226f72646572223a312c22706164223a226e6565646c652d696e2d626f6479200f00ffffffffffff"
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff0850647920227d00000000",
    ZSTD: "28b52ffd005864010034027b226f72646572223a312c22706164223a226e6565646c652d696e2d626f647920227d01009147c2cf2701"
    "0000",
}
COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    ZLIB: zlib.compress,
    OLD_ZLIB: zlib.compress,
    LZ4: frame.compress,
    ZSTD: zstandard.ZstdCompressor().compress,
}
KINDS = pytest.mark.parametrize("sys_flag", COMPRESS)


@pytest.mark.parametrize("sys_flag", OF_CLIENTS)
def test_a_client_s_body(sys_flag: int) -> None:
    plain = decompressed(sys_flag, bytes.fromhex(OF_CLIENTS[sys_flag]))
    assert plain == b'{"order":1,"pad":"' + b"needle-in-body " * 700 + b'"}'


def test_a_body_of_many_frames_is_refused() -> None:
    """Each frame is read on its own; a body of 4 MiB could have 380,000 empty ones."""
    assert decompressed(LZ4, 2 * frame.compress(b"x")) == b"xx"
    with pytest.raises(BodyError, match="more than 1000 lz4 frames"):
        decompressed(LZ4, 100_000 * frame.compress(b""))


@KINDS
def test_a_body_is_bounded(sys_flag: int) -> None:
    compress = COMPRESS[sys_flag]
    assert len(decompressed(sys_flag, compress(bytes(PLAIN_SIZE_MAX)))) == PLAIN_SIZE_MAX
    with pytest.raises(BodyError, match="larger than 64 MiB"):
        decompressed(sys_flag, compress(bytes(PLAIN_SIZE_MAX + 1)))


@KINDS
def test_a_cut_or_foreign_body_is_said(sys_flag: int) -> None:
    body = COMPRESS[sys_flag](bytes(range(256)) * 20)
    for cut in {1, 5, len(body) // 2, len(body) - 1}:
        with pytest.raises(BodyError, match="ends too early"):
            decompressed(sys_flag, body[:cut])
    with pytest.raises(BodyError, match=f"SYSFLAG {sys_flag} says"):
        decompressed(sys_flag, b"no compressed body")


@pytest.mark.parametrize("sys_flag", [LZ4, ZSTD])
def test_all_frames_of_a_body_are_read(sys_flag: int) -> None:
    compress = COMPRESS[sys_flag]
    assert decompressed(sys_flag, compress(b"a" * 300) + compress(b"b")) == b"a" * 300 + b"b"
    with pytest.raises(BodyError):
        decompressed(sys_flag, compress(b"a") + b"no frame")


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_unknown_type_is_named(number: int) -> None:
    with pytest.raises(BodyError, match=f"compression type {number} is unknown"):
        decompressed(1 | number << 8, b"body")


def test_a_body_that_is_not_compressed_stays() -> None:
    assert decompressed(0x300, b"plain") == b"plain"  # a type without COMPRESSED
    assert decompressed(LZ4, b"") == b""
