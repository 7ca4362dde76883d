"""Making sites of candidates: round by round, each proved before it is made."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from flowshunt.errors import InputError
from flowshunt.insn.registers import writes
from flowshunt.operation import Disjoint, ExtendedOperation
from flowshunt_ebpf.kops.candidate import Analysis, Candidate, Refused, candidates
from flowshunt_ebpf.kops.encoding import meaning, site_of
from flowshunt_ebpf.kops.overlaps import without_overlaps
from flowshunt_ebpf.kops.proving import Native, Prover, Unproved
from flowshunt_ebpf.kops.splice import splice
from flowshunt_ebpf.program import Program, Site

MAX_ROUNDS = 4
"""Idioms that stand interleaved with others are made sites of in later rounds."""


@attrs.frozen
class Place:
    """A site by what it was made of: the same in every run over the same program.

    Attributes:
        operation: the operation's name.
        payload: the site's.
        index: the instruction of the original program that gave the idiom's result, or that the site was put before.
    """

    operation: str
    payload: int
    index: int


@attrs.frozen
class Finding:
    """What became of a proposal.

    Attributes:
        place: which one.
        span: instructions from the idiom's first to its last, in the round that it was found in.
        admissible: None where the site rules allow it, else why not.
        proved: None where rewrite and native form are proved, else why not; only asked where it was chosen.
        used: whether it is a site of the result.
        gain: cycles saved each time, by the cost tables.
    """

    place: Place
    span: int
    admissible: str | None = None
    proved: str | None = None
    used: bool = False
    gain: float = 0.0


@attrs.frozen(eq=False)
class Rewritten:
    """A program with its sites.

    Attributes:
        program: lowered, with its sites.
        origin: for each of its instructions, the original one whose source line it has.
        findings: one for each proposal.
        places: for each of its sites, which one it is.
        assumed: for sites whose native form is only right where ranges of memory don't overlap, those ranges.
    """

    program: Program
    origin: tuple[int, ...]
    findings: tuple[Finding, ...]
    places: tuple[Place, ...]
    assumed: Mapping[Place, tuple[Disjoint, ...]] = attrs.field(factory=dict)


Weight = Callable[[Place, float], float | None]
"""What a candidate is worth to the policy, by its place and its gain by the tables; None: it is not to be used."""


def rewrite(
    program: Program,
    operations: Sequence[ExtendedOperation],
    prover: Prover,
    weight: Weight,
    *,
    architecture: str,
    features: frozenset[str],
    doubted: Mapping[Place, str] | None = None,
) -> Rewritten:
    """Make sites of a program's idioms.

    Args:
        program: plain eBPF, or a program with sites, which stay.
        operations: those to look for.
        prover: what has to prove each rewrite, and each native form.
        weight: what the policy gives for each candidate.
        architecture, features: the CPU that it is for.
        doubted: sites that are not to be made, and why not.

    Raises InputError for a program whose control flow is not sound.
    """
    return _Rewriting(operations, prover, weight, architecture, features, doubted or {}).run(program)


class _Rewriting:
    def __init__(
        self,
        operations: Sequence[ExtendedOperation],
        prover: Prover,
        weight: Weight,
        architecture: str,
        features: frozenset[str],
        doubted: Mapping[Place, str],
    ) -> None:
        self.doubted = doubted
        self.operations = operations
        self.prover = prover
        self.weight = weight
        self.architecture = architecture
        self.features = features
        self.findings: dict[Place, Finding] = {}
        self.forms: dict[tuple[str, int], Native | Unproved] = {}
        self.assumed: dict[Place, tuple[Disjoint, ...]] = {}

    def run(self, program: Program) -> Rewritten:
        origin = tuple(range(len(program)))
        places: dict[Site, Place] = {site: Place(site.operation, site.payload, site.start) for site in program.sites}
        operations = self.operations
        for _ in range(MAX_ROUNDS):
            analysis = Analysis(program)
            found, refused = candidates(analysis, operations, self.architecture, self.features)
            self._note(found, refused, origin)
            chosen, left_over = self._choose(analysis, found, origin)
            if not chosen:
                break
            program, origin, places = self._make(program, chosen, origin, places)
            operations = [operation for operation in operations if operation.name in left_over]
            if not operations:
                break
        made = tuple(places[site] for site in program.sites)
        return Rewritten(program, origin, tuple(self.findings.values()), made, self.assumed)

    def _note(self, found: Sequence[Candidate], refused: Sequence[Refused], origin: Sequence[int]) -> None:
        for candidate in found:
            place = _place(candidate, origin)
            known = self.findings.get(place)
            if known is None or known.admissible is not None:
                span = candidate.piece.end - candidate.piece.start
                self.findings[place] = Finding(place, span, gain=candidate.gain)
        for one in refused:
            indices = one.match.indices
            anchor = min(max(indices[-1] if indices else one.match.at, 0), len(origin) - 1)
            place = Place(one.operation, one.match.payload, origin[anchor])
            span = indices[-1] - indices[0] + 1 if indices else 0
            self.findings.setdefault(place, Finding(place, span, admissible=one.reason))

    def _choose(
        self, analysis: Analysis, found: Sequence[Candidate], origin: Sequence[int]
    ) -> tuple[list[Candidate], set[str]]:
        """The candidates to make now, all proved; and the operations that may have more once these are made."""
        worth: dict[int, float] = {}
        usable = []
        for candidate in found:
            place = _place(candidate, origin)
            if self.findings[place].used or self.findings[place].proved is not None:
                continue
            value = self.weight(place, candidate.gain)
            if value is not None:
                worth[id(candidate)] = value
                usable.append(candidate)
        proved: set[int] = set()
        while True:
            chosen = without_overlaps(usable, lambda candidate: worth[id(candidate)])
            failed = []
            for candidate in chosen:
                if id(candidate) in proved:
                    continue
                place = _place(candidate, origin)
                if (why := self.doubted.get(place) or self._prove(analysis, candidate)) is None:
                    proved.add(id(candidate))
                else:
                    self.findings[place] = attrs.evolve(self.findings[place], proved=why)
                    failed.append(candidate)
            if not failed:
                return chosen, _interleaved(usable, chosen, worth)
            usable = [candidate for candidate in usable if not any(candidate is one for one in failed)]

    def _prove(self, analysis: Analysis, candidate: Candidate) -> str | None:
        operation, payload = candidate.operation, candidate.match.payload
        key = operation.name, payload
        if key not in self.forms:
            self.forms[key] = self.prover.native(operation, payload, self.architecture, self.features)
        form = self.forms[key]
        if isinstance(form, Unproved):
            return f"native form: {form.reason}"
        piece = candidate.piece
        instructions = analysis.program.instructions
        original = instructions[piece.start : piece.end]
        # What holds where the site starts holds where the run starts, if the registers are the same there.
        written = 0
        for moved in piece.instructions[: candidate.lead]:
            written |= writes(moved)
        same = not any(written >> r.first & 1 or written >> r.second & 1 for r in form.disjoint)
        before = instructions[analysis.straight_start(piece.start) : piece.start]
        lost = {candidate.lead + len(candidate.sequence): meaning(operation, payload).use.clobbers}
        failed = self.prover.rewrite(
            original, piece.instructions, candidate.live_out, lost, before, form.disjoint if same else ()
        )
        return None if failed is None else f"rewrite: {failed.reason}"

    def _make(
        self,
        program: Program,
        chosen: Sequence[Candidate],
        origin: tuple[int, ...],
        places: dict[Site, Place],
    ) -> tuple[Program, tuple[int, ...], dict[Site, Place]]:
        while True:
            try:
                spliced = splice(program, [candidate.piece for candidate in chosen])
                break
            except InputError:  # a jump no longer reaches: the site that saves least goes
                least = min(chosen, key=lambda candidate: candidate.gain)
                chosen = [candidate for candidate in chosen if candidate is not least]
        made = {}
        for site in program.sites:
            made[attrs.evolve(site, start=spliced.place[site.start])] = places[site]
        for candidate, start in zip(chosen, spliced.starts, strict=True):
            place = _place(candidate, origin)
            payload = candidate.match.payload
            site = site_of(candidate.operation, payload, start + candidate.lead, len(candidate.sequence))
            form = self.forms[candidate.operation.name, payload]
            assert isinstance(form, Native)
            made[attrs.evolve(site, forms=(form.form,))] = place
            if form.disjoint:
                self.assumed[place] = form.disjoint
            self.findings[place] = attrs.evolve(self.findings[place], used=True)
        sites = tuple(sorted(made, key=lambda site: site.start))
        return (
            attrs.evolve(spliced.program, sites=sites),
            tuple(origin[index] for index in spliced.origin),
            made,
        )


def _interleaved(usable: Sequence[Candidate], chosen: Sequence[Candidate], worth: Mapping[int, float]) -> set[str]:
    """The operations of candidates that gain and share no instruction with those that are made, only overlap them."""
    made = {id(candidate) for candidate in chosen}
    taken = {index for candidate in chosen for index in candidate.match.indices}
    return {
        candidate.operation.name
        for candidate in usable
        if id(candidate) not in made and worth[id(candidate)] > 0 and taken.isdisjoint(candidate.match.indices)
    }


def _place(candidate: Candidate, origin: Sequence[int]) -> Place:
    return Place(candidate.operation.name, candidate.match.payload, origin[candidate.anchor])
