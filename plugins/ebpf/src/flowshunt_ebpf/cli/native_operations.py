"""The options that choose native operations, and what commands make of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from flowshunt.errors import InputError
from flowshunt_ebpf.cli.subject import Subject
from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.kops.optimize import Optimized, Target, optimize
from flowshunt_ebpf.kops.policy import Plan, Policy, load_plan
from flowshunt_ebpf.kops.rewrite import Place
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program

if TYPE_CHECKING:
    from flowshunt_ebpf.kops.profile import Profile

PROFILE_FRAMES: Final = 256
"""Frames of a capture that a program is measured on."""

COUNTED_FRAMES: Final = 32
"""Frames that the interpreter counts instructions on, to find hot sites."""


@attrs.frozen
class Choice:
    """What was asked for.

    Attributes:
        policy: which sites.
        names: which operations; None: all.
        plan: a measurement that was saved.
    """

    policy: Policy
    names: tuple[str, ...] | None = None
    plan: Plan | None = None


def choice(policy: str | None, ops: str | None, plan: str | None, default: Policy) -> Choice:
    """What options ask for. Raises InputError for a file that holds no plan."""
    names = tuple(name.strip() for name in ops.split(",") if name.strip()) if ops is not None else None
    read = load_plan(plan) if plan is not None else None
    chosen = Policy(policy) if policy is not None else Policy.PROFILE if read is not None else default
    if read is not None and chosen is not Policy.PROFILE:
        raise InputError("a saved policy goes with the policy profile alone", "--plan", "leave out --policy")
    return Choice(chosen, names, read)


def operation_options(command: Any) -> Any:
    """The options --policy, --ops and --plan."""
    options = (
        click.option("--policy", type=click.Choice([p.value for p in Policy]),
                     help="Which native operations to use: none, all, those that gain by the cost tables (static), or "
                     "those that a measurement found to gain (profile)."),
        click.option("--ops", metavar="NAME,NAME", help="Only these operations; see flowshunt plugins list."),
        click.option("--plan", metavar="FILE", help="A saved policy, see flowshunt bpf optimize --save-policy."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def with_operations(program: Program, asked: Choice, target: Target | None = None) -> Optimized:
    """A program with the native operations that were asked for. Raises InputError."""
    return optimize(program, policy=asked.policy, plan=asked.plan, names=asked.names, target=target)


def subject_with_operations(subject: Subject, asked: Choice, runner: str) -> Subject:
    """A subject, the programs that it tail-calls included, with the native operations that were asked for.

    `runner`: what it is for: the host's operations for the host, those of any such CPU for an emulated one.
    """
    if asked.policy is Policy.NONE:
        return subject
    architecture = runner.removeprefix("unicorn-")
    target = Target(architecture, frozenset()) if architecture != runner else Target.host()
    program = with_operations(subject.program, asked, target).program
    if asked.plan is not None:  # it is about this program alone
        return Subject(program, subject.others)
    others = {
        name: lambda other=other: with_operations(other(), asked, target).program
        for name, other in subject.others.items()
    }
    return Subject(program, others)


def frames(capture: str, context: Context, most: int = PROFILE_FRAMES) -> list[bytes]:
    """The first frames of a capture. Raises InputError where it has none."""
    from flowshunt.packets.capture import open_captures

    if not Path(capture).is_file():
        raise InputError("there is no such capture", capture, "give a pcap or pcapng file")
    found: list[bytes] = []
    with open_captures([Path(capture)]) as source:
        for batch in source:
            found += [batch.frame(number) for number in range(min(len(batch), most - len(found)))]
            if len(found) == most:
                break
    if not found:
        raise InputError("has no frames", capture, "give a capture with traffic that the program sees")
    return found


def measured(
    program: Program,
    others: Mapping[str, Callable[[], Program]],
    context: Context,
    contents: Mapping[str, Any],
    packets: list[bytes],
    names: tuple[str, ...] | None,
    rounds: int,
) -> "Profile":
    """Measure which sites of a program gain on packets. Raises InputError where the verifier rejects the program."""
    from flowshunt_ebpf.cli.map_contents import fill
    from flowshunt_ebpf.kops.hot import execution_counts
    from flowshunt_ebpf.kops.profile import profile
    from flowshunt_ebpf.kops.trial import Trial

    target = Target.host()

    def build(sites: frozenset[Place] | None) -> Optimized:
        if sites is None:
            return optimize(program, policy=Policy.ALL, names=names, target=target)
        plan = Plan("", "", "", (), "", {}, tuple(sites))
        return optimize(program, policy=Policy.PROFILE, plan=plan, names=names, target=target, checked=False)

    def filled(bench: Workbench) -> None:
        fill(bench.maps, contents, bench.handle)

    trial = Trial(context, packets, others, filled, rounds=rounds)
    counts = execution_counts(trial.workbench(program), packets[:COUNTED_FRAMES])
    return profile(program, build, trial.measure, target, counts)
