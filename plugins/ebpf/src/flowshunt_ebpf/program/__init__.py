"""Programs as data, their control flow, and what is live where. Every other room builds on this one."""

from flowshunt_ebpf.program.control_flow import Block, ControlFlow, control_flow
from flowshunt_ebpf.program.helper_calls import HELPER_NUMBERS, HELPERS, helper_arguments, helper_name
from flowshunt_ebpf.program.liveness import Liveness, liveness
from flowshunt_ebpf.program.map_definition import MapDefinition, MapFlag, MapType, Pinning
from flowshunt_ebpf.program.program import Function, Program, SourceLine, Subprogram
from flowshunt_ebpf.program.program_type import AttachType, ProgramType, SectionKind, section_kind
from flowshunt_ebpf.program.site import NativeForm, Site, proof_token

__all__ = [
    "HELPERS",
    "HELPER_NUMBERS",
    "AttachType",
    "Block",
    "ControlFlow",
    "Function",
    "Liveness",
    "MapDefinition",
    "MapFlag",
    "MapType",
    "NativeForm",
    "Pinning",
    "Program",
    "ProgramType",
    "SectionKind",
    "Site",
    "SourceLine",
    "Subprogram",
    "control_flow",
    "helper_arguments",
    "helper_name",
    "liveness",
    "proof_token",
    "section_kind",
]
