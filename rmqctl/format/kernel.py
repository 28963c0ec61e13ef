"""What every kernel stands on: compiling, big-endian numbers in a buffer, zlib-ng's CRC-32, and Java's hash of UTF-8.

A kernel is a function over numpy arrays that numba compiles at its first use; it runs without the GIL. Why numba, and not C:
the same walk in C is 1.3 to 1.6 times as fast (22.7 against 17.7 GB/s with bodies of 1 KiB, 9.4 against 6.2 with 100 bytes, one
thread), which is a small part of what a scan takes beside reading. But it needs a compiler, or a wheel of ours for each platform,
nothing checks its types, and `rmqctl/format` would be two languages. Numba costs 280 MB of disk and 0.3 s of start-up, so it is
imported only by what reads whole files.

Who is going to use kernels makes them ready first (`rmqctl.store.kernels`): then they are kept between runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import zlib_ng.zlib_ng
from llvmlite import ir
from numba import njit, types
from numba.core.caching import NullCache
from numba.extending import intrinsic

KERNELS: list[Any] = []


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call."""
    compiled = njit(nogil=True)(function)
    KERNELS.append(compiled)
    return compiled


def keep_compiled() -> None:
    """From now on keep what is compiled in numba's folder (`numba.config.CACHE_DIR`), and take from there what is kept."""
    for compiled in KERNELS:
        if not compiled.overloads:
            compiled.enable_caching()


def keep_nothing() -> None:
    """From now on neither keep nor take anything."""
    for compiled in KERNELS:
        compiled._cache = NullCache()


def part(function: Callable[..., Any]) -> Any:
    """A piece of kernels, compiled with each of them."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # nobody else calls it: half the time to compile
    return njit(nogil=True, **options)(function)


def compiling() -> bool:
    """Whether a kernel was, or is being, compiled by this process, not found ready."""
    return any(sum(compiled.stats.cache_misses.values()) for compiled in KERNELS)


def _loader(bits: int, result: Any) -> Any:
    """An intrinsic (array of uint8, position) -> the big-endian number there: one load and a byte swap, where numba makes a load a byte."""

    def load(typing_context: Any, array: Any, position: Any) -> Any:
        del typing_context

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(data, [context.cast(builder, arguments[1], signature.args[1], types.int64)])
            number = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            swapped = builder.bswap(number)
            wide = types.int64 if result.signed else types.uint64
            stored = types.Integer.from_bitwidth(bits, result.signed)
            return context.cast(builder, swapped, stored, result if bits == result.bitwidth else wide)

        return result(array, position), generate

    return intrinsic(load)


# big-endian numbers of a kernel's buffer; signed ones and the 16-bit one come as int64
u32: Any = _loader(32, types.uint32)
i32: Any = _loader(32, types.int64)
i64: Any = _loader(64, types.int64)


def _storer(bits: int) -> Any:
    """An intrinsic (array of uint8, position, number) that stores the number there, big-endian; its result is the position."""

    def store(typing_context: Any, array: Any, position: Any, number: Any) -> Any:
        del typing_context

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            at = context.cast(builder, arguments[1], signature.args[1], types.int64)
            place = builder.bitcast(builder.gep(data, [at]), ir.IntType(bits).as_pointer())
            narrow = context.cast(builder, arguments[2], signature.args[2], types.Integer.from_bitwidth(bits, signed=True))
            builder.store(builder.bswap(narrow), place, align=1)
            return at

        return types.int64(array, position, number), generate

    return intrinsic(store)


put_i32: Any = _storer(32)
put_i64: Any = _storer(64)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Numba's intrinsic (array of one dimension, index): have that element, which is going to be written, on its way into the cache; 0."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [context.cast(builder, arguments[1], signature.args[1], types.int64)])
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag]))
        builder.call(function, [builder.bitcast(place, pointer), flag(1), flag(3), flag(1)])
        return context.get_constant(types.int64, 0)

    return types.int64(array, index), generate


prefetch: Any = intrinsic(_prefetch)


@part
def u16(b: Any, p: int) -> Any:
    """The unsigned 16-bit number at `p`."""
    return np.int64(b[p]) << 8 | np.int64(b[p + 1])


@cache
def crc32_address() -> int:
    """The address of zlib-ng's crc32. Raises OSError or AttributeError where its library does not show it."""
    library = ctypes.CDLL(zlib_ng.zlib_ng.__file__)
    return ctypes.cast(library.zng_crc32, ctypes.c_void_p).value or 0


def _generate_call(typing_context: Any, function: Any, data: Any, length: Any) -> Any:
    """Numba's intrinsic for `crc32(0, data, length)` by addresses; unlike a ctypes function it can be kept compiled."""
    del typing_context, function, data, length
    signature = types.uint32(types.int64, types.int64, types.uint32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word, pointer, word]).as_pointer())
        return builder.call(function, [ir.Constant(word, 0), builder.inttoptr(arguments[1], pointer), arguments[2]])

    return signature, generate


call_crc32: Any = intrinsic(_generate_call)


_HIGH_BITS, _BYTE = np.uint32(0x80808080), np.uint32(0xFF)
_LOW_BITS_8, _HIGH_BITS_8 = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


@part
def find_byte(b: Any, start: int, end: int, wanted: Any) -> int:
    """Position of the first byte `wanted` (uint8) in [start, end); `end` when there is none. Looks at eight bytes at once."""
    p = start
    pattern = np.uint64(wanted) * _LOW_BITS_8
    while p + 8 <= end:
        difference = np.uint64(i64(b, p)) ^ pattern
        if (difference - _LOW_BITS_8) & ~difference & _HIGH_BITS_8:  # a byte of it is zero
            break
        p += 8
    while p < end and b[p] != wanted:
        p += 1
    return p


@part
def java_hash(b: Any, start: int, end: int, h: Any) -> Any:
    """(True, hashCode) of the text whose hash so far is `h`, gone on with the UTF-8 bytes [start, end); uint32, wrapped.

    False where the bytes are no UTF-8: what Java makes of them is left to the one-record decoder.
    """
    p = start
    while p < end:
        if p + 4 <= end and u32(b, p) & _HIGH_BITS == 0:  # four at once: one multiplication waits for the one before, not four
            c = u32(b, p)
            first = (c >> np.uint32(24)) * np.uint32(31**3) + (c >> np.uint32(16) & _BYTE) * np.uint32(31**2)
            last = (c >> np.uint32(8) & _BYTE) * np.uint32(31) + (c & _BYTE)
            h = np.uint32(h * np.uint32(31**4) + first + last)
            p += 4
            continue
        c = np.uint32(b[p])
        if c < 0x80:
            h = np.uint32(h * np.uint32(31) + c)
            p += 1
            continue
        more = 1 if 0xC2 <= c <= 0xDF else 2 if 0xE0 <= c <= 0xEF else 3 if 0xF0 <= c <= 0xF4 else 0
        if more == 0 or p + more >= end:
            return False, h
        code = c & np.uint32(0x3F >> more)
        for i in range(1, more + 1):
            following = np.uint32(b[p + i])
            if following & 0xC0 != 0x80:
                return False, h
            code = np.uint32(code << 6) | (following & np.uint32(0x3F))
        overlong = (more == 2 and code < 0x800) or (more == 3 and code < 0x10000)
        if overlong or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            return False, h
        if more == 3:
            code -= np.uint32(0x10000)
            h = np.uint32(h * np.uint32(31) + (np.uint32(0xD800) | (code >> 10)))
            code = np.uint32(0xDC00) | (code & np.uint32(0x3FF))
        h = np.uint32(h * np.uint32(31) + code)
        p += more + 1
    return True, h
