"""The parts of kernels that are machine code, and numba's compilation of kernels.

Only this module imports numba. `rmqctl.kernels.kernel` imports this module when the first kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

BLOCK = 64  # bytes that are compared at once


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


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Return numba's dispatcher of a kernel."""
    return njit(nogil=True)(function)


def compile_part(function: Callable[..., Any]) -> Any:
    """Return numba's dispatcher of a part.

    numba compiles the part again in each kernel that calls the part.
    """
    # nobody else calls it: that halves the time to compile; and a call with an array's seven words costs more than what
    # most parts do
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
    return njit(nogil=True, **options)(function)


def keep_in(folder: str) -> None:
    """Use a folder as the cache of compiled kernels from now on."""
    setattr(config, "CACHE_DIR", folder)  # noqa: B010 -- its names are made at run time


def cache_of(function: Callable[..., Any], *, is_kept: bool) -> Any:
    """Return the cache of a kernel: the folder of `keep_in`, or no cache."""
    return _Cache(function) if is_kept else NullCache()  # type: ignore[no-untyped-call]


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


def _count_trailing_zeros(typing_context: Any, number: Any) -> Any:
    """Return numba's intrinsic (uint64, not 0) -> the number of trailing zero bits.

    The result is an int64.
    """
    del typing_context, number

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


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


# by the names in `rmqctl.kernels.compile`
PARTS: dict[str, Any] = {
    "u32": _loader(32, types.uint32),
    "i32": _loader(32, types.int64),
    "i64": _loader(64, types.int64),
    "le64": _loader(64, types.uint64, swap=False),
    "put_i32": _storer(32),
    "put_i64": _storer(64),
    "prefetch": intrinsic(_prefetch),
    "call_crc32": intrinsic(_generate_call),
    "trailing_zeros": intrinsic(_count_trailing_zeros),
    "equal_in_block": intrinsic(_equal_in_block),
    "same_bytes": intrinsic(_same_in_blocks),
}
