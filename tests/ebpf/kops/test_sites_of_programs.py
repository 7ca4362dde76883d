"""Where idioms become sites, and where the site rules or the prover keep them as they are."""

import random

import attrs
import pytest

from flowshunt.errors import FlowshuntWarning
from flowshunt.insn import check
from flowshunt.operation import Match
from flowshunt_ebpf.asm import assemble, instruction_texts
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.kops.policy import Policy, weight
from flowshunt_ebpf.kops.rewrite import rewrite
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program, SourceLine
from flowshunt_ebpf.testing.sample_operations import HINT, LEAST, SPIN, Believer

X86_64 = {"architecture": "x86_64", "features": frozenset({"bmi2"})}


def sites(text, *operations, prover=None, policy=Policy.ALL):
    """The rewritten program of a text."""
    program = assemble(text) if isinstance(text, str) else text
    return rewrite(program, operations or (SPIN, LEAST), prover or Believer(), weight(policy), **X86_64)


def lines(program):
    return list(instruction_texts(program))


ROTATE = "r2 = r1\nr2 <<= 13\nr1 >>= 51\nr1 |= r2\n"
END = "r0 = r1\nexit"


def test_an_idiom_becomes_a_site():
    made = sites(ROTATE + END)
    (site,) = made.program.sites
    assert (site.start, site.length, site.operation) == (0, 4, "spin")
    assert [form.architecture for form in site.forms] == ["x86_64"]


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        (
            "r2 = r1\nr5 = 7\nr2 <<= 13\nr1 >>= 51\nr5 += 1\nr1 |= r2\nr1 += r5\n" + END,
            ["r5 = 7", "r5 += 1", "r2 = r1", "r2 <<= 13", "r1 >>= 51", "r1 |= r2", "r1 += r5", "r0 = r1", "exit"],
        ),
        (  # reads what the idiom overwrites: it goes before
            "r2 = r1\nr2 <<= 13\nr5 = r1\nr1 >>= 51\nr1 |= r2\nr1 += r5\n" + END,
            ["r5 = r1", "r2 = r1", "r2 <<= 13", "r1 >>= 51", "r1 |= r2", "r1 += r5", "r0 = r1", "exit"],
        ),
        (  # overwrites what the idiom has read: it goes after
            "r5 = r1\nr2 = r5\nr2 <<= 13\nr1 = r5\nr5 = 9\nr1 >>= 51\nr1 |= r2\nr1 += r5\n" + END,
            None,
        ),
        (  # a store and loads of other bytes of the same base
            "r2 = r1\nr2 <<= 13\n*(u64 *)(r10 - 8) = r6\nr1 >>= 51\nr1 |= r2\n" + END,
            ["*(u64 *)(r10 - 8) = r6", "r2 = r1", "r2 <<= 13", "r1 >>= 51", "r1 |= r2", "r0 = r1", "exit"],
        ),
    ],
)
def test_unrelated_code_between_is_moved_out(text, rewritten):
    made = sites(text)
    assert len(made.program.sites) == 1
    if rewritten is not None:
        assert lines(made.program) == rewritten


@pytest.mark.parametrize("landing", [1, 2, 3])
def test_an_idiom_that_a_jump_lands_inside_of_stays(landing):
    text = f"if r3 == 0 goto +{landing}\n" + ROTATE + END
    made = sites(text)
    assert made.program.sites == ()
    assert made.program.encode() == assemble(text).encode()


def careless(*indices):
    """A recognizer that proposes instructions, whatever they are."""
    match = Match(indices, SPIN.layout.encode(dst=1, src=1, tmp=2, amount=13, wide=1))
    return attrs.evolve(SPIN, recognizer=lambda view: [match])


@pytest.mark.parametrize(
    ("text", "indices", "reason"),
    [
        (ROTATE + "r1 += r2\n" + END, (0, 1, 2, 3), "r2 is a temporary, and is read afterwards"),
        (
            "r3 = 1\n" + ROTATE + "r1 += r3\n" + END,
            (0, 1, 2, 3, 4),
            "r3 is no result of the site, and is read afterwards",
        ),
        ("r3 = 1\nr2 = 5\nr1 += r3\n" + END, (1,), "r1 is no result of the idiom, and is read afterwards"),
        ("if r3 == 0 goto +1\n" + ROTATE + END, (1, 2, 3, 4), "a jump from outside lands inside it, at 2"),
        ("if r3 == 0 goto +9\n" + ROTATE + END + "\nr0 = 0" * 3 + "\nexit", (0, 1, 2), "a jump leads out of it, at 0"),
        ("r1 = 1\nr1 = 2\nexit\nr1 = 3\nexit", (0, 1, 2, 3), "the program ends inside it, at 2"),
        ("r1 = 1\ncall 5\nr1 = 2\nexit", (0, 1, 2), "it takes in a call or an external symbol, at 1"),
        ("r1 = 1\ncall f\nr1 = 2\nexit\n.function f\nr0 = 1\nexit", (0, 2), "a jump or local call stands between"),
        ("r1 = 1\nexit", (0, 7), "don't lie in the program"),
        ("r2 = r1\nr2 <<= 13\nr2 += 1\nr1 >>= 51\nr1 |= r2\n" + END, (0, 1, 3, 4), "instruction 2 stands between its"),
        ("r1 = 1\n" + "r2 += r1\nr1 = r2\n" * 90 + "r1 = 3\n" + END, (0, 181), "its instructions lie 181 apart"),
    ],
)
def test_a_proposal_against_the_site_rules_is_refused(text, indices, reason):
    made = sites(text, careless(*indices))
    assert made.program.sites == ()
    assert made.program.encode() == assemble(text).encode()
    assert [reason in f.admissible for f in made.findings] == [True]


def test_an_idiom_with_a_branch_is_a_site_where_nothing_else_lands_in_it():
    made = sites("if r1 > r2 goto +1\nr2 = r1\nr0 = r2\nexit", LEAST)
    assert [(s.start, s.length) for s in made.program.sites] == [(0, 2)]


def test_a_jump_from_outside_into_a_branch_keeps_it():
    made = sites("if r3 == 0 goto +1\nif r1 > r2 goto +1\nr2 = r1\nr0 = r2\nexit", LEAST)
    assert made.program.sites == ()
    assert [f.admissible for f in made.findings] == ["a jump from outside lands inside it, at 2"]


def test_an_operation_that_replaces_nothing_is_put_in():
    made = sites("r2 = 1\nr0 = *(u64 *)(r1 + 0)\nexit", HINT)
    assert lines(made.program) == ["r2 = 1", "goto L2", "r0 = *(u64 *)(r1 + 0)", "exit"]
    assert [(s.start, s.length) for s in made.program.sites] == [(1, 1)]


def test_interleaved_idioms_become_sites_in_later_rounds():
    text = "r2 = r1\nr4 = r3\nr2 <<= 13\nr4 <<= 7\nr1 >>= 51\nr3 >>= 57\nr1 |= r2\nr3 |= r4\nr1 += r3\n" + END
    made = sites(text)
    assert sorted(p.index for p in made.places) == [6, 7]
    assert [s.length for s in made.program.sites] == [4, 4]


def test_of_overlapping_candidates_those_that_save_most_together_are_taken():
    other = attrs.evolve(
        SPIN,
        name="spun",
        recognizer=lambda view: [attrs.evolve(m) for m in SPIN.recognizer(view)],
        cost=lambda a, v: 99.0,
    )
    made = sites(ROTATE + END, SPIN, other)
    assert [s.operation for s in made.program.sites] == ["spun"]


def test_a_native_form_that_is_not_proved_leaves_the_program_as_it_was():
    made = sites(ROTATE + END, prover=Believer(["spin"]))
    assert made.program.sites == ()
    assert made.program.encode() == assemble(ROTATE + END).encode()
    assert [f.proved for f in made.findings] == ["native form: doubted"]


def test_a_rewrite_that_is_not_proved_leaves_the_program_as_it_was():
    made = sites("r2 = r1\nr5 = 7\nr2 <<= 13\nr1 >>= 51\nr1 |= r2\nr1 += r5\n" + END, prover=Believer(["rewrite"]))
    assert made.program.sites == ()
    assert [f.proved for f in made.findings] == ["rewrite: doubted"]


def test_what_is_to_be_proved_names_what_is_live():
    prover = Believer()
    sites("r2 = r1\nr5 = 7\nr2 <<= 13\nr1 >>= 51\nr1 |= r2\nr1 += r5\n" + END, prover=prover)
    ((original, rewritten, live_out),) = prover.rewrites
    assert len(original) == len(rewritten) == 5
    assert live_out == 0b11 << 2 | 0b11 << 10  # r1 and r5


def test_a_recognizer_that_raises_is_named_and_the_others_work():
    def broken(view):
        raise RuntimeError("not today")

    with pytest.warns(FlowshuntWarning, match="the recognizer of spun raised RuntimeError: not today"):
        made = sites(ROTATE + END, attrs.evolve(SPIN, name="spun", recognizer=broken), SPIN)
    assert [s.operation for s in made.program.sites] == ["spin"]


def test_source_lines_and_externals_stay_with_their_instructions():
    program = assemble("r2 = r1\nr5 = 7\nr2 <<= 13\nr1 >>= 51\nr1 |= r2\nr0 = r5\ncall 5\nexit")
    texts = ["a", "b", "c", "d", "e", "f", "g", "h"]
    program = attrs.evolve(
        program,
        lines=tuple(SourceLine(at, "x.c", at + 1, text=text) for at, text in enumerate(texts)),
        externals={6: "bpf_ktime"},
    )
    made = sites(program)
    assert [made.program.line_at(at).text for at in range(8)] == ["b", "e", "e", "e", "e", "f", "g", "h"]
    assert made.program.externals == {6: "bpf_ktime"}


def test_static_takes_only_what_the_tables_say_gains():
    costly = attrs.evolve(SPIN, cost=lambda architecture, values: 0.5)
    assert sites(ROTATE + END, costly, policy=Policy.STATIC).program.sites == ()
    assert len(sites(ROTATE + END, costly, policy=Policy.ALL).program.sites) == 1
    assert sites(ROTATE + END, policy=Policy.NONE).program.sites == ()


@pytest.mark.parametrize("seed", range(60))
def test_rewritten_programs_compute_the_same(seed):
    program = _scrambled(random.Random(seed))
    made = sites(program, SPIN, LEAST, HINT)
    assert all(check(i) is None for i in made.program.instructions)
    assert _results(program) == _results(made.program)


def test_random_programs_do_have_sites():
    made = [sites(_scrambled(random.Random(seed)), SPIN, LEAST, HINT).program.sites for seed in range(60)]
    names = {site.operation for one in made for site in one}
    assert names == {"spin", "least", "hint"}
    assert sum(len(one) for one in made) > 150


def _results(program: Program) -> list[int]:
    bench = Workbench(program, context=MEMORY)
    loaded = interpret(bench.image, bench.machine)
    found = []
    for seed in range(6):
        bench.machine.set_packet(random.Random(seed).randbytes(64))
        outcome = loaded.run()
        assert outcome.fault is None
        found.append((outcome.value, bench.machine.packet()))
    return found


def _scrambled(rng: random.Random) -> Program:
    """Loads, then idioms on pairs of registers interleaved at random with each other and with other code, a digest."""
    text = [f"r{r} = *(u64 *)(r1 + {8 * r - 16})" for r in range(2, 10)] + ["r0 = r1"]
    for block in range(rng.randrange(1, 5)):
        pairs = [(2, 3), (4, 5), (6, 7), (8, 9)]
        rng.shuffle(pairs)
        streams = [_stream(rng, pair) for pair in pairs[: rng.randrange(2, 5)]]
        while any(streams):
            stream = rng.choice([s for s in streams if s])
            text.append(stream.pop(0))
        if rng.random() < 0.5:
            a, b = rng.sample(range(2, 10), 2)
            text += [f"if r{a} > r{b} goto +1", f"r{b} = r{a}"]
        if rng.random() < 0.5:
            text += [f"if r{rng.randrange(2, 10)} == 0 goto block{block}", "r3 += r5", f"block{block}:"]
        if rng.random() < 0.3:
            text.append(f"r{rng.randrange(2, 10)} = *(u64 *)(r0 + {8 * rng.randrange(8)})")
    text.append("r1 = r0")
    text.append("r0 = 0")
    for register in range(2, 10):
        text += [f"r0 ^= r{register}", "r0 *= 31"]
    return assemble("\n".join([*text, "exit"]))


def _stream(rng: random.Random, pair: tuple[int, int]) -> list[str]:
    """A rotation in one of its shapes, or other code, on two registers alone."""
    x, t = pair
    k = rng.randrange(1, 32)
    wide = rng.random() < 0.6
    r, bits = ("r", 64) if wide else ("w", 32)
    shapes = [
        [f"{r}{t} = {r}{x}", f"{r}{t} <<= {k}", f"{r}{x} >>= {bits - k}", f"{r}{x} |= {r}{t}", f"r{t} = r{x}"],
        [f"{r}{t} = {r}{x}", f"{r}{t} >>= {bits - k}", f"{r}{x} <<= {k}", f"{r}{x} |= {r}{t}", f"r{t} = 5"],
        [f"{r}{t} = {r}{x}", f"{r}{x} <<= {k}", f"{r}{t} >>= {bits - k}", f"{r}{t} |= {r}{x}", f"r{x} = r{t}"],
        [f"r{x} += r{t}", f"r{t} ^= {k}", f"r{x} *= 3"],
        [f"*(u64 *)(r10 - {8 * x}) = r{x}", f"r{t} = *(u64 *)(r10 - {8 * x})", f"r{t} += {k}"],
        [f"r{t} = r{x}", f"r{t} <<= {k}", f"r{x} >>= {64 - k}", f"r{x} |= r{t}", f"r{x} += r{t}"],
    ]
    return list(rng.choice(shapes))
