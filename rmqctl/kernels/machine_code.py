"""Machine code of kernels: kept in files, loaded, called without numba.

numba compiles a kernel to an object file (`rmqctl.kernels.native`). llvmlite loads the object file, and ctypes calls
the kernel. The import of numba takes several times as long as loading the kernels of a verb. Therefore only a process
that compiles a kernel imports numba.

A kernel has one machine code for each combination of types of its arguments. A cache file has a digest of its name and
content, the name of the function, the format of the result, and the object file. A file with a wrong digest is not
used.

A function that numba compiles has the calling convention of C. The function returns a status, which is 0 if no error
was raised. The first two arguments are the addresses of the result and of an exception. An array is passed as two
unused words, the number of its elements, the size of an element, the address, the shape and the strides.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGEST_SIZE = 16
_SEPARATOR = b"\n"
# kinds of arguments; the kind of an array is (dtype, number of dimensions, flags of its layout), and the kind of a
# NamedTuple of arrays is (its class, the kinds of the arrays)
INTEGER, BOOLEAN = "integer", "boolean"
Kinds = tuple[Any, ...]
CONTIGUOUS, ALIGNED = 0x1, 0x100  # numpy's flags
_LAYOUT = CONTIGUOUS | ALIGNED


class MachineCode(NamedTuple):
    """The object file of a kernel.

    `symbol` is the name of the function. `result` is the format of the function's result, as in the module struct.
    """

    symbol: str
    result: str
    object_file: bytes

    def to_bytes(self, name: str) -> bytes:
        """Return the content of a cache file with the name `name`."""
        content = _SEPARATOR.join((self.symbol.encode(), self.result.encode(), self.object_file))
        return _digest_of(name, content) + content

    @classmethod
    def from_bytes(cls, name: str, raw: bytes) -> MachineCode | None:
        """Return the machine code in a cache file, or None if it is damaged."""
        content = raw[_DIGEST_SIZE:]
        if _digest_of(name, content) != raw[:_DIGEST_SIZE]:
            return None
        symbol, result, object_file = content.split(_SEPARATOR, 2)
        return cls(symbol.decode(), result.decode(), object_file)


def _digest_of(name: str, content: bytes) -> bytes:
    return blake2b(name.encode() + _SEPARATOR + content, digest_size=_DIGEST_SIZE).digest()


def kinds_of(arguments: tuple[Any, ...]) -> Kinds:
    """Return the kinds of a kernel's arguments.

    Raises TypeError for an argument that no kernel can have.
    """
    return tuple(map(_kind_of, arguments))


def _kind_of(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num & _LAYOUT
    if isinstance(argument, tuple):
        return type(argument), kinds_of(argument)
    if isinstance(argument, bool | np.bool_):
        return BOOLEAN
    if isinstance(argument, int | np.integer):
        return INTEGER
    raise TypeError(f"a kernel has no argument of type {type(argument).__name__}")


def file_name(function: Callable[..., Any], kinds: Kinds) -> str:
    """Return the name of a kernel's cache file for arguments of these kinds.

    Machine code for another processor has another file name, because several machines may have the same home.
    """
    digest = _short_digest((function.__code__.co_code, _described(kinds)))
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}.{digest}.{_machine()}.o"


def files_of_module(module: str) -> str:
    """Return the pattern of the names of a module's cache files for this machine."""
    return f"{module.rpartition('.')[2]}.*.{_machine()}.o"


def _short_digest(what: object) -> str:
    return blake2b(repr(what).encode(), digest_size=8).hexdigest()


def _described(kind: Any) -> Any:
    if isinstance(kind, tuple):
        return tuple(map(_described, kind))
    return kind.descr if isinstance(kind, np.dtype) else str(kind)


@cache
def _machine() -> str:
    """Return a digest of the processor and of the versions of Python and LLVM.

    The version of numba does not matter, because the machine code calls nothing of numba.
    """
    import llvmlite
    import llvmlite.binding as llvm

    processor = llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return _short_digest((*processor, sys.version_info[:2], str(llvmlite.__version__)))


def load(code: MachineCode, kinds: Kinds) -> Callable[[tuple[Any, ...]], Any]:
    """Load a kernel into memory, and return a function that calls it.

    The function takes a tuple of arguments, which must be of these kinds. The call does not hold the GIL. The function
    raises ArithmeticError if the kernel raises an exception, for example after a division by zero.
    """
    import llvmlite.binding as llvm

    engine = _engine_without(code.symbol)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.object_file))
    engine.finalize_object()
    return _caller(engine.get_function_address(code.symbol), code, kinds)


_ENGINES: list[tuple[Any, set[str]]] = []  # each with its symbols; machine code is in memory for as long as its engine


def _engine_without(symbol: str) -> Any:
    """Return an engine that did not have `symbol`, and record that it has it now.

    Kernels share an engine, because LLVM needs more time for a new engine than for a kernel. But two kernels may have
    the same symbol, because a symbol contains the numbers of record types, which numba assigns anew in each process.
    """
    import llvmlite.binding as llvm

    for engine, symbols in _ENGINES:
        if symbol not in symbols:
            symbols.add(symbol)
            return engine
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True, codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    _ENGINES.append((engine, {symbol}))
    return engine


def _caller(address: int, code: MachineCode, kinds: Kinds) -> Callable[[tuple[Any, ...]], Any]:
    types: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
    for kind in kinds:
        types += types_of(kind)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)
    layout = struct.Struct(code.result)
    is_tuple = len(code.result) > 1
    result_type = ctypes.c_byte * max(layout.size, 1)

    def run(arguments: tuple[Any, ...]) -> Any:
        result, error = result_type(), ctypes.c_void_p()
        words: list[Any] = [ctypes.byref(result), ctypes.byref(error)]
        for argument in arguments:
            words += _words_of(argument)
        if call(*words):
            raise ArithmeticError(f"the kernel {code.symbol} raised an exception")
        found = layout.unpack_from(result)
        return found if is_tuple else found[0] if found else None

    return run


def types_of(kind: Any) -> list[Any]:
    """Return the types, in C, of the words that pass an argument."""
    if kind in (INTEGER, BOOLEAN):
        return [ctypes.c_int64 if kind == INTEGER else ctypes.c_bool]
    if isinstance(kind[0], type):
        return [each for part in kind[1] for each in types_of(part)]
    _, dimensions, _ = kind
    pointer, word = ctypes.c_void_p, ctypes.c_int64
    return [pointer, pointer, word, word, pointer, *[word] * 2 * dimensions]


def _words_of(argument: Any) -> tuple[Any, ...] | list[Any]:
    """Return the words that pass an argument."""
    if isinstance(argument, np.ndarray):
        address = argument.ctypes.data  # `__array_interface__` describes the dtype, which takes long
        return None, None, argument.size, argument.itemsize, address, *argument.shape, *argument.strides
    if isinstance(argument, tuple):
        return [word for part in argument for word in _words_of(part)]
    return (int(argument),)
