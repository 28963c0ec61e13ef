"""Compile kernels with numba, and define the intrinsics that kernels call.

`rmqctl.kernels.kernel` imports this module when the first kernel is loaded, because the import of numba is slow.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from rmqctl.kernels.argument_kinds import ALIGNED, BOOLEAN, CONTIGUOUS, INTEGER
from rmqctl.kernels.kernel_cache import kernel_name
from rmqctl.kernels.safe_numba import config, from_dtype, intrinsic, njit, types

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from rmqctl.kernels.argument_kinds import Kinds
    from rmqctl.kernels.kernel_cache import KernelCache

BLOCK = 64  # bytes that are compared at once
# no functions for C, and no counters of references
_PLAIN_CODE: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
_PART_CODE = {**_PLAIN_CODE, "forceinline": True, "no_cpython_wrapper": True}


def compile_kernel(function: FunctionType, kinds: Kinds, cache: KernelCache | None) -> Callable[..., Any]:
    """Compile a kernel for arguments of these kinds, or load it from the cache.

    What is returned does not hold the GIL, and takes read-only arrays for those that the kernel only reads.
    """
    signature = tuple(map(_type_of, kinds))
    dispatcher = njit(**_PLAIN_CODE)(function)
    if cache is not None:
        with suppress(OSError, RuntimeError):  # a full disk: the next process compiles the kernel again
            _compile_once(dispatcher, signature, cache)
    if signature not in dispatcher.overloads:
        dispatcher = njit(**_PLAIN_CODE)(function)
        dispatcher.compile(signature)
    entry: Callable[..., Any] = dispatcher.get_overload(signature)
    return entry


def _compile_once(dispatcher: Any, signature: Any, cache: KernelCache) -> None:
    function = dispatcher.py_func
    name = kernel_name(function)
    if not Path(function.__code__.co_filename).exists():  # in a zip file, on an executor
        function.__code__ = function.__code__.replace(co_filename=cache.source_file(name))
    cache.check(name)
    settings = {"CACHE_DIR": cache.numba_path, "CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}  # no other folder
    before = {name: getattr(config, name) for name in settings}  # code of others in this process may use numba, too
    vars(config).update(settings)
    try:
        dispatcher.enable_caching()
    finally:
        vars(config).update(before)
    dispatcher.compile(signature)
    if dispatcher.stats.cache_misses:
        cache.seal(name)


def _type_of(kind: Any) -> Any:
    if kind == INTEGER:
        return types.int64
    if kind == BOOLEAN:
        return types.boolean
    if isinstance(kind[0], type):
        return types.NamedTuple(tuple(map(_type_of, kind[1])), kind[0])  # type: ignore[no-untyped-call]
    dtype, dimensions, flags = kind
    return types.Array(from_dtype(dtype), dimensions, "C" if flags & CONTIGUOUS else "A", aligned=bool(flags & ALIGNED))


def compile_part(function: Callable[..., Any]) -> Any:
    """Return numba's form of a function that only kernels call.

    It is compiled again in each kernel that calls it. It must not allocate an array, and must not return an array or a
    part of one.
    """
    # it is inlined, because a call with an array (seven words) costs more than what most parts do; and it counts no
    # references to its arrays, because the kernel has them for as long, and atomic counting was four fifths of the time
    # of `line_encode`
    return njit(**_PART_CODE)(function)


def _loader(bits: int, result: Any, *, swap: bool = True) -> Any:
    """Return an intrinsic that reads a number at a position of a uint8 array.

    It loads all bytes at once; numba would load each one separately. With `swap`, the number in the array is
    big-endian.
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
    """Return an intrinsic (array, position, number) that writes a big-endian number.

    It returns the position after it.
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
    """Define the intrinsic `prefetch`, which loads an element into the CPU cache.

    Its arguments are an array of one dimension and an index; it returns 0. A kernel calls it some time before it writes
    the element.
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
    """Define the intrinsic `call_crc32`, which returns `crc32(0, data, length)`.

    The function `crc32` and the data are given as addresses, because numba cannot cache a kernel that calls a ctypes
    function.
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
    """Define `trailing_zeros` of a uint64 other than 0, which returns an int64."""
    del typing_context, number

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _copy_bytes(typing_context: Any, source: Any, start: Any, target: Any, position: Any, size: Any) -> Any:
    """Define the intrinsic `copy_bytes`, which copies `size` bytes of a uint8 array.

    It takes an array and a position to copy from, the same to copy to, and the size, and returns the position after the
    copy. The arrays must not overlap.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int, at: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(data, [context.cast(builder, arguments[at], signature.args[at], types.int64)])

        pointer, long, flag = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(1)
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, long, flag])
        function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, long], kind)
        length = context.cast(builder, arguments[4], signature.args[4], types.int64)
        builder.call(function, [place(2, 3), place(0, 1), length, flag(0)])
        return builder.add(context.cast(builder, arguments[3], signature.args[3], types.int64), length)

    return types.int64(source, start, target, position, size), generate


def _block_at(context: Any, builder: Any, kind: Any, array: Any, position: Any, position_type: Any) -> Any:
    """Return 64 bytes of a uint8 array, from a position on, as an LLVM vector."""
    data = context.make_array(kind)(context, builder, array).data
    place = builder.gep(data, [context.cast(builder, position, position_type, types.int64)])
    return builder.load(builder.bitcast(place, ir.VectorType(ir.IntType(8), BLOCK).as_pointer()), align=1)


def _equal_in_block(typing_context: Any, array: Any, position: Any, wanted: Any) -> Any:
    """Define the intrinsic `equal_in_block` (array of uint8, position, uint8).

    Of 64 bytes from the position on, bit i is set if byte i is equal to the third argument.
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


def _special_in_block(typing_context: Any, array: Any, position: Any) -> Any:
    """Define the intrinsic `special_in_block` (array of uint8, position).

    Of 64 bytes from the position on, bit i is set if byte i is a quote, a backslash, a control character below 32, or
    not ASCII: these bytes end or spoil a plain JSON string.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _block_at(context, builder, signature.args[0], arguments[0], arguments[1], signature.args[1])

        def lanes(character: int) -> Any:
            return ir.Constant(found.type, [character] * BLOCK)

        quote = builder.icmp_unsigned("==", found, lanes(ord('"')))
        backslash = builder.icmp_unsigned("==", found, lanes(ord("\\")))
        outside = builder.icmp_signed("<", found, lanes(ord(" ")))  # bytes from 128 on are negative
        return builder.bitcast(builder.or_(builder.or_(quote, backslash), outside), ir.IntType(BLOCK))

    return types.uint64(array, position), generate


def _same_in_blocks(typing_context: Any, array: Any, position: Any, other: Any, place: Any) -> Any:
    """Define the intrinsic `same_bytes` (array of uint8, position, array, position).

    `same_bytes` compares 64 bytes of the first array with 64 bytes of the second array. Bit i of the result is set if
    byte i is equal in both arrays.
    """
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _block_at(context, builder, signature.args[0], arguments[0], arguments[1], signature.args[1])
        other = _block_at(context, builder, signature.args[2], arguments[2], arguments[3], signature.args[3])
        return builder.bitcast(builder.icmp_unsigned("==", found, other), ir.IntType(BLOCK))

    return types.uint64(array, position, other, place), generate


# intrinsics, by the names that `rmqctl.kernels.compile` uses
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
    "special_in_block": intrinsic(_special_in_block),
    "copy_bytes": intrinsic(_copy_bytes),
}
