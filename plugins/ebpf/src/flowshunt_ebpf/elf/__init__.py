"""eBPF objects: ELF files with their maps, relocations, types (BTF), source lines, and CO-RE."""

from flowshunt_ebpf.elf.btf import Btf, Kind, Member, Type, read_btf
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.elf.object import KERNEL_BTF, Object, kernel_btf, load_object

__all__ = [
    "KERNEL_BTF",
    "Btf",
    "Kind",
    "Member",
    "Object",
    "ObjectError",
    "Type",
    "kernel_btf",
    "load_object",
    "read_btf",
]
