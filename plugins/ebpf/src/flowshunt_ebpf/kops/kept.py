"""Rewritten programs kept between runs, by all that they depend on.

What is kept counts only if its seal is right (`flowshunt_ebpf.sealed` says what that is worth), as kept verdicts do:
the proofs behind its sites are those of the run that kept it.
"""

import functools
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import attrs

import flowshunt
from flowshunt.insn import decode
from flowshunt.operation import ExtendedOperation
from flowshunt_ebpf.kops.policy import Plan, Policy
from flowshunt_ebpf.kops.rewrite import Finding, Place, Rewritten
from flowshunt_ebpf.kops.splice import moved_lines
from flowshunt_ebpf.program import NativeForm, Program, Site
from flowshunt_ebpf.sealed import read_sealed, write_sealed

_KIND: Final = "rewrites"
_FORMAT: Final = 1


def kept_name(
    program: Program,
    policy: Policy,
    plan: Plan | None,
    operations: Iterable[ExtendedOperation],
    architecture: str,
    features: frozenset[str],
) -> str:
    """A hash of all that a rewritten program depends on: the program, the choice, the CPU, the code that decides."""
    parts = (
        _FORMAT, _code_hash(), [(o.name, o.id, _operation_hash(o)) for o in operations], policy.value,
        plan.sites if plan is not None else None, architecture, sorted(features), program.encode(),
        int(program.type), program.license, program.functions, sorted(program.externals), sorted(program.poisoned),
        [(attrs.evolve(d, contents=None), hashlib.sha256(d.contents or b"").digest()) for d in program.maps],
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def read_kept(name: str, program: Program) -> Rewritten | None:
    """What was kept by a name, made of this program; None: nothing that counts."""
    body = read_sealed(_KIND, name)
    if body is None:
        return None
    try:
        return _unpacked(json.loads(body), program)
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def keep(name: str, rewritten: Rewritten) -> None:
    """Keep a rewritten program by a name."""
    write_sealed(_KIND, name, json.dumps(_packed(rewritten), separators=(",", ":")).encode())


def _packed(rewritten: Rewritten) -> dict[str, Any]:
    program = rewritten.program
    return {
        "code": program.encode().hex(),
        "origin": rewritten.origin,
        "functions": [f.start for f in program.functions],
        "externals": sorted(program.externals.items()),
        "poisoned": sorted(program.poisoned.items()),
        "sites": [
            [s.start, s.length, s.operation, s.payload, s.changes, [_form(f) for f in s.forms]] for s in program.sites
        ],
        "findings": [[*_place(f.place), f.span, f.admissible, f.proved, f.used, f.gain] for f in rewritten.findings],
        "places": [_place(place) for place in rewritten.places],
    }


def _form(form: NativeForm) -> list[Any]:
    return [form.architecture, sorted(form.features), form.code.hex(), form.token.hex()]


def _place(place: Place) -> list[Any]:
    return [place.operation, place.payload, place.index]


def _unpacked(data: Mapping[str, Any], program: Program) -> Rewritten:
    origin = tuple(data["origin"])
    functions = tuple(
        attrs.evolve(f, start=start) for f, start in zip(program.functions, data["functions"], strict=True)
    )
    sites = tuple(
        Site(start, length, operation, payload, changes, tuple(map(_native, forms)))
        for start, length, operation, payload, changes, forms in data["sites"]
    )
    made = attrs.evolve(
        program,
        instructions=decode(bytes.fromhex(data["code"]), big_endian=program.big_endian),
        functions=functions,
        lines=moved_lines(program, origin, {f.start for f in functions}),
        externals={int(index): name for index, name in data["externals"]},
        poisoned={int(index): why for index, why in data["poisoned"]},
        sites=sites,
    )
    findings = tuple(Finding(Place(*row[:3]), *row[3:]) for row in data["findings"])
    return Rewritten(made, origin, findings, tuple(Place(*row) for row in data["places"]))


def _native(row: Sequence[Any]) -> NativeForm:
    architecture, features, code, token = row
    return NativeForm(architecture, frozenset(features), bytes.fromhex(code), bytes.fromhex(token))


@cache
def _code_hash() -> str:
    """A hash of the code that finds, proves and makes sites."""
    package = Path(__file__).parents[1]
    core = Path(flowshunt.__file__).parent
    folders = [
        *(package / name for name in ("kops", "kops/validation", "program", "verifier", "native")),
        *(core / name for name in (".", "recognition", "insn")),
    ]
    return _files_hash(tuple(folders))


@lru_cache(maxsize=256)
def _operation_hash(operation: ExtendedOperation) -> str:
    """A hash of the packages that an operation's proof, recognizer and native forms come from."""
    parts = [operation.proof, operation.recognizer, *(e.assembly for forms in operation.emits.values() for e in forms)]
    return _files_hash(tuple(sorted({_folder_of(part) for part in parts})))


def _folder_of(part: Any) -> Path:
    """Where a function, or what wraps one, was written."""
    while isinstance(part, functools.partial):
        part = part.func
    code = getattr(inspect.unwrap(part), "__code__", None)
    return Path(code.co_filename if code is not None else inspect.getfile(type(part))).parent


@lru_cache(maxsize=64)
def _files_hash(folders: tuple[Path, ...]) -> str:
    whole = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()
