"""Wrong native forms, wrong proof sequences and wrong rewrites, each beside the right one that it was made of."""

from collections.abc import Callable, Sequence

import attrs

from flowshunt.insn import JGT, JSGT, Instruction
from flowshunt.operation import ExtendedOperation
from flowshunt_einsn_bextr.operation import OPERATION as BEXTR
from flowshunt_einsn_bswap.operation import LOADS, STORES
from flowshunt_einsn_bulkcopy.operation import COPIES, FILLS
from flowshunt_einsn_csel.operation import OPERATION as CSEL
from flowshunt_einsn_lea.operation import OPERATION as LEA
from flowshunt_einsn_prefetch.operation import OPERATION as PREFETCH
from flowshunt_einsn_rotate.operation import OPERATION as ROTATE

X86, ARM = "x86_64", "arm64"
BMI = frozenset({"bmi1", "bmi2", "movbe"})
NONE = 15


@attrs.frozen
class WrongEmit:
    """A text that is not the operation's: `right` in it replaced by `wrong`, or `wrong` put behind it."""

    what: str
    operation: ExtendedOperation
    architecture: str
    values: dict[str, int]
    right: str
    wrong: str
    features: frozenset[str] = frozenset()


def rotate(**other: int) -> dict[str, int]:
    base = {"dst": 1, "src": 1, "count": 1, "shifted": 3, "negated": NONE, "amount": 13, "by_register": 0, "right": 0}
    return {**base, "wide": 1, **other}


def csel(**other: int) -> dict[str, int]:
    """r1 = r2 > r3 ? r4 : r5."""
    base = {"dst": 1, "left": 2, "condition": JGT >> 4, "wide": 1, "by_number": 0, "right": 3, "taken_kind": 0}
    return {**base, "taken": 4, "other_kind": 0, "other": 5, **other}


def bextr(**other: int) -> dict[str, int]:
    return {"dst": 1, "src": 2, "start": 7, "length": 9, "signed": 0, "masked": 1, "wide": 1, **other}


def load(**other: int) -> dict[str, int]:
    return {"dst": 1, "base": 2, "part": NONE, "whole": NONE, "offset": 12, "size": 2, "unit": 2, "swap": 1, **other}


def store(**other: int) -> dict[str, int]:
    return {"base": 2, "src": 1, "part": 3, "offset": 12, "size": 2, "unit": 2, "swap": 1, **other}


def copy(**other: int) -> dict[str, int]:
    """32 bytes of one buffer, to its other half."""
    base = {"to": 2, "from_": 2, "part": 3, "to_offset": 64, "from_offset": 0, "count": 4, "unit": 3, "down": 0}
    return {**base, **other}


def fill(**other: int) -> dict[str, int]:
    return {"to": 2, "value": 2, "offset": 8, "count": 6, "unit": 3, "kind": 0, **other}


def lea(**other: int) -> dict[str, int]:
    base = {"dst": 1, "base": 2, "index": 3, "scaled": NONE, "shift": 3, "displacement": 20, "times": 0, "wide": 1}
    return {**base, **other}


BY_REGISTER = rotate(dst=1, src=1, count=2, negated=5, amount=0, by_register=1)

WRONG_EMITS = (
    WrongEmit("a shift by one more", ROTATE, X86, rotate(), "13", "14"),
    WrongEmit("a rotate the other way", ROTATE, X86, rotate(), "rol", "ror"),
    WrongEmit("a shift instead of a rotate", ROTATE, X86, rotate(), "rol", "shl"),
    WrongEmit("the low half alone", ROTATE, X86, rotate(), "rdi", "edi"),
    WrongEmit("all bits where the low half is meant", ROTATE, X86, rotate(wide=0), "edi", "rdi"),
    WrongEmit("the low 16 bits alone: the upper half stays", ROTATE, X86, rotate(wide=0), "edi", "di"),
    WrongEmit("the result in another register", ROTATE, X86, rotate(src=2, count=2), "rorx rdi", "rorx rsi", BMI),
    WrongEmit("another source", ROTATE, X86, rotate(src=2, count=2), ", rsi", ", rdx", BMI),
    WrongEmit("rcx not restored", ROTATE, X86, BY_REGISTER, "mov rcx, r11", ""),
    WrongEmit("the count from another register", ROTATE, X86, BY_REGISTER, "mov ecx, esi", "mov ecx, edx"),
    WrongEmit("a live register overwritten besides", ROTATE, X86, rotate(), "", "mov rsi, 0"),
    WrongEmit("the state block's register overwritten", ROTATE, X86, rotate(), "", "mov r12, 0"),
    WrongEmit("the stack pointer moved", ROTATE, X86, rotate(), "", "sub rsp, 8"),
    WrongEmit("something pushed", ROTATE, X86, rotate(), "", "push rdi"),
    WrongEmit("a byte written", ROTATE, X86, rotate(), "", "mov byte ptr [rsi], 0"),
    WrongEmit("a byte read that may not be there", ROTATE, X86, rotate(), "", "mov r11b, byte ptr [rsi]"),
    WrongEmit("an endless loop", ROTATE, X86, rotate(), "", "again:\njmp again"),
    WrongEmit("a return", ROTATE, X86, rotate(), "", "ret"),
    WrongEmit("the direction flag set", ROTATE, X86, rotate(), "", "std"),
    WrongEmit("a shift by one less", ROTATE, ARM, rotate(), "#51", "#50"),
    WrongEmit("the low half alone", ROTATE, ARM, rotate(), "x0, x0", "w0, w0"),
    WrongEmit("the count not negated", ROTATE, ARM, BY_REGISTER, "neg", "mov"),
    WrongEmit("a register of the caller overwritten", ROTATE, ARM, rotate(), "", "mov x28, x0"),
    WrongEmit("a vector register of the caller overwritten", ROTATE, ARM, rotate(), "", "movi d8, #0"),
    WrongEmit("the opposite condition", CSEL, X86, csel(), "cmova", "cmovbe"),
    WrongEmit("an unsigned condition for a signed one", CSEL, X86, csel(condition=JSGT >> 4), "cmovg", "cmova"),
    WrongEmit("equality taken for greater", CSEL, X86, csel(), "cmova", "cmovae"),
    WrongEmit("swapped arms", CSEL, X86, csel(), "mov rdi, r8\ncmova rdi, rcx", "mov rdi, rcx\ncmova rdi, r8"),
    WrongEmit("swapped operands", CSEL, X86, csel(), "cmp rsi, rdx", "cmp rdx, rsi"),
    WrongEmit("a comparison of the low halves", CSEL, X86, csel(), "cmp rsi, rdx", "cmp esi, edx"),
    WrongEmit("a comparison of all bits", CSEL, X86, csel(wide=0), "cmp esi, edx", "cmp rsi, rdx"),
    WrongEmit(
        "the result before the comparison that reads it",
        CSEL,
        X86,
        csel(left=1),
        "cmp rdi, rdx\nmov rdi, r8",
        "mov rdi, r8\ncmp rdi, rdx",
    ),
    WrongEmit("a move of 32 bits, which clears the upper half", CSEL, X86, csel(), "cmova rdi, rcx", "cmova edi, ecx"),
    WrongEmit("another constant", CSEL, X86, csel(by_number=1, right=9), ", 9", ", 10"),
    WrongEmit("a test for a comparison", CSEL, X86, csel(), "cmp", "test"),
    WrongEmit("swapped arms", CSEL, ARM, csel(), "x3, x4, hi", "x4, x3, hi"),
    WrongEmit("higher or same for higher", CSEL, ARM, csel(), "hi", "hs"),
    WrongEmit("a signed condition for an unsigned one", CSEL, ARM, csel(), "hi", "gt"),
    WrongEmit("one more where it is not taken", CSEL, ARM, csel(), "csel", "csinc"),
    WrongEmit("a start off by one", BEXTR, X86, bextr(), "shr rdi, 7", "shr rdi, 6"),
    WrongEmit("a mask one bit too long", BEXTR, X86, bextr(), "511", "1023"),
    WrongEmit("a mask one bit too short", BEXTR, X86, bextr(), "511", "255"),
    WrongEmit("the sign extended where zeros are meant", BEXTR, X86, bextr(length=8), "movzx", "movsx"),
    WrongEmit("zeros where the sign is meant", BEXTR, X86, bextr(masked=0, signed=1), "sar", "shr"),
    WrongEmit("a mask forgotten", BEXTR, X86, bextr(), "and edi, 511", "nop", BMI),
    WrongEmit("a length off by one", BEXTR, ARM, bextr(), "#9", "#8"),
    WrongEmit("the sign extended where zeros are meant", BEXTR, ARM, bextr(), "ubfx", "sbfx"),
    WrongEmit("bits put in instead of taken out", BEXTR, ARM, bextr(), "ubfx", "bfxil"),
    WrongEmit("no swap", LOADS, X86, load(), "movbe", "mov", BMI),
    WrongEmit("an offset off by one", LOADS, X86, load(), "+12", "+13", BMI),
    WrongEmit("a wider load", LOADS, X86, load(), "movbe edi, dword", "movbe rdi, qword", BMI),
    WrongEmit(
        "a narrower load, which keeps the upper half", LOADS, X86, load(), "movbe edi, dword", "movbe di, word", BMI
    ),
    WrongEmit("a swap forgotten", LOADS, X86, load(), "\nbswap edi", ""),
    WrongEmit("a swap of both halves", LOADS, X86, load(), "bswap edi", "bswap rdi"),
    WrongEmit("16 bits without their extension", LOADS, X86, load(size=1, unit=1), "movzx edi", "mov di"),
    WrongEmit("a wider load than was verified", LOADS, ARM, load(), "ldr w0, [x1, #12]", "ldr x0, [x1, #12]"),
    WrongEmit("words swapped, not bytes", LOADS, ARM, load(), "rev ", "rev16 "),
    WrongEmit("the base moved", LOADS, ARM, load(), "[x1, #12]", "[x1, #12]!"),
    WrongEmit("the source swapped in place", STORES, X86, store(), "r11", "rdi"),
    WrongEmit("two bytes too many", STORES, X86, store(size=1, unit=1), "word ptr", "dword ptr"),
    WrongEmit("stored elsewhere", STORES, ARM, store(), "#12", "#16"),
    WrongEmit("one byte short", COPIES, X86, copy(), "[rsi+80]", "[rsi+79]"),
    WrongEmit("half of it twice", COPIES, X86, copy(), "[rsi+16]", "[rsi+0]"),
    WrongEmit("an access that wants aligned memory", COPIES, X86, copy(), "movdqu", "movaps"),
    WrongEmit("a vector register that was not loaded", COPIES, X86, copy(), "+64], xmm0", "+64], xmm7"),
    WrongEmit("a byte more read and written", COPIES, X86, copy(), "", "mov r11b, [rsi+32]\nmov [rsi+96], r11b"),
    WrongEmit("a byte more read", COPIES, X86, copy(), "", "mov r11b, [rsi+32]"),
    WrongEmit("pairs the other way round", COPIES, ARM, copy(), "ldp x11, x12", "ldp x12, x11"),
    WrongEmit("16 bytes short", COPIES, ARM, copy(), "stp x11, x12, [x10, #16]", "nop"),
    WrongEmit(
        "ones instead of zeros",
        FILLS,
        X86,
        fill(),
        "pxor xmm0, xmm0",
        "mov r11, -1\nmovq xmm0, r11\npunpcklqdq xmm0, xmm0",
    ),
    WrongEmit("the upper 8 bytes not set", FILLS, X86, fill(kind=1), "punpcklqdq xmm0, xmm0", "nop"),
    WrongEmit("16 bytes short", FILLS, X86, fill(), "movdqu [rsi+40], xmm0", "nop"),
    WrongEmit("8 bytes past its end", FILLS, X86, fill(), "movdqu [rsi+40], xmm0", "movdqu [rsi+48], xmm0"),
    WrongEmit("another register", FILLS, ARM, fill(), "xzr, xzr", "x9, x9"),
    WrongEmit("another scale", LEA, X86, lea(), "*8", "*4"),
    WrongEmit("another displacement", LEA, X86, lea(), "+20", "+21"),
    WrongEmit("index and base swapped", LEA, X86, lea(), "rsi+rdx*8", "rdx+rsi*8"),
    WrongEmit("the low half alone", LEA, X86, lea(), "lea rdi", "lea edi"),
    WrongEmit("no zero extension", LEA, X86, lea(wide=0), "lea edi", "lea rdi"),
    WrongEmit("the address's content", LEA, X86, lea(), "lea", "mov"),
    WrongEmit("another shift", LEA, ARM, lea(), "lsl #3", "lsl #2"),
    WrongEmit("a difference", LEA, ARM, lea(displacement=0), "add", "sub"),
    WrongEmit("a load instead of a prefetch", PREFETCH, X86, {"base": 2, "offset": 8}, "prefetcht0", "mov r11b,"),
    WrongEmit("a load instead of a prefetch", PREFETCH, ARM, {"base": 2, "offset": 8}, "prfm pldl1keep", "ldr x9"),
    WrongEmit(
        "a prefetch that says it writes, and does", PREFETCH, X86, {"base": 2, "offset": 8}, "", "or byte ptr [rsi], 0"
    ),
)


@attrs.frozen
class WrongSequence:
    """A proof sequence that the native form is not equal to: the operation's, changed."""

    what: str
    operation: ExtendedOperation
    values: dict[str, int]
    change: Callable[[Sequence[Instruction]], Sequence[Instruction]]


def at(index: int, **changes: int) -> Callable[[Sequence[Instruction]], Sequence[Instruction]]:
    """One instruction's fields changed."""

    def change(sequence: Sequence[Instruction]) -> Sequence[Instruction]:
        changed = list(sequence)
        changed[index] = attrs.evolve(changed[index], **changes)
        return changed

    return change


WRONG_SEQUENCES = (
    WrongSequence("a shift by one more", ROTATE, rotate(), at(1, imm=52)),
    WrongSequence("an addition for an or, of parts that share a bit", ROTATE, rotate(), at(2, imm=14)),
    WrongSequence(
        "a shift of the low half",
        ROTATE,
        rotate(),
        lambda s: [*s[:2], attrs.evolve(s[2], opcode=s[2].opcode ^ 3), *s[3:]],
    ),
    WrongSequence("the last step left out", ROTATE, rotate(), lambda s: s[:-1]),
    WrongSequence("a signed comparison", CSEL, csel(), at(0, opcode=0x6D)),
    WrongSequence("the branch always taken", CSEL, csel(), at(0, opcode=0x05, dst=0, src=0)),
    WrongSequence("a branch one too far", CSEL, csel(), at(0, offset=3)),
    WrongSequence("another register moved", CSEL, csel(), at(1, src=6)),
    WrongSequence("a mask of one bit more", BEXTR, bextr(), at(2, imm=1023)),
    WrongSequence("no swap", LOADS, load(), lambda s: s[:1]),
    WrongSequence("a swap of 16 bits", LOADS, load(), at(1, imm=16)),
    WrongSequence("a byte of the next word", LOADS, load(size=1, unit=0, part=3), at(0, offset=14)),
    WrongSequence(
        "parts stored in the other order",
        STORES,
        store(size=1, unit=0),
        lambda s: [at(0, offset=12)(s)[0], *at(-1, offset=13)(s)[1:]],
    ),
    WrongSequence("one part less", COPIES, copy(), lambda s: s[:-2]),
    WrongSequence("one store less", FILLS, fill(), lambda s: s[:-1]),
    WrongSequence("a base that is added twice", LEA, lea(), at(2, src=1)),
)


@attrs.frozen
class Rewrite:
    """What a recognizer makes of a program's instructions, as text.

    `live`: registers that are read later. `lost`: those that the native form leaves undefined.
    """

    what: str
    original: str
    rewritten: str
    live: tuple[int, ...]
    lost: tuple[int, ...] = ()


WRONG_REWRITES = (
    Rewrite(
        "shifts that don't add up to the width",
        "r2 = r1\nr1 <<= 13\nr2 >>= 50\nr1 |= r2",
        "r2 = r1\nr2 >>= 51\nr1 <<= 13\nr1 |= r2",
        (1,),
        (2,),
    ),
    Rewrite(
        "a temporary that is read later",
        "r2 = r1\nr1 <<= 13\nr2 >>= 51\nr1 |= r2",
        "r2 = r1\nr2 >>= 51\nr1 <<= 13\nr1 |= r2",
        (1, 2),
        (2,),
    ),
    Rewrite(
        "32 bits taken for 64",
        "w2 = w1\nw1 <<= 13\nw2 >>= 19\nw1 |= w2",
        "r2 = r1\nr2 >>= 51\nr1 <<= 13\nr1 |= r2",
        (1,),
        (2,),
    ),
    Rewrite(
        "an arithmetic shift taken for a logical one",
        "r2 = r1\nr1 <<= 13\nr2 s>>= 51\nr1 |= r2",
        "r2 = r1\nr2 >>= 51\nr1 <<= 13\nr1 |= r2",
        (1,),
        (2,),
    ),
    Rewrite(
        "another source of the second half",
        "r3 = r2\nr1 <<= 13\nr3 >>= 51\nr1 |= r3",
        "r3 = r1\nr3 >>= 51\nr1 <<= 13\nr1 |= r3",
        (1,),
        (3,),
    ),
    Rewrite(
        "swapped arms",
        "if r2 > r3 goto +2\nr1 = r4\ngoto +1\nr1 = r5",
        "if r2 > r3 goto +2\nr1 = r5\ngoto +1\nr1 = r4",
        (1,),
    ),
    Rewrite("the opposite condition", "if r2 > r3 goto +1\nr1 = r4", "if r2 <= r3 goto +1\nr1 = r4", (1,)),
    Rewrite("signed taken for unsigned", "if r2 s> r3 goto +1\nr1 = r4", "if r2 > r3 goto +1\nr1 = r4", (1,)),
    Rewrite(
        "a comparison of 32 bits taken for one of 64",
        "if w2 > w3 goto +1\nr1 = r4",
        "if r2 > r3 goto +1\nr1 = r4",
        (1,),
    ),
    Rewrite("a 32-bit move taken for one of 64", "if r2 > r3 goto +1\nw1 = w4", "if r2 > r3 goto +1\nr1 = r4", (1,)),
    Rewrite("a mask with a hole", "r1 >>= 7\nr1 &= 0x1fd", "r1 >>= 7\nr1 &= 0x1ff", (1,)),
    Rewrite("a mask that is sign-extended", "r1 >>= 7\nr1 &= -1", "r1 >>= 7\nw1 &= -1", (1,)),
    Rewrite(
        "bytes of two words",
        "r1 = *(u8 *)(r2 + 0)\nr3 = *(u8 *)(r2 + 2)\nr1 <<= 8\nr1 |= r3",
        "r1 = *(u16 *)(r2 + 0)\nr1 = be16 r1",
        (1,),
        (3,),
    ),
    Rewrite(
        "the other byte order",
        "r1 = *(u8 *)(r2 + 0)\nr3 = *(u8 *)(r2 + 1)\nr3 <<= 8\nr1 |= r3",
        "r1 = *(u16 *)(r2 + 0)\nr1 = be16 r1",
        (1,),
        (3,),
    ),
    Rewrite(
        "a load moved over a store that may be to the same place",
        "r1 = *(u8 *)(r2 + 0)\n*(u8 *)(r4 + 0) = r5\nr3 = *(u8 *)(r2 + 1)\nr1 <<= 8\nr1 |= r3",
        "r1 = *(u16 *)(r2 + 0)\nr1 = be16 r1\n*(u8 *)(r4 + 0) = r5",
        (1,),
        (3,),
    ),
    Rewrite(
        "a copy whose ranges may overlap",
        "r3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\n*(u64 *)(r2 + 0) = r3\n*(u64 *)(r2 + 8) = r4",
        "r3 = *(u64 *)(r1 + 0)\n*(u64 *)(r2 + 0) = r3\nr3 = *(u64 *)(r1 + 8)\n*(u64 *)(r2 + 8) = r3",
        (),
        (3, 4),
    ),
    Rewrite(
        "a copy with a gap",
        "r3 = *(u32 *)(r1 + 0)\n*(u32 *)(r2 + 0) = r3\nr3 = *(u32 *)(r1 + 8)\n*(u32 *)(r2 + 8) = r3",
        "r3 = *(u64 *)(r1 + 0)\n*(u64 *)(r2 + 0) = r3",
        (),
        (3,),
    ),
    Rewrite(
        "a fill of one byte more",
        "*(u8 *)(r2 + 0) = 0\n*(u8 *)(r2 + 1) = 0\n*(u8 *)(r2 + 2) = 0",
        "*(u32 *)(r2 + 0) = 0",
        (),
    ),
    Rewrite("a fill with another byte in it", "*(u8 *)(r2 + 0) = 0\n*(u8 *)(r2 + 1) = 1", "*(u16 *)(r2 + 0) = 0", ()),
    Rewrite("a register that is not known to be zero", "*(u64 *)(r10 - 8) = r1", "*(u64 *)(r10 - 8) = 0", ()),
    Rewrite("an index scaled by 8 taken for 4", "r1 <<= 3\nr1 += r2", "r1 <<= 2\nr1 += r2", (1,)),
    Rewrite("an addition of 32 bits taken for one of 64", "w1 <<= 3\nw1 += w2", "r1 <<= 3\nr1 += r2", (1,)),
    Rewrite("an instruction between that is lost", "r1 <<= 3\nr4 += 1\nr1 += r2", "r1 <<= 3\nr1 += r2", (1, 4)),
    Rewrite(
        "an instruction between that reads the result",
        "r1 <<= 3\nr4 = r1\nr1 += r2",
        "r1 <<= 3\nr1 += r2\nr4 = r1",
        (1, 4),
    ),
)


RIGHT_REWRITES = (
    Rewrite(
        "a rotate in another order",
        "r2 = r1\nr1 <<= 13\nr2 >>= 51\nr1 |= r2",
        "r2 = r1\nr2 >>= 51\nr1 <<= 13\nr1 |= r2",
        (1,),
        (2,),
    ),
    Rewrite(
        "a rotate by a register, by either of its counts",
        "r3 = r1\nr3 <<= r2\nr2 = -r2\nr1 >>= r2\nr1 |= r3",
        "r3 = r1\nr3 <<= r2\nr4 = r2\nr4 = -r4\nr1 >>= r4\nr1 |= r3",
        (1,),
        (2, 3, 4),
    ),
    Rewrite(
        "a select with its condition and arms turned round",
        "if r2 > r3 goto +2\nr1 = r5\ngoto +1\nr1 = r4",
        "if r2 <= r3 goto +2\nr1 = r4\ngoto +1\nr1 = r5",
        (1,),
    ),
    Rewrite("two shifts as a shift and a mask", "r1 <<= 48\nr1 >>= 55", "r1 >>= 7\nr1 &= 511", (1,)),
    Rewrite(
        "bytes put together as a load and a swap",
        "r1 = *(u8 *)(r2 + 0)\nr3 = *(u8 *)(r2 + 1)\nr1 <<= 8\nr1 |= r3",
        "r1 = *(u16 *)(r2 + 0)\nr1 = be16 r1",
        (1,),
        (3,),
    ),
    Rewrite(
        "copies with two temporaries, loads first",
        "r3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\n*(u64 *)(r2 + 8) = r4\n*(u64 *)(r2 + 0) = r3",
        "r3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\n*(u64 *)(r2 + 0) = r3\n*(u64 *)(r2 + 8) = r4",
        (),
        (3, 4),
    ),
    Rewrite("stores merged", "*(u8 *)(r2 + 1) = 0\n*(u8 *)(r2 + 0) = 0", "*(u16 *)(r2 + 0) = 0", ()),
    Rewrite(
        "an instruction moved out of the way", "r1 <<= 3\nr4 += 1\nr1 += r2", "r4 += 1\nr1 <<= 3\nr1 += r2", (1, 4)
    ),
    Rewrite(
        "a load moved over a store beside it",
        "r1 = *(u8 *)(r2 + 0)\n*(u8 *)(r2 + 8) = r5\nr3 = *(u8 *)(r2 + 1)\nr1 <<= 8\nr1 |= r3",
        "r1 = *(u16 *)(r2 + 0)\nr1 = be16 r1\n*(u8 *)(r2 + 8) = r5",
        (1,),
        (3,),
    ),
)
