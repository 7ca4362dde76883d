"""Verdicts kept between runs, by all that they depend on.

A kept verdict counts only if its seal is right (`flowshunt_ebpf.sealed` says what that is worth). One that is damaged,
cut short, of other versions or put there by somebody without the key is verified anew.
"""

import hashlib
import json
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import attrs

from flowshunt import insn
from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.native.image import checked_context
from flowshunt_ebpf.native.verdict import digest, issue
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.sealed import read_sealed, write_sealed
from flowshunt_ebpf.verifier.facts import Facts
from flowshunt_ebpf.verifier.limits import Limits
from flowshunt_ebpf.verifier.scalar import Scalar
from flowshunt_ebpf.verifier.verdict import VERIFIER, VerifierVerdict
from flowshunt_ebpf.verifier.verify import verify

_FOLDER: Final = "verdicts"


def verify_cached(program: Program, *, context: Context | None = None, limits: Limits | None = None) -> VerifierVerdict:
    """As `verify`, but an acceptance of before is taken up again. Rejections are found anew."""
    context = checked_context(program, context)
    limits = limits or Limits()
    about = digest(program, context)
    name = _name(program, context, limits, about)
    kept = _read(name, program, about)
    if kept is not None:
        return kept
    verdict = verify(program, context=context, limits=limits)
    if verdict.accepted:
        _write(name, verdict)
    return verdict


def _name(program: Program, context: Context, limits: Limits, about: bytes) -> str:
    """A hash of all that a verdict depends on, the verifier itself included."""
    parts = (
        _verifier_hash(), about.hex(), context.name, int(program.type), program.attach_type,
        program.license, program.functions, sorted(program.poisoned), limits,
        [attrs.evolve(d, contents=None) for d in program.maps], hashlib.sha256(program.btf).hexdigest(),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _verifier_hash() -> str:
    """A hash of the code that verdicts come from."""
    whole = hashlib.sha256()
    package = Path(__file__).parents[1]
    folders = [package / name for name in ("verifier", "program", "contexts", "elf", "native")]
    for folder in (*folders, Path(insn.__file__).parent):
        for file in sorted(folder.glob("*.py")):
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
    with suppress(PackageNotFoundError):
        whole.update(version("flowshunt-core").encode())
    return whole.hexdigest()


def _read(name: str, program: Program, about: bytes) -> VerifierVerdict | None:
    body = read_sealed(_FOLDER, name)
    if body is None:
        return None
    try:
        facts = _facts(json.loads(body), len(program.instructions))
    except (ValueError, TypeError, KeyError):
        return None
    said = VerifierVerdict(True, about, VERIFIER, writes_packet=facts.writes_packet, facts=facts)
    return issue(said)


def _write(name: str, verdict: VerifierVerdict) -> None:
    if verdict.facts is not None:
        write_sealed(_FOLDER, name, json.dumps(_packed(verdict.facts), separators=(",", ":")).encode())


def _packed(facts: Facts) -> dict[str, Any]:
    """Facts as plain data: bounds by their number in a list of all that occur."""
    numbers: dict[Any, int] = {}
    rows = [
        None if row is None else [-1 if b is None else numbers.setdefault(b, len(numbers)) for b in row]
        for row in facts.bounds
    ]
    regions: dict[Any, int] = {}
    pointers = [
        None if row is None else [-1 if r is None else regions.setdefault(r, len(regions)) for r in row]
        for row in facts.regions
    ]
    plain = attrs.asdict(facts, filter=lambda field, _: field.name not in ("bounds", "regions"))
    return {
        **plain, "context_accesses": sorted(facts.context_accesses), "scalars": list(numbers), "rows": rows,
        "regions": list(regions), "pointers": pointers,
    }  # fmt: skip


def _facts(plain: dict[str, Any], count: int) -> Facts:
    scalars = [Scalar(*map(int, parts)) for parts in plain["scalars"]]
    rows = plain["rows"]
    if len(rows) != count:
        raise ValueError("bounds of another program")
    regions = [(int(kind), int(frame), None if at is None else int(at)) for kind, frame, at in plain["regions"]]
    bounds = tuple(None if row is None else tuple(None if n < 0 else scalars[n] for n in row) for row in rows)
    return Facts(
        bounds,
        tuple(map(int, plain["stack"])),
        int(plain["frames"]),
        bool(plain["writes_packet"]),
        frozenset(map(int, plain["context_accesses"])),
        tuple(None if row is None else tuple(None if n < 0 else regions[n] for n in row) for row in plain["pointers"]),
    )
