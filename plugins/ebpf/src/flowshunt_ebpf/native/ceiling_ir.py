"""An image as LLVM's intermediate language. Registers are local variables; LLVM makes values of them."""

from typing import Final

from flowshunt.errors import CapabilityError
from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    ATOMIC,
    CALL,
    CMPXCHG,
    DIV,
    END,
    EXIT,
    FETCH,
    JA,
    JCOND,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JMP,
    JMP32,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    LSH,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    PSEUDO_CALL,
    RSH,
    ST,
    STORE_REL,
    STX,
    SUB,
    XCHG,
    XOR,
    Instruction,
    X,
)  # fmt: skip
from flowshunt_ebpf.maps.header import OPERATIONS
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.supported import INLINE_ARRAYS, MAP_OPERATIONS
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emission import MAP_LOOKUP
from flowshunt_ebpf.native.host import helper_address
from flowshunt_ebpf.native.image import Image

FRAME_BYTES: Final = 512
_NAMES: Final = {
    ADD: "add", SUB: "sub", MUL: "mul", OR: "or", AND: "and", XOR: "xor", LSH: "shl", RSH: "lshr", ARSH: "ashr",
}  # fmt: skip
_CONDITIONS: Final = {
    JEQ: "eq", JNE: "ne", JGT: "ugt", JGE: "uge", JLT: "ult", JLE: "ule", JSGT: "sgt", JSGE: "sge", JSLT: "slt",
    JSLE: "sle",
}  # fmt: skip


def module_text(image: Image) -> str:
    """The module: a function for each of the program's, `entry(state)` and `repeat(state, times)`.

    Raises CapabilityError for what it does not translate.
    """
    text = ["declare i16 @llvm.bswap.i16(i16)", "declare i32 @llvm.bswap.i32(i32)", "declare i64 @llvm.bswap.i64(i64)"]
    for number, (start, end) in enumerate(zip(image.functions, image.ends, strict=True)):
        text += _Function(image, number, start, end).lines()
    return "\n".join([*text, *_ENTRIES])


_ENTRIES: Final = f"""
define i64 @entry(i64 %state) noinline {{
  %a = add i64 %state, {state.CONTEXT}
  %ap = inttoptr i64 %a to ptr
  %context = load i64, ptr %ap
  %b = add i64 %state, {state.SECOND}
  %bp = inttoptr i64 %b to ptr
  %second = load i64, ptr %bp
  %r = call i64 @f0(i64 %context, i64 %second, i64 0, i64 0, i64 0, i64 %state)
  ret i64 %r
}}
define void @repeat(i64 %state, i64 %times) {{
start:
  br label %again
again:
  %n = phi i64 [ %times, %start ], [ %less, %again ]
  call i64 @entry(i64 %state)
  call void asm sideeffect "", "~{{memory}}"()
  %less = sub i64 %n, 1
  %more = icmp ne i64 %less, 0
  br i1 %more, label %again, label %stop
stop:
  ret void
}}
""".splitlines()


class _Function:
    def __init__(self, image: Image, number: int, start: int, end: int) -> None:
        self.image = image
        self.number = number
        self.start, self.end = start, end
        self.index = start
        self.text: list[str] = []
        self.count = 0
        self.open = True

    def lines(self) -> list[str]:
        image = self.image
        linkage = "" if self.number == 0 else "internal "
        self.text.append(
            f"define {linkage}i64 @f{self.number}(i64 %a1, i64 %a2, i64 %a3, i64 %a4, i64 %a5, i64 %state) {{"
        )
        self.text.append(f"  %frame = alloca [{FRAME_BYTES} x i8], align 16")
        self.text += [f"  %r{n} = alloca i64" for n in range(11)]
        self.text += [f"  store i64 %a{n}, ptr %r{n}" for n in range(1, 6)]
        self.text += [f"  store i64 0, ptr %r{n}" for n in (0, 6, 7, 8, 9)]
        top = self.value("ptrtoint ptr %frame to i64")
        self.text.append(f"  store i64 {self.value(f'add i64 {top}, {FRAME_BYTES}')}, ptr %r10")
        self.text.append(f"  br label %I{self.start}")
        self.open = False
        starts = {self.start, *(t for t in image.targets[self.start : self.end] if t >= 0)}
        for index in range(self.start, self.end):
            if index in starts or not self.open:
                if self.open:
                    self.text.append(f"  br label %I{index}")
                self.text.append(f"I{index}:")
                self.open = True
            self.index = index
            self._instruction(image.instructions[index])
        return [*self.text, "}"]

    # Text

    def value(self, expression: str) -> str:
        self.count += 1
        self.text.append(f"  %t{self.count} = {expression}")
        return f"%t{self.count}"

    def get(self, register: int, bits: int = 64) -> str:
        found = self.value(f"load i64, ptr %r{register}")
        return found if bits == 64 else self.value(f"trunc i64 {found} to i{bits}")

    def put(self, register: int, found: str, bits: int = 64) -> None:
        if bits != 64:
            found = self.value(f"zext i{bits} {found} to i64")
        self.text.append(f"  store i64 {found}, ptr %r{register}")

    def pointer(self, register: int, offset: int) -> str:
        if register == 10:
            return self.value(f"getelementptr i8, ptr %frame, i64 {FRAME_BYTES + offset}")
        base = self.value(f"inttoptr i64 {self.get(register)} to ptr")
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def refuse(self, what: str) -> CapabilityError:
        return CapabilityError(f"{what} is not compiled by LLVM here ({self.image.program.where(self.index)})")

    # Instructions

    def _instruction(self, i: Instruction) -> None:
        cls = i.opcode & 7
        if cls in (ALU, ALU64):
            self._arithmetic(i, 64 if cls == ALU64 else 32)
        elif cls == LDX:
            self._load(i)
        elif cls == ST:
            bits = 8 * i.size_bytes
            self.text.append(f"  store i{bits} {i.imm}, ptr {self.pointer(i.dst, i.offset)}, align 1")
        elif cls == STX:
            self._store(i)
        elif cls in (JMP, JMP32):
            self._jump(i, 64 if cls == JMP else 32)
        elif i.opcode == LD_IMM64:
            self.put(i.dst, str(self.image.values[self.index]))
        else:
            raise self.refuse("a legacy packet load")

    def _arithmetic(self, i: Instruction, bits: int) -> None:
        op = i.op
        right = ""
        if op not in (NEG, END):
            right = self.get(i.src, bits) if i.opcode & X else str(i.imm & ((1 << bits) - 1))
        if op == MOV:
            if i.offset:
                narrow = self.value(f"trunc i{bits} {right} to i{i.offset}")
                right = self.value(f"sext i{i.offset} {narrow} to i{bits}")
            self.put(i.dst, right, bits)
        elif op == END:
            self._swap(i, bits)
        elif op == NEG:
            self.put(i.dst, self.value(f"sub i{bits} 0, {self.get(i.dst, bits)}"), bits)
        elif op in (DIV, MOD):
            self._divide(i, bits, right)
        else:
            if op in (LSH, RSH, ARSH):
                right = self.value(f"and i{bits} {right}, {bits - 1}")
            self.put(i.dst, self.value(f"{_NAMES[op]} i{bits} {self.get(i.dst, bits)}, {right}"), bits)

    def _swap(self, i: Instruction, bits: int) -> None:
        width = i.imm
        found = self.get(i.dst, width)
        if bits == 64 or i.opcode & X:
            found = self.value(f"call i{width} @llvm.bswap.i{width}(i{width} {found})")
        self.put(i.dst, found, width)

    def _divide(self, i: Instruction, bits: int, right: str) -> None:
        left, signed = self.get(i.dst, bits), i.offset == 1
        zero = self.value(f"icmp eq i{bits} {right}, 0")
        one = zero
        if signed:  # the quotient by -1 may overflow, which the processor traps
            one = self.value(f"or i1 {zero}, {self.value(f'icmp eq i{bits} {right}, -1')}")
        safe = self.value(f"select i1 {one}, i{bits} 1, i{bits} {right}")
        name = f"{'s' if signed else 'u'}{'div' if i.op == DIV else 'rem'}"
        found = self.value(f"{name} i{bits} {left}, {safe}")
        if signed and i.op == DIV:
            negated = self.value(f"sub i{bits} 0, {left}")
            minus = self.value(f"icmp eq i{bits} {right}, -1")
            found = self.value(f"select i1 {minus}, i{bits} {negated}, i{bits} {found}")
        elif signed:
            found = self.value(f"select i1 {one}, i{bits} 0, i{bits} {found}")
        by_zero = "0" if i.op == DIV else left
        self.put(i.dst, self.value(f"select i1 {zero}, i{bits} {by_zero}, i{bits} {found}"), bits)

    def _load(self, i: Instruction) -> None:
        if self.index in self.image.pointers:
            raise self.refuse("a load that may be of a packet pointer, or not")
        bits = 8 * i.size_bytes
        found = self.value(f"load i{bits}, ptr {self.pointer(i.src, i.offset)}, align 1")
        if i.mode == MEMSX:
            self.put(i.dst, self.value(f"sext i{bits} {found} to i64"))
        else:
            self.put(i.dst, found, bits)

    def _store(self, i: Instruction) -> None:
        bits = 8 * i.size_bytes
        if i.mode != ATOMIC:
            self.text.append(f"  store i{bits} {self.get(i.src, bits)}, ptr {self.pointer(i.dst, i.offset)}, align 1")
            return
        align = f"align {i.size_bytes}"
        if i.imm == LOAD_ACQ:
            place = self.pointer(i.src, i.offset)
            self.put(i.dst, self.value(f"load atomic i{bits}, ptr {place} acquire, {align}"), bits)
            return
        place, given = self.pointer(i.dst, i.offset), self.get(i.src, bits)
        if i.imm == STORE_REL:
            self.text.append(f"  store atomic i{bits} {given}, ptr {place} release, {align}")
        elif i.imm == CMPXCHG:
            both = self.value(f"cmpxchg ptr {place}, i{bits} {self.get(0, bits)}, i{bits} {given} seq_cst seq_cst")
            self.put(0, self.value(f"extractvalue {{ i{bits}, i1 }} {both}, 0"), bits)
        else:
            name = "xchg" if i.imm == XCHG else _NAMES[i.imm & 0xF0]
            order = "seq_cst" if i.imm & FETCH else "monotonic"
            old = self.value(f"atomicrmw {name} ptr {place}, i{bits} {given} {order}")
            if i.imm & FETCH:
                self.put(i.src, old, bits)

    def _jump(self, i: Instruction, bits: int) -> None:
        op = i.op
        target = self.image.targets[self.index]
        if op == CALL and bits == 64:
            self._call(i)
            return
        if op == JCOND:
            raise self.refuse("may_goto")
        self.open = False
        if op == EXIT and bits == 64:
            self.text.append(f"  ret i64 {self.get(0)}")
        elif op == JA:
            self.text.append(f"  br label %I{target}")
        else:
            left = self.get(i.dst, bits)
            right = self.get(i.src, bits) if i.opcode & X else str(i.imm & ((1 << bits) - 1))
            if op == JSET:
                left, right = self.value(f"and i{bits} {left}, {right}"), "0"
            holds = self.value(f"icmp {'ne' if op == JSET else _CONDITIONS[op]} i{bits} {left}, {right}")
            self.text.append(f"  br i1 {holds}, label %I{target}, label %I{self.index + 1}")

    def _call(self, i: Instruction) -> None:
        image, index = self.image, self.index
        if index in image.program.poisoned:
            raise self.refuse("a call that must not be reached")
        arguments = ", ".join(f"i64 {self.get(n)}" for n in range(1, 6))
        if i.src == PSEUDO_CALL:
            number = image.functions.index(image.targets[index])
            self.put(0, self.value(f"call i64 @f{number}({arguments}, i64 %state)"))
            return
        known = image.known_map.get(index)
        if i.imm == MAP_LOOKUP and known is not None and known.definition.type in INLINE_ARRAYS and known.cpus == 1:
            self._array_lookup(known)
            return
        operation = MAP_OPERATIONS.get(i.imm)
        if i.imm in (12, 181):
            raise self.refuse("a tail call" if i.imm == 12 else "bpf_loop")
        if operation is None:
            place = self.value(f"inttoptr i64 {helper_address(i.imm)} to ptr")
        elif known is not None:
            place = self.value(f"inttoptr i64 {known.operation(operation)} to ptr")
        else:
            place = self.value(f"load ptr, ptr {self.pointer(1, OPERATIONS + 8 * operation)}")
        self.put(0, self.value(f"call i64 {place}({arguments}, i64 %state)"))

    def _array_lookup(self, known: Map) -> None:
        """The value's address, or 0 where the index is out of range."""
        narrow = self.value(f"load i32, ptr {self.pointer(2, 0)}, align 1")
        number = self.value(f"zext i32 {narrow} to i64")
        inside = self.value(f"icmp ult i64 {number}, {known.definition.max_entries}")
        offset = self.value(f"mul i64 {number}, {known.stride}")
        place = self.value(f"add i64 {offset}, {known.values_address}")
        self.put(0, self.value(f"select i1 {inside}, i64 {place}, i64 0"))
