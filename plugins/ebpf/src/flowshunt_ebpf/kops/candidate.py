"""Sites that could be made of a program: where idioms stand and the site rules allow it, and why not elsewhere."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

import attrs

from flowshunt.errors import FlowshuntWarning, InputError
from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import CALL_K, EXIT_K, Instruction
from flowshunt.insn.registers import reads, writes
from flowshunt.operation import ExtendedOperation, Match
from flowshunt.recognition import View
from flowshunt_ebpf.kops.encoding import Meaning, meaning
from flowshunt_ebpf.kops.motion import arrange
from flowshunt_ebpf.kops.splice import Piece
from flowshunt_ebpf.program import ControlFlow, Liveness, Program, control_flow, liveness

MOST_CONTEXT = 24
"""Instructions before a site that a proof may look at."""

_REGISTER_BITS = (1 << 22) - 1
_PAIRS = [sum(1 << r for r in range(6) if half >> 2 * r & 3) for half in range(1 << 12)]


@attrs.frozen
class Candidate:
    """A site that could be made.

    Attributes:
        operation: the operation.
        match: what its recognizer proposed.
        piece: what takes the place of the run: instructions that stood between, the proof sequence, others.
        lead: instructions of the piece before the proof sequence.
        sequence: the proof sequence.
        live_out: what is live where the run ends, see `flowshunt_ebpf.program.live_set`.
        gain: cycles that it saves each time, by the cost tables of the architecture.
    """

    operation: ExtendedOperation
    match: Match
    piece: Piece
    lead: int
    sequence: tuple[Instruction, ...]
    live_out: int
    gain: float

    @property
    def anchor(self) -> int:
        """The instruction whose source line the site has."""
        return self.match.indices[-1] if self.match.indices else self.match.at


@attrs.frozen
class Refused:
    """A proposal that breaks the site rules."""

    operation: str
    match: Match
    reason: str


class Analysis:
    """What all recognizers share about one program.

    Attributes:
        program: lowered; its sites are left as they are.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def flow(self) -> ControlFlow:
        """Its control flow."""
        return control_flow(self.program)

    @cached_property
    def live(self) -> Liveness:
        """What is live where, on the whole program."""
        return liveness(self.flow)

    @cached_property
    def view(self) -> View:
        """What recognizers are given."""
        return View(self.program.instructions, [_mask(live) for live in self.live.live_out])

    @cached_property
    def bound(self) -> tuple[range, ...]:
        """The runs of the sites that it has."""
        return tuple(range(site.start, site.end) for site in self.program.sites)

    @cached_property
    def taken(self) -> frozenset[int]:
        """The instructions of the sites that it has."""
        return frozenset(index for run in self.bound for index in run)

    @cached_property
    def landed_from(self) -> Mapping[int, list[int]]:
        """For instructions that jumps go to, those jumps."""
        found: dict[int, list[int]] = {}
        for index, target in enumerate(self.view.targets):
            if target >= 0:
                found.setdefault(target, []).append(index)
        return found

    def straight_start(self, index: int) -> int:
        """Where the instructions start that always run straight before one, at most `MOST_CONTEXT` of them."""
        view = self.view
        if index in view.entered or index in self.function_starts:
            return index
        run = view.run_of(index - 1 if index in view.run_starts else index)
        return max(run[0], index - MOST_CONTEXT)

    @cached_property
    def function_starts(self) -> frozenset[int]:
        """Where subprograms start."""
        return frozenset(sub.start for sub in self.program.subprograms)


def candidates(
    analysis: Analysis, operations: Iterable[ExtendedOperation], architecture: str, features: frozenset[str]
) -> tuple[list[Candidate], list[Refused]]:
    """Every site that operations propose for a program, and those that the rules refuse.

    A recognizer that raises is named in a warning and gives nothing.
    """
    found: list[Candidate] = []
    refused: list[Refused] = []
    for operation in operations:
        try:
            matches = operation.recognize(analysis.view)
        except Exception as error:
            text = f"the recognizer of {operation.name} raised {type(error).__name__}: {error}"
            warnings.warn(text, FlowshuntWarning, stacklevel=2)
            continue
        for match in matches:
            if not analysis.taken.isdisjoint(match.indices) or _inside(match.at, analysis.bound):
                continue
            made = _candidate(analysis, operation, match, architecture, features)
            if isinstance(made, Candidate):
                found.append(made)
            else:
                refused.append(Refused(operation.name, match, made))
    return found, refused


def _inside(at: int, runs: Sequence[range]) -> bool:
    return any(run.start < at < run.stop for run in runs)


def _candidate(
    analysis: Analysis, operation: ExtendedOperation, match: Match, architecture: str, features: frozenset[str]
) -> Candidate | str:
    program, view = analysis.program, analysis.view
    indices = match.indices
    count = len(program)
    if indices:
        if indices[0] < 0 or indices[-1] >= count - 1 or any(a >= b for a, b in pairwise(indices)):
            return "its instructions don't lie in the program"
        start, end = indices[0], indices[-1] + 1
    else:
        if not 0 <= match.at < count:
            return "its place does not lie in the program"
        start = end = match.at
    try:
        means = meaning(operation, match.payload)
    except InputError as error:
        return error.what
    if why := _entered_or_left(analysis, indices, start, end):
        return why
    arranged = arrange(view, indices, analysis.bound) if indices else arrange(view, (start,))
    if isinstance(arranged, str):
        return arranged
    live_out = analysis.live.live_in[end]
    if why := _lost(analysis, means, match, arranged.after, live_out):
        return why
    sequence = means.sequence
    old = program.instructions
    anchor = indices[-1] if indices else match.at
    before, after = arranged.before, arranged.after
    piece = Piece(
        start,
        end,
        (*(old[i] for i in before), *sequence, *(old[i] for i in after)),
        (*before, *(-1 for _ in sequence), *after),
        (*before, *(anchor for _ in sequence), *after),
    )
    gain = _gain(operation, match.payload, architecture, features)
    return Candidate(operation, match, piece, len(before), sequence, live_out, gain)


def _entered_or_left(analysis: Analysis, indices: tuple[int, ...], start: int, end: int) -> str | None:
    """Why a run is not entered at its start alone and left at its end alone; None where it is."""
    view = analysis.view
    targets = view.targets
    for index in range(start, end):
        if index > start and (index in view.entered or index in analysis.function_starts):
            if index in analysis.function_starts:
                return f"a function starts inside it, at {index}"
            if any(not start <= by < end for by in analysis.landed_from.get(index, ())):
                return f"a jump from outside lands inside it, at {index}"
        i = analysis.program.instructions[index]
        if targets[index] >= 0 and not index < targets[index] <= end:
            return f"a jump leads out of it, at {index}"
        if i.opcode == EXIT_K:
            return f"the program ends inside it, at {index}"
        if index in indices and (i.opcode == CALL_K or index in analysis.program.externals):
            return f"it takes in a call or an external symbol, at {index}"
    return None


def _lost(analysis: Analysis, means: Meaning, match: Match, after: tuple[int, ...], live_out: int) -> str | None:
    """Why something that is read later would be lost; None where nothing is."""
    instructions = analysis.program.instructions
    live = _mask(live_out)
    for index in reversed(after):
        live = live & ~writes(instructions[index]) | reads(instructions[index])
    use = means.use
    written = 0
    for index in match.indices:
        written |= writes(instructions[index])
    for registers, what in (
        (use.clobbers & live, "a temporary"),
        (written & ~use.writes & live, "no result of the site"),
        (use.writes & ~written & live, "no result of the idiom"),
    ):
        if registers:
            return f"r{(registers & -registers).bit_length() - 1} is {what}, and is read afterwards"
    return None


@lru_cache(maxsize=8192)
def _gain(operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]) -> float:
    return operation.gain(architecture, payload, features, BY_ARCHITECTURE[architecture])


def _mask(live: int) -> int:
    """The registers of a live set of which either half is live, one bit each."""
    halves = live & _REGISTER_BITS
    return _PAIRS[halves & 0xFFF] | _PAIRS[halves >> 12] << 6
