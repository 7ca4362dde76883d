"""`flowshunt bpf bench`: runners against each other on one program."""

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.cli.map_contents import read_contents
from flowshunt_ebpf.cli.native_operations import choice, subject_with_operations
from flowshunt_ebpf.cli.run_program import context_fields, prepared, read_packet
from flowshunt_ebpf.cli.subject import (
    RUNNERS,
    VERIFIERS,
    RejectedError,
    Subject,
    chosen_context,
    file_argument,
    judged,
    load,
    read_subject,
)
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.native.measure import EMPTY, Timer, Timing, compare
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program

CEILING: Final = "LLVM -O3"
"""The runner that only `bench` has."""


@attrs.frozen(eq=False)
class Contender:
    """Something that is timed: a program as a runner loaded it, and the workbench that it runs on."""

    loaded: Any
    bench: Workbench

    def timer(self, data: bytes) -> Timer:
        """Runs it on a packet."""

        def time(repeat: int) -> float:
            self.bench.machine.set_packet(data)
            return float(self.loaded.time(repeat))

        return time


@click.command(name="bench", short_help="Time a program on several runners.")
@file_argument
@click.option("--packet", help="Hexadecimal bytes, @FILE, or CAPTURE:NUMBER (a frame, from 0).")
@click.option("--set", "fields", multiple=True, help="A context field, such as mark=1. Repeatable.")
@click.option("--maps", "contents", help="A JSON file with the maps' contents.")
@click.option("--runner", "runners", type=click.Choice(RUNNERS), multiple=True,
              help="Repeatable; the first is the ratios' base. By default kernel, where it can, and host.")  # fmt: skip
@click.option("--policy", "policies", type=click.Choice(["all", "static", "profile"]), multiple=True,
              help="Time the host with native operations, too, chosen so. Repeatable.")  # fmt: skip
@click.option("--ops", metavar="NAME,NAME", help="Only these operations; see flowshunt plugins list.")
@click.option("--plan", metavar="FILE", help="What --policy profile uses, see flowshunt bpf optimize --save-policy.")
@click.option("--ceiling", is_flag=True, help="Time the same instructions as LLVM compiles them at -O3, too.")
@click.option("--verifier", type=click.Choice(VERIFIERS), default=VERIFIERS[0], show_default=True,
              help="Who has to find it safe to run on the host.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.001), default=0.05, show_default=True, help="Of one measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    file: str,
    name: str | None,
    btf: str | None,
    context: str | None,
    packet: str | None,
    fields: tuple[str, ...],
    contents: str | None,
    runners: tuple[str, ...],
    policies: tuple[str, ...],
    ops: str | None,
    plan: str | None,
    ceiling: bool,
    verifier: str,
    rounds: int,
    seconds: float,
    as_json: bool,
) -> int:
    """Time a program of FILE in interleaved rounds, the empty program's time subtracted, and print ratios.

    \b
    Examples:
      flowshunt bpf bench program.o -p xdp --packet capture.pcap:0 --runner interpret --runner host
      flowshunt bpf bench program.o -p xdp --runner host --policy static --policy all --ceiling
    """
    subject = read_subject(file, name, context, btf)
    kind = chosen_context(subject.program, context)
    data = read_packet(packet, kind)
    given = read_contents(contents) if contents else {}
    able = _kernel_can() and kind is not MEMORY
    names = list(runners) or (["kernel", "host"] if able else ["interpret", "host"])
    empty = Subject(Program.from_bytes(EMPTY, type=kind.program_type), {})
    verdict: Verdict | None = None

    def contender(runner: str, what: Subject, filled: Mapping[str, Any]) -> Contender:
        nonlocal verdict
        one = prepared(what, kind, filled, data)
        one.machine.set_context(context_fields(fields))
        one.machine.set_packet(data)
        said = judged(one, verifier)
        verdict = verdict or said
        return Contender(_loaded(runner, one, said), one)

    contenders: dict[str, Contender] = {}
    floors: dict[str, Contender] = {}
    try:
        for runner in [*names, *([CEILING] if ceiling else [])]:
            contenders[runner] = contender(runner, subject, given)
            floors[runner] = contender(runner, empty, {})
        for policy in policies:
            asked = choice(policy, ops, plan if policy == Policy.PROFILE.value else None, Policy.NONE)
            contenders[f"host, {policy}"] = contender("host", subject_with_operations(subject, asked, "host"), given)
            floors[f"host, {policy}"] = contender("host", empty, {})
        timings = compare(
            {each: one.timer(data) for each, one in contenders.items()},
            {each: one.timer(data) for each, one in floors.items()},
            rounds=rounds,
            seconds=seconds,
        )
    except RejectedError as error:
        click.echo(str(error), err=True)
        return 1
    finally:
        for one in [*contenders.values(), *floors.values()]:
            one.loaded.close()
    sizes = {each: _native_bytes(one.loaded) for each, one in contenders.items()}
    who = verdict.verifier if verdict is not None else ""
    if as_json:
        rows = [{**attrs.asdict(t), "native_bytes": sizes[t.name]} for t in timings]
        click.echo(
            json.dumps({"program": subject.program.name, "verifier": who, "rounds": rounds, "runners": rows}, indent=2)
        )
        return 0
    click.echo(f"{subject.program.name}: accepted by {who}")
    click.echo(f"ratios against {names[0]}, median of {rounds} rounds (quartiles)")
    for t in timings:
        click.echo(_line(t, sizes[t.name]))
    return 0


def _kernel_can() -> bool:
    from flowshunt_ebpf.kernel.syscall import missing

    return missing() is None


def _loaded(runner: str, filled: Workbench, verdict: Verdict) -> Any:
    try:
        if runner == CEILING:
            from flowshunt_ebpf.native.ceiling import compiled_by_llvm

            return compiled_by_llvm(filled.image, filled.machine, verdict)
        return load(runner, filled.image, filled.machine, verdict)
    except CapabilityError as error:
        raise InputError(str(error), f"runner {runner}", "leave it out") from None


def _native_bytes(loaded: Any) -> int | None:
    if hasattr(loaded, "code"):
        return int(loaded.code.program_bytes)
    return int(loaded.info.native_bytes) if hasattr(loaded, "info") else None


def _line(t: Timing, size: int | None) -> str:
    code = f", {size} bytes of native code" if size else ""
    spread = f"{_ratio(t.low)} to {_ratio(t.high)}"
    return f"  {t.name:15} {t.ns:12.1f} ns (floor {t.floor:.1f})   x{_ratio(t.ratio)} ({spread}){code}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
