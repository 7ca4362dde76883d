import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt import insn
from flowshunt.errors import InputError
from flowshunt.insn import JEQ, JNE, Instruction
from flowshunt_ebpf.program import Function, Program, SourceLine, control_flow
from flowshunt_ebpf.program.dominators import immediate_dominators, reverse_postorder


def flow(*instructions: Instruction):
    return control_flow(Program.from_instructions(instructions))


DIAMOND = (
    insn.jmp_imm(JEQ, 1, 0, 2),  # 0
    insn.mov64_imm(0, 1),
    insn.ja(1),
    insn.mov64_imm(0, 2),  # 3
    insn.exit_(),  # 4
)


def test_a_diamond_has_four_blocks():
    found = flow(*DIAMOND)
    assert [(b.start, b.end) for b in found.blocks] == [(0, 1), (1, 3), (3, 4), (4, 5)]
    assert [b.successors for b in found.blocks] == [(1, 2), (3,), (3,), ()]
    assert [b.predecessors for b in found.blocks] == [(), (0,), (0,), (1, 2)]
    assert found.block_of == (0, 1, 1, 2, 3)
    assert found.immediate_dominator == (None, 0, 0, 0)
    assert found.dominates(0, 3)
    assert not found.dominates(1, 3)


def test_jumps_count_in_slots_and_a_wide_load_takes_two():
    found = flow(insn.ja(2), insn.ld_imm64(0, 1), insn.exit_())
    assert found.blocks[0].successors == (2,)
    assert [b.start for b in found.blocks] == [0, 1, 2]


def test_gotol_and_may_goto_are_followed():
    found = flow(insn.gotol(1), insn.exit_(), insn.may_goto(-2), insn.exit_())
    assert [b.successors for b in found.blocks] == [(2,), (), (3, 1), ()]


def test_a_condition_that_jumps_to_the_next_instruction_has_one_successor():
    assert flow(insn.jmp_imm(JEQ, 1, 0, 0), insn.exit_()).blocks[0].successors == (1,)


def test_subprograms_are_graphs_of_their_own():
    found = flow(
        insn.call_local(2),
        insn.exit_(),
        insn.exit_(),  # not called: part of the first function, not reached
        insn.mov64_imm(0, 0),
        insn.jmp_imm(JNE, 1, 0, -2),
        insn.exit_(),
    )
    assert [(s.start, s.end) for s in found.program.subprograms] == [(0, 3), (3, 6)]
    assert found.calls == {0: 1}
    assert found.entries == (0, 2)
    assert found.order == ((0,), (2, 3))
    assert found.reachable == {0, 2, 3}


def test_a_function_whose_address_is_taken_is_a_callback():
    found = flow(insn.ld_function(2, 3), insn.call(181), insn.exit_(), insn.mov64_imm(0, 0), insn.exit_())
    assert found.callbacks == {1}
    assert found.calls == {}
    assert found.reachable == {0, 1}


@pytest.mark.parametrize(
    ("instructions", "what"),
    [
        ((), "no instruction"),
        ((insn.mov64_imm(0, 0),), "run past its last"),
        ((insn.jmp_imm(JEQ, 0, 0, 0),), "outside the program"),
        ((insn.ja(5), insn.exit_()), "slot 6, lies outside the program"),
        ((insn.ja(-2), insn.exit_()), "slot -1, lies outside the program"),
        ((insn.ja(1), insn.ld_imm64(0, 1), insn.exit_()), "into a 64-bit load's second slot"),
        ((insn.call_local(7), insn.exit_()), "outside the program"),
        ((insn.call_local(1), insn.exit_(), insn.ja(-2)), "leaves function"),
        ((insn.call_local(1), insn.mov64_imm(0, 0), insn.exit_()), "function main can run past"),
        ((Instruction(0x0D, 1), insn.exit_()), "indirect jump"),
    ],
)
def test_broken_flow_is_refused(instructions, what):
    with pytest.raises(InputError, match=what):
        flow(*instructions)


def test_messages_carry_the_source_line():
    program = Program(
        (insn.mov64_imm(0, 0), insn.ja(9)),
        name="parse",
        lines=(SourceLine(0, "p.bpf.c", 7, 1, "int x;"), SourceLine(1, "p.bpf.c", 9, 2, "  goto out;")),
    )
    with pytest.raises(InputError, match=r"^program parse, instruction 1 \(p\.bpf\.c:9: goto out;\): the target"):
        control_flow(program)


def test_subprograms_take_the_names_of_functions():
    program = Program(
        (insn.call_local(1), insn.exit_(), insn.mov64_imm(0, 0), insn.exit_()),
        name="entry",
        functions=(Function("entry", 0, "global"), Function("leaf", 2)),
    )
    assert [s.name for s in program.subprograms] == ["entry", "leaf"]


GRAPHS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n)
)


@settings(max_examples=200)
@given(GRAPHS)
def test_dominators_are_the_nodes_that_every_path_passes(successors):
    predecessors = [[a for a, to in enumerate(successors) if b in to] for b in range(len(successors))]
    order = reverse_postorder(successors, 0)
    above = immediate_dominators(order, predecessors)

    def reaches_without(missing: int) -> set[int]:
        seen, todo = set(), [0] if missing else []
        while todo:
            node = todo.pop()
            if node not in seen and node != missing:
                seen.add(node)
                todo.extend(successors[node])
        return seen

    for node in order[1:]:
        chain, at = set(), node
        while at in above:
            at = above[at]
            chain.add(at)
        expected = {d for d in order if d != node and node not in reaches_without(d)}
        assert chain == expected
