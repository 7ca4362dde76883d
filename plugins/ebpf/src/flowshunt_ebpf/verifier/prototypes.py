"""What each helper asks of its arguments and gives back: the verifier's table of helper calls.

Kinds, sizes and conditions are the kernel's (`bpf_func_proto` in kernel/bpf/helpers.c, net/core/filter.c,
kernel/bpf/ringbuf.c; `check_func_arg` and `do_refine_retval_range` of kernel/bpf/verifier.c). Which program types may
call which helper is what Linux 6.18 with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN answers.
"""

from collections.abc import Iterator
from typing import Final

from flowshunt_ebpf.program import ProgramType
from flowshunt_ebpf.program.helper_calls import HELPER_NUMBERS, HELPERS
from flowshunt_ebpf.verifier.map_calls import MAPS_OF, writes_map
from flowshunt_ebpf.verifier.prototype import (
    FIXED,
    NULLABLE,
    SIZED,
    SIZES,
    UNINITIALISED,
    WRITTEN,
    Arg,
    Callback,
    CallbackArg,
    Prototype,
    Returns,
)
from flowshunt_ebpf.verifier.prototype_table import ROWS

__all__ = [
    "FIXED", "GPL_COMPATIBLE", "NULLABLE", "PROTOTYPES", "REFUSED", "SIZED", "SIZES", "UNINITIALISED", "WRITTEN", "Arg",
    "Callback", "CallbackArg", "Prototype", "Returns", "gpl_compatible", "why_not",
]  # fmt: skip

GPL_COMPATIBLE: Final = frozenset(
    {"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"}
)
"""include/linux/license.h."""


def gpl_compatible(license: str) -> bool:
    """Whether a program may call what is for the GPL. One that names no licence (text) counts as under the GPL."""
    return not license or license in GPL_COMPATIBLE


REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(("timer_init", "timer_set_callback", "timer_start", "timer_cancel"), "timers"),
    **dict.fromkeys(
        (
            "dynptr_from_mem", "ringbuf_reserve_dynptr", "ringbuf_submit_dynptr", "ringbuf_discard_dynptr",
            "dynptr_read", "dynptr_write", "dynptr_data", "user_ringbuf_drain",
        ),
        "dynptrs",
    ),
    **dict.fromkeys(
        (
            "skc_to_tcp6_sock", "skc_to_tcp_sock", "skc_to_tcp_timewait_sock", "skc_to_tcp_request_sock",
            "skc_to_udp6_sock", "skc_to_unix_sock", "skc_to_mptcp_sock", "get_current_task_btf", "task_pt_regs",
            "per_cpu_ptr", "this_cpu_ptr", "find_vma", "snprintf_btf", "get_task_stack", "copy_from_user_task",
        ),
        "pointers to the kernel's own structures",
    ),
    **dict.fromkeys(
        (
            "sk_storage_get", "sk_storage_delete", "task_storage_get", "task_storage_delete", "cgrp_storage_get",
            "cgrp_storage_delete", "get_local_storage",
        ),
        "local storage",
    ),
    "snprintf": "checks of format strings",
    "kptr_xchg": "kernel pointers in map values",
    "copy_from_user": "sleepable programs",
}  # fmt: skip
"""Helpers that the kernel knows for these program types and this verifier does not, to what they belong to."""


def _prototypes() -> Iterator[Prototype]:
    for name, args, types, returns, traits in ROWS:
        yield Prototype(
            HELPER_NUMBERS[name],
            name,
            args,
            returns,
            types,
            maps=MAPS_OF.get(name, frozenset()),
            writes_map=writes_map(name),
            **traits,
        )


PROTOTYPES: Final[dict[int, Prototype]] = {p.number: p for p in _prototypes()}
"""Helper number to its prototype."""


def why_not(number: int, program_type: ProgramType, license: str) -> str | None:
    """Why a program of a type and licence may not call a helper; None where it may."""
    prototype = PROTOTYPES.get(number)
    known = HELPERS.get(number)
    if known is None:
        return f"there is no helper {number}"
    name = f"bpf_{known[0]}"
    if prototype is None:
        belongs = REFUSED.get(known[0])
        if belongs:
            return f"{name} is not supported: this verifier knows no {belongs}"
        return f"{name} is for other kinds of programs than those that are verified here"
    if program_type not in prototype.types:
        names = ", ".join(sorted({t.name.lower() for t in prototype.types if t != ProgramType.UNSPEC}))
        return f"{name} can't be called by this kind of program; it is for {names}"
    if prototype.gpl_only and not gpl_compatible(license):
        return f"{name} is only for programs under the GPL; this one's licence is {license!r}"
    return None
