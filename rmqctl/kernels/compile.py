"""Functions that many kernels call: numbers, bytes, CRC-32, Java's hashCode.

A kernel works on numpy arrays. numba compiles it at its first call, and it then runs without Python's GIL. C would be
1.3 to 1.6 times as fast (with one thread 22.7 instead of 17.7 GB/s for bodies of 1 KiB, and 9.4 instead of 6.2 GB/s for
bodies of 100 bytes), but a scan spends most of its time on reading files. C needs a compiler, or a wheel of rmqctl for
each platform; no tool would check its types; and the rules of `rmqctl/format` would have to be written in two
languages. Numba needs 280 MB of disk, and 0.3 s to import, so only a process that compiles a kernel imports it
(`rmqctl.kernels.native`).

A caller warms up kernels (`rmqctl.kernels.warm_up`) before their first call. That stores them in a cache for later
runs, or for a small input decides that they run as plain Python, without numba. Each kernel has one source for both,
and a caller does not need to know which of them runs.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from functools import cache
from typing import Any

import numpy as np
import zlib_ng.zlib_ng

from rmqctl.kernels.kernel import inline_kernel, native_part, part_with_plain

_U32, _I32, _I64 = (struct.Struct(code).unpack_from for code in (">I", ">i", ">q"))
_PUT_I32, _PUT_I64 = (struct.Struct(code).pack_into for code in (">i", ">q"))


def _native_only(*arguments: Any) -> Any:
    """Raise TypeError, because only compiled kernels can call this function."""
    raise TypeError(f"{len(arguments)} arguments of a part that has no form in plain Python")


# big-endian numbers of a kernel's buffer; signed ones and the 16-bit one come as int64
u32: Any = native_part("u32", lambda b, p: _U32(b, p)[0])
i32: Any = native_part("i32", lambda b, p: _I32(b, p)[0])
i64: Any = native_part("i64", lambda b, p: _I64(b, p)[0])
le64: Any = native_part("le64", _native_only)  # little-endian
put_i32: Any = native_part("put_i32", _PUT_I32)  # array, position, number
put_i64: Any = native_part("put_i64", _PUT_I64)
prefetch: Any = native_part("prefetch", lambda _b, _p: 0)
_equal64: Any = native_part("equal_in_block", _native_only)
same_bytes: Any = native_part("same_bytes", _native_only)  # both arrays must have 64 bytes from their positions on
special_in_block: Any = native_part("special_in_block", _native_only)  # the array has 64 bytes from the position on
copy_bytes: Any = native_part("copy_bytes", _native_only)
trailing_zeros: Any = native_part("trailing_zeros", _native_only)
BLOCK = 64


@part_with_plain(operator.sub)
def difference(larger: int, smaller: int) -> Any:
    """Return `larger` minus `smaller` as uint64, because int64 could overflow."""
    return np.uint64(larger) - np.uint64(smaller)


def _wrapped_total(number: int, other: int) -> int:
    return (number + other + 2**63) % 2**64 - 2**63


@part_with_plain(_wrapped_total)
def total(number: int, other: int) -> Any:
    """Return `number` plus `other`, wrapped to int64 as in Java."""
    return number + other


@inline_kernel
def u16(b: Any, p: int) -> Any:
    """Return the big-endian unsigned 16-bit number at position `p`."""
    return np.int64(b[p]) << 8 | np.int64(b[p + 1])


@cache
def crc32_address() -> int:
    """Return the address of zlib-ng's function `zng_crc32`.

    Raises OSError if the library of zlib-ng cannot be loaded, and AttributeError if it has no `zng_crc32`.
    """
    library = ctypes.CDLL(zlib_ng.zlib_ng.__file__)
    return ctypes.cast(library.zng_crc32, ctypes.c_void_p).value or 0


def _call_crc32(address: int, data: int, length: int) -> int:
    crc: int = _crc32_at(address)(0, int(data), int(length))
    return crc


@cache
def _crc32_at(address: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)(address)


call_crc32: Any = native_part("call_crc32", _call_crc32)
_WORD = 8
_LOW_BITS, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_HALF = np.uint64(0xFFFFFFFF)


@inline_kernel
def word(b: Any, start: int, end: int) -> Any:
    """Return the first eight bytes of [start, end) as a little-endian uint64.

    Missing bytes are zeros.
    """
    left = end - start
    if start + _WORD <= len(b):
        found = le64(b, start)
        return found if left >= _WORD else found & ((np.uint64(1) << np.uint64(8 * left)) - np.uint64(1))
    found = np.uint64(0)
    for i in range(min(left, _WORD)):
        found |= np.uint64(b[start + i]) << np.uint64(8 * i)
    return found


@inline_kernel
def _zero_bytes(number: Any) -> Any:
    """Return a mask whose high bits mark the zero bytes of `number`.

    Only the lowest set bit of the mask is reliable.
    """
    return (number - _LOW_BITS) & ~number & _HIGH_BITS


@inline_kernel
def find_byte(b: Any, start: int, end: int, wanted: Any) -> int:
    """Return the position of the first byte `wanted` (uint8) in [start, end).

    If there is none, return `end`. Eight bytes are compared at once.
    """
    position: int = find_either(b, start, end, wanted, wanted)
    return position


@inline_kernel
def find_either(b: Any, start: int, end: int, wanted: Any, other: Any) -> int:
    """Return the position of the first byte `wanted` or `other` in [start, end).

    Both are uint8. If there is none, return `end`.
    """
    p = start
    pattern, other_pattern = np.uint64(wanted) * _LOW_BITS, np.uint64(other) * _LOW_BITS
    while p < end:
        if p + _WORD <= len(b):
            eight = le64(b, p)
            found = _zero_bytes(eight ^ pattern) | _zero_bytes(eight ^ other_pattern)
            if found:
                position: int = min(p + (trailing_zeros(found) >> 3), end)
                return position
            p += _WORD
        elif b[p] == wanted or b[p] == other:
            return p
        else:
            p += 1
    return end


@inline_kernel
def equal_bytes(b: Any, start: int, end: int, wanted: Any) -> Any:
    """Compare the first 64 bytes of [start, end) with `wanted` (uint8).

    Bit i of the result (uint64) is set if byte i is `wanted`.
    """
    left = end - start
    if start + BLOCK <= len(b):
        found = _equal64(b, start, wanted)
        return found if left >= BLOCK else found & ((np.uint64(1) << np.uint64(left)) - np.uint64(1))
    found = np.uint64(0)
    for i in range(min(left, BLOCK)):
        found |= np.uint64(b[start + i] == wanted) << np.uint64(i)
    return found


SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd and irregular, so that a product with it has well-mixed highest bits
_POWERS = np.array([31**n & 0xFFFFFFFF for n in range(_WORD + 1)], np.uint64)
_P1, _P2, _P4 = (np.uint64(31**n) for n in (1, 2, 4))
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@inline_kernel
def _hash_of_eight(eight: Any) -> Any:
    """Return Java's hashCode of eight ASCII characters, not yet wrapped to 32 bits.

    The first one is in the lowest byte of `eight`. Pairs are combined, then fours, then all eight.
    """
    pairs = (eight & _EVEN_BYTES) * _P1 + (eight >> np.uint64(8) & _EVEN_BYTES)  # at most 2^12
    fours = (pairs & _EVEN_PAIRS) * _P2 + (pairs >> np.uint64(16) & _EVEN_PAIRS)  # at most 2^22
    return (fours & _HALF) * _P4 + (fours >> np.uint64(32))


@inline_kernel
def java_hash(b: Any, start: int, end: int, h: Any) -> Any:
    """Return (True, Java's hashCode of a text as a wrapped uint32).

    The bytes [start, end) are the end of the text, in UTF-8. `h` is the hashCode of the text before `start`. If the
    bytes are not UTF-8, the first value is False.
    """
    p = start
    total = np.uint64(h)  # only the lowest 32 bits count
    while p < end:
        eight = word(b, p, end)
        if eight & _HIGH_BITS == 0:  # eight at once: one multiplication, not eight, waits for the last one
            left = min(end - p, _WORD)
            if left < _WORD:  # NULs in front add nothing
                eight <<= np.uint64(8 * (_WORD - left))
            total = total * _POWERS[left] + _hash_of_eight(eight)
            p += left
            continue
        c = np.uint32(b[p])
        if c < 0x80:
            total = total * _P1 + np.uint64(c)
            p += 1
            continue
        more = 1 if 0xC2 <= c <= 0xDF else 2 if 0xE0 <= c <= 0xEF else 3 if 0xF0 <= c <= 0xF4 else 0
        if more == 0 or p + more >= end:
            return False, np.uint32(total)
        code = c & np.uint32(0x3F >> more)
        for i in range(1, more + 1):
            following = np.uint32(b[p + i])
            if following & 0xC0 != 0x80:
                return False, np.uint32(total)
            code = np.uint32(code << 6) | (following & np.uint32(0x3F))
        overlong = (more == 2 and code < 0x800) or (more == 3 and code < 0x10000)
        if overlong or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            return False, np.uint32(total)
        if more == 3:
            code -= np.uint32(0x10000)
            total = total * _P1 + np.uint64(np.uint32(0xD800) | (code >> 10))
            code = np.uint32(0xDC00) | (code & np.uint32(0x3FF))
        total = total * _P1 + np.uint64(code)
        p += more + 1
    return True, np.uint32(total)
