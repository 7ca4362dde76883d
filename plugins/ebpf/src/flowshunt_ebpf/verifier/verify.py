"""Verifying a program: from its form to the verdict."""

import time
from typing import Final

import attrs

from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.native.image import checked_context
from flowshunt_ebpf.native.verdict import digest, issue
from flowshunt_ebpf.program import ControlFlow, Program
from flowshunt_ebpf.verifier.analysis import Analysis, StoppedError
from flowshunt_ebpf.verifier.facts import Facts
from flowshunt_ebpf.verifier.functions import result_limit
from flowshunt_ebpf.verifier.limits import FIRST, Attempt, Limits
from flowshunt_ebpf.verifier.rejection import Rejection, UnsafeError
from flowshunt_ebpf.verifier.relevance import relevance
from flowshunt_ebpf.verifier.stack_depth import check_stack
from flowshunt_ebpf.verifier.structure import StructureError, checked_flow
from flowshunt_ebpf.verifier.verdict import VERIFIER, Effort, VerifierVerdict

_ATTEMPTS: Final = (FIRST, Attempt(True, 16), Attempt(True, 128), Attempt(True, 0))
"""How a function is looked at, one after another until it is accepted.

Forgetting numbers and joining states keep the effort near linear. Where they cost the acceptance, the analysis begins
anew with less of them."""


def verify(program: Program, *, context: Context | None = None, limits: Limits | None = None) -> VerifierVerdict:
    """Say whether a program is safe to run natively, whatever its packets and its maps' contents are.

    Args:
        program: the program, with its maps.
        context: what r1 is; None: by the program's type.
        limits: how far to go; None: as far as the kernel.

    Raises InputError where programs of its type don't run here.
    """
    context = checked_context(program, context)
    return _Verification(program, context, limits or Limits()).run()


class _Verification:
    def __init__(self, program: Program, context: Context, limits: Limits) -> None:
        self.program = program
        self.context = context
        self.limits = limits
        self.start = time.thread_time()
        self.instructions = 0
        self.states = 0
        self.attempts = 0

    def run(self) -> VerifierVerdict:
        try:
            flow = checked_flow(self.program, self.limits)
        except StructureError as error:
            return self._rejected(self._rejection(error.why, error.index))
        rejections: dict[int, Rejection] = {}
        checked = result_limit(self.program.type, self.program.attach_type) is not None
        matters = relevance(flow, checked)
        tried: dict[int, int] = {}
        while True:
            analysis = Analysis(
                flow,
                self.context,
                matters,
                self.limits,
                attempts={root: _ATTEMPTS[number] for root, number in tried.items()},
                deadline=self.start + self.limits.seconds,
            )
            self.attempts += 1
            try:
                facts = analysis.run()
            except StoppedError as stopped:
                self._count(analysis)
                known = rejections.get(analysis.root)
                if known is None or not stopped.rejection.limit:
                    rejections[analysis.root] = stopped.rejection
                else:  # what the last look but one found may be no fault of the program
                    ways = (known.way_out, f"a closer look reached a limit: {stopped.rejection.needed}")
                    rejections[analysis.root] = attrs.evolve(known, way_out="; ".join(filter(None, ways)), limit=True)
                number = tried[analysis.root] = tried.get(analysis.root, 0) + 1
                certain = number > 1 and not analysis.visits.joined
                if stopped.rejection.limit or certain or number == len(_ATTEMPTS):
                    return self._rejected(rejections[analysis.root])
                continue
            self._count(analysis)
            return self._accepted(flow, facts)

    def _count(self, analysis: Analysis) -> None:
        self.instructions += analysis.processed
        self.states += analysis.states + analysis.visits.kept

    def _effort(self) -> Effort:
        return Effort(self.instructions, self.states, time.thread_time() - self.start, self.attempts)

    def _rejection(self, why: UnsafeError, index: int) -> Rejection:
        place = self.program.where(index) if index >= 0 else f"program {self.program.name}"
        return Rejection(why.rule, index, place, why.needed, why.known, why.way_out, limit=why.limit)

    def _rejected(self, rejection: Rejection) -> VerifierVerdict:
        return VerifierVerdict(
            False,
            digest(self.program, self.context),
            VERIFIER,
            f"{rejection.place}: {rejection.reason}",
            rejection=rejection,
            effort=self._effort(),
        )

    def _accepted(self, flow: ControlFlow, facts: Facts) -> VerifierVerdict:
        deep = check_stack(flow, facts.stack, self.limits)
        if deep is not None:
            return self._rejected(self._rejection(deep[1], deep[0]))
        return issue(
            VerifierVerdict(
                True,
                digest(self.program, self.context),
                VERIFIER,
                writes_packet=facts.writes_packet,
                facts=facts,
                effort=self._effort(),
            )
        )
