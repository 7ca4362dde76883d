"""Column kernels: functions over NumPy columns, compiled to machine code once and cached on disk.

A kernel is declared with its full signature, so that it is compiled (or loaded from the cache) when its module is
imported and never again at a call. Modules that hold kernels are therefore imported where they are used.

The cache lies in `$FLOWSHUNT_CACHE`, or `$XDG_CACHE_HOME/flowshunt`, or `~/.cache/flowshunt`. Numba's own index notices
a change of the file that a kernel stands in; the folder chosen here also changes with the files of the kernels that
it calls and with the constants that it was compiled with, which Numba's index does not see. What is damaged in the
cache is compiled again; a cache that can't be written costs time only.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import caching

from flowshunt.cache import cache_folder

__all__ = ["BYTES", "c_function", "cache_folder", "column", "kernel", "matrix", "piece", "strided"]

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Read-only bytes, such as a mapped capture."""


def column(dtype: Any, *, readonly: bool = False) -> types.Array:
    """The Numba type of a contiguous one-dimensional column of a NumPy dtype, structured ones included."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C", readonly=readonly)


def matrix(dtype: Any, *, readonly: bool = False) -> types.Array:
    """The Numba type of a contiguous two-dimensional array of a NumPy dtype."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 2, "C", readonly=readonly)


def strided(dtype: Any) -> types.Array:
    """The Numba type of a one-dimensional column that may have gaps: one field of a structured array."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 1, "A", readonly=True)


class _CheckedFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """A cache file of Numba's that tells damage by a checksum, and takes it for a kernel that is not there."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # whatever unpickling damaged bytes raises
            return {}

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        digest, data = content[: hashlib.sha256().digest_size], content[hashlib.sha256().digest_size :]
        if hashlib.sha256(data).digest() != digest:
            raise FileNotFoundError(f"{name} is damaged")
        return pickle.loads(data)

    def _save_data(self, name: str, data: Any) -> None:
        dumped = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(dumped).digest() + dumped)

    def save(self, key: Any, data: Any) -> None:
        with suppress(OSError):
            super().save(key, data)


@contextmanager
def _cached(function: Callable[..., Any], sources: frozenset[str]) -> Iterator[None]:
    """Have Numba cache what is compiled in the body where this function belongs."""
    folder, file = numba.config.CACHE_DIR, caching.IndexDataCacheFile
    own = cache_folder() / _digest(function, sources)
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)  # whatever the umask: code is loaded from below it
    numba.config.CACHE_DIR = str(own)
    caching.IndexDataCacheFile = _CheckedFile
    try:
        yield
    finally:
        numba.config.CACHE_DIR, caching.IndexDataCacheFile = folder, file


def _compile(make: Callable[..., Any], function: Callable[..., Any], sources: frozenset[str]) -> Any:
    """make(cache=True)(function), or without the cache where no file can be made in it."""
    with _cached(function, sources):
        try:
            return make(cache=True)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return make(cache=False)(function)


def kernel(
    signature: Any, *, inline: bool = False, entry: bool = True, allocates: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, without the GIL, with C division, from the cache where it is there.

    `inline=True` is for small functions that other kernels call: LLVM is asked to inline them. `entry=False` is for
    functions that only other kernels call: the wrapper to call them from Python, often most of the work, isn't made.
    `allocates=True` is for functions that make arrays; others count no references, which costs more than what is done
    where arrays of a tuple are used in a loop.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        sources = _sources(function)
        make = partial(
            numba.njit,
            signature,
            nogil=True,
            error_model="numpy",
            forceinline=inline,
            boundscheck=bool(numba.config.BOUNDSCHECK),
            no_cpython_wrapper=not entry,
            no_cfunc_wrapper=True,
            _nrt=allocates,
        )
        dispatcher = _compile(make, function, sources)
        dispatcher.kernel_sources = sources
        return dispatcher

    return decorate


def piece(function: Callable[..., Any]) -> Any:
    """A small function for kernels and C functions to call: compiled with each of them, for the types that they use.

    By itself it costs nothing; it is compiled again only where a function that calls it is.
    """
    dispatcher = numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
    dispatcher.kernel_sources = _sources(function)
    return dispatcher


def c_function(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a function for native code to call by the C convention; `.address` is its address. Cached as kernels are.

    It must not raise: there is nobody to catch it.
    """
    sources = _sources(function)
    return _compile(partial(numba.cfunc, signature, error_model="numpy"), function, sources)


def _sources(function: Callable[..., Any]) -> frozenset[str]:
    files = {function.__code__.co_filename}
    for name in function.__code__.co_names:
        files |= getattr(function.__globals__.get(name), "kernel_sources", frozenset())
    return frozenset(files)


def _digest(function: Callable[..., Any], sources: frozenset[str]) -> str:
    digest = hashlib.sha256(f"{numba.__version__} {bool(numba.config.BOUNDSCHECK)}".encode())
    for source in sorted(sources):
        stamp = Path(source).stat()
        digest.update(f"{source} {stamp.st_mtime_ns} {stamp.st_size}\n".encode())
    for name in sorted(set(function.__code__.co_names)):
        value = function.__globals__.get(name)
        if isinstance(value, int | float | np.generic):
            digest.update(f"{name}={value!r}\n".encode())
    return digest.hexdigest()[:16]
