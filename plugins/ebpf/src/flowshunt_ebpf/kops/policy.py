"""Which sites are used: none, all, those that the cost tables say gain, or those that a measurement found to."""

import hashlib
import json
import platform
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs

from flowshunt.errors import InputError
from flowshunt_ebpf.kops.rewrite import Place, Weight
from flowshunt_ebpf.program import Program

FORMAT: Final = 1


class Policy(Enum):
    """How sites are chosen."""

    NONE = "none"
    ALL = "all"
    STATIC = "static"
    PROFILE = "profile"


@attrs.frozen
class Plan:
    """What a measurement decided, for one program on one kind of CPU.

    Attributes:
        program: `program_digest` of the plain program.
        name: the program's name.
        architecture, features, cpu: what it was measured on.
        families: by operation, how many times as fast the program was with that family's sites alone.
        sites: the sites to use.
        ratio: how many times as fast the program was with these.
        noise: how far the program was from itself, as a share.
    """

    program: str
    name: str
    architecture: str
    features: tuple[str, ...]
    cpu: str
    families: Mapping[str, float]
    sites: tuple[Place, ...]
    ratio: float = 1.0
    noise: float = 0.0

    def check(self, program: Program, architecture: str, features: frozenset[str]) -> None:
        """Raise InputError where it is not about this program or not about such a CPU."""
        if self.program != program_digest(program):
            raise InputError(
                f"it is about other instructions than program {program.name} has (it names {self.name})",
                "policy file",
                "profile this program anew",
            )
        if self.architecture != architecture or not set(self.features) <= features:
            raise InputError(
                f"it was measured on {self.architecture} with {' '.join(self.features) or 'no features'}",
                "policy file",
                f"profile anew on this {architecture}",
            )


def weight(policy: Policy, plan: Plan | None = None) -> Weight:
    """What a policy gives for candidates. `plan`: of the policy PROFILE."""
    if policy is Policy.NONE:
        return lambda place, gain: None
    if policy is Policy.ALL:
        return lambda place, gain: gain
    if policy is Policy.STATIC:
        return lambda place, gain: gain if gain > 0 else None
    if plan is None:
        raise InputError("the policy profile needs a measurement", "--policy", "give --profile CAPTURE or a saved plan")
    wanted = frozenset(plan.sites)
    return lambda place, gain: max(gain, 0.0) + 1 if place in wanted else None


def program_digest(program: Program) -> str:
    """A program by its instructions, in hexadecimal."""
    return hashlib.sha256(program.encode()).hexdigest()


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def save_plan(plan: Plan, file: str) -> None:
    """Write a plan as JSON. Raises InputError where the file can't be written."""
    data: dict[str, Any] = {"format": FORMAT, **attrs.asdict(plan)}
    try:
        Path(file).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(str(error.strerror), file, "choose another place") from None


def load_plan(file: str) -> Plan:
    """Read a plan. Raises InputError where the file holds none."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(error.strerror), file, "give a file that --save-policy wrote") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"it is no JSON ({error})", file, "give a file that --save-policy wrote") from None
    try:
        return _plan(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"it is no saved policy ({type(error).__name__}: {error})", file, "give a file that --save-policy wrote"
        ) from None


def _plan(data: Any) -> Plan:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r}, not {FORMAT}")
    return Plan(
        str(data["program"]),
        str(data["name"]),
        str(data["architecture"]),
        tuple(map(str, data["features"])),
        str(data["cpu"]),
        {str(name): float(ratio) for name, ratio in data["families"].items()},
        tuple(Place(str(s["operation"]), int(s["payload"]), int(s["index"])) for s in data["sites"]),
        float(data["ratio"]),
        float(data["noise"]),
    )
