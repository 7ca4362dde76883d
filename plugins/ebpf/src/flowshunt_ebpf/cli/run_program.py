"""`flowshunt bpf run`: run a program once, or many times, and show what it did."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from flowshunt.errors import InputError
from flowshunt_ebpf.cli.map_contents import Contents, changes, fill, read_contents, snapshot
from flowshunt_ebpf.cli.native_operations import choice, operation_options, subject_with_operations
from flowshunt_ebpf.cli.source import read_file
from flowshunt_ebpf.cli.subject import (
    RUNNERS,
    VERIFIERS,
    RejectedError,
    Subject,
    chosen_context,
    file_argument,
    judged,
    load,
    parse_hex,
    read_subject,
)
from flowshunt_ebpf.contexts.layout import MEMORY, XDP, Context
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.native.interruptible import interruptible, time_in_parts
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, MAX_PACKET_ROOM, PACKET_ROOM, Machine
from flowshunt_ebpf.native.workbench import Workbench

_MOST_DIGITS: Final = 19
_XDP_ACTIONS: Final = ("XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT")
_TC_ACTIONS: Final = {
    0: "TC_ACT_OK", 1: "TC_ACT_RECLASSIFY", 2: "TC_ACT_SHOT", 3: "TC_ACT_PIPE", 4: "TC_ACT_STOLEN", 5: "TC_ACT_QUEUED",
    6: "TC_ACT_REPEAT", 7: "TC_ACT_REDIRECT", 8: "TC_ACT_TRAP", 0xFFFFFFFF: "TC_ACT_UNSPEC",
}  # fmt: skip


def read_packet(given: str | None, context: Context) -> bytes:
    """A packet from hexadecimal digits, `@file` (its bytes), or `capture:number` (a frame of a capture, from 0)."""
    if given is None:
        return b"" if context is MEMORY else bytes(64)
    if given.startswith("@"):
        return read_file(given[1:], "give a file that holds the packet's bytes")
    capture, colon, number = given.rpartition(":")
    if colon and number.isascii() and number.isdigit() and len(number) < _MOST_DIGITS:
        if not Path(capture).is_file():
            raise InputError("there is no such capture", capture, "give CAPTURE:NUMBER, @FILE or hexadecimal bytes")
        return _frame(capture, int(number))
    return parse_hex(given, "packet")


def _frame(capture: str, number: int) -> bytes:
    from flowshunt.packets.capture import open_captures

    seen = 0
    with open_captures([Path(capture)]) as source:
        for batch in source:
            if number < seen + len(batch):
                return batch.frame(number - seen)
            seen += len(batch)
    raise InputError(f"there is no frame {number}", capture, f"it has {seen}, counted from 0")


def context_fields(given: tuple[str, ...]) -> dict[str, int]:
    """Context fields from `name=number`."""
    fields = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            fields[name] = int(value, 0)
        except ValueError:
            raise InputError(f"{text!r} sets no field", "--set", "such as mark=0x10 or cb[0]=1") from None
        if not equals:
            raise InputError(f"{text!r} sets no field", "--set", "such as mark=0x10")
    return fields


def prepared(subject: Subject, context: Context, contents: Mapping[str, Any], packet: bytes) -> Workbench:
    """A program with its maps filled: what `run` and `bench` start from."""
    room = max(PACKET_ROOM, min(len(packet), MAX_PACKET_ROOM))
    bench = Workbench(subject.program, subject.others, context=context, packet_room=room)
    fill(bench.maps, contents, bench.handle)
    return bench


def _value_text(value: int, context: Context) -> str:
    if context is XDP and value < len(_XDP_ACTIONS):
        return f"{value} ({_XDP_ACTIONS[value]})"
    if context.name == "tc" and value & 0xFFFFFFFF in _TC_ACTIONS:
        return f"{value} ({_TC_ACTIONS[value & 0xFFFFFFFF]})"
    return f"{value} ({value:#x})"


@click.command(name="run", short_help="Run a program on a packet or on bare memory.")
@file_argument
@click.option(
    "--packet", help="Hexadecimal bytes, @FILE, or CAPTURE:NUMBER (a frame, from 0). Bare memory: its contents."
)
@click.option("--meta", help="Hexadecimal bytes of metadata in front of the packet.")
@click.option(
    "--set", "fields", multiple=True, help="A context field, such as mark=1 or ingress_ifindex=3. Repeatable."
)
@click.option("--maps", "contents", help="A JSON file with the maps' contents.")
@click.option("--runner", type=click.Choice(RUNNERS), default="host", show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=1, help="Run it that often and tell the time per run.")
@click.option(
    "--budget", type=click.IntRange(1), default=DEFAULT_BUDGET, show_default=True, help="Where to stop a run."
)
@click.option("--verifier", type=click.Choice(VERIFIERS), default=VERIFIERS[0], show_default=True,
              help="Who has to find it safe to run on the host.")  # fmt: skip
@operation_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    file: str,
    name: str | None,
    btf: str | None,
    context: str | None,
    packet: str | None,
    meta: str | None,
    fields: tuple[str, ...],
    contents: str | None,
    runner: str,
    repeat: int,
    budget: int,
    verifier: str,
    policy: str | None,
    ops: str | None,
    plan: str | None,
    as_json: bool,
) -> int:
    """Run a program of an object or text FILE ("-": standard input) and print what it returned and changed.

    Example: flowshunt bpf run program.o -p xdp --packet capture.pcap:0 --repeat 1000
    """
    asked = choice(policy, ops, plan, Policy.NONE)
    subject = subject_with_operations(read_subject(file, name, context, btf), asked, runner)
    kind = chosen_context(subject.program, context)
    data = read_packet(packet, kind)
    bench = prepared(subject, kind, read_contents(contents) if contents else {}, data)
    machine = bench.machine
    machine.set_packet(data, parse_hex(meta, "--meta") if meta else b"")
    machine.set_context(context_fields(fields))
    try:
        verdict = judged(bench, verifier) if runner == "host" or asked.policy is not Policy.NONE else None
    except RejectedError as error:
        click.echo(str(error), err=True)
        return 1
    loaded = load(runner, bench.image, machine, verdict, budget=True)
    before = snapshot(bench.maps)
    try:
        outcome = _ended_by_interrupts(runner, machine, lambda: loaded.run(budget=budget))
        result = _result(outcome, bench, before, data)
        if repeat > 1 and outcome.fault is None:
            machine.set_packet(data, parse_hex(meta, "--meta") if meta else b"")
            result["repeat"] = repeat

            def timer(count: int) -> float:
                return float(_ended_by_interrupts(runner, machine, lambda: loaded.time(count, budget=budget)))

            spent = time_in_parts(timer, repeat)
            result["ns_per_run"] = round(spent, 3)
    finally:
        loaded.close()
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _show(result, kind)
    return 1 if outcome.fault is not None else 0


def _ended_by_interrupts(runner: str, machine: Machine, work: Callable[[], Any]) -> Any:
    """The result of a run; native code needs a thread for that, the others notice interrupts by themselves."""
    return work() if runner in ("interpret", "kernel") else interruptible(machine, work)


def _result(outcome: Any, bench: Workbench, before: dict[str, Contents], data: bytes) -> dict[str, Any]:
    machine = bench.machine
    result: dict[str, Any] = {"value": outcome.value, "fault": None}
    if outcome.fault is not None:
        result["fault"] = outcome.fault.describe(bench.image.program)
    after = machine.packet()
    result["packet"] = after.hex()
    result["packet_changed"] = after != data
    if machine.meta():
        result["meta"] = machine.meta().hex()
    result["maps"] = changes(before, snapshot(bench.maps))
    records = {m.name: [r.hex() for r in m.drain()] for m in bench.maps.values() if isinstance(m, RingMap)}
    result["records"] = {name: taken for name, taken in records.items() if taken}
    result["trace"] = machine.trace()
    result["detail"] = outcome.detail
    return result


def _show(result: dict[str, Any], context: Context) -> None:
    if result["fault"]:
        click.echo(result["fault"])
    else:
        click.echo(f"returned {_value_text(result['value'], context)}")
    if result["detail"]:
        click.echo(result["detail"])
    if "ns_per_run" in result:
        click.echo(f"{result['ns_per_run']:.1f} ns per run ({result['repeat']} runs)")
    for line in result["trace"]:
        click.echo(f"trace: {line}")
    if result["packet_changed"]:
        click.echo(f"packet: {result['packet']}")
    if result.get("meta"):
        click.echo(f"meta: {result['meta']}")
    for name, entries in result["maps"].items():
        click.echo(f"map {name}:")
        if isinstance(entries, list):
            click.echo(f"  {', '.join(entries) or 'empty'}")
            continue
        for key, value in entries.items():
            click.echo(f"  {key}: {value if value is not None else 'deleted'}")
    for name, taken in result["records"].items():
        for record in taken:
            click.echo(f"record of {name}: {record}")
