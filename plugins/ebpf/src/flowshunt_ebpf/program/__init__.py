"""Programs as data, their control flow, and what is live where. Every other room builds on this one."""

from flowshunt_ebpf.program.map_definition import MapDefinition, MapFlag, MapType, Pinning
from flowshunt_ebpf.program.program import Function, Program, SourceLine, Subprogram
from flowshunt_ebpf.program.program_type import AttachType, ProgramType, SectionKind, section_kind

__all__ = [
    "AttachType",
    "Function",
    "MapDefinition",
    "MapFlag",
    "MapType",
    "Pinning",
    "Program",
    "ProgramType",
    "SectionKind",
    "SourceLine",
    "Subprogram",
    "section_kind",
]
