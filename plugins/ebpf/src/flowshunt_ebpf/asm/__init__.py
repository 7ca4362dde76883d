"""The two text forms of eBPF, both ways: the C-like one of LLVM and the kernel, and the mnemonic one."""

from flowshunt_ebpf.asm.assemble import Form, assemble, detect_form
from flowshunt_ebpf.asm.disassemble import disassemble, instruction_text, instruction_texts, labels
from flowshunt_ebpf.asm.error import AssemblyError

__all__ = [
    "AssemblyError",
    "Form",
    "assemble",
    "detect_form",
    "disassemble",
    "instruction_text",
    "instruction_texts",
    "labels",
]
