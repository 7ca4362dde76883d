"""The actions, each with the eBPF fragment that carries it out (calling convention: `flowshunt.action`)."""

from collections.abc import Mapping
from typing import Any

from flowshunt.action import DESCRIPTOR, HOST, NO_PORT, TRANSMIT, OffloadAction, Parameter
from flowshunt.insn import JEQ, R0, R1, R3, H, Instruction, jmp_imm, ldx, mov64_imm, st, stx

_FIELDS: Mapping[str, Any] = DESCRIPTOR.fields or {}
_TX_PORT: int = _FIELDS["tx_port"][1]
_PEER_PORT: int = _FIELDS["peer_port"][1]
_HOST_BUFFER: int = _FIELDS["host_buffer"][1]


def _drop(parameters: Mapping[str, int]) -> tuple[Instruction, ...]:
    del parameters
    return (mov64_imm(R0, 0),)


def _forward(parameters: Mapping[str, int]) -> tuple[Instruction, ...]:
    port = parameters["port"]
    if port != NO_PORT:
        return (st(H, R1, _TX_PORT, port), mov64_imm(R0, TRANSMIT))
    return (
        ldx(H, R3, R1, _PEER_PORT),
        mov64_imm(R0, HOST),
        jmp_imm(JEQ, R3, NO_PORT, 2),
        stx(H, R1, R3, _TX_PORT),
        mov64_imm(R0, TRANSMIT),
    )


def _redirect(parameters: Mapping[str, int]) -> tuple[Instruction, ...]:
    return (st(H, R1, _HOST_BUFFER, parameters["host_buffer"]), mov64_imm(R0, HOST))


DROP = OffloadAction("drop", "discard the frame on the card; only its flow's counters see it", _drop)

FORWARD = OffloadAction(
    "forward",
    "send the frame out of another port of the card; without a peer port it goes to the host",
    _forward,
    (Parameter("port", f"the port to send by; {NO_PORT}: the other port of the pair", 0, NO_PORT, NO_PORT),),
)

REDIRECT = OffloadAction(
    "redirect",
    "deliver the frame to one host buffer, whatever its hash",
    _redirect,
    (Parameter("host_buffer", "the host buffer to deliver to", 0, 127),),
)

ACTIONS = (DROP, FORWARD, REDIRECT)
