"""The seam to the assembler: text in, bytes out. Nothing else imports keystone."""

from functools import lru_cache
from typing import Any, Final

from flowshunt.errors import CapabilityError

X86_64: Final = "x86_64"
ARM64: Final = "arm64"
ARCHITECTURES: Final = (X86_64, ARM64)


@lru_cache(maxsize=2)
def _engine(architecture: str) -> Any:
    try:
        import keystone
    except ImportError as error:
        raise CapabilityError(
            f"native code needs the package keystone-engine, which can't be imported here ({error}); "
            "use the interpreter, or run on a machine that has it"
        ) from None
    if architecture == X86_64:
        return keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64)
    return keystone.Ks(keystone.KS_ARCH_ARM64, keystone.KS_MODE_LITTLE_ENDIAN)


def assemble(architecture: str, text: str) -> bytes:
    """The machine code of a text, assembled at address 0 in one call.

    One statement a line; Intel syntax on x86-64. Labels end with a colon; `.long` takes differences of labels. Text
    comes from the JITs alone, so one that doesn't assemble is a mistake there: ValueError, with the first bad line.
    """
    engine = _engine(architecture)
    try:
        code = engine.asm(text, 0, True)[0]
    except Exception as error:
        raise ValueError(f"{architecture} text does not assemble: {_first_bad(engine, text)} ({error})") from None
    return code or b""


def _first_bad(engine: Any, text: str) -> str:
    for line in text.split("\n"):
        try:
            engine.asm(line, 0, True)
        except Exception:
            return line
    return "no line by itself is wrong; a label is missing or twice there"
