"""`flowshunt bpf optimize`: native operations in a program, which, and what they gain."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.asm import disassemble
from flowshunt_ebpf.cli.map_contents import read_contents
from flowshunt_ebpf.cli.native_operations import choice, frames, measured, operation_options, with_operations
from flowshunt_ebpf.cli.run_program import read_packet
from flowshunt_ebpf.cli.subject import chosen_context, file_argument, read_subjects
from flowshunt_ebpf.contexts.layout import BY_TYPE
from flowshunt_ebpf.kops.optimize import Optimized, Target
from flowshunt_ebpf.kops.policy import Policy, save_plan
from flowshunt_ebpf.kops.rewrite import Finding
from flowshunt_ebpf.kops.side_by_side import Row, side_by_side
from flowshunt_ebpf.native.listing import native_bytes
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier import verify_cached

if TYPE_CHECKING:
    from flowshunt_ebpf.kops.profile import Profile


@click.command(name="optimize", short_help="Put native operations into a program, each proved.")
@file_argument
@click.option("--section", help="All programs of an object's section.")
@operation_options
@click.option("--profile", "capture", metavar="CAPTURE", help="Measure on a capture's frames what gains.")
@click.option("--packet", help="Measure on one packet: hexadecimal bytes, @FILE, or CAPTURE:NUMBER.")
@click.option("--maps", "contents", help="A JSON file with the maps' contents to measure with.")
@click.option("--rounds", type=click.IntRange(3), default=9, show_default=True, help="How often each is measured.")
@click.option("--save-policy", "saved", metavar="FILE", help="Write what was measured, for --plan.")
@click.option("--arch", type=click.Choice(["x86_64", "arm64"]), help="The CPU that it is for; else this machine's.")
@click.option("-o", "--output", metavar="FILE", help="Write the program with its sites: text, or bytes (FILE.bin).")
@click.option("--against", type=click.Choice(["kernel"]), help="Ask the running kernel, too, to verify it.")
@click.option("-v", "--verbose", is_flag=True, help="Show the program before and after, side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def optimize_command(
    file: str,
    name: str | None,
    btf: str | None,
    context: str | None,
    section: str | None,
    policy: str | None,
    ops: str | None,
    plan: str | None,
    capture: str | None,
    packet: str | None,
    contents: str | None,
    rounds: int,
    saved: str | None,
    arch: str | None,
    output: str | None,
    against: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Put native operations into the programs of an object, text or bare instructions FILE ("-": standard input).

    Every site is proved before it is used. Ends with status 1 where a verifier rejects a program.

    \b
    Examples:
      flowshunt bpf optimize program.o --policy all -v
      flowshunt bpf optimize program.o -p xdp --profile capture.pcap --save-policy program.json
    """
    measures = capture is not None or packet is not None
    asked = choice(policy, ops, plan, Policy.PROFILE if measures else Policy.STATIC)
    if measures and (asked.plan is not None or asked.policy is not Policy.PROFILE):
        raise InputError("a measurement decides by itself", "--profile", "leave out --plan, and any other --policy")
    target = Target.host() if arch is None else _target(arch)
    if measures and target.architecture != Target.host().architecture:
        raise InputError("measuring is for this machine's processor", "--arch", "leave out --arch or --profile")
    subjects = read_subjects(file, name, section, context, btf)
    if len(subjects) > 1 and (output or saved or plan):
        raise InputError(f"{len(subjects)} programs are chosen", file, "choose one with --program")
    status, rows = 0, []
    for subject in subjects:
        found = None
        if measures:
            kind = chosen_context(subject.program, context)
            packets = frames(capture, kind) if capture is not None else [read_packet(packet, kind)]
            given = read_contents(contents) if contents else {}
            found = measured(subject.program, subject.others, kind, given, packets, asked.names, rounds)
            optimized = found.chosen
            if saved is not None:
                save_plan(found.plan, saved)
        else:
            optimized = with_operations(subject.program, asked, target)
        row = _row(optimized, found, against)
        accepted = [row["verifier"]["after"], row["verifier"]["before"], row.get("kernel", {}).get("after")]
        status = max(status, int(False in accepted))
        if output is not None:
            _write(optimized.encoded, output)
        if verbose:
            row["listing"] = [attrs.asdict(r) for r in side_by_side(optimized)]
        rows.append(row)
        if not as_json:
            _show(row, optimized, verbose=verbose)
    if as_json:
        click.echo(json.dumps({"file": file, "programs": rows}, indent=2))
    return status


def _target(arch: str) -> Target:
    host = Target.host()
    return host if arch == host.architecture else Target(arch, frozenset())


def _row(optimized: Optimized, found: "Profile | None", against: str | None) -> dict[str, Any]:
    """What is told of a program."""
    original, program, target = optimized.original, optimized.program, optimized.target
    findings = optimized.rewritten.findings
    row: dict[str, Any] = {
        "name": original.name,
        "architecture": target.architecture,
        "features": sorted(target.features),
        "instructions": {"before": len(original), "after": len(program)},
        "native_bytes": {which: _size(one, target) for which, one in (("before", original), ("after", program))},
        "sites": [_site(finding, original) for finding in findings],
        "found": len(findings),
        "admissible": sum(f.admissible is None for f in findings),
        "proved": sum(f.used for f in findings),
        "used": sum(f.used for f in findings),
        "verifier": {"before": _accepted(original), "after": _accepted(program)},
    }
    if found is not None:
        row["profile"] = {
            "ratio": found.plan.ratio,
            "noise": found.plan.noise,
            "families": dict(found.plan.families),
            "timings": {name: attrs.asdict(timing) for name, timing in found.timings.items()},
        }
    if against is not None:
        row["kernel"] = {"before": _kernel(original), "after": _kernel(program)}
    return row


def _site(finding: Finding, program: Program) -> dict[str, Any]:
    place = finding.place
    line = program.line_at(place.index)
    return {
        "operation": place.operation,
        "payload": place.payload,
        "index": place.index,
        "span": finding.span,
        "admissible": finding.admissible is None,
        "proved": None if finding.admissible or not (finding.used or finding.proved) else finding.proved is None,
        "used": finding.used,
        "gain": finding.gain,
        "reason": finding.admissible or finding.proved,
        "source": {"file": line.file, "line": line.line, "text": line.text.strip()} if line is not None else None,
    }


def _size(program: Program, target: Target) -> int | None:
    try:
        return native_bytes(program, target.architecture, target.features)
    except (InputError, CapabilityError):  # it needs something that only the kernel has
        return None


def _accepted(program: Program) -> bool | None:
    return verify_cached(program).accepted if BY_TYPE.get(program.type) is not None else None


def _kernel(program: Program) -> bool | None:
    from flowshunt_ebpf.kernel.judge import judge

    try:
        return judge(program).accepted
    except CapabilityError as error:
        raise InputError(str(error), "--against kernel", "leave it out") from None


def _write(program: Program, output: str) -> None:
    try:
        if output.endswith(".bin"):
            Path(output).write_bytes(program.encode())
        else:
            Path(output).write_text(disassemble(program), encoding="utf-8")
    except OSError as error:
        raise InputError(str(error.strerror), output, "choose another place") from None


def _show(row: dict[str, Any], optimized: Optimized, *, verbose: bool) -> None:
    features = f" with {' '.join(row['features'])}" if row["features"] else ""
    click.echo(f"{row['name']}, for {row['architecture']}{features}")
    for site in row["sites"]:
        click.echo(_line(site))
    counts = ", ".join(f"{row[what]} {what}" for what in ("found", "admissible", "used"))
    before, after = row["native_bytes"]["before"], row["native_bytes"]["after"]
    click.echo(f"  sites: {counts}")
    if before and after:
        click.echo(f"  native code: {before} bytes before, {after} after ({100 * (after - before) / before:+.1f} %)")
    for who, key in (("verifier", "verifier"), ("kernel", "kernel")):
        if key in row and row[key]["before"] is not None:
            said = [("accepted" if row[key][when] else "REJECTED") for when in ("before", "after")]
            click.echo(f"  {who}: {said[0]} before, {said[1]} after")
    if "profile" in row:
        _show_profile(row["profile"])
    if verbose:
        for one in side_by_side(optimized):
            click.echo(_listing_line(one))


def _line(site: dict[str, Any]) -> str:
    said = "used" if site["used"] else "not admissible" if not site["admissible"] else "not used"
    if site["proved"] is False:
        said = "NOT PROVED"
    source = site["source"]
    where = f"{Path(source['file']).name}:{source['line']}" if source else ""
    text = f"  {site['index']:5}  {site['operation']:10} {said:14} {site['gain']:5.1f} cycles  {where}"
    return f"{text}  {site['reason']}".rstrip() if site["reason"] else text.rstrip()


def _show_profile(profile: dict[str, Any]) -> None:
    noise = f"noise {100 * profile['noise']:.1f} %"
    click.echo(f"  measured: x{profile['ratio']:.3f} with the sites that are used; {noise}")
    for family, ratio in profile["families"].items():
        click.echo(f"    {family:10} x{ratio:.3f} alone")


def _listing_line(row: Row) -> str:
    left = f"{row.before[0]:5}: {row.before[1]}" if row.before is not None else ""
    right = f"{row.after[0]:5}: {row.after[1]}" if row.after is not None else ""
    mark = f"| {row.site}" if row.site else ""
    return f"  {left:42} {right:42} {mark:12} {row.native}".rstrip()
