"""The parts that every kernel uses.

These parts are compilation, big-endian numbers, CRC-32 and Java's hash.

A kernel is a function over numpy arrays. numba compiles a kernel at the first call of the kernel. The compiled function
runs without the GIL. Kernels are not written in C, although C is 1.3 to 1.6 times as fast. With one thread and bodies
of 1 KiB, C reads 22.7 GB/s, and numba reads 17.7 GB/s. With one thread and bodies of 100 bytes, C reads 9.4 GB/s, and
numba reads 6.2 GB/s. A scan spends most of its time reading, so C would save little. C also needs a compiler, or a
wheel of rmqctl for each platform. No tool would check the types in C code. With C, the rules of `rmqctl/format` would
be in two languages. Numba costs 280 MB of disk and 0.3 s of start-up, so only code that reads whole files imports
numba.

Code that uses kernels first warms up the kernels (`rmqctl.kernels.warm_up`). The warm-up stores the kernels in a cache
for later runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import zlib_ng.zlib_ng
from llvmlite import ir

from rmqctl.kernels.safe_numba import (
    CompileResultCacheImpl,
    FunctionCache,
    NullCache,
    UserProvidedCacheLocator,
    config,
    intrinsic,
    njit,
    types,
)

KERNELS: list[Any] = []


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call. This is a decorator."""
    compiled = njit(nogil=True)(function)
    KERNELS.append(compiled)
    return compiled


class _Place(UserProvidedCacheLocator):
    """The place of a compiled kernel in the cache, named after the kernel's module.

    By default, numba uses the path of the source file. This path is different on Spark's executors, so the executors
    would not find the kernel.
    """

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        super().__init__(function, path)  # type: ignore[no-untyped-call]
        self._cache_path = str(getattr(config, "CACHE_DIR"))  # noqa: B009 -- its names are made at run time

    def get_source_stamp(self) -> str:
        """Return an empty text.

        numba does not need to check the source file, because each version of the source code has its own cache folder.
        """
        return ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> _Place:
        """Return the place of a kernel. Raises OSError if the cache cannot be used."""
        place = cls(function, path)
        place.ensure_cache_path()  # type: ignore[no-untyped-call]
        return place


class _PlacedImpl(CompileResultCacheImpl):
    _locator_classes = [_Place]  # noqa: RUF012 -- numba's


class _Cache(FunctionCache):
    _impl_class = _PlacedImpl


def keep_compiled() -> None:
    """Use a folder as the cache of compiled kernels from now on.

    The folder is `numba.config.CACHE_DIR`.
    """
    for compiled in KERNELS:
        if not compiled.overloads:
            compiled._cache = _Cache(compiled.py_func)  # type: ignore[no-untyped-call]


def keep_nothing() -> None:
    """Stop using the cache of compiled kernels."""
    for compiled in KERNELS:
        compiled._cache = NullCache()


def inline_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function as a part of each kernel that calls the function."""
    # nobody else calls it: that halves the time to compile; and a call with an array's seven words costs more than what
    # most parts do
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
    return njit(nogil=True, **options)(function)


def compiling() -> bool:
    """Return whether this process compiled a kernel, or is compiling one.

    The result is False if all kernels so far were loaded from the cache.
    """
    return any(sum(compiled.stats.cache_misses.values()) for compiled in KERNELS)


def _loader(bits: int, result: Any, *, swap: bool = True) -> Any:
    """Return an intrinsic (array of uint8, position) -> the number at the position.

    The intrinsic loads the whole number at once. Without the intrinsic, numba would load each byte separately. With
    `swap`, the number is big-endian.
    """

    def load(typing_context: Any, array: Any, position: Any) -> Any:
        del typing_context

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(data, [context.cast(builder, arguments[1], signature.args[1], types.int64)])
            number = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            swapped = builder.bswap(number) if swap else number
            wide = types.int64 if result.signed else types.uint64
            stored = types.Integer.from_bitwidth(bits, result.signed)
            return context.cast(builder, swapped, stored, result if bits == result.bitwidth else wide)

        return result(array, position), generate

    return intrinsic(load)


# big-endian numbers of a kernel's buffer; signed ones and the 16-bit one come as int64
u32: Any = _loader(32, types.uint32)
i32: Any = _loader(32, types.int64)
i64: Any = _loader(64, types.int64)
le64: Any = _loader(64, types.uint64, swap=False)  # as little-endian machines have it


def _storer(bits: int) -> Any:
    """Return an intrinsic (array of uint8, position, number) that stores the number.

    The number is stored big-endian. The intrinsic returns the position.
    """

    def store(typing_context: Any, array: Any, position: Any, number: Any) -> Any:
        del typing_context

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            at = context.cast(builder, arguments[1], signature.args[1], types.int64)
            place = builder.bitcast(builder.gep(data, [at]), ir.IntType(bits).as_pointer())
            narrow = context.cast(
                builder, arguments[2], signature.args[2], types.Integer.from_bitwidth(bits, signed=True)
            )
            builder.store(builder.bswap(narrow), place, align=1)
            return at

        return types.int64(array, position, number), generate

    return intrinsic(store)


put_i32: Any = _storer(32)
put_i64: Any = _storer(64)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Return numba's intrinsic (array of one dimension, index) -> 0.

    The intrinsic loads an element of the array into the processor's cache, because the element will soon be written.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [context.cast(builder, arguments[1], signature.args[1], types.int64)])
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        )
        builder.call(function, [builder.bitcast(place, pointer), flag(1), flag(3), flag(1)])
        return context.get_constant(types.int64, 0)

    return types.int64(array, index), generate


prefetch: Any = intrinsic(_prefetch)


@inline_kernel
def u16(b: Any, p: int) -> Any:
    """Return the unsigned 16-bit number at `p`."""
    return np.int64(b[p]) << 8 | np.int64(b[p + 1])


@cache
def crc32_address() -> int:
    """Return the address of zlib-ng's crc32.

    Raises OSError or AttributeError if the library of zlib-ng does not export this function.
    """
    library = ctypes.CDLL(zlib_ng.zlib_ng.__file__)
    return ctypes.cast(library.zng_crc32, ctypes.c_void_p).value or 0


def _generate_call(typing_context: Any, function: Any, data: Any, length: Any) -> Any:
    """Return numba's intrinsic for `crc32(0, data, length)`.

    The function and the data are given as addresses.

    Unlike a ctypes function, the compiled intrinsic can be cached.
    """
    del typing_context, function, data, length
    signature = types.uint32(types.int64, types.int64, types.uint32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word, pointer, word]).as_pointer())
        return builder.call(function, [ir.Constant(word, 0), builder.inttoptr(arguments[1], pointer), arguments[2]])

    return signature, generate


call_crc32: Any = intrinsic(_generate_call)


def _count_trailing_zeros(typing_context: Any, number: Any) -> Any:
    """Return numba's intrinsic (uint64, not 0) -> the number of trailing zero bits.

    The result is an int64.
    """
    del typing_context, number

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_count_trailing_zeros)
BLOCK = 64


def _block_at(context: Any, builder: Any, kind: Any, array: Any, position: Any, position_type: Any) -> Any:
    """Return the 64 bytes at a position of an array of uint8, as a vector."""
    data = context.make_array(kind)(context, builder, array).data
    place = builder.gep(data, [context.cast(builder, position, position_type, types.int64)])
    return builder.load(builder.bitcast(place, ir.VectorType(ir.IntType(8), BLOCK).as_pointer()), align=1)


def _equal_in_block(typing_context: Any, array: Any, position: Any, wanted: Any) -> Any:
    """Return numba's intrinsic (array of uint8, position, uint8) -> 64 bits.

    The intrinsic compares the 64 bytes from the position on with the given byte. A bit is set if the byte at its
    position is equal to the given byte.
    """
    del typing_context, wanted

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _block_at(context, builder, signature.args[0], arguments[0], arguments[1], signature.args[1])
        one = builder.insert_element(
            ir.Constant(found.type, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0)
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
        equal = builder.icmp_unsigned("==", found, builder.shuffle_vector(one, one, lanes))
        return builder.bitcast(equal, ir.IntType(BLOCK))

    return types.uint64(array, position, types.uint8), generate


def _same_in_blocks(typing_context: Any, array: Any, position: Any, other: Any, place: Any) -> Any:
    """Return numba's intrinsic (array of uint8, position, array, position) -> bits.

    The intrinsic compares 64 bytes of both arrays, from both positions on. A bit is set if both arrays have the same
    byte.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _block_at(context, builder, signature.args[0], arguments[0], arguments[1], signature.args[1])
        other = _block_at(context, builder, signature.args[2], arguments[2], arguments[3], signature.args[3])
        return builder.bitcast(builder.icmp_unsigned("==", found, other), ir.IntType(BLOCK))

    return types.uint64(array, position, other, place), generate


_equal64: Any = intrinsic(_equal_in_block)
same_bytes: Any = intrinsic(_same_in_blocks)  # both arrays must have 64 bytes from there on
_WORD = 8
_LOW_BITS, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_HALF = np.uint64(0xFFFFFFFF)


@inline_kernel
def word(b: Any, start: int, end: int) -> Any:
    """Return the first eight bytes of [start, end) as a little-endian uint64.

    If there are fewer than eight bytes, zeros are added after these bytes.
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
    """Return a number in which the high bit of each zero byte is set.

    The result shows the zero bytes of `number`. In bytes above the lowest zero byte, the high bit may also be set if
    the byte is not zero.
    """
    return (number - _LOW_BITS) & ~number & _HIGH_BITS


@inline_kernel
def find_byte(b: Any, start: int, end: int, wanted: Any) -> int:
    """Return the position of the first byte `wanted` (uint8) in [start, end).

    Returns `end` if there is no such byte. The function compares eight bytes at once.
    """
    position: int = find_either(b, start, end, wanted, wanted)
    return position


@inline_kernel
def find_either(b: Any, start: int, end: int, wanted: Any, other: Any) -> int:
    """Return the position of the first byte `wanted` or `other` in [start, end).

    `wanted` and `other` are uint8. Returns `end` if neither byte occurs.
    """
    p = start
    pattern, other_pattern = np.uint64(wanted) * _LOW_BITS, np.uint64(other) * _LOW_BITS
    while p < end:
        if p + _WORD <= len(b):
            eight = le64(b, p)
            found = _zero_bytes(eight ^ pattern) | _zero_bytes(eight ^ other_pattern)
            if found:
                position: int = min(p + (_trailing_zeros(found) >> 3), end)
                return position
            p += _WORD
        elif b[p] == wanted or b[p] == other:
            return p
        else:
            p += 1
    return end


@inline_kernel
def equal_bytes(b: Any, start: int, end: int, wanted: Any) -> Any:
    """Return which of the first 64 bytes of [start, end) equal `wanted` (uint8).

    The result (uint64) has a bit for each byte. The lowest bit is the bit of the first byte.
    """
    left = end - start
    if start + BLOCK <= len(b):
        found = _equal64(b, start, wanted)
        return found if left >= BLOCK else found & ((np.uint64(1) << np.uint64(left)) - np.uint64(1))
    found = np.uint64(0)
    for i in range(min(left, BLOCK)):
        found |= np.uint64(b[start + i] == wanted) << np.uint64(i)
    return found


SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits in no order: a product with it has its highest bits mixed well
_POWERS = np.array([31**n & 0xFFFFFFFF for n in range(_WORD + 1)], np.uint64)
_P1, _P2, _P4 = (np.uint64(31**n) for n in (1, 2, 4))
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@inline_kernel
def _hash_of_eight(eight: Any) -> Any:
    """Return the hash of eight ASCII characters.

    The first character is in the lowest byte.

    The first step combines pairs of characters, the second step groups of four, and the last step all eight characters.
    """
    pairs = (eight & _EVEN_BYTES) * _P1 + (eight >> np.uint64(8) & _EVEN_BYTES)  # at most 2^12
    fours = (pairs & _EVEN_PAIRS) * _P2 + (pairs >> np.uint64(16) & _EVEN_PAIRS)  # at most 2^22
    return (fours & _HALF) * _P4 + (fours >> np.uint64(32))


@inline_kernel
def java_hash(b: Any, start: int, end: int, h: Any) -> Any:
    """Return (True, hashCode) of a text. hashCode is a wrapped uint32.

    `h` is the hash of the text before the UTF-8 bytes [start, end). If the bytes are not UTF-8, the first result is
    False, and the one-record decoder must compute the hash as Java does.
    """
    p = start
    total = np.uint64(h)  # modulo 2**32 all the way
    while p < end:
        eight = word(b, p, end)
        if eight & _HIGH_BITS == 0:  # eight at once: one multiplication waits for the one before, not eight
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
