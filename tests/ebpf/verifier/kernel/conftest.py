"""Each test here that asks for a `case` runs for every program of the corpus."""

import importlib.util
from pathlib import Path

import pytest

from flowshunt_ebpf.kernel import syscall

_spec = importlib.util.spec_from_file_location("verifier_corpus", Path(__file__).with_name("corpus.py"))
corpus = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(corpus)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", corpus.corpus(), ids=lambda case: case.name)


@pytest.fixture(scope="session")
def kernel() -> str:
    """The running kernel's name, where programs may be loaded into it."""
    lacking = syscall.missing()
    if lacking:
        pytest.skip(lacking)
    return syscall.release()


@pytest.fixture(scope="session")
def cases() -> list:
    """All of the corpus."""
    return corpus.corpus()
