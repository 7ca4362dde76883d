"""The proofs that are shipped. Made by `flowshunt bpf prove --all --rebuild`; not to be edited."""

from typing import Final

FILE: Final = "shipped.proofs"
SHA256: Final = "8b73624f81143958024504aeabe5fc02f75e70d7ee753a4f06e693e7ffb05832"
COUNTS: Final[dict[str, int]] = {
    "andnot arm64": 8,
    "andnot x86_64": 8,
    "bextr arm64": 299,
    "bextr x86_64": 600,
    "bswap arm64": 294,
    "bswap x86_64": 567,
    "bswap_store arm64": 292,
    "bswap_store x86_64": 580,
    "bulkcopy arm64": 118,
    "bulkcopy x86_64": 118,
    "bulkfill arm64": 227,
    "bulkfill x86_64": 227,
    "csel arm64": 300,
    "csel x86_64": 300,
    "lea arm64": 295,
    "lea x86_64": 298,
    "loadop x86_64": 292,
    "loadpair arm64": 64,
    "memop x86_64": 300,
    "prefetch arm64": 142,
    "prefetch x86_64": 178,
    "rotate arm64": 185,
    "rotate x86_64": 357,
    "storepair arm64": 152,
}
"""How many proofs there are of each operation and architecture."""
SOLVERS: Final[tuple[str, ...]] = (
    "bitwuzla 0.10.0",
    "z3 5.4.1",
)
SECONDS: Final = 454.6
"""How long it took to prove all of them, on the machine that made the file."""
