"""The domain of numbers: sets of register values, what arithmetic makes of them, what comparisons tell of them."""

from flowshunt_ebpf.verifier.scalar_arithmetic import (
    alu32,
    alu64,
    byte_swap,
    sdiv32,
    sdiv64,
    sign_extend,
    smod32,
    smod64,
    truncate,
    zero_extend,
)
from flowshunt_ebpf.verifier.scalar_refine import decide, refine, refine_not
from flowshunt_ebpf.verifier.scalar_value import (
    UNKNOWN,
    Scalar,
    const,
    contains,
    includes,
    intersect,
    join,
    signed_range,
    unsigned_range,
)

__all__ = [
    "UNKNOWN",
    "Scalar",
    "alu32",
    "alu64",
    "byte_swap",
    "const",
    "contains",
    "decide",
    "includes",
    "intersect",
    "join",
    "refine",
    "refine_not",
    "sdiv32",
    "sdiv64",
    "sign_extend",
    "signed_range",
    "smod32",
    "smod64",
    "truncate",
    "unsigned_range",
    "zero_extend",
]
