"""The semantics of x86-64 that proofs rest on give what processors do: Unicorn's, and this machine's."""

import platform
import random
from functools import lru_cache

import pytest

from flowshunt_ebpf.kops.validation.forward import MEMORY_KEY, NotModelledError, initial
from flowshunt_ebpf.kops.validation.processors import BUFFER_BYTES, HostProcessor, Outcome, UnicornProcessor
from flowshunt_ebpf.kops.validation.term import Valuation
from flowshunt_ebpf.kops.validation.terms import Terms
from flowshunt_ebpf.kops.validation.x86_64_decode import decode
from flowshunt_ebpf.kops.validation.x86_64_machine import WIDTHS
from flowshunt_ebpf.kops.validation.x86_64_semantics import _MNEMONICS, run_x86_64
from flowshunt_ebpf.native.assembler import assemble
from flowshunt_ebpf.native.host import features

CONDITIONS = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "l", "ge", "le", "g")
# In each text {a}, {b}, {c} are registers of the width that stands before it; {m}, {n}: memory.
GENERAL = {
    (8, 16, 32, 64): [
        "mov {a}, {b}",
        "mov {a}, 77",
        "mov {a}, {m}",
        "mov {m}, {a}",
        "mov {p}{m}, -5",
        "xchg {a}, {b}",
        *(f"{op} {{a}}, {{b}}" for op in ("add", "adc", "sub", "sbb", "cmp", "and", "or", "xor", "test")),
        *(f"{op} {{a}}, -7" for op in ("add", "adc", "sub", "sbb", "cmp", "and", "or", "xor", "test")),
        *(f"{op} {{a}}, {{m}}" for op in ("add", "sub", "cmp", "and", "or", "xor")),
        *(f"{op} {{m}}, {{a}}" for op in ("add", "sub", "cmp", "and", "or", "xor", "test")),
        "neg {a}",
        "not {a}",
        "inc {a}",
        "dec {a}",
        "neg {p}{m}",
        *(f"{op} {{a}}, {n}" for op in ("rol", "ror") for n in (1, 3, 8)),
        "rol {a}, cl",
        "ror {a}, cl",
    ],
    (16, 32, 64): [
        "movbe {a}, {m}",
        "movbe {m}, {a}",
        "imul {a}, {b}",
        "imul {a}, {b}, 37",
        "imul {a}, {m}",
        "popcnt {a}, {b}",
        "lzcnt {a}, {b}",
        "tzcnt {a}, {b}",
        "bsf {a}, {b}",
        "bsr {a}, {b}",
        "bt {a}, {b}",
        "bt {a}, 5",
        *(f"cmov{c} {{a}}, {{b}}" for c in CONDITIONS),
        "cmovl {a}, {m}",
    ],
    (32, 64): [
        "bswap {a}",
        "lea {a}, [{A}+{B}*4-9]",
        "lea {a}, [{A}*8+77]",
        "movsx {a}, {b8}",
        "movsx {a}, {b16}",
        "movzx {a}, {b8}",
        "movzx {a}, {b16}",
        "movzx {a}, byte ptr {m}",
        "movsx {a}, word ptr {m}",
        *(f"{op} {{a}}, {n}" for op in ("shl", "shr", "sar") for n in (0, 1, 2, 5, 31)),
        *(f"{op} {{a}}, cl" for op in ("shl", "shr", "sar")),
        *(f"{op} {{a}}, {{b}}, {n}" for op in ("shld", "shrd") for n in (0, 1, 8, 31)),
        "shld {a}, {b}, cl",
        "shrd {a}, {b}, cl",
        *(f"rorx {{a}}, {{b}}, {n}" for n in (0, 1, 13, 31)),
        "rorx {a}, {m}, 7",
        *(f"{op} {{a}}, {{b}}, {{c}}" for op in ("shlx", "shrx", "sarx", "bextr", "bzhi", "andn")),
        "shlx {a}, {m}, {b}",
    ],
    (64,): [
        "movsxd {a}, {b32}",
        "movsxd {a}, dword ptr {m}",
        "mov {a}, 0x123456789abcdef0",
        "shl {a}, 63",
        "rorx {a}, {b}, 63",
    ],
    (8,): [f"set{c} {{a}}" for c in CONDITIONS],
}
FIXED = [
    *(f"mov ecx, {n}\nrep movs{letter}" for letter in "bwq" for n in (0, 1, 5, 16)),
    "mov ecx, 3\n.byte 0xf3, 0xa5",  # rep movsd, which the assembler takes for another instruction
    *(f"mov ecx, {n}\nrep stos{letter}" for letter in "bwdq" for n in (0, 1, 7)),
    "movdqu xmm3, [rsi+3]",
    "movups xmm4, [rsi]",
    "movdqu [rdi+5], xmm1",
    "movups [rdi], xmm2",
    "movdqu xmm1, xmm2",
    "movd xmm1, eax",
    "movq xmm1, rax",
    "movd eax, xmm5",
    "movq rax, xmm6",
    "movq xmm1, xmm2",
    "movq [rdi], xmm3",
    "movd [rdi+1], xmm3",
    "movq xmm3, [rsi]",
    "movd xmm3, [rsi+9]",
    "pxor xmm1, xmm2",
    "pxor xmm4, xmm4",
    "xorps xmm1, xmm3",
    "punpcklqdq xmm1, xmm2",
    "punpcklqdq xmm3, xmm3",
    "lddqu xmm2, [rsi+1]",
    "prefetcht0 [rsi]",
    "prefetcht1 [rsi]",
    "prefetcht2 [rsi]",
    "prefetchnta [rax]",
    "nop",
    "cmp rax, rbx\njb over\nmov rax, rbx\nadd rcx, 1\nover:",
    "test rax, rbx\njne over\nmov rax, rbx\njmp out\nover:\nxor edx, edx\nout:",
    *(f"cmp eax, ebx\nj{c} over\nmov eax, 1\nover:" for c in CONDITIONS),
    "jmp over\nmov eax, 1\nover:",
]
AVX = [
    "vmovdqu ymm3, [rsi+3]",
    "vmovups ymm4, [rsi]",
    "vmovdqu [rdi+5], ymm1",
    "vmovups [rdi], ymm2",
    "vmovdqu xmm3, [rsi]",
    "vmovdqu xmm1, xmm2",
    "vmovdqu ymm1, ymm2",
    "vmovd xmm1, eax",
    "vmovq xmm1, rax",
    "vmovd eax, xmm5",
    "vmovq rax, xmm6",
    "vpxor xmm1, xmm2, xmm3",
    "vpxor ymm1, ymm2, ymm3",
    "vxorps ymm0, ymm0, ymm0",
    "vpunpcklqdq xmm1, xmm2, xmm3",
    "vpbroadcastb ymm1, xmm2",
    "vpbroadcastq ymm1, xmm2",
    "vpbroadcastq xmm3, [rsi]",
    "vzeroupper",
    "vlddqu ymm2, [rsi+1]",
    "movdqu xmm1, [rsi]",
    "pxor xmm1, xmm2",
    "vmovups xmm1, [rsi]",
]

R64 = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
R32 = ("eax", "ebx", "ecx", "edx", "esi", "edi", "ebp", *(f"r{n}d" for n in range(8, 16)))
R16 = ("ax", "bx", "cx", "dx", "si", "di", "bp", *(f"r{n}w" for n in range(8, 16)))
R8 = ("al", "bl", "cl", "dl", "sil", "dil", "bpl", *(f"r{n}b" for n in range(8, 16)))
BY_WIDTH = {8: R8, 16: R16, 32: R32, 64: R64}
POINTERS = {8: "byte ptr ", 16: "word ptr ", 32: "dword ptr ", 64: "qword ptr "}
EDGES = (
    0,
    1,
    2,
    31,
    32,
    63,
    64,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 63,
    (1 << 64) - 1,
)


def texts():
    """Every text with registers chosen, three times each: all different, and aliased."""
    chosen = random.Random(7)
    for widths, templates in GENERAL.items():
        for template in templates:
            for width in widths:
                for _ in range(3):
                    a, b, c = (chosen.choice([n for n in range(15) if n not in (4, 5)]) for _ in range(3))
                    if chosen.random() < 0.3:
                        b = a
                    names = BY_WIDTH[width]
                    where = f"[{chosen.choice(('rsi', 'rdi'))}+{chosen.randrange(64)}]"
                    yield template.format(
                        a=names[a],
                        b=names[b],
                        c=names[c],
                        A=R64[a],
                        B=R64[b],
                        b8=R8[b],
                        b16=R16[b],
                        b32=R32[b],
                        m=where,
                        p=POINTERS[width],
                    )
    yield from FIXED


def states(buffer, count, *, vector_bits):
    chosen = random.Random(11)
    for _ in range(count):
        values = {}
        for name, width in WIDTHS.items():
            bits = min(width, vector_bits) if name.startswith("ymm") else width
            values[name] = chosen.choice(EDGES) if chosen.random() < 0.5 else chosen.getrandbits(bits)
            values[name] &= (1 << bits) - 1
        values["rsi"] = buffer + 512 + chosen.randrange(64)
        values["rdi"] = values["rsi"] + chosen.choice((-64, -3, 0, 1, 8, 40, 512))
        values["rsp"] = buffer + 2048
        yield values, chosen.randbytes(BUFFER_BYTES)


def model(text):
    code = assemble("x86_64", text)
    terms = Terms()
    values, _ = run_x86_64(terms, initial(terms, WIDTHS), decode(code))
    return code, values


def difference(processor, values, start, memory, found: Outcome):
    """What a processor left otherwise than the model says, where the model says anything."""
    base = processor.buffer
    zeros, ones = (
        Valuation({**start, **{f"undefined {n}": filler for n in range(1, 20)}}, lambda address: memory[address - base])
        for filler in (0, -1)
    )
    wrong = {}
    for name in processor.names:
        mask = (1 << 128) - 1 if name.startswith("ymm") and isinstance(processor, UnicornProcessor) else -1
        said = zeros.value(values[name])
        if said == ones.value(values[name]) and said & mask != found.values[name] & mask:
            wrong[name] = (hex(said), hex(found.values[name]))
    wanted = bytearray(memory)
    for address, byte in zeros.written(values[MEMORY_KEY]).items():
        wanted[address - base] = byte
    if bytes(wanted) != found.memory:
        wrong["memory"] = next(n for n in range(BUFFER_BYTES) if wanted[n] != found.memory[n])
    return wrong


@lru_cache(maxsize=1)
def unicorn():
    return UnicornProcessor("x86_64")


def test_every_instruction_does_in_unicorn_what_its_semantics_say():
    processor = unicorn()
    compared = 0
    for text in texts():
        if text.startswith("bzhi"):  # Unicorn's processor does not cut what its count is too large for
            continue
        code, values = model(text)
        for start, memory in states(processor.buffer, 6, vector_bits=128):
            found = processor.run(code, start, memory)
            assert isinstance(found, Outcome), f"{text}: {found}"
            assert not difference(processor, values, start, memory, found), text
            compared += 1
    assert compared > 4000


on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is no x86-64")
NEEDS = {"bmi1", "bmi2", "movbe", "popcnt", "abm"}


@on_x86_64
def test_every_instruction_does_on_this_machine_what_its_semantics_say():
    if NEEDS - features():
        pytest.skip(f"this processor has no {', '.join(NEEDS - features())}")
    avx = "avx2" in features()
    processor = HostProcessor(avx=avx)
    for text in [*texts(), *(AVX if avx else ())]:
        code, values = model(text)
        if "rsp" in text:
            continue
        run = processor.load(code)
        for start, memory in states(processor.buffer, 4, vector_bits=256):
            assert not difference(processor, values, start, memory, run(start, memory)), text


def test_every_mnemonic_with_semantics_is_compared():
    seen = {instruction.mnemonic for text in [*texts(), *AVX] for instruction in decode(assemble("x86_64", text))}
    assert set(_MNEMONICS) - seen <= {"sal"}  # another name of shl, which the disassembler does not use


@pytest.mark.parametrize(
    "text",
    [
        "push rax",
        "pop rax",
        "mov ah, 3",
        "mov al, bh",
        "lock add [rdi], eax",
        "mov rax, fs:[0]",
        "xchg [rdi], rax",
        "div rcx",
        "mul rcx",
        "cqo",
        "std",
        "syscall",
        "call over\nover:",
        "ret",
        "jmp rax",
        "cmpxchg [rdi], rax",
        "jp over\nover:",
        "shl al, 1",
        "pxor xmm1, [rdi]",
        "movaps xmm1, [rdi]",
        "lea rax, [rip+3]",
        "mov eax, [edi]",
        "rep movsb",
        "bt [rdi], eax",
        "vgatherqpd ymm1, [rdi+ymm2*8], ymm3",
        "int3",
        "ud2",
        "hlt",
        "rdtsc",
        "loop over\nover:",
        "back:\njmp back",
        "back:\nnop\njb back",
    ],
)
def test_what_has_no_semantics_is_refused(text):
    with pytest.raises(NotModelledError):
        model(text)


@pytest.mark.parametrize("code", [b"\x0f\x0b\x0f", b"\x66", b"\xff\xff", b"\xeb\x01\x90\x90\xeb", b"\x06"])
def test_bytes_that_are_no_whole_instructions_are_refused(code):
    with pytest.raises(NotModelledError):
        terms = Terms()
        run_x86_64(terms, initial(terms, WIDTHS), decode(code))


def test_a_jump_into_an_instruction_is_refused():
    terms = Terms()
    with pytest.raises(NotModelledError, match="not forward to code in the run"):
        run_x86_64(terms, initial(terms, WIDTHS), decode(bytes.fromhex("eb02b8909090c3")[:2] + b"\xb8\x90\x90\x90\x90"))
