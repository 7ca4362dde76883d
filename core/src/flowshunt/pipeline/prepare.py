"""Compiling kernels before a first run: those of the engine in a process of their own, beside those of the rest.

Compiled kernels are cached (`flowshunt.compiled`), so this happens once for an installation. A stamp in the cache says
that it was done for the sources as they are.
"""

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from flowshunt.engine import DetectionEngine, EngineConfig
from flowshunt.nic import NicConfig, NicModel


def _package_of(thing: object) -> str:
    return type(thing).__module__.partition(".")[0]


def _stamp(packages: Sequence[str]) -> Path:
    """The file that says that the kernels of these packages are compiled."""
    from flowshunt.compiled import cache_folder

    digest = hashlib.sha256(sys.version.encode())
    for package in sorted({"flowshunt", *packages}):
        for folder in getattr(import_module(package), "__path__", ()):
            for source in sorted(Path(folder).rglob("*.py")):
                status = source.stat()
                digest.update(f"{source} {status.st_mtime_ns} {status.st_size}\n".encode())
    return cache_folder() / f"compiled-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def compiled_kernels(engine: DetectionEngine, models: Sequence[NicModel]) -> Iterator[bool]:
    """Compile what an engine and NIC models need, where that was not done yet; True inside says that it goes on.

    The engine's kernels compile in another process while the body runs; leaving the body compiles the rest and waits.
    What can't be compiled ahead is compiled where it is used.
    """
    try:
        stamp = _stamp([_package_of(engine), *map(_package_of, models)])
    except OSError:
        yield False
        return
    if stamp.exists():
        yield False
        return
    command = [sys.executable, "-m", "flowshunt.pipeline.prepare", engine.name]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield True
        import_module("flowshunt.pipeline.run")
        for model in models:
            model.open(NicConfig()).close()
        if child.wait() == 0:
            with contextlib.suppress(OSError):
                stamp.touch()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def main() -> None:
    """Open the engine that is named on the command line, which compiles its kernels."""
    from flowshunt.plugins import engine

    engine(sys.argv[1]).open(EngineConfig())


if __name__ == "__main__":
    main()
