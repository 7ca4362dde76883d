"""The machine's state block: what native code, helpers and runners share, by byte offset.

Native code holds its address in a register that programs can't name (r12 on x86-64, x28 on ARM64); helpers get it as
their sixth argument. Little-endian, 64-bit fields unless noted.
"""

from typing import Final

SAVED_SP: Final = 0  # the native stack as the entry left it, to unwind to
BUDGET: Final = 8  # signed; below 0: stop
FAULT: Final = 16  # 32 bits: a Fault; 0: none
FAULT_ARGUMENT: Final = 20  # 32 bits: which argument of a helper, from 1
FAULT_PC: Final = 24  # the native address after the call that noticed it
FAULT_ADDRESS: Final = 32  # what was to be accessed
TAIL_CALLS: Final = 40  # 32 bits: tail calls so far
HELPER: Final = 44  # 32 bits: the helper that is being checked
CODE_TABLE: Final = 48  # address of the entry points that tail calls jump to, one for each loaded program
REGIONS: Final = 56  # address of the region table
REGION_COUNT: Final = 64  # rows
STACK_TOP: Final = 72  # the main program's r10
STACK_BOTTOM: Final = 80  # the stack's first byte
CONTEXT: Final = 88  # r1 on entry
SECOND: Final = 96  # r2 on entry
RESULT: Final = 104  # r0 of the last run
RANDOM: Final = 112  # the generator's state, never 0
CPU: Final = 120  # 32 bits: what get_smp_processor_id returns
KIND: Final = 124  # 32 bits: 0 memory, 1 XDP, 2 __sk_buff
REDIRECT_MAP: Final = 128  # address of the map of the last redirect; 0: by interface
REDIRECT_KEY: Final = 136  # 32 bits: key in that map
REDIRECT_TARGET: Final = 140  # 32 bits: interface index, CPU or socket
MAPS: Final = 144  # address of the table of map addresses
MAP_COUNT: Final = 152
TRACE: Final = 160  # address of the trace ring (a ring buffer map); 0: none
DRAIN: Final = 168  # 32 bits: set by a ring that is half full: the batch driver returns to Python
ADJUSTED: Final = 172  # 32 bits: set when a helper moved the packet's ends
CLOCK_OFFSET: Final = 176  # ns added to the clock
PROTOTYPES: Final = 184  # address of the table of helper arguments, 8 bytes a helper
LOCK_HELD: Final = 192  # address of the spin lock that is held; 0: none
SIZE: Final = 4096

REGION_BYTES: Final = 32
"""A region: base, bytes (64 bits each), stride, limit (32 bits each), flags (64 bits).

Inside a region with a stride only the first `limit` bytes of each stride are accessible.
"""
WRITABLE: Final = 1

STACK_REGION: Final = 0
PACKET_REGION: Final = 1
FIRST_MAP_REGION: Final = 2

FRAME_BYTES: Final = 512
"""Stack of one function; r10 of a callee is that of its caller less this."""
FRAMES: Final = 8
"""Nested functions at most, as in the kernel (MAX_CALL_FRAMES)."""
TAIL_CALL_LIMIT: Final = 33
MAY_GOTO_LIMIT: Final = 8_388_608
"""Times that `may_goto` falls through, as in the kernel (BPF_MAX_LOOPS)."""
LOOP_LIMIT: Final = 8_388_608
"""Iterations of bpf_loop at most, as in the kernel."""

KIND_MEMORY: Final = 0
KIND_XDP: Final = 1
KIND_SKB: Final = 2
