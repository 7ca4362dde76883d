"""Memory by address for compiled code: loads, stores, copies, comparisons, a lock, the clock, calls.

Everything is int64, addresses too: Numba turns a mix of signed and unsigned into floating point. Values read from
memory are zero-extended up to 32 bits; 64-bit ones are the same bits read as signed.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from flowshunt.compiled import piece

_I64 = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _c_function(builder: Any, kind: Any, name: str) -> Any:
    from numba.core import cgutils

    return cgutils.get_or_insert_function(builder.module, kind, name)


def _loader(bits: int) -> Any:
    def load(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], bits), align=1)
            return value if bits == 64 else builder.zext(value, _I64)

        return types.int64(types.int64), code

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(typing_context: Any, address: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            builder.store(value, _pointer(builder, arguments[0], bits), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return intrinsic(store)


load8, load16, load32, load64 = (_loader(bits) for bits in (8, 16, 32, 64))
store8, store16, store32, store64 = (_storer(bits) for bits in (8, 16, 32, 64))


@intrinsic
def exchange32(typing_context: Any, address: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """Swap 32 bits of memory with a value, atomically; gives what was there."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(builder, arguments[0], 32)
        old = builder.atomic_rmw("xchg", place, builder.trunc(arguments[1], ir.IntType(32)), "seq_cst")
        return builder.zext(old, _I64)

    return types.int64(types.int64, types.int64), code


@intrinsic
def shift_right(typing_context: Any, value: Any, count: Any) -> tuple[Any, Callable[..., Any]]:
    """A value shifted right, zeros coming in."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), code


@intrinsic
def below(typing_context: Any, left: Any, right: Any) -> tuple[Any, Callable[..., Any]]:
    """Whether left < right, both read as unsigned."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.icmp_unsigned("<", *arguments)

    return types.boolean(types.int64, types.int64), code


@intrinsic
def call1(typing_context: Any, function: Any, argument: Any) -> tuple[Any, Callable[..., Any]]:
    """Call the C function at an address with one 64-bit argument; gives its 64-bit result."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.int64(types.int64, types.int64), code


@intrinsic
def leading_zeros(typing_context: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """The zero bits in front of the first one in 4 bytes of memory that were loaded by `load32`; 32 where all are."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        swapped = builder.bswap(builder.trunc(arguments[0], ir.IntType(32)))
        return builder.zext(builder.ctlz(swapped, ir.Constant(ir.IntType(1), 0)), _I64)

    return types.int64(types.int64), code


@intrinsic
def clock(typing_context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
    """A clock of the system (`CLOCK_...`) in ns."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils

        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), _I64.as_pointer()])
        function = _c_function(builder, kind, "clock_gettime")
        place = cgutils.alloca_once(builder, _I64, size=2)
        builder.call(function, [builder.trunc(arguments[0], ir.IntType(32)), place])
        seconds = builder.load(place)
        rest = builder.load(builder.gep(place, [ir.Constant(ir.IntType(32), 1)]))
        return builder.add(builder.mul(seconds, ir.Constant(_I64, 1_000_000_000)), rest)

    return types.int64(types.int64), code


@intrinsic
def copy(typing_context: Any, to: Any, source: Any, size: Any) -> tuple[Any, Callable[..., Any]]:
    """Copy bytes; source and destination may overlap."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES, _I64])
        function = _c_function(builder, kind, "memmove")
        to, source, size = arguments
        builder.call(function, [_pointer(builder, to, 8), _pointer(builder, source, 8), size])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def fill_zero(typing_context: Any, to: Any, size: Any) -> tuple[Any, Callable[..., Any]]:
    """Set bytes to zero."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_BYTES, [_BYTES, ir.IntType(32), _I64])
        function = _c_function(builder, kind, "memset")
        builder.call(function, [_pointer(builder, arguments[0], 8), ir.Constant(ir.IntType(32), 0), arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@piece
def equal(left: Any, right: Any, size: Any) -> Any:
    """Whether bytes are equal.

    Not C's memcmp: it reads past short keys under a mask, which takes hundreds of ns where a guard page lies there.
    """
    at = 0
    while at + 8 <= size:
        if load64(left + at) != load64(right + at):
            return False
        at += 8
    if at + 4 <= size:
        if load32(left + at) != load32(right + at):
            return False
        at += 4
    while at < size:
        if load8(left + at) != load8(right + at):
            return False
        at += 1
    return True


@piece
def lock(place: Any) -> Any:
    """Wait for a 32-bit lock and take it."""
    while exchange32(place, 1) != 0:
        pass


@piece
def unlock(place: Any) -> Any:
    """Give a 32-bit lock back."""
    exchange32(place, 0)
