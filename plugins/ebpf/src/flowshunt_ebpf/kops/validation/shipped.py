"""The proofs that are shipped. Made by `flowshunt bpf prove --all --rebuild`; not to be edited."""

from typing import Final

FILE: Final = "shipped.proofs"
SHA256: Final = ""
COUNTS: Final[dict[str, int]] = {}
"""How many proofs there are of each operation and architecture."""
SOLVERS: Final[tuple[str, ...]] = ()
SECONDS: Final = 0.0
"""How long it took to prove all of them, on the machine that made the file."""
