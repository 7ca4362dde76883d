"""Global functions take memory for what it is; packets that they move are no such memory."""

import pytest

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.program import control_flow
from flowshunt_ebpf.verifier import Limits
from flowshunt_ebpf.verifier.analysis import Analysis
from flowshunt_ebpf.verifier.functions import GlobalFunction, call_global, stack_pointer
from flowshunt_ebpf.verifier.globals import Parameter, ParameterKind
from flowshunt_ebpf.verifier.limits import FIRST
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.relevance import relevance
from flowshunt_ebpf.verifier.stack import Stack
from flowshunt_ebpf.verifier.state import Frame, State
from flowshunt_ebpf.verifier.values import CONTEXT, PACKET, PACKET_META, Value

PARAMETERS = (Parameter(ParameterKind.CONTEXT), Parameter(ParameterKind.MEMORY, 4))


def called(memory, *, changes_packet):
    flow = control_flow(assemble(".type xdp\nr0 = 0\nexit"))
    run = Analysis(flow, XDP, relevance(flow, False), Limits(), attempts={0: FIRST}, deadline=1e9)
    registers = [None, Value(CONTEXT), memory, *[None] * 7, stack_pointer(0)]
    state = State([Frame(0, 0, -1, registers, Stack())], 0)
    call_global(run, state, GlobalFunction("f", PARAMETERS, changes_packet, True))
    return state


@pytest.mark.parametrize("kind", [PACKET, PACKET_META])
def test_a_function_that_may_move_the_packet_gets_no_pointer_into_it(kind):
    pointer = Value(kind, offset=56, range=60)
    assert called(pointer, changes_packet=False).index == 1
    with pytest.raises(UnsafeError, match="which may move the packet"):
        called(pointer, changes_packet=True)


def test_a_function_that_may_move_the_packet_gets_stack_memory():
    pointer = stack_pointer(0).moved(-8, Value(0).scalar, 0, 0)
    assert called(pointer, changes_packet=True).index == 1
