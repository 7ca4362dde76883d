"""Terms mean what both solvers take them to mean, and memory is what an array of bytes is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ebpf.kops.validation.solvers import BITWUZLA, NEVER, UNDECIDED, Z3, solve
from flowshunt_ebpf.kops.validation.term import BINARY, COMPARISONS, Valuation
from flowshunt_ebpf.kops.validation.terms import Apart, Terms

WIDTH = 8
UNARY = ("not", "neg", "extract", "zext", "sext", "concat", "ite", "select", "store")


def grown(chosen, terms, size):
    """A random term of 8 bits over a, b, c and memory, with any operator in it."""
    pool = [terms.var(name, WIDTH) for name in "abc"] + [terms.const(chosen.randrange(256), WIDTH) for _ in range(2)]
    memory = terms.memory()
    for _ in range(size):
        op = chosen.choice([*BINARY, *COMPARISONS, *UNARY])
        x, y, z = (chosen.choice(pool) for _ in range(3))
        address = terms.plus(terms.zext(x, 64), chosen.randrange(3))
        if op in BINARY:
            made = terms.apply(op, x, y)
        elif op in COMPARISONS:
            made = terms.zext(terms.apply(op, x, y), WIDTH)
        elif op in ("not", "neg"):
            made = terms.not_(x) if op == "not" else terms.neg(x)
        elif op == "extract":
            made = terms.zext(terms.extract(x, chosen.randrange(5), 3), WIDTH)
        elif op in ("zext", "sext"):
            made = (terms.zext if op == "zext" else terms.sext)(terms.extract(x, 0, 5), WIDTH)
        elif op == "concat":
            made = terms.concat(terms.extract(x, 0, 3), terms.extract(y, 2, 5))
        elif op == "ite":
            made = terms.ite(terms.eq(x, y), z, x)
        elif op == "select":
            made = terms.select(memory, address)
        else:
            memory = terms.ite(terms.ult(x, z), terms.store(memory, address, y), memory)
            continue
        pool.append(made)
    return terms.xor(pool[-1], terms.select(memory, terms.zext(pool[-2], 64)))


@pytest.mark.parametrize("solver", [Z3, BITWUZLA])
def test_a_solver_takes_every_operator_as_evaluation_does(solver):
    chosen = random.Random(9)
    for _ in range(60):
        terms = Terms()
        term = grown(chosen, terms, 12)
        values = {name: chosen.choice((0, 1, 127, 128, 255, chosen.randrange(256))) for name in "abc"}
        given_values = terms.and_(
            *(terms.eq(terms.var(name, WIDTH), terms.const(values[name], WIDTH)) for name in "abc")
        )
        content = [chosen.randrange(256) for _ in range(260)]  # every address that a byte and a little more can name
        said = Valuation(values, content.__getitem__).value(term)
        bytes_there = terms.and_(
            *(
                terms.eq(terms.select(terms.memory(), terms.const(n, 64)), terms.const(content[n], 8))
                for n in range(260)
            )
        )
        wrong = terms.and_(given_values, bytes_there, terms.not_(terms.eq(term, terms.const(said, WIDTH))))
        assert solve(solver, wrong, (), 30).verdict == NEVER
        right = terms.and_(given_values, bytes_there, terms.eq(term, terms.const(said, WIDTH)))
        assert solve(solver, right, (terms.var("a", WIDTH),), 30).values == (values["a"],)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 255), min_size=3, max_size=3))
def test_constants_fold_to_what_variables_evaluate_to(seed, values):
    named = dict(zip("abc", values, strict=True))
    terms = Terms()
    term = grown(random.Random(seed), terms, 15)

    class Folding(Terms):
        def var(self, name, width):
            return self.const(named[name], width) if name in named else super().var(name, width)

    folded = grown(random.Random(seed), Folding(), 15)
    by_evaluation = Valuation(named, lambda address: address * 7 & 255).value(term)
    assert Valuation({}, lambda address: address * 7 & 255).value(folded) == by_evaluation


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-6, 6), st.integers(1, 8), st.booleans()), max_size=14), st.data()
)
def test_loads_over_stores_give_what_memory_would_whatever_overlaps(accesses, data):
    terms = Terms()
    bases = {name: data.draw(st.sampled_from([0, 3, 8, 64, 2**64 - 4])) for name in ("p", "q", "s")}
    memory, concrete = terms.memory(), {}
    seen, wanted = [], []

    def content(address):
        return concrete.get(address, address * 13 & 255)

    for number, (base, offset, size, write) in enumerate(accesses):
        name = "pqs"[base]
        address = terms.plus(terms.var(name, 64), offset)
        places = [(bases[name] + offset + n) & (2**64 - 1) for n in range(size)]
        if write:
            memory = terms.save(memory, address, terms.const(0x0102030405060708 * (number + 1), 8 * size))
            raw = (0x0102030405060708 * (number + 1) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            concrete.update(zip(places, raw, strict=True))
        else:
            seen.append(terms.load(memory, address, size))
            wanted.append(int.from_bytes(bytes(map(content, places)), "little"))
    valuation = Valuation(bases, lambda address: address * 13 & 255)
    assert [valuation.value(term) for term in seen] == wanted
    assert valuation.written(memory) == concrete


def test_ranges_known_to_lie_apart_are_looked_past_and_no_others():
    terms = Terms()
    p, q = terms.var("p", 64), terms.var("q", 64)
    terms.assume_apart([Apart(terms.plus(p, 8), 8, q, 16)])
    stored = terms.save(terms.memory(), q, terms.const(7, 128))
    assert terms.load(stored, terms.plus(p, 8), 8) is terms.load(terms.memory(), terms.plus(p, 8), 8)
    for outside in (7, 16, -8):
        assert terms.select(stored, terms.plus(p, outside)).args[0] is stored
    terms.assume_apart(())
    assert terms.select(stored, terms.plus(p, 8)).args[0] is stored


def test_a_solver_that_runs_out_of_time_says_that_it_does_not_know():
    terms = Terms()
    a, b = terms.var("a", 64), terms.var("b", 64)
    product = terms.apply("mul", a, b)
    factored = terms.and_(
        terms.eq(product, terms.const(0xC5D2460186F7233C927E7DB2DCC703C1 >> 64 | 1, 64)),
        terms.ult(a, terms.const(1 << 32, 64)),
        terms.ult(b, terms.const(1 << 32, 64)),
        terms.not_(terms.eq(terms.apply("urem", b, terms.const(3, 64)), terms.apply("urem", a, terms.const(5, 64)))),
    )
    for solver in (Z3, BITWUZLA):
        assert solve(solver, factored, (), 0.001).verdict == UNDECIDED


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_ones_are_counted(value):
    terms = Terms()
    for width in (8, 32, 64):
        term = terms.ones(terms.extract(terms.var("a", 64), 0, width), 64)
        assert Valuation({"a": value}, lambda address: 0).value(term) == (value & ((1 << width) - 1)).bit_count()
