"""The domain is at least as precise as the kernel's verifier, and how near it comes to the best that can be said.

`Kernel` is a model of what kernel/bpf/verifier.c does with numbers (Linux 6.18: reg_bounds_sync, scalar_min_max_*,
regs_refine_cond_op) at any width, written from its description, apart from the domain.
"""

import itertools
import random

import pytest

from flowshunt.insn import ADD, AND, ARSH, JEQ, JLE, JLT, JNE, JSET, JSLE, JSLT, LSH, MUL, OR, RSH, SUB, XOR
from flowshunt_ebpf.testing.domain_trial import OPERATIONS, Trial, signed
from flowshunt_ebpf.testing.narrow_domain import load_domain

W, H = 4, 2
ONES, LOW = (1 << W) - 1, (1 << H) - 1
SIGN, LOW_SIGN = 1 << W - 1, 1 << H - 1


def s(x):
    return signed(W, x & ONES)


def s_low(x):
    return signed(H, x & LOW)


def tnum_add(a, b):
    mu = (((a[0] + b[0]) ^ (a[0] + b[0] + a[1] + b[1])) | a[1] | b[1]) & ONES
    return (a[0] + b[0]) & ~mu & ONES, mu


def tnum_sub(a, b):
    mu = (((a[0] - b[0] + a[1]) ^ (a[0] - b[0] - b[1])) | a[1] | b[1]) & ONES
    return (a[0] - b[0]) & ~mu & ONES, mu


def tnum_union(a, b):
    mu = a[1] | b[1] | (a[0] ^ b[0])
    return a[0] & ~mu, mu


def tnum_mul(a, b):
    """As of Linux 6.18: a row for an unknown bit is added or not."""
    acc = (0, 0)
    for bit in range(W):
        row = (b[0] << bit & ONES, b[1] << bit & ONES)
        if a[0] >> bit & 1:
            acc = tnum_add(acc, row)
        elif a[1] >> bit & 1:
            acc = tnum_union(acc, tnum_add(acc, row))
    return acc


def tnum_mul_before(a, b):
    """As of Linux 5.15: what is uncertain is added up apart."""
    acc = (0, 0)
    for bit in range(W):
        value, mask = b[0] << bit & ONES, b[1] << bit & ONES
        if a[0] >> bit & 1:
            acc = tnum_add(acc, (0, mask))
        elif a[1] >> bit & 1:
            acc = tnum_add(acc, (0, value | mask))
    return tnum_add((a[0] * b[0] & ONES, 0), acc)


def tnum_range(lo, hi):
    delta = (1 << (lo ^ hi).bit_length()) - 1
    return lo & ~delta, delta


class Kernel:
    """A register of the kernel's verifier: known bits and four pairs of bounds."""

    def __init__(self, parts):
        self.v, self.m, self.umin, self.umax, self.smin, self.smax, *low = parts
        self.lmin, self.lmax, self.lsmin, self.lsmax = low

    def parts(self):
        return (
            self.v, self.m, self.umin, self.umax, self.smin, self.smax, self.lmin, self.lmax, self.lsmin, self.lsmax
        )  # fmt: skip

    def sync(self):
        self.from_bits()
        for _ in range(3):
            self.deduce()
        self.from_bounds()
        self.from_bits()
        return self

    def from_bits(self):
        v, m = self.v, self.m
        self.smin = max(self.smin, s(v | m & SIGN))
        self.smax = min(self.smax, s(v | m & SIGN - 1))
        self.umin, self.umax = max(self.umin, v), min(self.umax, v | m)
        v, m = v & LOW, m & LOW
        self.lsmin = max(self.lsmin, s_low(v | m & LOW_SIGN))
        self.lsmax = min(self.lsmax, s_low(v | m & LOW_SIGN - 1))
        self.lmin, self.lmax = max(self.lmin, v), min(self.lmax, v | m)

    def low_signed(self, lo, hi):
        if s_low(lo) <= s_low(hi):
            self.lsmin, self.lsmax = max(self.lsmin, s_low(lo)), min(self.lsmax, s_low(hi))

    def deduce(self):
        if self.umin >> H == self.umax >> H:
            self.lmin, self.lmax = max(self.lmin, self.umin & LOW), min(self.lmax, self.umax & LOW)
            self.low_signed(self.umin, self.umax)
        if self.smin >> H == self.smax >> H:
            self.lmin, self.lmax = max(self.lmin, self.smin & LOW), min(self.lmax, self.smax & LOW)
            self.low_signed(self.smin, self.smax)
        for lo, hi in ((self.umin, self.umax), (self.smin, self.smax)):
            if (lo >> H) + 1 == hi >> H and s_low(lo) < 0 <= s_low(hi):
                self.low_signed(lo, hi)
        if s_low(self.lmin) <= s_low(self.lmax):
            self.low_signed(self.lmin, self.lmax)
        if self.lsmin & LOW <= self.lsmax & LOW:
            self.lmin, self.lmax = max(self.lmin, self.lsmin & LOW), min(self.lmax, self.lsmax & LOW)
        if s(self.umin) <= s(self.umax):
            self.smin, self.smax = max(self.smin, s(self.umin)), min(self.smax, s(self.umax))
        if self.smin & ONES <= self.smax & ONES:
            self.umin, self.umax = max(self.umin, self.smin & ONES), min(self.umax, self.smax & ONES)
        elif self.umax < self.smin & ONES:
            self.smin, self.umax = max(self.smin, s(self.umin)), min(self.umax, self.smax)
        elif self.smax < self.umin:
            self.smax, self.umin = min(self.smax, s(self.umax)), max(self.umin, self.smin & ONES)
        self.umin = max(self.umin, self.umin & ~LOW | self.lmin)
        self.umax = min(self.umax, self.umax & ~LOW | self.lmax)
        self.smin = max(self.smin, self.smin & ~LOW | self.lmin)
        self.smax = min(self.smax, self.smax & ~LOW | self.lmax)
        if self.lsmin >= 0 and self.smin >= -LOW_SIGN and self.smax < LOW_SIGN:
            self.smin = self.umin = max(self.lsmin, self.umin)
            self.smax = self.umax = min(self.lsmax, self.umax)

    def from_bounds(self):
        v, m = intersect((self.v, self.m), tnum_range(self.umin, self.umax))
        lv, lm = intersect((self.v & LOW, self.m & LOW), tnum_range(self.lmin, self.lmax))
        self.v, self.m = v & ~LOW | lv, m & ~LOW | lm


def intersect(a, b):
    mask = a[1] & b[1]
    return (a[0] | b[0]) & ~mask, mask


def bounds(bits, lo, hi, slo, shi):
    """Bounds where all values wrap around equally often, else none."""
    ones, half = (1 << bits) - 1, 1 << bits - 1
    u = (lo & ones, hi & ones) if lo >> bits == hi >> bits else (0, ones)
    if slo + half >> bits == shi + half >> bits:
        return (*u, signed(bits, slo & ones), signed(bits, shi & ones))
    return (*u, -half, half - 1)


def computed(name, bits, a, b):
    """Bounds of an operation on bounds at a width, and the unknown ones where the kernel gives up."""
    (alo, ahi, aslo, ashi), (blo, bhi, bslo, bshi) = a, b
    half = 1 << bits - 1
    if name == "add":
        return bounds(bits, alo + blo, ahi + bhi, aslo + bslo, ashi + bshi)
    if name == "sub":
        return bounds(bits, alo - bhi, ahi - blo, aslo - bshi, ashi - bslo)
    assert name == "mul"
    u = (alo * blo, ahi * bhi) if ahi * bhi < 1 << bits else (0, (1 << bits) - 1)
    products = [x * y for x in (aslo, ashi) for y in (bslo, bshi)]
    fits = -half <= min(products) and max(products) < half
    return (*u, *((min(products), max(products)) if fits else (-half, half - 1)))


def bitwise(name, bits, a, b, tnum):
    """Bounds of a bitwise operation, from those of the operands and the known bits of the result."""
    half = 1 << bits - 1
    v, m = tnum[0] & (1 << bits) - 1, tnum[1] & (1 << bits) - 1
    lo, hi = {
        "and": (v, min(a[1], b[1])), "or": (max(a[0], b[0]), v | m), "xor": (v, v | m)
    }[name]  # fmt: skip
    if signed(bits, lo) <= signed(bits, hi):
        return lo, hi, signed(bits, lo), signed(bits, hi)
    return lo, hi, -half, half - 1


def kernel_operation(name, a, b, wide):
    """What the kernel says of `a op b`, for shifts by a constant."""
    ta, tb = (a.v, a.m), (b.v, b.m)
    a64, b64 = a.parts()[2:6], b.parts()[2:6]
    a32, b32 = a.parts()[6:], b.parts()[6:]
    no64, no32 = (0, ONES, -SIGN, SIGN - 1), (0, LOW, -LOW_SIGN, LOW_SIGN - 1)
    if name in ("and", "or", "xor"):
        if name == "and":
            v = a.v & b.v
            tnum = v, (a.v | a.m) & (b.v | b.m) & ~v
        elif name == "or":
            v = a.v | b.v
            tnum = v, (a.m | b.m) & ~v
        else:
            m = a.m | b.m
            tnum = (a.v ^ b.v) & ~m, m
        r64, r32 = bitwise(name, W, a64, b64, tnum), bitwise(name, H, a32, b32, tnum)
    elif name in ("add", "sub", "mul"):
        tnum = {"add": tnum_add, "sub": tnum_sub, "mul": tnum_mul}[name](ta, tb)
        r64, r32 = computed(name, W, a64, b64), computed(name, H, a32, b32)
    else:
        k = b.v & (W if wide else H) - 1
        r64, r32 = no64, no32
        if name == "lsh":
            tnum = a.v << k & ONES, a.m << k & ONES
            if a.umax <= 1 << W - 1 - k:
                r64 = (a.umin << k & ONES, a.umax << k & ONES, -SIGN, SIGN - 1)
            if k == H:
                r64 = (*r64[:2], a.lsmin << H, a.lsmax << H)
            if k < H and a.lmax <= 1 << H - 1 - k:
                r32 = (a.lmin << k & LOW, a.lmax << k & LOW, -LOW_SIGN, LOW_SIGN - 1)
        elif name == "rsh":
            tnum = (a.v >> k, a.m >> k) if wide else ((a.v & LOW) >> k, (a.m & LOW) >> k)
            r64 = (a.umin >> k, a.umax >> k, -SIGN, SIGN - 1)
            r32 = (a.lmin >> k, a.lmax >> k, -LOW_SIGN, LOW_SIGN - 1) if not wide else no32
        else:
            tnum = tuple((s(x) >> k & ONES) if wide else (s_low(x) >> k & LOW) for x in (a.v, a.m))
            r64 = (0, ONES, a.smin >> k, a.smax >> k)
            r32 = (0, LOW, a.lsmin >> k, a.lsmax >> k) if not wide else no32
    if wide:
        return Kernel((*tnum, *r64, *r32)).sync()
    zero_extended = (r32[0], r32[1], *((r32[2], r32[3]) if r32[2] >= 0 else (0, LOW)))
    return Kernel((tnum[0] & LOW, tnum[1] & LOW, *zero_extended, *r32)).sync()


def kernel_condition(op, a, b, wide):
    """Both registers where the kernel goes on after `a op b` holds."""
    a, b = Kernel(a.parts()), Kernel(b.parts())
    if op == JEQ:
        names = ["umin", "umax", "smin", "smax"] if wide else []
        for name in [*names, "lmin", "lmax", "lsmin", "lsmax"]:
            both = (max if name.endswith("min") else min)(getattr(a, name), getattr(b, name))
            setattr(a, name, both)
            setattr(b, name, both)
        if wide:
            a.v, a.m = b.v, b.m = intersect((a.v, a.m), (b.v, b.m))
        else:
            v, m = intersect((a.v & LOW, a.m & LOW), (b.v & LOW, b.m & LOW))
            a.v, a.m, b.v, b.m = a.v & ~LOW | v, a.m & ~LOW | m, b.v & ~LOW | v, b.m & ~LOW | m
    elif op == JNE:
        for one, other in ((a, b), (b, a)):
            if other.m & (ONES if wide else LOW):
                continue
            prefix = "" if wide else "l"
            value = other.v if wide else other.v & LOW
            for sign, known in (("u" if wide else "", value), ("s", s(value) if wide else s_low(value))):
                lo, hi = (f"{sign}min", f"{sign}max") if wide else (f"{prefix}{sign}min", f"{prefix}{sign}max")
                setattr(one, lo, getattr(one, lo) + (getattr(one, lo) == known))
                setattr(one, hi, getattr(one, hi) - (getattr(one, hi) == known))
            break
    elif op == JSET:
        value = b.v if wide else b.v & LOW
        if b.m & (ONES if wide else LOW) or value & (value - 1) or not value:
            return a.sync(), b.sync()
        a.v, a.m = a.v | value, a.m & ~value
    else:
        step = int(op in (JLT, JSLT))
        lo, hi = {(True, True): ("smin", "smax"), (True, False): ("umin", "umax"), (False, True): ("lsmin", "lsmax"),
                  (False, False): ("lmin", "lmax")}[wide, op in (JSLT, JSLE)]  # fmt: skip
        setattr(a, hi, min(getattr(a, hi), getattr(b, hi) - step))
        setattr(b, lo, max(getattr(b, lo), getattr(a, lo) + step))
    return a.sync(), b.sync()


@pytest.fixture(scope="module")
def trial():
    return Trial(load_domain(W))


@pytest.fixture(scope="module")
def elements(trial):
    return trial.elements(random.Random(7), 4000)


def as_precise(ours, kernel):
    v, m, umin, umax, smin, smax, lmin, lmax, lsmin, lsmax = kernel.parts()
    return (
        not ours.mask & ~m
        and ours.value & ~m & ONES == v
        and umin <= ours.umin <= ours.umax <= umax
        and smin <= ours.smin <= ours.smax <= smax
        and lmin <= ours.u32_min <= ours.u32_max <= lmax
        and lsmin <= ours.s32_min <= ours.s32_max <= lsmax
    )


def test_known_bits_of_products_are_at_least_those_of_both_kernel_algorithms(trial):
    tnums = [(v, m) for m in range(ONES + 1) for v in range(ONES + 1) if not v & m]
    for a, b in itertools.product(tnums, repeat=2):
        _, mask = trial.domain.tnum.mul(*a, *b, ONES)
        assert not mask & ~tnum_mul(a, b)[1]
        assert not mask & ~tnum_mul_before(a, b)[1]


def test_settling_is_at_least_as_precise_as_the_kernels(trial):
    rng = random.Random(5)
    tried = 0
    while tried < 6000:
        parts = trial.random_parts(rng)
        ours = trial.domain.scalar_value.settle(*parts)
        if ours is not None:
            tried += 1
            assert as_precise(ours, Kernel(parts).sync()), parts


NAMES = {"add": ADD, "sub": SUB, "mul": MUL, "and": AND, "or": OR, "xor": XOR, "lsh": LSH, "rsh": RSH, "arsh": ARSH}


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_is_at_least_as_precise_as_the_kernels(trial, elements, name, wide):
    domain, rng = trial.domain.scalar, random.Random(11)
    for _ in range(2500):
        a = rng.choice(elements)
        b = domain.const(rng.randrange(W if wide else H)) if name in ("lsh", "rsh", "arsh") else rng.choice(elements)
        ours = (domain.alu64 if wide else domain.alu32)(NAMES[name], a, b)
        kernel = kernel_operation(name, Kernel(a), Kernel(b), wide)
        assert as_precise(ours, kernel), (a, b, ours, kernel.parts())


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("op", [JEQ, JNE, JSET, JLT, JLE, JSLT, JSLE])
def test_comparisons_tell_at_least_as_much_as_the_kernels(trial, elements, op, wide):
    domain, rng = trial.domain.scalar, random.Random(13)
    for _ in range(2500):
        a = rng.choice(elements)
        b = domain.const(rng.randrange(ONES + 1)) if rng.random() < 0.5 else rng.choice(elements)
        ours = domain.refine(op, a, b, wide)
        if ours is None:
            continue
        kernel = kernel_condition(op, Kernel(a), Kernel(b), wide)
        assert as_precise(ours[0], kernel[0]), (a, b, ours[0], kernel[0].parts())
        assert as_precise(ours[1], kernel[1]), (a, b, ours[1], kernel[1].parts())


BEST = {"add": 1.35, "sub": 1.35, "mul": 1.5, "and": 1.4, "or": 1.4, "xor": 1.4, "div": 1.6, "mod": 1.7}


@pytest.mark.parametrize("name", BEST)
def test_results_have_few_values_more_than_they_must(trial, elements, name):
    """Values of the results over values of the best sets that the domain has for them."""
    domain, rng = trial.domain, random.Random(17)
    best = ours = 0
    for _ in range(600):
        a, b = rng.choice(elements), rng.choice(elements)
        values = {trial.concrete(W, name, x, y) for x, y in itertools.product(trial.values_of(a), trial.values_of(b))}
        least = None
        for x in values:
            least = domain.scalar.const(x) if least is None else domain.scalar.join(least, domain.scalar.const(x))
        result = domain.scalar.alu64(OPERATIONS[name], a, b)
        best += len(trial.values_of(least))
        ours += len(trial.values_of(result))
    print(f"{name}: {ours / best:.3f} times the values of the best result")
    assert ours <= BEST[name] * best
