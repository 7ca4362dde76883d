"""Global functions: what they take, by their BTF, and whether a caller gives that.

As `btf_prepare_func_args` and `btf_check_func_arg_match` of the kernel have it: a number, the context, or memory of a
known size that may be null.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import attrs

from flowshunt_ebpf.elf.btf import COMPOSITES, ENUMS, Btf, Kind, read_btf
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier import memory
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.values import (
    CONTEXT,
    MEMORY,
    NUMBER,
    PACKET,
    PACKET_META,
    SCALAR,
    STACK,
    Value,
    describe,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis
    from flowshunt_ebpf.verifier.state import State

_POINTABLE: Final = frozenset({*COMPOSITES, *ENUMS, Kind.INT, Kind.ARRAY, Kind.FLOAT})


class ParameterKind(Enum):
    """What a global function takes."""

    NUMBER = auto()
    CONTEXT = auto()
    MEMORY = auto()


@attrs.frozen
class Parameter:
    """One parameter. `size`: bytes of memory; `nullable`: whether it may be null; `writable`: it is not const."""

    kind: ParameterKind
    size: int = 0
    nullable: bool = True


@attrs.frozen
class Signature:
    """Parameters, and whether there is a result."""

    parameters: tuple[Parameter, ...]
    returns: bool


def signatures(program: Program, structure: str) -> dict[int, Signature]:
    """The signatures of a program's global functions by their first instruction.

    `structure`: the context's name. Functions without BTF are left out: they are verified with each call. Raises
    UnsafeError for a parameter that a global function can't have.
    """
    wanted = [f for f in program.functions if f.linkage == "global" and f.start and f.btf_id]
    if not wanted or not program.btf:
        return {}
    try:
        btf = read_btf(program.btf, program.name)
        return {f.start: _signature(btf, f.btf_id, f.name, structure) for f in wanted}
    except ObjectError:
        return {}


def _signature(btf: Btf, id_: int, name: str, structure: str) -> Signature:
    function = btf.type(id_)
    prototype = btf.type(function.type)
    parameters = [_parameter(btf, m.type, name, structure) for m in prototype.members]
    if len(parameters) > 5:
        raise UnsafeError("global-function", f"global function {name} has more than 5 parameters")
    return Signature(tuple(parameters), btf.strip(prototype.type).kind is not Kind.VOID)


def _parameter(btf: Btf, id_: int, name: str, structure: str) -> Parameter:
    type_ = btf.strip(id_)
    if type_.kind in (Kind.INT, *ENUMS):
        return Parameter(ParameterKind.NUMBER)
    if type_.kind is Kind.PTR:
        pointed = btf.strip(type_.type)
        if pointed.kind is Kind.STRUCT and structure and pointed.name == structure:
            return Parameter(ParameterKind.CONTEXT)
        if pointed.kind in _POINTABLE:
            return Parameter(ParameterKind.MEMORY, btf.size_of(pointed.id))
    raise UnsafeError(
        "global-function",
        f"a parameter of global function {name} is neither a number, the context nor a pointer to memory of known size",
        "",
        "make it static",
    )


def initial(run: "Analysis", signature: Signature) -> list[Value | None]:
    """r1 to r5 as a global function is verified with them."""
    values: list[Value | None] = []
    for p in signature.parameters:
        if p.kind is ParameterKind.NUMBER:
            values.append(NUMBER)
        elif p.kind is ParameterKind.CONTEXT:
            values.append(Value(CONTEXT))
        else:
            values.append(Value(MEMORY, id=run.new_id(), range=p.size, of=True, nullable=p.nullable))
    return values + [None] * (5 - len(values))


def check_parameters(run: "Analysis", state: "State", name: str, parameters: tuple[Parameter, ...]) -> None:
    """A call's arguments must be what the function is verified with. Memory that is given may be changed."""
    registers = state.frames[-1].registers
    for n, p in enumerate(parameters, 1):
        value = registers[n]
        if value is None:
            raise UnsafeError("uninitialised", f"{name} reads r{n}", f"r{n} is not initialised", "set all arguments")
        if p.kind is ParameterKind.NUMBER:
            if value.kind != SCALAR:
                raise _wrong(name, n, value, "a number")
        elif p.kind is ParameterKind.CONTEXT:
            if value.kind != CONTEXT or value.offset or value.scalar.value or value.scalar.mask:
                raise _wrong(name, n, value, "the context pointer")
        else:
            _check_memory(run, state, name, n, p, value)


def _check_memory(run: "Analysis", state: "State", name: str, n: int, p: Parameter, value: Value) -> None:
    if value.kind == SCALAR and value.scalar.is_const and not value.scalar.value and p.nullable:
        return
    checked: Any = value.not_null() if p.nullable else value
    first, last = memory.check(f"r{n}", checked, 0, p.size, True, name)
    if value.kind in (PACKET, PACKET_META):
        if run.context.program_type not in run.packet_writers:
            raise _wrong(name, n, value, "memory that may be written")
        run.writes_packet = True
    if value.kind == STACK:
        frame = state.frames[value.of]
        run.use_stack(frame.subprogram, first)
        frame.stack.forget(first, last + p.size)


def _wrong(name: str, n: int, value: Value, needed: str) -> UnsafeError:
    return UnsafeError(
        "global-function", f"argument {n} of global function {name} must be {needed}", f"r{n} is {describe(value)}"
    )
