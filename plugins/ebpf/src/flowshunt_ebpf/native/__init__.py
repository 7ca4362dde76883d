"""Native code: the assembler's seam, both JITs, the machine that programs run on, and the runners.

A `Workbench` puts a program, its maps and its machine together; `prepare` and `Machine` do so by hand. `interpret`,
`host` and `emulate` load an image for a runner; `kernel.run_in_kernel` is the fourth. `native.batch.BatchDriver` runs
many frames with one call and is imported where it is used, since it brings compiled code.
"""

from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.fault import Fault, FaultKind
from flowshunt_ebpf.native.host import HostProgram, host
from flowshunt_ebpf.native.image import Image, prepare
from flowshunt_ebpf.native.interpreter import RunError, interpret
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Loaded, Outcome
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.native.workbench import Workbench

__all__ = [
    "DEFAULT_BUDGET",
    "Fault",
    "FaultKind",
    "HostProgram",
    "Image",
    "Loaded",
    "Machine",
    "Outcome",
    "RunError",
    "Verdict",
    "Workbench",
    "emulate",
    "host",
    "interpret",
    "prepare",
]
