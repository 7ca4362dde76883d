"""Machine operations that column kernels need and Numba has no name for: copying bytes, prefetching a row."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, size: int) -> Any:
    """The address of array[index] as i8*, `size` bytes an element."""
    data = context.make_array(array_type)(context, builder, array).data
    start = builder.ptrtoint(data, _WORD)
    return builder.inttoptr(builder.add(start, builder.mul(index, ir.Constant(_WORD, size))), _BYTE.as_pointer())


@intrinsic
def copy_bytes(
    _context: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any
) -> tuple[Any, Callable[..., Any]]:
    """Copy `count` bytes of source[source_at:] to target[target_at:], both arrays of bytes that don't overlap.

    Nothing is checked: the caller has made sure that both ranges lie inside their arrays and that count >= 0.
    """
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        to = _address(context, builder, sig.args[0], arguments[0], arguments[1], 1)
        start = _address(context, builder, sig.args[2], arguments[2], arguments[3], 1)
        cgutils.raw_memcpy(builder, to, start, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(_context: Any, array: Any, row: Any) -> tuple[Any, Callable[..., Any]]:
    """Ask for the cache line that `array[row]` begins in. Reads nothing; any row is safe."""
    signature = types.void(array, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(sig.args[0].dtype))
        at = _address(context, builder, sig.args[0], arguments[0], arguments[1], size)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [at.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [at, *(ir.Constant(number, value) for value in (1, 3, 1))])
        return context.get_dummy_value()

    return signature, generate
