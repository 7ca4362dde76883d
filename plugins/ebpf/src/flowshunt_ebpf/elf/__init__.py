"""eBPF objects: ELF files, their maps, relocations, BTF, and CO-RE."""
