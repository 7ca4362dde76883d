"""Where proofs are kept: in the process, in the file that is shipped, in a file of the user's.

A proof is kept as its digest alone: 32 bytes that name everything that it is about. What is trusted, and why:

- The shipped file is as trustworthy as the code beside it: `shipped.py` names its sha256, and a file that is not that
  one is not used. Both are made by `flowshunt bpf prove --all --rebuild`.
- The user's file lies in the cache folder that compiled code is loaded from (see `flowshunt.cache`): folder and file
  belong to the user or root and nobody else may write to them, or they are not used. Who can write there can run code
  as the user anyway. A digest with a wrong check sum (a torn write, a damaged disk) is left out.
- Digests include one of validation's own sources, so that proofs by other semantics are not found.
"""

import hashlib
import os
import stat
import warnings
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final

from flowshunt.cache import cache_folder, is_private
from flowshunt.errors import FlowshuntWarning
from flowshunt_ebpf.kops.validation import shipped
from flowshunt_ebpf.kops.validation.proof import Refusal

PACKAGE: Final = "flowshunt_ebpf.kops.validation"
SOURCES: Final = (
    "arm64_decode", "arm64_machine", "arm64_memory", "arm64_semantics", "arm64_vectors", "canonical", "decide",
    "ebpf_semantics", "forward", "obligations", "solvers", "term", "terms", "x86_64_bits", "x86_64_decode",
    "x86_64_machine", "x86_64_semantics", "x86_64_vectors",
)  # fmt: skip
"""The modules that a proof rests on."""

DIGEST_BYTES: Final = 32
_CHECK_BYTES: Final = 8
_RECORD_BYTES: Final = DIGEST_BYTES + _CHECK_BYTES
_REFUSALS: Final = 4096
PROCESS, SHIPPED, USER = "process", "shipped", "user"


@lru_cache(maxsize=1)
def version() -> bytes:
    """A digest of the sources that proofs rest on."""
    whole = hashlib.sha256()
    folder = resources.files(PACKAGE)
    for name in SOURCES:
        whole.update(folder.joinpath(f"{name}.py").read_bytes())
    return whole.digest()


def digest(text: bytes) -> bytes:
    """What a proof about a text (see `canonical`) is kept as."""
    return hashlib.sha256(version() + text).digest()


class ProofCache:
    """Digests of proofs.

    Args:
        user_file: the user's file; None: only the process and the shipped file.
        use_shipped: whether to look into the shipped file.
    """

    def __init__(self, user_file: Path | None, *, use_shipped: bool = True) -> None:
        self._file = user_file
        self._known: dict[bytes, str] = dict.fromkeys(_read(user_file), USER) if user_file else {}
        self._shipped = _shipped() if use_shipped else b""
        self._refused: dict[bytes, Refusal] = {}

    def find(self, key: bytes) -> str | None:
        """Where a proof is kept; None: nowhere."""
        where = self._known.get(key)
        if where is None and self._shipped and _contains(self._shipped, key):
            where = self._known[key] = SHIPPED
        return where

    def refusal(self, key: bytes) -> Refusal | None:
        """Why something was not proved in this process; None: it was not asked yet."""
        return self._refused.get(key)

    def put_refusal(self, key: bytes, refusal: Refusal) -> None:
        """Keep a refusal as long as the process lives: a program that is loaded again is not asked about again."""
        if len(self._refused) < _REFUSALS:
            self._refused[key] = refusal

    def put(self, keys: Iterable[bytes], *, source: str = PROCESS) -> None:
        """Keep proofs, in the user's file too where there is one. Disk trouble is not told: it costs time alone."""
        fresh = [key for key in keys if key not in self._known]
        self._known.update(dict.fromkeys(fresh, source))
        if self._file is not None and fresh:
            with suppress(OSError):
                _append(self._file, fresh)


@lru_cache(maxsize=1)
def default_cache() -> ProofCache:
    """The cache that loading programs uses. Its file is named after the semantics, so that old ones are left behind."""
    try:
        return ProofCache(cache_folder() / f"proofs-{version().hex()[:16]}")
    except OSError:
        return ProofCache(None)


def shipped_bytes(digests: Iterable[bytes]) -> bytes:
    """The shipped file's content: the version, then digests in ascending order."""
    return version() + b"".join(sorted(set(digests)))


@lru_cache(maxsize=1)
def _shipped() -> bytes:
    """The shipped digests, checked; empty where they can't be used."""
    if not shipped.SHA256:
        return b""
    content = b""
    with suppress(OSError):
        content = resources.files(PACKAGE).joinpath(shipped.FILE).read_bytes()
    if hashlib.sha256(content).hexdigest() != shipped.SHA256:
        _warn("it is not the one that was released")
        return b""
    if content[:DIGEST_BYTES] != version():
        _warn("it was made with other semantics")
        return b""
    return content[DIGEST_BYTES:]


def _warn(why: str) -> None:
    warnings.warn(
        f"{shipped.FILE}, the file of proofs that is shipped, is not used: {why}; everything is proved anew "
        "(rebuild it with: flowshunt bpf prove --all --rebuild)",
        FlowshuntWarning,
        stacklevel=4,
    )


def _contains(digests: bytes, key: bytes) -> bool:
    count = len(digests) // DIGEST_BYTES
    at = bisect_left(range(count), key, key=lambda n: digests[n * DIGEST_BYTES : (n + 1) * DIGEST_BYTES])
    return digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES] == key


def _check(key: bytes) -> bytes:
    return hashlib.sha256(b"kept" + key).digest()[:_CHECK_BYTES]


def _read(file: Path) -> list[bytes]:
    """The digests of a user's file, as far as it is the user's alone and whole."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            return []
        content = opened.read()
    records = (content[at : at + _RECORD_BYTES] for at in range(0, len(content), _RECORD_BYTES))
    return [r[:DIGEST_BYTES] for r in records if r[DIGEST_BYTES:] == _check(r[:DIGEST_BYTES])]


def _append(file: Path, keys: Iterable[bytes]) -> None:
    """One write, so that processes at the same time don't tear each other's records."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(file, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if is_private(status):
            torn = -status.st_size % _RECORD_BYTES  # a torn record before it would shift all that follow
            os.write(descriptor, bytes(torn) + b"".join(key + _check(key) for key in keys))
    finally:
        os.close(descriptor)
