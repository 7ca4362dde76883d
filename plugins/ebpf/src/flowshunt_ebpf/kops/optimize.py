"""From a program to the same program with native operations, by a policy."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs

from flowshunt.operation import ExtendedOperation
from flowshunt_ebpf.kops.apart import REASON, attach_forms, overlapping
from flowshunt_ebpf.kops.encoding import is_encoded, lower, restore
from flowshunt_ebpf.kops.kept import keep, kept_name, read_kept
from flowshunt_ebpf.kops.policy import Plan, Policy, weight
from flowshunt_ebpf.kops.proving import Prover, Validation
from flowshunt_ebpf.kops.registry import by_id, choose, installed_operations
from flowshunt_ebpf.kops.rewrite import Place, Rewritten, Weight, rewrite
from flowshunt_ebpf.native.host import architecture as host_architecture
from flowshunt_ebpf.native.host import features as host_features
from flowshunt_ebpf.program import Program


@attrs.frozen
class Target:
    """The CPU that native forms are for."""

    architecture: str
    features: frozenset[str]

    @classmethod
    def host(cls) -> "Target":
        """This machine. Raises CapabilityError where there is no code generator for it."""
        return cls(host_architecture(), host_features())


@attrs.frozen(eq=False, slots=False)
class Optimized:
    """A program with native operations.

    Attributes:
        original: the plain program.
        rewritten: the lowered program with its sites, and what became of each proposal.
        operations: those that were looked for, by name.
        target: the CPU that it is for.
    """

    original: Program
    rewritten: Rewritten
    operations: Mapping[str, ExtendedOperation]
    target: Target

    @property
    def program(self) -> Program:
        """The lowered program: plain eBPF on every runner, native operations where the host's code has them."""
        return self.rewritten.program

    @cached_property
    def encoded(self) -> Program:
        """The program with each site in its two slots."""
        return restore(self.program, self.operations)


def optimize(
    program: Program,
    *,
    policy: Policy = Policy.STATIC,
    plan: Plan | None = None,
    names: Iterable[str] | None = None,
    operations: Mapping[str, ExtendedOperation] | None = None,
    target: Target | None = None,
    prover: Prover | None = None,
    checked: bool = True,
) -> Optimized:
    """Make sites of a program's idioms, by a policy, each proved. What was made before is kept and taken up again.

    Args:
        program: plain eBPF.
        policy: which sites to use; PROFILE needs a `plan`.
        names: the operations to use; None: all.
        operations: where they are looked up; None: those installed.
        target: the CPU; None: this machine's.
        prover: what has to prove each site; None: validation with both solvers, or its cache.
        checked: whether the plan must be about this program and CPU.

    Raises InputError for an operation that is not installed, a plan about something else, or control flow that is not
    sound.
    """
    found = choose(operations if operations is not None else installed_operations(), names)
    target = target or Target.host()
    if plan is not None and checked:
        plan.check(program, target.architecture, target.features)
    chosen = weight(policy, plan)
    if prover is not None or operations is not None:
        return Optimized(program, _rewritten(program, found, prover or Validation(), chosen, target), found, target)
    name = kept_name(program, policy, plan, found.values(), target.architecture, target.features)
    rewritten = read_kept(name, program)
    if rewritten is None:
        rewritten = _rewritten(program, found, Validation(), chosen, target)
        if all(f.proved is None or f.proved == REASON or "counterexample" in f.proved for f in rewritten.findings):
            keep(name, rewritten)  # what a solver had no time for may be proved the next time
    return Optimized(program, rewritten, found, target)


def _rewritten(
    program: Program, operations: Mapping[str, ExtendedOperation], prover: Prover, chosen: Weight, target: Target
) -> Rewritten:
    doubted: dict[Place, str] = {}
    while True:
        rewritten = rewrite(
            program,
            list(operations.values()),
            prover,
            chosen,
            architecture=target.architecture,
            features=target.features,
            doubted=doubted,
        )
        failing = _overlapping(rewritten)
        if not failing:
            return rewritten
        doubted.update(dict.fromkeys(failing, REASON))


def _overlapping(rewritten: Rewritten) -> list[Place]:
    """The sites that take ranges of memory not to overlap of which the verifier does not know that."""
    if not rewritten.assumed:
        return []
    sites = dict(zip(rewritten.program.sites, rewritten.places, strict=True))
    assumed = [(site, rewritten.assumed[place]) for site, place in sites.items() if place in rewritten.assumed]
    return [sites[site] for site in overlapping(rewritten.program, assumed)]


def lowered(program: Program, *, target: Target | None = None, prover: Prover | None = None) -> Program:
    """A program that may hold sites in their two-slot form, ready to verify and run: lowered, with proved native forms.

    A program without any is given back as it is. `target` None: this machine, or no native forms where there is no code
    generator for it. Raises InputError for a site that can't be lowered.
    """
    if not is_encoded(program):
        return program
    operations = installed_operations()
    plain = lower(program, by_id(operations.values()))
    target = target or Target.host()
    return attach_forms(plain, operations, prover or Validation(), target.architecture, target.features)
