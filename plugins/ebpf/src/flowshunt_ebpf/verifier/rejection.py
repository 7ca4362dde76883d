"""Why a program is not accepted: the instruction, how it was reached, what was needed and what was known."""

import attrs

from flowshunt_ebpf.program import Program


class UnsafeError(Exception):
    """A rule does not hold.

    Attributes:
        rule: its name, such as "packet-bounds"; see docs/verifier.md.
        needed: what must hold.
        known: what is known instead; may be empty.
        way_out: what to do.
        limit: whether it is a limit of the analysis that was reached, so that nothing is known of the program.
    """

    def __init__(self, rule: str, needed: str, known: str = "", way_out: str = "", *, limit: bool = False) -> None:
        self.rule = rule
        self.needed = needed
        self.known = known
        self.way_out = way_out
        self.limit = limit
        super().__init__(needed)


@attrs.frozen
class Step:
    """A branch on the way: the conditional jump's index, and whether it was taken."""

    index: int
    taken: bool


@attrs.frozen
class Rejection:
    """Why a program is not safe, or not known to be.

    Attributes:
        rule: the name of the rule that does not hold.
        index: the instruction; -1: the program as a whole.
        place: the program, instruction and source line, for people.
        needed: what must hold.
        known: what is known instead; may be empty.
        way_out: what to do.
        path: the last branches on the way, in their order.
        calls: the local calls that it is inside of, outermost first.
        limit: whether a limit was reached, so that the program may be safe.
    """

    rule: str
    index: int
    place: str
    needed: str
    known: str = ""
    way_out: str = ""
    path: tuple[Step, ...] = ()
    calls: tuple[int, ...] = ()
    limit: bool = False

    @property
    def reason(self) -> str:
        """What, in one sentence without the place."""
        return "; ".join(part for part in (self.known, self.needed, self.way_out) if part)

    def describe(self, program: Program) -> str:
        """Some lines for the user: place, known, needed, way out, and the way there."""
        lines = [f"{self.place}: {self.reason}"]
        if self.calls:
            lines.append("in calls at instructions " + ", ".join(map(str, self.calls)))
        if self.path:
            lines.append("reached by:")
        for step in self.path:
            line = program.line_at(step.index)
            text = f" ({line.file}:{line.line}: {line.text.strip()})" if line is not None else ""
            lines.append(f"  instruction {step.index}, {'taken' if step.taken else 'not taken'}{text}")
        return "\n".join(lines)
