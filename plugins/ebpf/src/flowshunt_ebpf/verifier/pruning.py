"""Where paths meet: states that were looked at before are kept, so that none is followed that one of them has in it.

A state is kept at each point where paths meet (and after calls), without what is dead there and without the numbers
that don't matter (see `relevance`). It is followed in just that form, so nothing depends on these analyses being right.

A state that one kept before includes is not followed again, if all that followed from the other was looked at already,
or if the cycle between them ends by itself when the program runs (callbacks, may_goto). The same state again on one
path, outside of such a cycle, is an infinite loop.
"""

from typing import TYPE_CHECKING, Any, Final

from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.scalar import Scalar, includes, join, unsigned_range
from flowshunt_ebpf.verifier.state import State
from flowshunt_ebpf.verifier.values import (
    MAP_KEY,
    MEMORY,
    NUMBER,
    PACKET,
    PACKET_META,
    SCALAR,
    SIZE_ID,
    UNKNOWN_BYTES,
    Value,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.state import Frame

_PACKETS: Final = frozenset({PACKET, PACKET_META})
_SIZED: Final = frozenset({MEMORY, MAP_KEY})
_MOST_ROUNDED: Final = 3
"""Times that the bounds of a number are rounded at a join before it is given up."""
_MOST_WIDENED: Final = 8
"""Times that a state is widened at a point before pointers are given up, too."""


class Node:
    """A kept state.

    Attributes:
        state: as it was when it was kept; never changed.
        parent: the kept state that it comes from.
        open: paths from here that were not followed to their end yet.
        bucket: where it is kept.
        digest: a hash of its contents.
        control: what controls loops in it.
    """

    __slots__ = ("bucket", "control", "digest", "open", "parent", "state")

    def __init__(
        self, state: State, parent: "Node | None", bucket: "_Bucket", digest: int, control: tuple[Any, ...]
    ) -> None:
        self.state = state
        self.parent = parent
        self.open = 1
        self.bucket = bucket
        self.digest = digest
        self.control = control

    def close(self) -> None:
        """A path from here ended."""
        node: Node | None = self
        while node is not None:
            node.open -= 1
            if node.open:
                return
            bucket = node.bucket
            bucket.closed.setdefault(node.control, []).append(node)
            if bucket.exact.get(node.digest) is node:
                del bucket.exact[node.digest]
            node = node.parent


class _Bucket:
    """The kept states of one shape at one point.

    Attributes:
        closed: all that follows from them was looked at; by what controls loops in them, oldest first.
        exact: those that are not, by the hash of their contents.
        alike: kept states by what controls loops in them, where states are joined.
        joins: how often states were joined, by the same.
        opened: the latest states, for points where every cycle ends by itself.
        widened: how often a state was widened here.
    """

    __slots__ = ("alike", "closed", "exact", "joins", "opened", "widened")

    def __init__(self) -> None:
        self.closed: dict[tuple[Any, ...], list[Node]] = {}
        self.exact: dict[int, Node] = {}
        self.alike: dict[Any, list[Node]] = {}
        self.joins: dict[Any, int] = {}
        self.opened: list[Node] = []
        self.widened = 0


def shape(state: State) -> tuple[Any, ...]:
    """What two states must have in common for one to include the other."""
    parts: list[Any] = [len(state.references), state.lock is None]
    add = parts.append
    for frame in state.frames:
        add(frame.call)
        add(frame.callback)
        for value in frame.registers:
            if value is None:
                add(None)
            elif value.kind == SCALAR:
                add(SCALAR)
            else:
                add(_place(value))
    return tuple(parts)


def _place(value: Value) -> tuple[Any, ...]:
    """What can't differ between a pointer and one that it includes."""
    return value.kind, value.of, value.offset, value.nullable, value.kind in _PACKETS and not value.id


def contents(state: State) -> int:
    """A hash of all that a state of some shape consists of; ids count by where they come first."""
    ids: dict[int, int] = {0: 0, SIZE_ID: SIZE_ID}
    parts: list[Any] = []
    add = parts.append
    for frame in state.frames:
        for value in frame.registers:
            if value is not None:
                add(value.scalar)
                add(ids.setdefault(value.id, len(ids)))
                add(value.range)
                add(ids.setdefault(value.reference, len(ids)))
        cells = frame.stack.cells
        for offset in sorted(cells):
            size, value = cells[offset]
            add((offset, size, value.kind, value.scalar, value.offset, value.nullable, value.range))
            add(ids.setdefault(value.id, len(ids)))
            add(ids.setdefault(value.reference, len(ids)))
    return hash(tuple(parts))


def covers(old: State, new: State) -> bool:
    """Whether `old`, of the same shape, includes `new`: every run that `new` stands for, `old` stands for, too."""
    ids: dict[int, int] = {}
    for before, now in zip(old.frames, new.frames, strict=True):
        for a, b in zip(before.registers, now.registers, strict=True):
            if a is None or (a is b and not a.id and not a.reference):
                continue
            if b is None or not _value_covers(a, b, ids):
                return False
        cells = now.stack.cells
        for offset, cell in before.stack.cells.items():
            there = cells.get(offset)
            if there is cell and not cell[1].id and not cell[1].reference:
                continue
            size, a = cell
            found = there[1] if there is not None and there[0] == size else now.stack.load(offset, size)
            if found is None or not _value_covers(a, found, ids):
                return False
    for one, other in zip(old.references, new.references, strict=True):
        if ids.setdefault(one[0], other[0]) != other[0]:
            return False
    if old.lock is None or new.lock is None:
        return old.lock is new.lock
    return old.lock[0] is new.lock[0] and ids.setdefault(old.lock[1], new.lock[1]) == new.lock[1]


def _again(old: State, new: State) -> bool:
    """Whether a state is the same as before, in the same run of its function: a callback's next call is another one."""
    return old.frames[-1].entered is new.frames[-1].entered and covers(old, new) and covers(new, old)


def _value_covers(a: Value, b: Value, ids: dict[int, int]) -> bool:
    """Whether `a` includes `b`. `ids`: which id of the one state stands for which of the other."""
    kind = a.kind
    if kind != b.kind:
        return False
    if a is not b:
        if a.scalar is not b.scalar and not includes(a.scalar, b.scalar):
            return False
        if kind != SCALAR:
            if a.of is not b.of and a.of != b.of:
                return False
            if a.offset != b.offset or a.nullable != b.nullable:
                return False
            if kind in _PACKETS:
                if a.range > b.range or bool(a.id) != bool(b.id):
                    return False
            elif kind in _SIZED and a.range != b.range:
                return False
            if a.reference != b.reference:
                if not a.reference or not b.reference:
                    return False
                if ids.setdefault(a.reference, b.reference) != b.reference:
                    return False
    if a.reference and a.reference == b.reference and ids.setdefault(a.reference, b.reference) != b.reference:
        return False
    if a.id:
        if a.id == SIZE_ID and b.id != SIZE_ID:
            return False
        if ids.setdefault(a.id, b.id) != b.id:
            return False
        return bool(b.id) or kind != SCALAR
    return True


class Visits:
    """The kept states of an analysis, by instruction and shape.

    Args:
        live: live sets before each instruction; `after`: after it.
        matters, controls: see `relevance`.
        width: how many states alike are kept at a point before they are joined; 0: they never are.
        most: how many states are kept at a point.
        total: how many states are kept altogether.
    """

    def __init__(
        self,
        live: Any,
        after: Any,
        matters: Any,
        controls: Any,
        *,
        width: int,
        most: int,
        total: int,
    ) -> None:
        self.live = live
        self.after = after
        self.matters = matters
        self.controls = controls
        self.width = width
        self.most = most
        self.total = total
        self.kept = 0
        self.joined = False
        self._points: dict[int, dict[tuple[Any, ...], _Bucket]] = {}

    def arrive(self, state: State, *, ends: bool) -> bool:
        """Keep a state, unless it need not be followed (then False). What it need not know is taken from it.

        `ends`: whether every cycle through this point ends by itself. Raises UnsafeError for an infinite loop.
        """
        self.trim(state)
        point = self._points.setdefault(state.index, {})
        key = shape(state)
        bucket = point.get(key)
        if bucket is None:
            bucket = point[key] = _Bucket()
        digest = contents(state)
        same = bucket.exact.get(digest)
        if same is not None and same.open and not ends and _again(same.state, state):
            raise UnsafeError(
                "infinite-loop",
                "a loop must come to an end",
                "the program is in the same state here as it was some steps before",
                "change what the loop's condition depends on, or use bpf_loop",
            )
        control = self._control(state)
        if self._known(bucket, state, control):
            return False
        if ends:
            opened = [node for node in bucket.opened if node.open]
            if any(covers(node.state, state) for node in reversed(opened)):
                return False
            if opened:
                bucket.widened += 1
                self._widen(state, opened[-1].state, bucket.widened > _MOST_WIDENED)
            bucket.opened = opened
            digest = contents(state)
            digest, control = contents(state), self._control(state)
        elif self.width and self._join_alike(bucket, state, control):
            control = self._control(state)
            if self._known(bucket, state, control):
                return False
            digest = contents(state)
        self._keep(bucket, state, digest, control, ends)
        return True

    def _known(self, bucket: _Bucket, state: State, control: tuple[Any, ...]) -> bool:
        """Whether a state that was followed to its end includes this one."""
        for key, closed in bucket.closed.items():
            # One whose loops stand elsewhere includes this one only where it does not know where they stand.
            if key != control and None not in key:
                continue
            for at in range(len(closed) - 1, -1, -1):
                if covers(closed[at].state, state):
                    if at < len(closed) - 1:  # what includes one often includes the next
                        closed.append(closed.pop(at))
                    return True
            if len(closed) > self.most:
                gone = len(closed) - self.most
                del closed[:gone]
                self.kept -= gone
        return False

    def _join_alike(self, bucket: _Bucket, state: State, control: tuple[Any, ...]) -> bool:
        """Where many states are kept that what controls loops is equal in: make this one include them."""
        alike = bucket.alike.get(control)
        if alike is None or len(alike) < self.width:
            return False
        self.joined = True
        joins = bucket.joins[control] = bucket.joins.get(control, 0) + 1
        for node in alike:
            self._join(state, node.state, joins)
        return True

    def _keep(self, bucket: _Bucket, state: State, digest: int, control: tuple[Any, ...], ends: bool) -> None:
        node = Node(state.copy(state.index), state.node, bucket, digest, control)
        node.state.node = None
        state.node = node
        self.kept += 1
        if self.kept > self.total:
            raise UnsafeError(
                "limit",
                f"{self.total} states were kept",
                "",
                "make the program simpler, or raise the limit",
                limit=True,
            )
        bucket.exact[digest] = node
        if ends:
            bucket.opened.append(node)
        if self.width:
            alike = bucket.alike.setdefault(control, [])
            if len(alike) >= 2 * self.width:
                del alike[: self.width]
            alike.append(node)

    # What a state need not know

    def trim(self, state: State) -> None:
        """Take from a state what is dead, and the numbers that don't matter."""
        frames = state.frames
        last = len(frames) - 1
        for n, frame in enumerate(frames):
            if n == last:
                live, matters = self.live[state.index], self.matters[state.index]
            else:
                call = frames[n + 1].call
                if frames[n + 1].callback:
                    live, matters = self.live[call] | self.after[call], self.matters[call] | self.matters[call + 1]
                else:
                    live = self.after[call] & ~0xFFF | self.live[call] & ~0x3FFFFF
                    matters = self.matters[call] & ~0x7FF | self.matters[call + 1]
            self._trim_frame(frame, live, matters)
        self._drop_lone_ids(state)

    def _trim_frame(self, frame: "Frame", live: int, matters: int) -> None:
        registers = frame.registers
        for n in range(10):
            value = registers[n]
            if value is None:
                continue
            if not live >> 2 * n & 3:
                registers[n] = None
            elif value.kind == SCALAR and not matters >> n & 1 and value.id != SIZE_ID:
                registers[n] = NUMBER
        cells = frame.stack.cells
        gone = []
        for offset, (size, value) in cells.items():
            if not live >> (22 + 512 + offset) & ((1 << size) - 1) or (
                value.kind == SCALAR
                and (
                    not matters >> 16 + (512 + offset >> 3) & 1
                    or (not value.id and value.scalar == UNKNOWN_BYTES[size].scalar)
                )
            ):
                gone.append(offset)
        if gone:
            frame.stack.drop(gone)

    def _drop_lone_ids(self, state: State) -> None:
        seen: dict[int, int] = {}
        for value in state.values():
            if value.kind == SCALAR and value.id:
                seen[value.id] = seen.get(value.id, 0) + 1
        lone = {id for id, count in seen.items() if count == 1 and id != SIZE_ID}
        if lone:
            state.replace(lambda value: number(value.scalar) if value.kind == SCALAR and value.id in lone else value)

    # Joining

    def _control(self, state: State) -> tuple[Any, ...]:
        """What states have in common that are joined: pointers on the stack, and the known numbers that control loops.

        Numbers that are not known unroll none. Which pointer it is often decides about what follows.
        """
        parts: list[Any] = []
        places: list[Any] = []
        last = len(state.frames) - 1
        for n, frame in enumerate(state.frames):
            if n < last:
                call = state.frames[n + 1].call
                controls = self.controls[call + 1]
            else:
                controls = self.controls[state.index]
            for offset, (_, held) in frame.stack.cells.items():
                if held.kind != SCALAR:
                    places.append((n, offset, held.kind, id(held.of), held.nullable))
            if not controls:
                continue
            for r in range(10):
                if controls >> r & 1:
                    value = frame.registers[r]
                    parts.append(value.scalar.value if value is not None and value.scalar.is_const else None)
            if controls >> 16:
                cells = frame.stack.cells
                for offset in sorted(cells):
                    if controls >> 16 + (512 + offset >> 3) & 1:
                        scalar = cells[offset][1].scalar
                        parts.append((n, offset))
                        parts.append(scalar.value if scalar.is_const else None)
        return (*parts, *sorted(places))

    def _join(self, state: State, other: State, joins: int) -> None:
        """Make a state include what another one does, but for relations between its values.

        `joins`: how often states were joined here, this time included: a number that keeps growing is let go, so that
        what follows is not looked at anew for each step of it.
        """
        for now, before in zip(state.frames, other.frames, strict=True):
            for r in range(10):
                a, b = now.registers[r], before.registers[r]
                if a is not None and b is not None and a is not b:
                    now.registers[r] = _joined(a, b, joins)
            for offset, (size, a) in list(now.stack.cells.items()):
                b = before.stack.load(offset, size)
                if b is None or not _alike(a, b):
                    now.stack.drop([offset])
                elif a is not b:
                    now.stack.put(offset, size, _joined(a, b, joins))

    def _widen(self, state: State, other: State, fully: bool) -> None:
        """Forget every number in which two states differ, and take the fewest packet bytes.

        `fully`: forget pointers at different variable offsets, too.
        """
        for now, before in zip(state.frames, other.frames, strict=True):
            for r in range(10):
                a, b = now.registers[r], before.registers[r]
                if a is not None and b is not None and a is not b:
                    now.registers[r] = _widened(a, b, fully)
            for offset, (size, a) in list(now.stack.cells.items()):
                b = before.stack.load(offset, size)
                if b is None or not _alike(a, b) or (a.kind == SCALAR and a.scalar != b.scalar):
                    now.stack.drop([offset])
                elif a.kind != SCALAR:
                    wider = _widened(a, b, fully)
                    if wider.kind == SCALAR:
                        now.stack.drop([offset])
                    else:
                        now.stack.put(offset, size, wider)


def _alike(a: Value, b: Value) -> bool:
    return a.kind == b.kind and (a.kind == SCALAR or _place(a) == _place(b))


def _joined(a: Value, b: Value, joins: int) -> Value:
    """`a` with what `b` may be, too; of the same kind and place."""
    if a.scalar == b.scalar:
        scalar = a.scalar
    elif joins == 1:
        scalar = join(a.scalar, b.scalar)
    elif a.kind == SCALAR and joins > _MOST_ROUNDED and a.id != SIZE_ID:
        return NUMBER
    else:
        scalar = _rounded(join(a.scalar, b.scalar))
    if a.kind == SCALAR:
        if a.scalar == b.scalar and a.id == b.id:
            return a
        return number(scalar, SIZE_ID if a.id == b.id == SIZE_ID else 0)
    return a.moved(a.offset, scalar, a.id, min(a.range, b.range) if a.kind in _PACKETS else a.range)


def _rounded(scalar: Scalar) -> Scalar:
    """All numbers from 0 to the next power of two, if none is greater."""
    return unsigned_range(0, (1 << scalar.umax.bit_length()) - 1)


def _widened(a: Value, b: Value, fully: bool) -> Value:
    if a.kind == SCALAR:
        if a.id == SIZE_ID:
            return a
        if a.scalar == b.scalar:
            return a if a.id == b.id else number(a.scalar)
        return NUMBER
    if a.scalar != b.scalar and fully:
        return NUMBER
    scalar = join(a.scalar, b.scalar) if a.scalar != b.scalar else a.scalar
    return a.moved(a.offset, scalar, a.id, min(a.range, b.range) if a.kind in _PACKETS else a.range)
