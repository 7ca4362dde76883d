"""Verdicts: who found a program safe, and for exactly what. The host runner runs nothing without one.

An acceptance counts only where a verifier issued it: one that is written down by hand covers nothing.
"""

import hashlib
import struct
import weakref
from typing import Final, TypeVar

import attrs

from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.program import MapDefinition, Program


@attrs.frozen
class Verdict:
    """What a verifier said.

    Attributes:
        accepted: whether the program is safe.
        digest: of the bytes, maps and context that it is about, see `digest`.
        verifier: who said so, such as "Linux 6.18".
        reason: why it is not safe, or the verifier's log.
        writes_packet: whether the program may write to the packet; False only where that is known.
    """

    accepted: bool
    digest: bytes
    verifier: str
    reason: str = attrs.field(default="", repr=False)
    writes_packet: bool = True

    def covers(self, image: Image) -> bool:
        """Whether it accepts exactly this program, with these maps and this context, and a verifier issued it."""
        return self.accepted and self.is_issued and self.digest == digest(image.as_loaded(), image.context)

    @property
    def is_issued(self) -> bool:
        """Whether a verifier issued it."""
        return issued(self)


V = TypeVar("V", bound=Verdict)

_ISSUED: Final[dict[int, "weakref.ref[Verdict]"]] = {}


def issue(verdict: V) -> V:
    """Make a verdict count. For verifiers alone: whoever calls it vouches for the program."""
    key = id(verdict)
    _ISSUED[key] = weakref.ref(verdict, lambda _: _ISSUED.pop(key, None))
    return verdict


def issued(verdict: Verdict) -> bool:
    """Whether a verifier issued exactly this verdict."""
    known = _ISSUED.get(id(verdict))
    return known is not None and known() is verdict


def digest(program: Program, context: Context) -> bytes:
    """What a verdict is about: instructions, the maps' types and sizes, constants, and the context."""
    whole = hashlib.sha256(program.encode())
    whole.update(f"{context.name} {len(program.maps)}".encode())
    for definition in program.maps:
        _add_map(whole, definition)
    return whole.digest()


def _add_map(whole: "hashlib._Hash", definition: MapDefinition | None) -> None:
    while definition is not None:
        sizes = (definition.type, definition.key_size, definition.value_size, definition.max_entries, definition.flags)
        whole.update(struct.pack("<5Q", *sizes))
        if definition.is_constant:
            whole.update((definition.contents or b"").ljust(definition.value_size, b"\0"))
        definition = definition.inner
