"""Verdicts kept between runs, by all that they depend on.

What is kept is read as data, never executed, and it counts only if its seal is right: a keyed hash whose key lies
beside it in a file that only the user can read. Both lie in the cache's folder, which must be the user's own and closed
to others (`flowshunt.cache`); whoever can read and write there as the user can change flowshunt itself. A kept verdict
that is damaged, cut short, of other versions or put there by somebody without the key is verified anew.
"""

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import attrs

from flowshunt import insn
from flowshunt.cache import cache_folder, is_private
from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.native.image import context_of
from flowshunt_ebpf.native.verdict import digest, issue
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier.facts import Facts
from flowshunt_ebpf.verifier.limits import Limits
from flowshunt_ebpf.verifier.scalar import Scalar
from flowshunt_ebpf.verifier.verdict import VERIFIER, VerifierVerdict
from flowshunt_ebpf.verifier.verify import verify

_FOLDER: Final = "verdicts"
_KEY_BYTES: Final = 32
_MOST_BYTES: Final = 64 << 20


def verify_cached(program: Program, *, context: Context | None = None, limits: Limits | None = None) -> VerifierVerdict:
    """As `verify`, but an acceptance of before is taken up again. Rejections are found anew."""
    context = context or context_of(program)
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


def _key(folder: Path) -> bytes | None:
    """The secret that verdicts are sealed with, made if need be; None where there can't be one."""
    file = folder / "key"
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as held:
            status = os.fstat(held.fileno())
            key = held.read(_KEY_BYTES + 1)
        if is_private(status) and not status.st_mode & 0o077 and len(key) == _KEY_BYTES:
            return key
        file.unlink()
    with suppress(OSError):
        key = secrets.token_bytes(_KEY_BYTES)
        _put(file, key)
        return file.read_bytes() if file.stat().st_size == _KEY_BYTES else None
    return None


def _put(file: Path, data: bytes) -> None:
    """Write a file as a whole, readable by its owner alone."""
    descriptor, path = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as held:
            held.write(data)
        Path(path).replace(file)
    except OSError:
        with suppress(OSError):
            Path(path).unlink()
        raise


def _folder() -> Path | None:
    with suppress(OSError):
        folder = cache_folder() / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder.lstat()) and not folder.is_symlink():
            return folder
    return None


def _seal(key: bytes, name: str, data: bytes) -> bytes:
    return hmac.new(key, name.encode() + b"\0" + data, hashlib.sha256).digest()


def _read(name: str, program: Program, about: bytes) -> VerifierVerdict | None:
    folder = _folder()
    key = _key(folder) if folder is not None else None
    if folder is None or key is None:
        return None
    try:
        with (folder / name).open("rb") as held:
            data = held.read(_MOST_BYTES)
    except OSError:
        return None
    seal, body = data[:32], data[32:]
    if not hmac.compare_digest(seal, _seal(key, name, body)):
        return None
    try:
        facts = _facts(json.loads(body), len(program.instructions))
    except (ValueError, TypeError, KeyError):
        return None
    said = VerifierVerdict(True, about, VERIFIER, writes_packet=facts.writes_packet, facts=facts)
    return issue(said)


def _write(name: str, verdict: VerifierVerdict) -> None:
    folder = _folder()
    key = _key(folder) if folder is not None else None
    if folder is None or key is None or verdict.facts is None:
        return
    body = json.dumps(_packed(verdict.facts), separators=(",", ":")).encode()
    with suppress(OSError):
        _put(folder / name, _seal(key, name, body) + body)


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
