"""The two solvers, each behind one function: is a 1-bit term true for some values of its variables?

Neither is told anything about the other, and they share no code: z3 is Microsoft's, Bitwuzla the bit-vector solver of
Stanford and Bremen.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.kops.validation.term import MEMORY, Term

Z3: Final = "z3"
BITWUZLA: Final = "bitwuzla"
SOLVERS: Final = (BITWUZLA, Z3)
"""In the order in which they are asked: the first is the faster one."""

NEVER: Final = "unsat"
SOMETIMES: Final = "sat"
UNDECIDED: Final = "unknown"


@attrs.frozen
class Answer:
    """What a solver says of a term.

    Attributes:
        verdict: NEVER true, SOMETIMES true, or UNDECIDED (out of time).
        values: where it is sometimes true: a value for each of the terms that were asked for.
    """

    verdict: str
    values: tuple[int, ...] = ()


def solve(solver: str, term: Term, wanted: Sequence[Term], timeout: float) -> Answer:
    """Ask a solver by its name. `wanted`: terms to be given a value; `timeout`: seconds.

    Raises CapabilityError where the solver is not installed.
    """
    if term.op == "const" and not term.value:
        return Answer(NEVER)
    return _ASK[solver](term, wanted, timeout)


@lru_cache(maxsize=2)
def version(solver: str) -> str:
    """A solver's name and version."""
    module = _module(solver)
    number = module.get_version_string() if solver == Z3 else module.version()
    return f"{solver} {number}"


@lru_cache(maxsize=2)
def _module(solver: str) -> Any:
    try:
        return import_module(solver)
    except ImportError as error:
        package = "z3-solver" if solver == Z3 else solver
        raise CapabilityError(
            f"proofs need the package {package}, which can't be imported here ({error}); "
            "install it, or go without native operations (--policy none)"
        ) from None


def ordered(terms: Sequence[Term]) -> list[Term]:
    """Everything that terms are made of, arguments first."""
    seen: dict[int, Term] = {}
    stack = list(terms)
    while stack:
        top = stack.pop()
        if top.number not in seen:
            seen[top.number] = top
            stack.extend(top.args)
    return [seen[number] for number in sorted(seen)]


_Z3_BINARY: Final[Mapping[str, Callable[[Any, Any, Any], Any]]] = {
    "add": lambda z, a, b: a + b,
    "sub": lambda z, a, b: a - b,
    "mul": lambda z, a, b: a * b,
    "and": lambda z, a, b: a & b,
    "or": lambda z, a, b: a | b,
    "xor": lambda z, a, b: a ^ b,
    "shl": lambda z, a, b: a << b,
    "lshr": lambda z, a, b: z.LShR(a, b),
    "ashr": lambda z, a, b: a >> b,
    "udiv": lambda z, a, b: z.UDiv(a, b),
    "urem": lambda z, a, b: z.URem(a, b),
    "concat": lambda z, a, b: z.Concat(a, b),
    "select": lambda z, a, b: z.Select(a, b),
}
_Z3_COMPARE: Final[Mapping[str, Callable[[Any, Any, Any], Any]]] = {
    "eq": lambda z, a, b: a == b,
    "ult": lambda z, a, b: z.ULT(a, b),
    "slt": lambda z, a, b: a < b,
}


def _ask_z3(term: Term, wanted: Sequence[Term], timeout: float) -> Answer:
    z = _module(Z3)
    context = z.Context()
    made: dict[int, Any] = {}
    one, zero = z.BitVecVal(1, 1, context), z.BitVecVal(0, 1, context)
    for node in ordered((term, *wanted)):
        a = [made[arg.number] for arg in node.args]
        op, width = node.op, node.width
        if op == "const":
            built = z.BitVecVal(node.value, width, context)
        elif op == "var":
            address, byte = z.BitVecSort(64, context), z.BitVecSort(8, context)
            sort = z.ArraySort(address, byte) if width == MEMORY else z.BitVecSort(width, context)
            built = z.Const(node.name, sort)
        elif op in _Z3_BINARY:
            built = _Z3_BINARY[op](z, *a)
        elif op in _Z3_COMPARE:
            built = z.If(_Z3_COMPARE[op](z, *a), one, zero)
        elif op == "not":
            built = ~a[0]
        elif op == "neg":
            built = -a[0]
        elif op == "extract":
            built = z.Extract(node.value + width - 1, node.value, a[0])
        elif op == "zext":
            built = z.ZeroExt(width - node.args[0].width, a[0])
        elif op == "sext":
            built = z.SignExt(width - node.args[0].width, a[0])
        elif op == "store":
            built = z.Store(*a)
        else:
            assert op == "ite", op
            built = z.If(a[0] == one, a[1], a[2])
        made[node.number] = built
    solver = z.SolverFor("QF_AUFBV", ctx=context)
    solver.set("timeout", max(1, int(timeout * 1000)))
    solver.add(made[term.number] == one)
    result = solver.check()
    if result == z.unsat:
        return Answer(NEVER)
    if result != z.sat:
        return Answer(UNDECIDED)
    model = solver.model()
    return Answer(SOMETIMES, tuple(model.eval(made[w.number], model_completion=True).as_long() for w in wanted))


_BITWUZLA_KINDS: Final = {
    "add": "BV_ADD", "sub": "BV_SUB", "mul": "BV_MUL", "and": "BV_AND", "or": "BV_OR", "xor": "BV_XOR", "shl": "BV_SHL",
    "lshr": "BV_SHR", "ashr": "BV_ASHR", "udiv": "BV_UDIV", "urem": "BV_UREM", "concat": "BV_CONCAT",
    "select": "ARRAY_SELECT", "store": "ARRAY_STORE", "not": "BV_NOT", "neg": "BV_NEG",
}  # fmt: skip
_BITWUZLA_COMPARE: Final = {"eq": "EQUAL", "ult": "BV_ULT", "slt": "BV_SLT"}


def _ask_bitwuzla(term: Term, wanted: Sequence[Term], timeout: float) -> Answer:
    bw = _module(BITWUZLA)
    kind = bw.Kind
    manager = bw.TermManager()
    options = bw.Options()
    options.set(bw.Option.PRODUCE_MODELS, True)
    options.set(bw.Option.TIME_LIMIT_PER, max(1, int(timeout * 1000)))
    made: dict[int, Any] = {}
    bit = manager.mk_bv_sort(1)
    one, zero = manager.mk_bv_value(bit, 1), manager.mk_bv_value(bit, 0)
    make = manager.mk_term
    for node in ordered((term, *wanted)):
        a = [made[arg.number] for arg in node.args]
        op, width = node.op, node.width
        if op == "const":
            built = manager.mk_bv_value(manager.mk_bv_sort(width), node.value)
        elif op == "var":
            memory = manager.mk_array_sort(manager.mk_bv_sort(64), manager.mk_bv_sort(8))
            built = manager.mk_const(memory if width == MEMORY else manager.mk_bv_sort(width), node.name)
        elif op in _BITWUZLA_KINDS:
            built = make(getattr(kind, _BITWUZLA_KINDS[op]), a)
        elif op in _BITWUZLA_COMPARE:
            built = make(kind.ITE, [make(getattr(kind, _BITWUZLA_COMPARE[op]), a), one, zero])
        elif op == "extract":
            built = make(kind.BV_EXTRACT, a, [node.value + width - 1, node.value])
        elif op == "zext":
            built = make(kind.BV_ZERO_EXTEND, a, [width - node.args[0].width])
        elif op == "sext":
            built = make(kind.BV_SIGN_EXTEND, a, [width - node.args[0].width])
        else:
            assert op == "ite", op
            built = make(kind.ITE, [make(kind.EQUAL, [a[0], one]), a[1], a[2]])
        made[node.number] = built
    solver = bw.Bitwuzla(manager, options)
    solver.assert_formula(make(kind.EQUAL, [made[term.number], one]))
    result = solver.check_sat()
    if result == bw.Result.UNSAT:
        return Answer(NEVER)
    if result != bw.Result.SAT:
        return Answer(UNDECIDED)
    return Answer(SOMETIMES, tuple(int(solver.get_value(made[w.number]).value(10)) for w in wanted))


_ASK: Final[Mapping[str, Callable[[Term, Sequence[Term], float], Answer]]] = {Z3: _ask_z3, BITWUZLA: _ask_bitwuzla}
