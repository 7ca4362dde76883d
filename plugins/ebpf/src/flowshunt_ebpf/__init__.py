"""The eBPF toolchain: text and ELF to programs, programs to native code on x86-64 and ARM64, and runners for both.

Import what you need from its rooms: `program` (programs, control flow, liveness), `asm` (the two text forms), `elf`
(objects), `maps` (maps and helpers in user space), `native` (JIT, interpreter, runners), `kernel` (a live Linux).
"""
