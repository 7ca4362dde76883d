"""Prefetching in column kernels: ask for a row's memory some frames before it is needed."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def prefetch(_context: Any, array: Any, row: Any, past: Any) -> tuple[Any, Callable[..., Any]]:
    """Ask for the cache line that holds byte `past` of `array[row]`. Reads nothing; any row is safe."""
    signature = types.void(array, row, past)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        columns = context.make_array(sig.args[0])(context, builder, arguments[0])
        byte = ir.IntType(8)
        pointer = byte.as_pointer()
        word = ir.IntType(64)
        start = builder.ptrtoint(columns.data, word)
        size = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(sig.args[0].dtype)))
        index = context.cast(builder, arguments[1], sig.args[1], types.int64)
        extra = context.cast(builder, arguments[2], sig.args[2], types.int64)
        at = builder.inttoptr(builder.add(start, builder.add(builder.mul(index, size), extra)), pointer)
        kind = ir.FunctionType(ir.VoidType(), [pointer, ir.IntType(32), ir.IntType(32), ir.IntType(32)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(ir.IntType(32), n) for n in (0, 3, 1))
        builder.call(function, [at, read, keep, data])
        return context.get_dummy_value()

    return signature, generate
