"""The native code of operations and helpers, by name ("native_hash:lookup"): made once, kept, and loaded in no time.

Numba compiles it in a process of its own, so that this one needs neither Numba's memory nor its start; what it makes is
kept as an object, by the contents of the sources, the versions and the processor (`kept_object`). Where that does not
work (another architecture, no place to keep it, no process to be had) Numba compiles it here, and keeps it in its own
way.
"""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from flowshunt.cache import cache_folder, is_private
from flowshunt_ebpf.maps.kept_object import kept
from flowshunt_ebpf.maps.object_code import ObjectCode, UnusableObjectError

_HERE: Final = Path(__file__).parent
_SECONDS: Final = 300
_loaded: Final[dict[str, tuple[int, Any]]] = {}


@lru_cache(maxsize=1)
def object_folder() -> Path:
    """Where the objects of these sources, versions and processor are kept."""
    digest = hashlib.sha256(f"{sys.version} {platform.machine()}".encode())
    for name in ("numba", "llvmlite"):
        digest.update(metadata.version(name).encode())
    for source in sorted([*_HERE.glob("native_*.py"), _HERE / "raw.py", _HERE / "header.py"]):
        digest.update(source.read_bytes())
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        digest.update(next((line for line in lines if line.startswith("flags")), "").encode())
    except OSError:
        pass
    return cache_folder() / f"ebpf-{digest.hexdigest()[:16]}"


def object_file(name: str) -> Path:
    """Where the object of a function is kept."""
    return object_folder() / f"{name.replace(':', '.')}.o"


def ensure(names: Iterable[str]) -> None:
    """Make the native code of functions ready: what is not kept yet, or damaged, is compiled in one go."""
    missing = [name for name in dict.fromkeys(names) if name not in _loaded and not _load(name)]
    if missing and platform.machine() in ("x86_64", "AMD64"):
        _compile_apart(missing)
        missing = [name for name in missing if not _load(name)]
    for name in missing:
        _loaded[name] = _from_numba(name)


def address(name: str) -> int:
    """The address of a function's native code."""
    if name not in _loaded:
        ensure([name])
    return _loaded[name][0]


def _compile_apart(names: list[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "FLOWSHUNT_CACHE": str(object_folder().parent),
    }
    command = [sys.executable, "-m", "flowshunt_ebpf.maps.compile_objects", *names]
    try:
        object_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(object_folder().stat()):
            return  # what is kept there would not be loaded
        subprocess.run(command, env=environment, check=False, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return  # the caller finds no object and compiles by itself


def _load(name: str) -> bool:
    """Load a function from its kept object; whether that worked."""
    data = kept(object_file(name))
    if data is None:
        return False
    try:
        code = ObjectCode(data)
    except UnusableObjectError:
        return False
    entries = [place for symbol, place in code.symbols.items() if symbol.startswith("cfunc.")]
    if len(entries) != 1:
        return False
    _loaded[name] = entries[0], code
    return True


def _from_numba(name: str) -> tuple[int, Any]:
    from flowshunt.compiled import c_function

    module, function = name.split(":")
    signature, code = signature_of(), getattr(import_module(f"flowshunt_ebpf.maps.{module}"), function)
    compiled = c_function(signature, code)
    return int(compiled.address), compiled


def signature_of() -> Any:
    """Numba's signature of all of them: five arguments, the machine's state block (0: from Python), one result."""
    from numba import types

    return types.int64(*[types.int64] * 6)
