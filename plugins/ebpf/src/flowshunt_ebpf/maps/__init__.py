"""Maps and helpers in user space, as native code over raw memory. The same code serves every runner."""

from flowshunt_ebpf.maps.create import create, create_all
from flowshunt_ebpf.maps.map import ANY, EXIST, NO_EXIST, Map

__all__ = ["ANY", "EXIST", "NO_EXIST", "Map", "create", "create_all"]
