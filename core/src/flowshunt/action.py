"""The contract of offload actions: what a NIC does with the frames of a bypassed flow, as an eBPF fragment.

A fragment is a run of eBPF instructions that a flow program inlines for frames whose flow has the action. On entry r1
points to the frame's descriptor (`DESCRIPTOR`, little-endian, the fields below), r2 to 32 bytes that the flow keeps
for its action, zero when the flow is learned. It leaves the disposition in r0: a sum of `HOST` (deliver the frame to
its host buffer) and `TRANSMIT` (send it out of `tx_port`), 0 to drop it; then it falls off its end. It may change
r0 to r5 and, of the descriptor, the fields marked as outputs. It has no call, no exit, no backward jump, and no jump
past the instruction after its last.
"""

from collections.abc import Callable, Mapping

import attrs
import numpy as np

from flowshunt.insn import Instruction

HOST = 1
TRANSMIT = 2

NO_PORT = 0xFFFF

DESCRIPTOR = np.dtype(
    [
        ("timestamp", "<u8"),  # ns since 1970-01-01 UTC
        ("wire", "<u4"),  # bytes on the wire
        ("captured", "<u4"),  # bytes at hand
        ("hash", "<u4"),  # the symmetric flow hash
        ("color", "<u4"),
        ("port", "<u2"),  # the port that the frame came in by
        ("tx_port", "<u2"),  # output: the port to send by; NO_PORT on entry
        ("host_buffer", "<u2"),  # output: preset by the hash
        ("peer_port", "<u2"),  # the other port of the pair that `port` is in; NO_PORT where there is none
        ("deliver", "<u4"),  # output: how many bytes to deliver; `captured` on entry
        ("direction", "<u4"),  # 0 from the flow's initiator, 1 to it
        ("flow_id", "<u8"),
    ],
    align=False,
)
assert DESCRIPTOR.itemsize == 48

OUTPUTS = frozenset({"tx_port", "host_buffer", "deliver"})
"""The descriptor fields that a fragment may write."""

STATE_BYTES = 32
"""Bytes that each flow keeps for its action."""


@attrs.frozen
class Parameter:
    """An unsigned number that an action takes: its name, what it means, its range, and its default (None: required)."""

    name: str
    summary: str
    minimum: int = 0
    maximum: int = 0xFFFF
    default: int | None = None


@attrs.frozen
class OffloadAction:
    """What a plugin returns from `flowshunt_offload_actions`.

    Attributes:
        name: the name to ask for it by, lower case.
        summary: one line on what happens to a frame.
        parameters: what it takes.
        fragment: gives the bytecode for checked parameters.
    """

    name: str
    summary: str
    fragment: Callable[[Mapping[str, int]], tuple[Instruction, ...]]
    parameters: tuple[Parameter, ...] = ()

    def check(self, given: Mapping[str, int]) -> dict[str, int]:
        """The full parameters: `given` checked, defaults filled in. Raises ValueError naming what is wrong."""
        known = {p.name: p for p in self.parameters}
        for name in given:
            if name not in known:
                raise ValueError(f"action {self.name} takes {', '.join(known) or 'no parameters'}, not {name!r}")
        full: dict[str, int] = {}
        for parameter in self.parameters:
            value = given.get(parameter.name, parameter.default)
            if value is None:
                raise ValueError(f"action {self.name} needs {parameter.name} ({parameter.summary})")
            if not parameter.minimum <= value <= parameter.maximum:
                raise ValueError(
                    f"action {self.name}: {parameter.name} is {value}, "
                    f"outside {parameter.minimum} to {parameter.maximum}"
                )
            full[parameter.name] = value
        return full
