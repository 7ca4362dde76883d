"""Machine code on processors, from any state to the state that it leaves: in Unicorn, and on this machine's own.

Proofs need none of it: it is what their semantics are compared with.
"""

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.kops.validation.x86_64_decode import FULL
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.native.code_memory import CodeMemory

BUFFER_BYTES: Final = 4096
"""Bytes of memory that code finds, at `Processor.buffer`."""

_X86_FLAGS: Final = {"cf": 0, "zf": 6, "sf": 7, "of": 11}
_ARM_FLAGS: Final = {"n": 31, "z": 30, "c": 29, "v": 28}
_UNICORN_BUFFER: Final = 0x6000_0000
_UNICORN_CODE: Final = 0x4000_0000


@attrs.frozen
class Outcome:
    """What a run left: registers and flags by name, and the buffer."""

    values: dict[str, int]
    memory: bytes


class UnicornProcessor:
    """An emulated processor.

    Attributes:
        architecture: "x86_64" or "arm64".
        buffer: the address of the memory that code may use.
        names: the registers and flags that a state has.
    """

    def __init__(self, architecture: str) -> None:
        """Raises CapabilityError where Unicorn is not installed."""
        try:
            unicorn: Any = importlib.import_module("unicorn")
        except ImportError as error:
            raise CapabilityError(f"emulation needs the package unicorn ({error}); install it") from None
        self.architecture = architecture
        self.buffer = _UNICORN_BUFFER
        self._error = unicorn.UcError
        if architecture == assembler.X86_64:
            ids = importlib.import_module("unicorn.x86_const")
            self._engine = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
            self._registers = {name: getattr(ids, f"UC_X86_REG_{name.upper()}") for name in FULL}
            self._vectors = {f"ymm{n}": getattr(ids, f"UC_X86_REG_XMM{n}") for n in range(16)}
            self._flag_word, self._flags = ids.UC_X86_REG_EFLAGS, _X86_FLAGS
        else:
            ids = importlib.import_module("unicorn.arm64_const")
            self._engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_LITTLE_ENDIAN)
            self._registers = {f"x{n}": getattr(ids, f"UC_ARM64_REG_X{n}") for n in range(31)}
            self._registers["sp"] = ids.UC_ARM64_REG_SP
            self._vectors = {f"v{n}": getattr(ids, f"UC_ARM64_REG_Q{n}") for n in range(32)}
            self._flag_word, self._flags = ids.UC_ARM64_REG_NZCV, _ARM_FLAGS
        self._engine.mem_map(_UNICORN_CODE, 1 << 16)
        self._engine.mem_map(_UNICORN_BUFFER, BUFFER_BYTES)
        self.names = (*self._registers, *self._vectors, *self._flags)

    def run(self, code: bytes, values: Mapping[str, int], memory: bytes) -> Outcome | str:
        """Run code once. `values`: by name, those not named are 0. Gives why it was stopped, if it was.

        Of x86-64's vector registers the low 128 bits are set and given.
        """
        engine = self._engine
        engine.mem_write(_UNICORN_CODE, code)
        engine.ctl_remove_cache(_UNICORN_CODE, _UNICORN_CODE + len(code) + 16)
        engine.mem_write(self.buffer, memory)
        for name, register in (*self._registers.items(), *self._vectors.items()):
            engine.reg_write(register, values.get(name, 0))
        word = sum(values.get(name, 0) << bit for name, bit in self._flags.items())
        engine.reg_write(self._flag_word, word | (2 if self.architecture == assembler.X86_64 else 0))
        try:
            engine.emu_start(_UNICORN_CODE, _UNICORN_CODE + len(code))
        except self._error as error:
            return str(error)
        left = {name: engine.reg_read(r) for name, r in (*self._registers.items(), *self._vectors.items())}
        word = engine.reg_read(self._flag_word)
        left |= {name: word >> bit & 1 for name, bit in self._flags.items()}
        return Outcome(left, bytes(engine.mem_read(self.buffer, BUFFER_BYTES)))


_SAVED: Final = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_LOADED: Final = tuple(name for name in FULL if name != "rsp")
_VECTORS_AT: Final = 256
_STATE_BYTES: Final = _VECTORS_AT + 16 * 32


class HostProcessor:
    """This machine's own processor, an x86-64 one. A fault ends the process: run proved code alone.

    Attributes:
        architecture: "x86_64".
        buffer: the address of the memory that code may use.
        names: the registers and flags that a state has.
    """

    def __init__(self, *, avx: bool = False) -> None:
        """`avx`: whether states have all 256 bits of the vector registers, and none without it."""
        self.architecture = assembler.X86_64
        self._memory = ctypes.create_string_buffer(BUFFER_BYTES)
        self._state = ctypes.create_string_buffer(_STATE_BYTES)
        self._avx = avx
        self.buffer = ctypes.addressof(self._memory)
        vectors = tuple(f"ymm{n}" for n in range(16)) if avx else ()
        self.names = (*_LOADED, *vectors, *_X86_FLAGS)
        self._before, self._after = self._frame()

    def _frame(self) -> tuple[bytes, bytes]:
        """What stands around the code: registers from the state, whose address is on the stack, and back into it."""
        at = {name: 8 * number for number, name in enumerate(FULL)}
        flags, vectors = 8 * len(FULL), [f"[rdi+{_VECTORS_AT + 32 * n}]" for n in range(16)]
        before = [*(f"push {name}" for name in _SAVED), "push rdi", f"push qword ptr [rdi+{flags}]", "popfq"]
        before += [f"vmovdqu ymm{n}, {place}" for n, place in enumerate(vectors)] if self._avx else []
        before += [f"mov {name}, [rdi+{at[name]}]" for name in (*(n for n in _LOADED if n != "rdi"), "rdi")]
        after = ["push rdi", "mov rdi, [rsp+8]"]
        after += [f"mov [rdi+{at[name]}], {name}" for name in _LOADED if name != "rdi"]
        after += ["pushfq", f"pop qword ptr [rdi+{flags}]", f"pop qword ptr [rdi+{at['rdi']}]"]
        after += [*(f"vmovdqu {place}, ymm{n}" for n, place in enumerate(vectors)), "vzeroupper"] if self._avx else []
        after += ["pop rdi", *(f"pop {name}" for name in reversed(_SAVED)), "ret"]
        return assembler.assemble(self.architecture, "\n".join(before)), assembler.assemble(
            self.architecture, "\n".join(after)
        )

    def load(self, code: bytes) -> Callable[[Mapping[str, int], bytes], Outcome]:
        """Code made ready: a function from a state and the buffer's content to what a run leaves."""
        memory = CodeMemory(self._before + code + self._after)
        entry = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(memory.address)

        def run(values: Mapping[str, int], content: bytes) -> Outcome:
            assert memory.size  # the code lives as long as this function
            state = bytearray(_STATE_BYTES)
            for number, name in enumerate(FULL):
                state[8 * number : 8 * number + 8] = values.get(name, 0).to_bytes(8, "little")
            word = 0x202 | sum(values.get(name, 0) << bit for name, bit in _X86_FLAGS.items())
            state[8 * len(FULL) : 8 * len(FULL) + 8] = word.to_bytes(8, "little")
            for n in range(16):
                at = _VECTORS_AT + 32 * n
                state[at : at + 32] = values.get(f"ymm{n}", 0).to_bytes(32, "little")
            ctypes.memmove(self._state, bytes(state), _STATE_BYTES)
            ctypes.memmove(self._memory, content, BUFFER_BYTES)
            entry(ctypes.addressof(self._state))
            left = self._state.raw
            found = {name: int.from_bytes(left[8 * n : 8 * n + 8], "little") for n, name in enumerate(FULL)}
            word = int.from_bytes(left[8 * len(FULL) : 8 * len(FULL) + 8], "little")
            found |= {name: word >> bit & 1 for name, bit in _X86_FLAGS.items()}
            for n in range(16 if self._avx else 0):
                at = _VECTORS_AT + 32 * n
                found[f"ymm{n}"] = int.from_bytes(left[at : at + 32], "little")
            return Outcome({name: found[name] for name in self.names}, self._memory.raw)

        return run
