"""How often a program's instructions run on given packets."""

from collections.abc import Iterable

import attrs

from flowshunt.insn import Instruction
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.workbench import Workbench


class _Counted(tuple[Instruction, ...]):
    """Instructions that count how often each is fetched."""

    counts: list[int]

    def __getitem__(self, index: int) -> Instruction:  # type: ignore[override]
        self.counts[index] += 1
        return super().__getitem__(index)


def execution_counts(bench: Workbench, packets: Iterable[bytes]) -> list[int]:
    """For each instruction how often it runs when the interpreter runs the program on packets, one after another.

    The maps change as the program changes them. A run that is stopped counts as far as it went.
    """
    counted = _Counted(bench.image.instructions)
    counted.counts = [0] * len(counted)
    program = interpret(attrs.evolve(bench.image, instructions=counted), bench.machine)
    for packet in packets:
        bench.machine.set_packet(packet)
        program.run()
    return counted.counts
