"""Where eBPF's registers live on the two architectures, for the native forms of extended operations.

The mapping is the kernel's (arch/x86/net/bpf_jit_comp.c, arch/arm64/net/bpf_jit_comp.c).
"""

from collections.abc import Mapping
from typing import Final

import attrs


@attrs.frozen
class HostRegisters:
    """The names of one architecture's registers.

    Attributes:
        architecture: "x86_64" or "arm64".
        names: by width in bits, the names of r0 to r10.
        scratches: by width in bits, the names of general registers that a native form may use as it likes.
        vectors: the names of 128-bit registers that it may use as it likes.
        mark: what makes its labels unlike those of other sites.
    """

    architecture: str
    names: Mapping[int, tuple[str, ...]] = attrs.field(repr=False)
    scratches: Mapping[int, tuple[str, ...]] = attrs.field(repr=False)
    vectors: tuple[str, ...] = attrs.field(repr=False)
    mark: str = ""

    def __call__(self, register: int, bits: int = 64) -> str:
        """The name of the low `bits` bits of r0 to r10: 8, 16, 32 or 64 on x86-64, 32 or 64 on ARM64."""
        return self._name(self.names, register, bits)

    def scratch(self, number: int, bits: int = 64) -> str:
        """The name of a scratch register, 0 to 2 (on ARM64 to 8)."""
        return self._name(self.scratches, number, bits)

    def vector(self, number: int) -> str:
        """The name of a 128-bit scratch register, 0 to 7."""
        if not 0 <= number < len(self.vectors):
            raise ValueError(f"there is no vector register {number} of {len(self.vectors)}")
        return self.vectors[number]

    def label(self, name: str) -> str:
        """A label that no other site has."""
        return f"site{self.mark}_{name}"

    def _name(self, names: Mapping[int, tuple[str, ...]], number: int, bits: int) -> str:
        if bits not in names:
            raise ValueError(f"{self.architecture} has no registers of {bits} bits, but of {sorted(names)}")
        if not 0 <= number < len(names[bits]):
            raise ValueError(f"there is no register {number} of {len(names[bits])}")
        return names[bits][number]


X86_64: Final = HostRegisters(
    "x86_64",
    {
        64: ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "rbx", "r13", "r14", "r15", "rbp"),
        32: ("eax", "edi", "esi", "edx", "ecx", "r8d", "ebx", "r13d", "r14d", "r15d", "ebp"),
        16: ("ax", "di", "si", "dx", "cx", "r8w", "bx", "r13w", "r14w", "r15w", "bp"),
        8: ("al", "dil", "sil", "dl", "cl", "r8b", "bl", "r13b", "r14b", "r15b", "bpl"),
    },
    {
        64: ("r11", "r10", "r9"),
        32: ("r11d", "r10d", "r9d"),
        16: ("r11w", "r10w", "r9w"),
        8: ("r11b", "r10b", "r9b"),
    },
    tuple(f"xmm{n}" for n in range(8)),
)

_ARM64_NUMBERS: Final = (7, 0, 1, 2, 3, 4, 19, 20, 21, 22, 25)

ARM64: Final = HostRegisters(
    "arm64",
    {64: tuple(f"x{n}" for n in _ARM64_NUMBERS), 32: tuple(f"w{n}" for n in _ARM64_NUMBERS)},
    {64: tuple(f"x{n}" for n in range(9, 18)), 32: tuple(f"w{n}" for n in range(9, 18))},
    tuple(f"q{n}" for n in range(8)),
)

BY_ARCHITECTURE: Final[Mapping[str, HostRegisters]] = {"x86_64": X86_64, "arm64": ARM64}
