"""`flowshunt bpf bench`: runners against each other on one program."""

import json
from typing import Any

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.cli.map_contents import read_contents
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
from flowshunt_ebpf.native.measure import EMPTY, Timer, Timing, compare
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program


@click.command(name="bench", short_help="Time a program on several runners.")
@file_argument
@click.option("--packet", help="Hexadecimal bytes, @FILE, or CAPTURE:NUMBER (a frame, from 0).")
@click.option("--set", "fields", multiple=True, help="A context field, such as mark=1. Repeatable.")
@click.option("--maps", "contents", help="A JSON file with the maps' contents.")
@click.option("--runner", "runners", type=click.Choice(RUNNERS), multiple=True,
              help="Repeatable; the first is the ratios' base. By default kernel, where it can, and host.")  # fmt: skip
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
    verifier: str,
    rounds: int,
    seconds: float,
    as_json: bool,
) -> int:
    """Time a program of FILE in interleaved rounds, the empty program's time subtracted, and print ratios.

    Example: flowshunt bpf bench program.o -p xdp --packet capture.pcap:0 --runner interpret --runner host
    """
    subject = read_subject(file, name, context, btf)
    kind = chosen_context(subject.program, context)
    data = read_packet(packet, kind)
    filled = prepared(subject, kind, read_contents(contents) if contents else {}, data)
    filled.machine.set_context(context_fields(fields))
    filled.machine.set_packet(data)
    able = _kernel_can() and kind is not MEMORY
    names = list(runners) or (["kernel", "host"] if able else ["interpret", "host"])
    try:
        verdict = judged(filled, verifier)
    except RejectedError as error:
        click.echo(str(error), err=True)
        return 1
    empty = prepared(Subject(Program.from_bytes(EMPTY, type=kind.program_type), {}), kind, {}, data)
    empty.machine.set_packet(data)
    empty_verdict = judged(empty, verifier)
    loaded = {runner: _loaded(runner, filled, verdict) for runner in names}
    floors = {runner: _loaded(runner, empty, empty_verdict) for runner in names}
    try:
        timings = compare(_timers(loaded, filled, data), _timers(floors, empty, data), rounds=rounds, seconds=seconds)
    finally:
        for one in [*loaded.values(), *floors.values()]:
            one.close()
    sizes = {runner: _native_bytes(one) for runner, one in loaded.items()}
    if as_json:
        rows = [{**attrs.asdict(t), "native_bytes": sizes[t.name]} for t in timings]
        click.echo(
            json.dumps(
                {"program": subject.program.name, "verifier": verdict.verifier, "rounds": rounds, "runners": rows},
                indent=2,
            )
        )
        return 0
    click.echo(f"{subject.program.name}: accepted by {verdict.verifier}")
    click.echo(f"ratios against {names[0]}, median of {rounds} rounds (quartiles)")
    for t in timings:
        click.echo(_line(t, sizes[t.name]))
    return 0


def _kernel_can() -> bool:
    from flowshunt_ebpf.kernel.syscall import missing

    return missing() is None


def _loaded(runner: str, filled: Workbench, verdict: Verdict) -> Any:
    try:
        return load(runner, filled.image, filled.machine, verdict)
    except CapabilityError as error:
        raise InputError(str(error), f"runner {runner}", "leave it out") from None


def _timers(loaded: dict[str, Any], filled: Workbench, data: bytes) -> dict[str, Timer]:
    def timer(one: Any) -> Timer:
        def time(repeat: int) -> float:
            filled.machine.set_packet(data)
            return float(one.time(repeat))

        return time

    return {name: timer(one) for name, one in loaded.items()}


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
