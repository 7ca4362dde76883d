"""The verifier's domain of numbers, loaded once more from its own source with registers of another width.

At 2, 4 or 8 bits all values, and all or most abstract values, can be tried. What is tried is the code that runs at 64:
the width is one number in one module (`verifier/scalar_width.py`), and the copies differ from the originals in nothing
else.
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs

import flowshunt_ebpf

PACKAGE: Final = "flowshunt_ebpf.verifier"
MODULES: Final = (
    "scalar_width",
    "tnum",
    "scalar_concrete",
    "scalar_settle",
    "scalar_value",
    "scalar_division",
    "scalar_arithmetic",
    "scalar_refine",
    "scalar",
)
"""The modules of the domain, each after those that it imports."""


@attrs.frozen
class Domain:
    """A copy of the domain's modules."""

    width: int
    modules: Mapping[str, ModuleType]

    def __getattr__(self, name: str) -> ModuleType:
        try:
            return self.modules[name]
        except KeyError:
            raise AttributeError(name) from None


def load_domain(width: int, changes: Mapping[str, tuple[str, str]] | None = None) -> Domain:
    """Load the domain for registers of `width` bits, a power of two from 2 to 64.

    `changes`: for tests that must notice them: in which module to put which text in place of which, that must be there
    exactly once.
    """
    folder = Path(flowshunt_ebpf.__file__).parent / "verifier"
    kept = {name: module for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.")}
    package = importlib.import_module(PACKAGE)
    attributes = {name: getattr(package, name) for name in MODULES if hasattr(package, name)}
    loaded: dict[str, ModuleType] = {}
    try:
        for name in MODULES:
            source = (folder / f"{name}.py").read_text()
            if name == "scalar_width":
                source = _replace(source, "WIDTH: Final = 64", f"WIDTH: Final = {width}")
            if changes and name in changes:
                source = _replace(source, *changes[name])
            full = f"{PACKAGE}.{name}"
            module = ModuleType(full)
            module.__file__ = str(folder / f"{name}.py")
            sys.modules[full] = module
            setattr(package, name, module)
            exec(compile(source, f"{folder / name}.py at {width} bits", "exec"), module.__dict__)
            loaded[name] = module
    finally:
        for name in MODULES:
            sys.modules.pop(f"{PACKAGE}.{name}", None)
            if hasattr(package, name):
                delattr(package, name)
        sys.modules.update(kept)
        for name, value in attributes.items():
            setattr(package, name, value)
    return Domain(width, loaded)


def _replace(source: str, old: str, new: str) -> str:
    if source.count(old) != 1:
        raise ValueError(f"{source.count(old)} times in the source, not once: {old}")
    return source.replace(old, new)
