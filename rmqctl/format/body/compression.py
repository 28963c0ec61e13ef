"""Bodies that a client has compressed (SYSFLAG 1).

Bits 8 to 10 of SYSFLAG are the compression type:

    0, 3    zlib    all clients; the only type before 4.9
    1       lz4     frames, as LZ4FrameOutputStream of lz4-java writes them
    2       zstd    frames
    4 to 7          unknown: no client up to 5.5.1 can decompress them

The rule is CompressorFactory and MessageDecoder of 4.9.7 and 5.3.3. A client reads all frames of an lz4 or zstd body,
and nothing after the end of a zlib stream.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from rmqctl.format.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT, compression

PLAIN_SIZE_MAX = 64 * 1024 * 1024
FRAMES_MAX = 1000  # of one body; a producer writes one
_ZSTD_INPUT = 256  # bytes at once; zstd cannot limit its output, and makes at most 128 KiB of each 4 bytes


class BodyError(ValueError):
    """A body that cannot be decompressed; the text says why."""


def decompressed(sys_flag: int, body: bytes | memoryview) -> bytes:
    """Return the body as its producer sent it, at most PLAIN_SIZE_MAX bytes.

    Raises BodyError if the compression type is unknown, if the body is not of this type, or if it would be larger.
    """
    if not sys_flag & COMPRESSED or not body:
        return bytes(body)
    name = compression(sys_flag)
    if name not in _PIECES:
        number = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
        raise BodyError(f"compression type {number} is unknown (SYSFLAG {sys_flag}, bits 8 to 10)")
    plain = bytearray()
    try:
        for piece in _PIECES[name](bytes(body)):
            plain += piece
            if len(plain) > PLAIN_SIZE_MAX:
                raise BodyError(f"larger than {PLAIN_SIZE_MAX >> 20} MiB after decompression from {name}")
    except EOFError:
        raise BodyError(f"its {name} data ends too early") from None
    except (zlib.error, RuntimeError) as error:  # RuntimeError: lz4's
        raise BodyError(f"not {name}, as SYSFLAG {sys_flag} says: {error}") from None
    return bytes(plain)


def _zlib(body: bytes) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    yield inflater.decompress(body, PLAIN_SIZE_MAX + 1)
    if not inflater.eof:
        raise EOFError


def _lz4(body: bytes) -> Iterator[bytes]:
    from lz4.frame import LZ4FrameDecompressor

    for _ in range(FRAMES_MAX):
        frame = LZ4FrameDecompressor()
        yield frame.decompress(body, PLAIN_SIZE_MAX + 1)
        if not frame.eof:
            raise EOFError
        body = frame.unused_data or b""
        if not body:
            return
    raise BodyError(f"more than {FRAMES_MAX} lz4 frames")


def _zstd(body: bytes) -> Iterator[bytes]:
    from zstandard import ZstdDecompressor, ZstdError

    frame = ZstdDecompressor().decompressobj()
    for start in range(0, len(body), _ZSTD_INPUT):
        piece = body[start : start + _ZSTD_INPUT]
        while piece:
            try:
                yield frame.decompress(piece)
            except ZstdError as error:
                raise RuntimeError(error) from None
            piece = frame.unused_data if frame.eof else b""
            if frame.eof and (piece or start + _ZSTD_INPUT < len(body)):
                frame = ZstdDecompressor().decompressobj()
    if not frame.eof:
        raise EOFError


_PIECES = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
