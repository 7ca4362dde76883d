"""Where paths meet: states that were looked at before are kept, so that none is followed that one of them has in it.

A state is kept at each point where paths meet (and after calls), without what is dead there and without the numbers
that don't matter (see `relevance`). It is followed in just that form, so nothing depends on these analyses being right.

A state that one kept before includes is not followed again, if all that followed from the other was looked at already,
or if the cycle between them ends by itself when the program runs: the next call of a callback by the same helper call,
the next pass of a may_goto in the same call of its function. The same state again on one path, outside of such a cycle,
is an infinite loop.
"""

from typing import TYPE_CHECKING, Any, Final

from flowshunt_ebpf.verifier.inclusion import again, contents, covers, shape
from flowshunt_ebpf.verifier.joining import join_states, widen_state
from flowshunt_ebpf.verifier.points import Point
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.state import State
from flowshunt_ebpf.verifier.values import (
    NUMBER,
    SCALAR,
    SIZE_ID,
    UNKNOWN_BYTES,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.state import Frame

_MANY: Final = 128
"""States of one shape at one point, still being followed, from which on only some are kept: a loop's turns."""
_KEPT_TURNS: Final = 16
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
        point: the `Point` that it is at.
    """

    __slots__ = ("bucket", "control", "digest", "open", "parent", "point", "state")

    def __init__(
        self, state: State, parent: "Node | None", bucket: "_Bucket", digest: int, control: tuple[Any, ...], point: int
    ) -> None:
        self.state = state
        self.parent = parent
        self.open = 1
        self.bucket = bucket
        self.digest = digest
        self.control = control
        self.point = point

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
        turns: how often states came while many were followed.
        widened: how often a state was widened here.
    """

    __slots__ = ("alike", "closed", "exact", "joins", "turns", "widened")

    def __init__(self) -> None:
        self.closed: dict[tuple[Any, ...], list[Node]] = {}
        self.exact: dict[int, Node] = {}
        self.alike: dict[Any, list[Node]] = {}
        self.joins: dict[Any, int] = {}
        self.turns = 0
        self.widened = 0


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

    def arrive(self, state: State, point: int) -> bool:
        """Keep a state, unless it need not be followed (then False). What it need not know is taken from it.

        `point`: the `Point` that it is at. Raises UnsafeError for an infinite loop.
        """
        self.trim(state)
        ends = point in (Point.LIMITED, Point.RETURNED)
        here = self._points.setdefault(state.index, {})
        key = shape(state)
        bucket = here.get(key)
        if bucket is None:
            bucket = here[key] = _Bucket()
        digest = contents(state)
        same = bucket.exact.get(digest)
        if same is not None and same.open and not ends and again(same.state, state):
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
            opened = self._of_same_run(bucket, state, point)
            if any(covers(node.state, state) for node in opened):
                return False
            if opened:
                bucket.widened += 1
                widen_state(state, opened[0].state, bucket.widened > _MOST_WIDENED)
            digest, control = contents(state), self._control(state)
        elif self.width and self._join_alike(bucket, state, control):
            control = self._control(state)
            if self._known(bucket, state, control):
                return False
            digest = contents(state)
        if not ends and len(bucket.exact) >= _MANY:  # a loop that is followed turn by turn
            bucket.turns += 1
            if bucket.turns % _KEPT_TURNS:
                return True
        self._keep(bucket, state, digest, control, point)
        return True

    def _of_same_run(self, bucket: _Bucket, state: State, point: int) -> list[Node]:
        """The kept states of this shape that lead here in the same run of a function or of a helper that calls back.

        The latest first. Those of a run before don't count: that one came to an end does not say that another does.
        """
        found = []
        entered = state.frames[-1].entered
        node: Node | None = state.node
        while node is not None:
            if node.point in (Point.LIMITED, Point.CALLBACK, Point.RETURNED):
                frames = node.state.frames
                if node.state.index == state.index and len(frames) == len(state.frames):
                    if frames[-1].entered is not entered:
                        break
                    if node.bucket is bucket:
                        found.append(node)
                    if node.point == Point.CALLBACK:
                        break  # where the helper was called
            node = node.parent
        return found

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
            join_states(state, node.state, joins)
        return True

    def _keep(self, bucket: _Bucket, state: State, digest: int, control: tuple[Any, ...], point: int) -> None:
        node = Node(state.copy(state.index), state.node, bucket, digest, control, point)
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
