"""The native code of all map operations and helpers, made in one go."""

from flowshunt_ebpf.maps.helpers import CHECK, helper_name
from flowshunt_ebpf.maps.native_code import ensure
from flowshunt_ebpf.maps.operations import EVERY
from flowshunt_ebpf.maps.supported import HELPER_KINDS


def compile_everything() -> None:
    """Compile what is not kept yet: some fifty functions, once for each version of them and each processor."""
    helpers = [name for name in map(helper_name, HELPER_KINDS) if name is not None]
    ensure([*EVERY, *helpers, CHECK])
