"""Each argument of each helper takes what the running kernel lets it take, tried with every kind of value."""

import pytest

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kernel.judge import judge
from flowshunt_ebpf.program import MapType, ProgramType
from flowshunt_ebpf.verifier import verify
from flowshunt_ebpf.verifier.prototypes import PROTOTYPES, REFUSED, Arg, why_not

HEAD = """
.type {type}
.license "GPL"
.map array array key=4 value=64 entries=4
.map frozen array key=4 value=64 entries=1 flags=128 contents="2573"
.map ring ringbuf entries=4096
.map chosen {chosen}
r6 = r1
*(u64 *)(r10 - 8) = 0
"""
CHOSEN = {
    MapType.HASH: "hash key=64 value=64 entries=4",
    MapType.PERCPU_HASH: "percpu_hash key=64 value=64 entries=4",
    MapType.QUEUE: "queue key=0 value=64 entries=4",
    MapType.PROG_ARRAY: "prog_array key=4 value=4 entries=4",
    MapType.PERF_EVENT_ARRAY: "perf_event_array key=4 value=4 entries=4",
    MapType.RINGBUF: "ringbuf entries=4096",
    MapType.CGROUP_ARRAY: "cgroup_array key=4 value=4 entries=1",
    MapType.DEVMAP: "devmap key=4 value=4 entries=4",
}
LEAVE = "r0 = 0\nexit\n"
LOOKUP = "r1 = map[array]\nr2 = r10\nr2 += -8\ncall bpf_map_lookup_elem\n"
PACKET = "r3 = r7\nr3 += 64\nif r3 <= r2 goto +2\n" + LEAVE

# What comes before the call, leaving the value in r7, r8 or nowhere; then what puts it into the argument's register.
VALUES = {
    "zero": ("", "{r} = 0"),
    "number": ("", "{r} = 8"),
    "unknown number": ("call bpf_get_prandom_u32\nr7 = r0\n", "{r} = r7"),
    "context": ("", "{r} = r6"),
    "moved context": ("", "{r} = r6\n{r} += 4"),
    "map": ("", "{r} = map[chosen]"),
    "stack": ("", "{r} = r10\n{r} += -128"),
    "four bytes of stack": ("", "{r} = r10\n{r} += -4"),
    "map value": (LOOKUP + "if r0 != 0 goto +2\n" + LEAVE + "r7 = r0\n", "{r} = r7"),
    "map value or null": (LOOKUP + "r7 = r0\n", "{r} = r7"),
    "read-only map value": ("", "{r} = map[frozen][0]"),
    "record": ("r1 = map[ring]\nr2 = 64\nr3 = 0\ncall bpf_ringbuf_reserve\nif r0 != 0 goto +2\n" + LEAVE + "r8 = r0\n",
               "{r} = r8"),
    "socket": ("r7 = *(u64 *)(r6 + 168)\nif r7 != 0 goto +2\n" + LEAVE, "{r} = r7"),
    "xdp packet": ("r7 = *(u32 *)(r6 + 0)\nr2 = *(u32 *)(r6 + 4)\n" + PACKET, "{r} = r7"),
    "skb packet": ("r7 = *(u32 *)(r6 + 76)\nr2 = *(u32 *)(r6 + 80)\n" + PACKET, "{r} = r7"),
}  # fmt: skip
RIGHT = {
    Arg.ANYTHING: "zero",
    Arg.CONTEXT: "context",
    Arg.CONTEXT_OR_NULL: "context",
    Arg.CONST_MAP: "map",
    Arg.CONST_SIZE: "number",
    Arg.CONST_SIZE_OR_ZERO: "number",
    Arg.CONST_ALLOC_SIZE_OR_ZERO: "number",
    Arg.CONST_STR: "read-only map value",
    Arg.RECORD: "record",
    Arg.SOCK_COMMON: "socket",
}
ELSEWHERE = {Arg.FUNC, Arg.SPIN_LOCK, Arg.SOCK_RELEASE}
"""Arguments that need more than a value: the corpus has them."""
TYPES = (ProgramType.SCHED_CLS, ProgramType.CGROUP_SKB, ProgramType.XDP)
TRIED = [p for p in PROTOTYPES.values() if p.args and not ELSEWHERE & set(p.args)]


def program(prototype, kind, given):
    chosen = next((CHOSEN[t] for t in CHOSEN if t in prototype.maps), CHOSEN[MapType.HASH])
    text = HEAD.format(type=kind.name.lower(), chosen=chosen)
    before = dict.fromkeys(VALUES[value][0] for value in given)
    moves = []
    for position, value in enumerate(given, 1):
        move = VALUES[value][1].format(r=f"r{position}")
        if position > 1 and VALUES[value][0] and VALUES[value][0] != next(filter(None, before), ""):
            move = move.replace("= r7", "= r9")
        moves.append(move)
    first = next(filter(None, before), "")
    text += "".join(part if part == first else part.replace("r7", "r9") for part in before)
    text += "\n".join(moves) + f"\ncall {prototype.number}\n"
    if prototype.acquires:
        release = (
            "r2 = 0\ncall bpf_ringbuf_submit\n" if prototype.name == "ringbuf_reserve" else "call bpf_sk_release\n"
        )
        text += "if r0 == 0 goto out\nr1 = r0\n" + release + "out:\n"
    if "record" in given and prototype.releases is None:
        text += "r1 = r8\nr2 = 0\ncall bpf_ringbuf_submit\n"
    return assemble(text + LEAVE)


@pytest.mark.parametrize("prototype", TRIED, ids=lambda p: p.name)
def test_arguments(kernel, prototype):
    kind = next(t for t in TYPES if t in prototype.types)
    if kind == ProgramType.XDP and Arg.SOCK_COMMON in prototype.args:
        pytest.skip("no socket there")
    right = [RIGHT.get(arg, "stack") for arg in prototype.args]
    assert judge(program(prototype, kind, right)).accepted
    apart = {"socket", "skb packet"} if kind == ProgramType.XDP else {"xdp packet"}
    different = []
    for position, arg in enumerate(prototype.args):
        for value in VALUES.keys() - apart:
            tried = program(prototype, kind, [*right[:position], value, *right[position + 1 :]])
            theirs, ours = judge(tried), verify(tried)
            if theirs.accepted != ours.accepted:
                different.append((position + 1, arg.name, value, theirs.reason, ours.reason))
    # The one that is known: a pointer that may be null beside a size above 0, see docs/verifier.md.
    known = [found for found in different if found[1:3] == ("MEM_OR_NULL", "map value or null") and not found[3]]
    assert different == known


@pytest.mark.parametrize("kind", [*TYPES, ProgramType.SOCKET_FILTER], ids=lambda kind: kind.name)
def test_each_kind_of_program_may_call_the_helpers_that_the_kernel_lets_it_call(kernel, kind):
    different = []
    for helper in range(1, 212):
        text = f'.type {kind.name.lower()}\n.license "GPL"\nr6 = 0\ncall {helper}\nr0 = 0\nexit\n'
        theirs = judge(assemble(text))
        may = "cannot use helper" not in theirs.log and "invalid func" not in theirs.log
        ours = why_not(helper, kind, "GPL")
        if ours is None and not may:
            different.append((helper, "only here"))
        if ours is not None and may and not any(word in ours for word in REFUSED.values()):
            different.append((helper, ours))
    assert [found for found in different if found[0] != 17] == []  # get_cgroup_classid is another helper in each kind
