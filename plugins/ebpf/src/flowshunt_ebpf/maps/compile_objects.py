"""`python -m flowshunt_ebpf.maps.compile_objects NAME...`: compile functions to objects for `native_code`."""

import sys
from importlib import import_module

from flowshunt_ebpf.maps.kept_object import keep
from flowshunt_ebpf.maps.native_code import object_file, signature_of


def main(names: list[str]) -> None:
    """Compile functions named "module:function"; each object appears whole or not at all."""
    import numba

    signature = signature_of()
    for name in names:
        module, function = name.split(":")
        code = getattr(import_module(f"flowshunt_ebpf.maps.{module}"), function)
        library = numba.cfunc(signature, error_model="numpy")(code)._library
        data = library._codegen._tm.emit_object(library._final_module)
        keep(object_file(name), data)


if __name__ == "__main__":
    main(sys.argv[1:])
